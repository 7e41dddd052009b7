//! Many threads at one cache: writers, readers, removals and eviction, in exact accounts.
#![cfg(not(any(loom, shuttle)))]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests run on the standard library only, and their helpers unwrap as they do"
)]

mod common;

use std::ops::RangeBounds;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use common::{EVER, Random, Scene, Value, at, gather, options, outcome, threads};
use folio_cache::{EvictError, Position, Reason};

/// Tells the other threads of a test when the writers are done, also when one of them fails.
struct Writers {
    left: AtomicU64,
}

impl Writers {
    fn new(count: u64) -> Self {
        Self { left: AtomicU64::new(count) }
    }

    fn are_busy(&self) -> bool {
        // Relaxed: when to stop; the threads are joined.
        self.left.load(Ordering::Relaxed) > 0
    }

    fn work<R>(&self, work: impl FnOnce() -> R) -> R {
        struct Done<'a>(&'a Writers);
        impl Drop for Done<'_> {
            fn drop(&mut self) {
                self.0.left.fetch_sub(1, Ordering::Relaxed);
            }
        }
        let _done = Done(self);
        work()
    }
}

/// Reads a range, by copies or by a visit; what comes must be in order, in the range, and what was put there.
fn read_in_order(scene: &Scene, range: impl RangeBounds<Position> + Clone, owned: bool) -> u64 {
    let (mut last, mut count, bounds) = (None, 0, range.clone());
    let mut look = |position: Position, value: &Value| {
        assert_eq!(value.position, position, "a value at a place that is not its own");
        assert!(value.copies() > 0, "a dead value");
        assert!(last < Some(position) && bounds.contains(&position), "{position:?} after {last:?}");
        last = Some(position);
        count += 1;
    };
    if owned {
        scene.cache.range(range).iter().for_each(|(position, value)| look(*position, value));
    } else {
        scene.cache.for_each_in_range(range, look);
    }
    count
}

/// Evicts by size; somebody else may be at it.
fn evict(scene: &Scene, weight: u64, now: u64) -> u64 {
    match scene.queue.evict_weight(weight, at(now)) {
        Ok(evicted) => evicted.entries,
        Err(EvictError::Busy) => 0,
        Err(error) => panic!("{error}"),
    }
}

/// When all threads have ended: what is cached has one copy, nothing else has any, and after a clear nothing is left.
fn ends_exactly(scene: Scene) {
    let cached = scene.cache.len();
    assert_eq!(scene.tally.with_copies(1), cached, "what is cached has one copy");
    assert_eq!(scene.tally.copies(), cached, "nothing else is alive");
    assert_eq!(scene.cache.weight(), scene.queue.charged_weight());
    scene.end();
}

/// 4.2, I11, I12, I16, bug 3: 200,000 puts against eight threads that clear: no clear goes on for ever, and each value leaves once.
#[test]
fn puts_against_eight_threads_that_clear() {
    const PUTS: i64 = 200_000;
    let scene = Scene::with(options(0, false), 200_000);
    let (writers, taken) = (Writers::new(1), AtomicU64::new(0));
    threads(9, |thread| {
        if thread == 0 {
            writers.work(|| {
                let mut inserter = scene.cache.inserter();
                for entry in 0..PUTS {
                    let value = scene.value((1, entry), 1);
                    // Nobody was ever at this place, so nothing can be in the way.
                    assert_eq!(outcome(inserter.insert((1, entry), value, 0, at(1))), None, "entry {entry}");
                }
            });
        }
        while writers.are_busy() {
            taken.fetch_add(scene.cache.clear().entries, Ordering::Relaxed);
        }
    });
    let left = scene.cache.clear().entries;
    assert_eq!(taken.load(Ordering::Relaxed) + left, PUTS.cast_unsigned());
    scene.assert_empty();
}

/// 4.2, I9, I11, I12, I13, I14, I15, I17, bug 1, bug 2: 200,000 inserts, four readers of 150, removals of 200 anywhere, eviction.
#[test]
fn inserts_reads_removals_and_eviction_at_once() {
    const INSERTS: i64 = 200_000;
    let scene = Scene::with(options(0, false), 200_000);
    let (writers, newest) = (Writers::new(1), AtomicI64::new(0));
    let (read, gone) = (AtomicU64::new(0), AtomicU64::new(0));
    threads(7, |thread| {
        let mut random = Random::new(thread);
        // Relaxed: about where to read.
        let mut anywhere =
            |most: i64| random.entry(newest.load(Ordering::Relaxed).max(1)).min(INSERTS - most);
        match thread {
            0 => writers.work(|| {
                let mut inserter = scene.cache.inserter();
                for entry in 0..INSERTS {
                    let value = scene.value((1, entry), 1);
                    let now = at(entry.cast_unsigned());
                    assert_eq!(outcome(inserter.insert((1, entry), value, 0, now)), None, "entry {entry}");
                    newest.store(entry, Ordering::Relaxed);
                }
            }),
            1 => {
                while writers.are_busy() {
                    let first = anywhere(200);
                    let removed = scene.cache.remove_range((1, first)..(1, first + 200));
                    gone.fetch_add(removed.entries, Ordering::Relaxed);
                }
            }
            2 => {
                while writers.are_busy() {
                    if scene.cache.len() > 2_000 {
                        gone.fetch_add(evict(&scene, 500, INSERTS.cast_unsigned()), Ordering::Relaxed);
                    }
                    std::thread::yield_now();
                }
            }
            reader => {
                while writers.are_busy() {
                    let first = anywhere(150);
                    let found = read_in_order(&scene, (1, first)..(1, first + 150), reader % 2 == 0);
                    read.fetch_add(found, Ordering::Relaxed);
                }
            }
        }
    });
    assert!(read.load(Ordering::Relaxed) > 0, "the readers met nothing");
    assert_eq!(gone.load(Ordering::Relaxed) + scene.cache.len() as u64, INSERTS.cast_unsigned());
    ends_exactly(scene);
}

