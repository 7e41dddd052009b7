//! Code of users inside the cache: destructors, copies, weights, visitors and iterators that call back, panic, or do not return.
#![cfg(not(any(loom, shuttle)))]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests run on the standard library only, and their helpers unwrap as they do"
)]

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use common::{
    EVER, Scene, assert_cache_empty, assert_drains, at, evicted, options, outcome, removed, threads, until,
};
use folio_cache::{EvictError, EvictionQueue, Inserter, Position, RangeCache, Weigh};
use folio_sync::{Arc, Mutex};

/// What of a payload panics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Weight,
    Copy,
    Drop,
}

type Act = Box<dyn FnOnce() + Send>;

/// A payload that weighs 10, misbehaves on demand, and is counted.
struct Loaded {
    fault: Option<Fault>,
    /// Done as it is dropped.
    act: Mutex<Option<Act>>,
    alive: Arc<AtomicI64>,
}

impl Clone for Loaded {
    fn clone(&self) -> Self {
        assert!(self.fault != Some(Fault::Copy), "a copy that panics");
        self.alive.fetch_add(1, Ordering::Relaxed);
        Self { fault: self.fault, act: Mutex::new(None), alive: Arc::clone(&self.alive) }
    }
}

impl Weigh for Loaded {
    fn weight(&self) -> u64 {
        assert!(self.fault != Some(Fault::Weight), "a weight that panics");
        10
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        // Relaxed: read when the threads are joined.
        self.alive.fetch_sub(1, Ordering::Relaxed);
        if let Some(act) = self.act.lock().take() {
            act();
        }
        assert!(self.fault != Some(Fault::Drop), "a destructor that panics");
    }
}

/// A cache of such payloads.
struct Stage {
    queue: EvictionQueue<Loaded>,
    cache: RangeCache<Loaded>,
    alive: Arc<AtomicI64>,
}

impl Stage {
    fn new() -> Self {
        let queue = EvictionQueue::new(options(0, false));
        Self { cache: RangeCache::new(&queue), queue, alive: Arc::default() }
    }

    fn loaded(&self, fault: Option<Fault>, act: Option<Act>) -> Loaded {
        self.alive.fetch_add(1, Ordering::Relaxed);
        Loaded { fault, act: Mutex::new(act), alive: Arc::clone(&self.alive) }
    }

    #[track_caller]
    fn put(&self, position: Position, fault: Option<Fault>) {
        assert_eq!(outcome(self.cache.insert(position, self.loaded(fault, None), 0, at(1))), None);
    }

    #[track_caller]
    fn put_acting(&self, position: Position, act: impl FnOnce() + Send + 'static) {
        let loaded = self.loaded(None, Some(Box::new(act)));
        assert_eq!(outcome(self.cache.insert(position, loaded, 0, at(1))), None);
    }

    fn alive(&self) -> i64 {
        self.alive.load(Ordering::Relaxed)
    }

    /// Nothing is left.
    #[track_caller]
    fn assert_empty(&self) {
        assert_cache_empty(&self.cache);
        assert_drains(&self.queue);
        assert_eq!(self.alive(), 0);
    }

    /// Everything can still be removed, each place taken again, and nothing is left.
    #[track_caller]
    fn end(self) {
        let cached = self.cache.range(..).into_iter().map(|(position, _)| position).collect::<Vec<_>>();
        assert_eq!(self.cache.retired_weight(), 0, "no reader is inside");
        assert_eq!(removed(self.cache.clear()).0, cached.len() as u64);
        self.assert_empty();
        for position in cached {
            self.put(position, None);
        }
        self.cache.clear();
        self.assert_empty();
    }
}

/// Runs what is to panic.
#[track_caller]
fn panics<R>(work: impl FnOnce() -> R) -> String {
    let payload = catch_unwind(AssertUnwindSafe(work)).map(drop).expect_err("it panics");
    folio_sync::unwind::message(&*payload).to_owned()
}

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

