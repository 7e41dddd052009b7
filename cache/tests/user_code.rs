//! Destructors of values that call back, panic, or do not return.
#![cfg(not(any(loom, shuttle)))]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests run on the standard library only, and their helpers unwrap as they do"
)]

mod common;
#[path = "common/loaded.rs"]
mod loaded;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use common::{EVER, assert_drains, at, evicted, outcome, removed, threads, until};
use folio_cache::EvictError;
use folio_sync::{Arc, Mutex};
use loaded::{Act, Fault, Loaded, Stage};

/// Ways to take the whole of ledger 1 out; each says how many entries went.
const REMOVALS: [fn(&Stage) -> u64; 5] = [
    |stage| stage.cache.remove_range((1, i64::MIN)..=(1, i64::MAX)).entries,
    |stage| stage.cache.remove_ledger(1).entries,
    |stage| stage.cache.clear().entries,
    |stage| stage.queue.evict_before(at(2), at(2)).unwrap().entries,
    |stage| stage.queue.evict_weight(u64::MAX, at(2)).unwrap().entries,
];

/// 4.2, I11: a destructor finds the cache whole: its own place is free, and it may call everything.
#[test]
fn a_destructor_may_call_everything() {
    for remove in REMOVALS {
        let stage = Stage::new();
        let ran = Arc::new(AtomicU64::new(0));
        for entry in 0..3 {
            let (cache, queue, alive) = (stage.cache.clone(), stage.queue.clone(), Arc::clone(&stage.alive));
            let ran = Arc::clone(&ran);
            stage.put_acting((1, entry), move || {
                assert!(!cache.contains((1, entry)) && cache.get((1, entry)).is_none());
                assert_eq!(
                    cache.range((1, 0)..(2, 0)).len(),
                    0,
                    "all three have gone before the first is dropped"
                );
                alive.fetch_add(1, Ordering::Relaxed);
                let again = Loaded { fault: None, act: Mutex::new(None), alive: Arc::clone(&alive) };
                assert_eq!(outcome(cache.insert((1, entry), again, 0, at(9))), None, "its place is free");
                assert_eq!(removed(cache.remove_range((1, entry)..=(1, entry))), (1, 10));
                assert_eq!((cache.mark_read((1, entry)), cache.expected_reads((1, entry))), (false, None));
                assert_eq!((cache.len(), cache.clear().entries), (0, 0));
                // Its own pass may be the one evictor there is.
                for result in [queue.evict_before(at(2), at(2)), queue.evict_weight(1, at(2))] {
                    assert!(matches!(result, Ok(_) | Err(EvictError::Busy)));
                }
                drop((cache, queue));
                ran.fetch_add(1, Ordering::Relaxed);
            });
        }
        assert_eq!(remove(&stage), 3);
        assert_eq!(ran.load(Ordering::Relaxed), 3, "all asserted all");
        stage.assert_empty();
    }
}

/// I11: a destructor that removes its neighbours, each of which does the same.
#[test]
fn a_destructor_may_remove_its_neighbours() {
    let stage = Stage::new();
    for entry in 0..130 {
        let cache = stage.cache.clone();
        // A hundred and thirty inside one another.
        stage.put_acting((1, entry), move || {
            cache.remove_range((1, entry + 1)..=(1, entry + 1));
        });
    }
    assert_eq!(removed(stage.cache.remove_range((1, 0)..=(1, 0))), (1, 10));
    stage.assert_empty();
}

/// I15: a destructor may drop the last handle of its cache, while the queue evicts it.
#[test]
fn a_destructor_may_drop_the_last_handle() {
    let Stage { queue, cache, alive } = Stage::new();
    let ran = Arc::new(AtomicU64::new(0));
    for entry in 0..5 {
        let (handle, ran) = (cache.clone(), Arc::clone(&ran));
        alive.fetch_add(1, Ordering::Relaxed);
        let act: Act = Box::new(move || {
            drop(handle);
            ran.fetch_add(1, Ordering::Relaxed);
        });
        let loaded = Loaded { fault: None, act: Mutex::new(Some(act)), alive: Arc::clone(&alive) };
        assert_eq!(outcome(cache.insert((1, entry * 50), loaded, 0, at(1))), None);
    }
    drop(cache);
    assert_eq!((alive.load(Ordering::Relaxed), queue.pages()), (5, 4), "they hold each other");
    assert_eq!(evicted(queue.evict_before(EVER, at(2)).unwrap()), (5, 50));
    assert_eq!((alive.load(Ordering::Relaxed), ran.load(Ordering::Relaxed)), (0, 5));
    assert_drains(&queue);
}