/// 4.2, I11, I12, I14, I15, I17: a tail of 100,000 and two threads that read up runs of 1 to 100 over 5,000 ids of another ledger.
#[test]
fn a_tail_and_two_that_catch_up() {
    const TAIL: i64 = 100_000;
    const KEPT: i64 = 1_000;
    const IDS: i64 = 5_000;
    /// At most so many of each thread.
    const RUNS: usize = 20_000;
    let scene = Scene::with(options(0, false), 100_000 + 2 * RUNS * 100);
    let writers = Writers::new(1);
    let [taken, given_back, gone] = [const { AtomicU64::new(0) }; 3];
    threads(3, |thread| {
        if thread == 0 {
            return writers.work(|| {
                let mut inserter = scene.cache.inserter();
                for entry in 0..TAIL {
                    let value = scene.value((2, entry), 1);
                    assert_eq!(outcome(inserter.insert((2, entry), value, 0, at(1))), None, "entry {entry}");
                    if entry % 100 == 99 {
                        let removed = scene.cache.remove_range((2, 0)..(2, entry + 1 - KEPT));
                        assert!(
                            removed.entries == if entry < KEPT { 0 } else { 100 },
                            "{removed:?} at {entry}"
                        );
                        scene.queue.evict_before(at(0), at(1)).unwrap();
                    }
                }
            });
        }
        let mut random = Random::new(thread);
        for _ in (0..RUNS).take_while(|_| writers.are_busy()) {
            let first = random.entry(IDS);
            let run = first..(first + 1 + random.entry(100)).min(IDS);
            let mut inserter = scene.cache.inserter();
            let values = run.clone().map(|entry| ((1, entry), scene.value((1, entry), 1), 0));
            let refused = if random.below(2) == 0 {
                inserter.insert_batch(values, at(1))
            } else {
                values
                    .filter_map(|(position, value, _)| inserter.insert(position, value, 0, at(1)).err())
                    .collect()
            };
            drop(inserter);
            for refusal in &refused {
                assert_eq!(refusal.position, refusal.value.position);
                assert!(matches!(refusal.reason, Reason::Occupied | Reason::Busy), "{:?}", refusal.reason);
            }
            given_back.fetch_add(refused.len() as u64, Ordering::Relaxed);
            taken.fetch_add(run.clone().count() as u64 - refused.len() as u64, Ordering::Relaxed);
            let range = (1, run.start)..(1, run.end);
            if random.below(4) == 0 {
                read_in_order(&scene, range, true);
            } else {
                gone.fetch_add(scene.cache.remove_range(range).entries, Ordering::Relaxed);
            }
        }
    });
    assert_eq!(scene.found((2, 0)..).len(), usize::try_from(KEPT).unwrap());
    let [taken, given_back, gone] = [taken, given_back, gone].map(AtomicU64::into_inner);
    assert!(taken > 0 && given_back > 0, "{taken} taken, {given_back} given back");
    assert_eq!(gone + (scene.cache.len() as u64 - KEPT.cast_unsigned()), taken);
    ends_exactly(scene);
}