/// I11: a copy that panics does so to its reader; the page is as before, and what was copied is dropped.
#[test]
fn a_copy_that_panics_leaves_the_page_as_it_was() {
    let stage = Stage::new();
    for entry in 0..100 {
        stage.put((1, entry), (entry == 70).then_some(Fault::Copy));
    }
    for _ in 0..3 {
        assert_eq!(panics(|| stage.cache.get((1, 70))), "a copy that panics");
        assert_eq!(panics(|| stage.cache.range(..)), "a copy that panics");
    }
    assert_eq!((stage.alive(), stage.cache.len()), (100, 100));
    assert_eq!(removed(stage.cache.remove_range((1, 70)..=(1, 70))), (1, 10));
    assert_eq!((stage.alive(), stage.cache.retired_weight()), (99, 0), "nobody is inside");
    stage.end();
}

/// 4.2, I11: a visitor that panics leaves the page as it was, also when it has cleared it before.
#[test]
fn a_visitor_that_panics_leaves_the_page_as_it_was() {
    for clears in [false, true] {
        let stage = Stage::new();
        (0..100).for_each(|entry| stage.put((1, entry), None));
        let mut visited = 0;
        let message = panics(|| {
            stage.cache.for_each_in_range(.., |_, _| {
                visited += 1;
                if visited == 66 {
                    if clears {
                        assert_eq!(stage.cache.clear().entries, 100);
                    }
                    panic!("a visitor that panics");
                }
            });
        });
        assert_eq!((message.as_str(), visited), ("a visitor that panics", 66));
        assert_eq!(stage.cache.len(), if clears { 0 } else { 100 });
        assert_eq!(stage.cache.retired_weight(), 0, "nobody is inside");
        stage.end();
    }
}