/// 4.2, I11, I15: destructors that panic stop no other, and every count is exact.
#[test]
fn destructors_that_panic_stop_no_other() {
    for remove in REMOVALS {
        let stage = Stage::new();
        for entry in 0..130 {
            stage.put((1, entry), (entry % 3 == 0).then_some(Fault::Drop));
        }
        assert_eq!(remove(&stage), 130);
        stage.assert_empty();
        stage.end();
    }
}

/// I15: the same when the last handle takes the entries along.
#[test]
fn destructors_that_panic_do_not_stop_the_end_of_a_cache() {
    let stage = Stage::new();
    for entry in 0..130 {
        stage.put((1, entry), (entry % 3 == 0).then_some(Fault::Drop));
    }
    let Stage { queue, cache, alive } = stage;
    drop(cache);
    assert_eq!(alive.load(Ordering::Relaxed), 0);
    assert_drains(&queue);
}

/// 4.2, I11: a destructor that panics when the last reader leaves reaches no reader, and stops no other.
#[test]
fn destructors_that_panic_as_the_last_reader_leaves() {
    let stage = Stage::new();
    (0..10).for_each(|entry| stage.put((1, entry), Some(Fault::Drop)));
    let mut visited = 0;
    stage.cache.for_each_in_range(.., |_, _| {
        stage.cache.clear();
        visited += 1;
    });
    assert_eq!(visited, 10);
    stage.end();
}

/// 4.2, I11: while one destructor does not return, others read, insert, remove and evict, also in its page.
#[test]
fn a_destructor_that_does_not_return_holds_up_nobody() {
    for remove in REMOVALS {
        let stage = Stage::new();
        let [inside, leave] = [const { AtomicBool::new(false) }; 2].map(Arc::new);
        let (arrived, go) = (Arc::clone(&inside), Arc::clone(&leave));
        stage.put_acting((1, 0), move || {
            arrived.store(true, Ordering::Release);
            until("the test is done", || go.load(Ordering::Acquire));
        });
        (1..64).for_each(|entry| stage.put((1, entry), None));
        let done = AtomicU64::new(0);
        threads(3, |thread| {
            if thread == 0 {
                assert_eq!(remove(&stage), 64);
                return;
            }
            let _leave = Leave(&leave, thread == 1);
            until("it stands in the destructor", || inside.load(Ordering::Acquire));
            // Each in a page of its own, so that nobody is in the way.
            let place = (1, 64 * (thread.cast_signed() as i64 - 1));
            for _ in 0..5_000 {
                assert_eq!(outcome(stage.cache.insert(place, stage.loaded(None, None), 0, at(1))), None);
                assert!(stage.cache.get(place).is_some());
                assert_eq!(stage.cache.remove_range(place..=place).entries, 1);
            }
            done.fetch_add(1, Ordering::Release);
            until("both are done", || done.load(Ordering::Acquire) == 2);
            if thread == 1 {
                stage.put((3, 0), None);
                assert_eq!(evicted(stage.queue.evict_before(at(2), at(2)).unwrap()), (1, 10));
            }
        });
        stage.assert_empty();
    }
}

/// Lets the destructor return: the first of the others when it is done, each when it fails.
struct Leave<'a>(&'a AtomicBool, bool);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        if self.1 || std::thread::panicking() {
            self.0.store(true, Ordering::Release);
        }
    }
}

/// I11: what a destructor's panic carries may panic as it is dropped, too.
#[test]
fn destructors_whose_panics_panic() {
    /// It has no size: a payload that has to be forgotten then leaks no memory.
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            std::panic::panic_any(Shard);
        }
    }
    struct Shard;
    let stage = Stage::new();
    (0..10).for_each(|entry| stage.put_acting((1, entry), || std::panic::panic_any(Bomb)));
    assert_eq!(removed(stage.cache.clear()), (10, 100));
    stage.end();
}