/// I11, I12: removal by range, by ledger, by clear, by time and by size, all at once, with writers that come and go.
#[test]
fn every_kind_of_removal_at_once() {
    const ROUNDS: i64 = 200;
    let scene = Scene::with(options(1, true), 2 * 200 * 100);
    let writers = Writers::new(2);
    let [taken, gone] = [const { AtomicU64::new(0) }; 2];
    threads(7, |thread| {
        let mut random = Random::new(thread);
        if thread < 2 {
            return writers.work(|| {
                for round in 0..ROUNDS {
                    let mut inserter = scene.cache.inserter();
                    let ledger = 1 + random.entry(3);
                    let first = random.entry(500);
                    let batch = (first..first + 100).map(|entry| {
                        let expected = u32::from(random.below(4) == 0);
                        ((ledger, entry), scene.value((ledger, entry), 3), expected)
                    });
                    let refused = inserter.insert_batch(batch, at(round.cast_unsigned()));
                    taken.fetch_add(100 - refused.len() as u64, Ordering::Relaxed);
                    drop(scene.cache.get((ledger, first)));
                }
            });
        }
        while writers.are_busy() {
            let ledger = 1 + random.entry(3);
            let first = random.entry(600);
            let entries = match thread {
                2 => scene.cache.remove_range((ledger, first)..(ledger, first + 100)).entries,
                3 => scene.cache.remove_ledger(ledger).entries,
                4 => scene.cache.clear().entries,
                5 => evict(&scene, 100, 500),
                _ => scene
                    .queue
                    .evict_before(at(random.below(200)), at(100))
                    .map_or(0, |evicted| evicted.entries),
            };
            gone.fetch_add(entries, Ordering::Relaxed);
            for _ in 0..random.below(8) {
                std::thread::yield_now();
            }
        }
    });
    let [taken, gone] = [taken, gone].map(AtomicU64::into_inner);
    assert!(taken > 0 && gone > 0, "{taken} taken, {gone} gone");
    assert_eq!(gone + scene.cache.len() as u64, taken, "what was taken went once, or is there");
    ends_exactly(scene);
}

/// I11, I15: writers at the same few places, each with a fresh inserter: one has each place, the others have their value back.
#[test]
fn writers_of_the_same_places() {
    const ROUNDS: i64 = 300;
    let scene = Scene::with(options(0, false), 3 * 300 * 80);
    let [taken, gone] = [const { AtomicU64::new(0) }; 2];
    threads(3, |thread| {
        let mut random = Random::new(thread);
        for _ in 0..ROUNDS {
            let first = random.entry(64);
            let batch = (first..first + 80).map(|entry| ((1, entry), scene.value((1, entry), 2), 0));
            let refused = scene.cache.inserter().insert_batch(batch, at(1)).len();
            taken.fetch_add(80 - refused as u64, Ordering::Relaxed);
            let range = (1, first)..(1, first + random.entry(90));
            gone.fetch_add(scene.cache.remove_range(range).entries, Ordering::Relaxed);
        }
    });
    let [taken, gone] = [taken, gone].map(AtomicU64::into_inner);
    assert_eq!(gone + scene.cache.len() as u64, taken);
    ends_exactly(scene);
}

/// I9, I13, bug 5: readers of single entries meet the value of the place or none, while it comes and goes.
#[test]
fn a_reader_meets_the_value_of_its_place_or_none() {
    const ROUNDS: i64 = 10_000;
    let [met, missed] = [const { AtomicU64::new(0) }; 2];
    let run = || {
        let scene = Scene::with(options(0, false), 10_000);
        scene.tally.let_others_run();
        let writers = Writers::new(1);
        threads(3, |thread| {
            if thread == 0 {
                return writers.work(|| {
                    let mut inserter = scene.cache.inserter();
                    for round in 0..ROUNDS {
                        // All three in one page.
                        let position = (1, round % 3);
                        drop(inserter.insert(position, scene.value(position, 1), 0, at(1)));
                        scene.cache.remove_range((1, (round + 1) % 3)..=(1, (round + 1) % 3));
                    }
                });
            }
            let mut random = Random::new(thread);
            while writers.are_busy() {
                let position = (1, random.entry(3));
                match scene.cache.get(position) {
                    Some(value) => {
                        assert_eq!(value.position, position);
                        assert!(value.copies() > 0);
                        met.fetch_add(1, Ordering::Relaxed);
                    }
                    None => _ = missed.fetch_add(1, Ordering::Relaxed),
                }
            }
        });
        ends_exactly(scene);
    };
    let seen = |count: &AtomicU64| count.load(Ordering::Relaxed) > 100;
    gather("lookups that meet a value, and that miss", run, || seen(&met) && seen(&missed));
}

/// I15: caches come and go on one queue, while others insert and somebody evicts.
#[test]
fn caches_come_and_go_on_one_queue() {
    const ROUNDS: usize = 100;
    let scene = Scene::with(options(0, false), 2 * 100 * 300);
    let writers = Writers::new(2);
    threads(3, |thread| {
        if thread == 2 {
            while writers.are_busy() {
                scene.queue.evict_before(EVER, at(5)).unwrap();
                scene.queue.evict_weight(100, at(5)).unwrap();
            }
            return;
        }
        writers.work(|| {
            for round in 0..ROUNDS {
                let cache = folio_cache::RangeCache::new(&scene.queue);
                let mut inserter = cache.inserter();
                for entry in 0..300 {
                    let value = scene.value((1, entry), 1);
                    assert_eq!(outcome(inserter.insert((1, entry), value, 0, at(1))), None);
                }
                // By turns the inserter or the handle is the last.
                if round % 2 == 0 {
                    drop(cache);
                }
            }
        });
    });
    ends_exactly(scene);
}