/// I11: a visitor that panics, in a page whose values it has removed, whose destructors panic as it unwinds.
#[test]
fn destructors_that_panic_while_a_visitor_unwinds() {
    let stage = Stage::new();
    (0..10).for_each(|entry| stage.put((1, entry), Some(Fault::Drop)));
    let message = panics(|| {
        stage.cache.for_each_in_range(.., |_, _| {
            assert_eq!(stage.cache.clear().entries, 10);
            panic!("a visitor that panics");
        });
    });
    assert_eq!((message.as_str(), stage.alive()), ("a visitor that panics", 0));
    stage.end();
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

/// 4.2, I11, I17: the value of a visit lives on though it is removed meanwhile, by whatever.
#[test]
fn a_value_outlives_its_removal_inside_a_visit() {
    let removals: [fn(&Scene) -> u64; 5] = [
        |scene| scene.cache.clear().entries,
        |scene| scene.cache.remove_ledger(1).entries,
        |scene| scene.cache.remove_range((1, 0)..(1, 64)).entries,
        |scene| scene.queue.evict_weight(u64::MAX, at(2)).unwrap().entries,
        |scene| scene.queue.evict_before(EVER, at(2)).unwrap().entries,
    ];
    for remove in removals {
        let scene = Scene::with(options(0, false), 200);
        scene.put_all(1, 0..64);
        let mut visited = Vec::new();
        scene.cache.for_each_in_range(.., |position, value| {
            if visited.is_empty() {
                assert_eq!(remove(&scene), 64);
                assert_eq!((scene.cache.len(), scene.cache.retired_weight()), (0, 64));
            }
            assert_eq!((value.position, value.copies()), (position, 1), "it is alive");
            visited.push(position);
        });
        assert!(visited.is_sorted() && visited[0] == (1, 0));
        scene.assert_empty();
    }
}

/// I17: a visitor may remove and insert in the page it is in; it meets each place once at most, in order.
#[test]
fn a_visitor_may_change_the_page_it_is_in() {
    let scene = Scene::new();
    scene.put_all(1, (0..128).step_by(2));
    let mut visited = Vec::new();
    scene.cache.for_each_in_range((1, 0)..(1, 128), |position, value| {
        let (ledger, entry) = position;
        assert_eq!((value.position, value.copies()), (position, 1));
        // What is behind, here, next, and in between.
        drop(scene.cache.insert((ledger, entry - 1), scene.value((ledger, entry - 1), 1), 0, at(1)));
        scene.cache.remove_range(position..=position);
        drop(scene.cache.insert(position, scene.value(position, 1), 0, at(1)));
        drop(scene.cache.insert((ledger, entry + 1), scene.value((ledger, entry + 1), 1), 0, at(1)));
        let mut inner = Vec::new();
        scene
            .cache
            .for_each_in_range((ledger, entry - 5)..(ledger, entry), |position, _| inner.push(position));
        assert!(inner.is_sorted());
        visited.push(position);
    });
    assert!(visited.windows(2).all(|pair| pair[0] < pair[1]), "{visited:?}");
    let even = visited.iter().filter(|(_, entry)| entry % 2 == 0).count();
    assert_eq!(even, 64, "what was there all the while is met");
    assert_eq!(scene.cache.retired_weight(), 0);
    scene.end();
}

/// 4.2, I10, bug 6: a weight that panics does so before anything has changed: the value is dropped, and its place is free.
#[test]
fn a_weight_that_panics_changes_nothing() {
    let stage = Stage::new();
    let mut inserter = stage.cache.inserter();
    for round in 0..3_u32 {
        let loaded = stage.loaded(Some(Fault::Weight), None);
        assert_eq!(panics(|| inserter.insert((1, 0), loaded, 0, at(1))), "a weight that panics");
        assert_eq!((stage.cache.len(), stage.alive()), (round as usize, round.into()));
        assert_eq!(
            outcome(inserter.insert((1, i64::from(round) + 1), stage.loaded(None, None), 0, at(1))),
            None
        );
    }
    assert_eq!(outcome(inserter.insert((1, 0), stage.loaded(None, None), 0, at(1))), None);
    drop(inserter);
    assert_eq!((stage.cache.len(), stage.cache.weight()), (4, 40));
    stage.end();
}

/// Runs a batch that panics somewhere; afterwards each value is in the cache or gone, and inserter and cache work on.
fn batch_panics(message: &str, batch: impl Fn(&Stage, i64) -> (Position, Loaded, u32)) {
    for panics_at in [0, 1, 63, 64, 65, 100] {
        let stage = Stage::new();
        stage.put((1, 2), None);
        let mut inserter: Inserter<Loaded> = stage.cache.inserter();
        let items = (0..130).map(|entry| {
            if entry == panics_at { batch(&stage, entry) } else { ((1, entry), stage.loaded(None, None), 0) }
        });
        assert_eq!(panics(|| inserter.insert_batch(items, at(1))), message);
        let cached = stage.cache.len();
        assert_eq!(stage.alive(), i64::try_from(cached).unwrap(), "each is cached or gone");
        assert!(!stage.cache.contains((1, panics_at)) || panics_at == 2);
        let refused =
            inserter.insert_batch((0..130).map(|entry| ((1, entry), stage.loaded(None, None), 0)), at(1));
        assert_eq!(refused.len(), cached);
        drop((refused, inserter));
        assert_eq!((stage.cache.len(), stage.cache.weight()), (130, 1_300));
        stage.end();
    }
}

/// I10, I11: an iterator of a batch that panics takes nothing along that was not dropped.
#[test]
fn an_iterator_of_a_batch_that_panics_loses_nothing() {
    batch_panics("an iterator that panics", |_, _| panic!("an iterator that panics"));
}

/// I10, I11, bug 6: nor does a weight of a batch that panics.
#[test]
fn a_weight_of_a_batch_that_panics_loses_nothing() {
    batch_panics("a weight that panics", |stage, entry| {
        ((1, entry), stage.loaded(Some(Fault::Weight), None), 0)
    });
}

/// I11: an iterator of a batch may call the cache that it is inserted into.
#[test]
fn an_iterator_of_a_batch_may_call_the_cache() {
    let scene = Scene::new();
    let batch = (0..130).map(|entry| {
        scene.cache.clear();
        drop(scene.cache.insert((1, 129 - entry), scene.value((1, 129 - entry), 1), 0, at(1)));
        drop(scene.cache.get((1, entry)));
        ((1, entry), scene.value((1, entry), 1), 0)
    });
    drop(scene.cache.inserter().insert_batch(batch, at(1)));
    scene.end();
}
