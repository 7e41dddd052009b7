//! The range cache under shuttle: writers, readers, a trimmer and an evictor at once, random and PCT schedules, exact accounts at the end.
#![cfg(shuttle)]
#![allow(
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "a count over all schedules, which are executions of their own; a checked body fails where it unwraps"
)]

use folio_cache::{
    EvictError, EvictionOptions, EvictionQueue, Inserter, NotInserted, Position, RangeCache, Reason, Weigh,
};
use folio_sync::atomic::{AtomicU64, Ordering};
use folio_sync::test_util::{Tracked, shuttle_check, spurious_every};
use folio_sync::time::Instant;
use folio_sync::{Arc, thread};

/// Entries that come to lie in two pages.
const FIRST: i64 = 60;
const ENTRIES: i64 = 8;

fn at(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}

/// Later than all that is inserted.
const LATE: Instant = Instant::from_nanos(1_000);

/// What is cached: it knows where it belongs.
struct Load {
    position: Tracked<Position>,
    weight: u64,
}

impl Weigh for Load {
    fn weight(&self) -> u64 {
        self.weight
    }
}

/// A value for a position, which weighs 1 to 4.
fn load(position: Position) -> Arc<Load> {
    Arc::new(Load { position: Tracked::new(position), weight: 1 + position.1.cast_unsigned() % 4 })
}

/// Entries that went in, or came out, and what they weighed; refusals.
#[derive(Default)]
struct Account {
    entries: AtomicU64,
    weight: AtomicU64,
}

impl Account {
    fn add(&self, entries: u64, weight: u64) {
        // Relaxed, both: read when all threads are joined.
        self.entries.fetch_add(entries, Ordering::Relaxed);
        self.weight.fetch_add(weight, Ordering::Relaxed);
    }

    fn sums(&self) -> (u64, u64) {
        (self.entries.load(Ordering::Relaxed), self.weight.load(Ordering::Relaxed))
    }
}

/// Caches of one queue, and what went in and out.
struct Scene {
    queue: EvictionQueue<Arc<Load>>,
    caches: [RangeCache<Arc<Load>>; 2],
    within: Account,
    gone: Account,
    refused: AtomicU64,
    most: u64,
}

impl Scene {
    fn new(budget: u64, max_requeues: u32) -> Arc<Self> {
        let mut options = EvictionOptions::default();
        options.budget = budget;
        options.max_requeues = max_requeues;
        let queue = EvictionQueue::new(options);
        let caches = [RangeCache::new(&queue), RangeCache::new(&queue)];
        Arc::new(Self {
            queue,
            caches,
            within: Account::default(),
            gone: Account::default(),
            refused: AtomicU64::new(0),
            most: budget.saturating_add(budget / 4),
        })
    }

    /// Runs a part on a thread of its own.
    fn spawn(self: &Arc<Self>, part: impl FnOnce(&Self) + Send + 'static) -> thread::JoinHandle<()> {
        let scene = Arc::clone(self);
        thread::spawn(move || part(&scene))
    }

    /// The value was given back, and belongs to that position.
    fn back(&self, refused: &NotInserted<Arc<Load>>) {
        assert_eq!(*refused.value.position.get(), refused.position);
        if refused.reason == Reason::OverBudget {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn insert(&self, inserter: &mut Inserter<Arc<Load>>, position: Position, reads: u32, now: u64) {
        let value = load(position);
        let weight = value.weight;
        match inserter.insert(position, value, reads, at(now)) {
            Ok(()) => self.within.add(1, weight),
            Err(refused) => self.back(&refused),
        }
        self.check_budget();
    }

    fn insert_batch(&self, inserter: &mut Inserter<Arc<Load>>, batch: &[Position], reads: u32, now: u64) {
        let refused =
            inserter.insert_batch(batch.iter().map(|position| (*position, load(*position), reads)), at(now));
        for refused in &refused {
            self.back(refused);
        }
        for position in batch {
            if !refused.iter().any(|refused| refused.position == *position) {
                self.within.add(1, load(*position).weight);
            }
        }
        self.check_budget();
    }

    fn remove(&self, cache: usize, last: i64) {
        let removed = self.caches[cache].remove_range((1, 0)..=(1, last));
        self.gone.add(removed.entries, removed.weight);
    }

    fn evict_before(&self, before: u64) {
        self.evicted(self.queue.evict_before(at(before), LATE));
    }

    fn evict_weight(&self, weight: u64) {
        self.evicted(self.queue.evict_weight(weight, LATE));
    }

    fn evicted(&self, result: Result<folio_cache::Evicted, EvictError>) {
        match result {
            Ok(evicted) => self.gone.add(evicted.entries, evicted.weight),
            Err(error) => assert_eq!(error, EvictError::Busy),
        }
    }

    /// Reads a range: in order, each once at most, and what belongs there.
    fn read(&self, cache: usize) {
        let mut last = None;
        self.caches[cache].for_each_in_range((1, FIRST)..(1, FIRST + ENTRIES), |position, value| {
            assert_eq!(*value.position.get(), position);
            assert!(last < Some(position), "in order");
            last = Some(position);
        });
        let position = (1, FIRST + 1);
        if let Some(value) = self.caches[cache].get(position) {
            assert_eq!(*value.position.get(), position);
            self.caches[cache].mark_read(position);
        }
        let cached = &self.caches[cache];
        for weight in [cached.weight(), cached.retired_weight(), self.queue.charged_weight()] {
            assert!(weight < 1 << 32, "a weight below zero");
        }
    }

    fn check_budget(&self) {
        assert!(self.queue.charged_weight() <= self.most, "above five quarters of the budget");
    }

    /// With all threads joined: what went in came out or is cached, and after a clear nothing is left.
    fn end(&self) {
        for cache in &self.caches {
            let cached: u64 = cache.range(..).iter().map(|(_, value)| value.weight).sum();
            assert_eq!((cache.weight(), cache.retired_weight()), (cached, 0));
            let removed = cache.clear();
            self.gone.add(removed.entries, removed.weight);
            assert_eq!((cache.len(), cache.weight(), cache.retired_weight(), cache.pages()), (0, 0, 0, 0));
        }
        assert_eq!(self.within.sums(), self.gone.sums(), "what went in came out");
        assert_eq!((self.queue.charged_weight(), self.queue.pages()), (0, 0));
        assert_eq!(self.queue.refused(), self.refused.load(Ordering::Relaxed));
        self.evict_before(0);
        assert_eq!(self.queue.keys(), 0);
    }
}

/// A tail that is written by one inserter for good.
fn tail(scene: &Scene) {
    let mut inserter = scene.caches[0].inserter();
    for entry in FIRST..FIRST + ENTRIES {
        scene.insert(&mut inserter, (1, entry), 0, entry.cast_unsigned());
    }
}

/// Reads of storage, each of which caches what it read by a fresh inserter.
fn catch_up(scene: &Scene) {
    for from in [FIRST + 2, FIRST] {
        let mut inserter = scene.caches[0].inserter();
        let batch: Vec<Position> = (from..from + 4).map(|entry| (1, entry)).collect();
        scene.insert_batch(&mut inserter, &batch, 1, 5);
        let mut inserter = scene.caches[1].inserter();
        scene.insert(&mut inserter, (1, from), 1, 6);
    }
}

/// I11, I12, I13, I14, I15, I17, I20: a tail, reads that catch up, two readers, a trimmer and an evictor on two caches of one queue.
#[test]
fn everything_at_once() {
    shuttle_check("cache", 1_000, || {
        let _spurious = spurious_every(7);
        let scene = Scene::new(u64::MAX, 1);
        let threads = [
            scene.spawn(tail),
            scene.spawn(catch_up),
            scene.spawn(|scene| scene.read(0)),
            scene.spawn(|scene| (0..2).for_each(|cache| scene.read(cache))),
            scene.spawn(|scene| {
                for last in [FIRST + 1, FIRST + 4, FIRST + 6] {
                    scene.remove(0, last);
                }
                scene.remove(1, FIRST + ENTRIES);
            }),
            scene.spawn(|scene| {
                scene.evict_before(FIRST.cast_unsigned() + 3);
                scene.evict_weight(3);
                scene.evict_before(1_000);
            }),
        ];
        for thread in threads {
            thread.join().unwrap();
        }
        scene.end();
    });
}

/// I20: the same writers within a budget that is too small for them, and two evictors: what was given back is counted.
#[test]
fn inserts_given_back() {
    let refused: &std::sync::atomic::AtomicU64 = Box::leak(Box::default());
    shuttle_check("cache within a budget", 1_000, || {
        let _spurious = spurious_every(7);
        let scene = Scene::new(8, 0);
        let threads = [
            scene.spawn(tail),
            scene.spawn(catch_up),
            scene.spawn(|scene| (0..2).for_each(|cache| scene.read(cache))),
            scene.spawn(|scene| (0..3).for_each(|_| scene.evict_weight(4))),
            scene.spawn(|scene| {
                scene.evict_weight(2);
                scene.remove(0, FIRST + 4);
            }),
        ];
        for thread in threads {
            thread.join().unwrap();
        }
        scene.end();
        refused.fetch_add(scene.queue.refused(), Ordering::Relaxed);
    });
    assert!(refused.load(Ordering::Relaxed) > 0, "some insert is given back");
}

/// What a destructor calls while it can.
struct Stage {
    queue: EvictionQueue<Restless>,
    cache: RangeCache<Restless>,
    within: AtomicU64,
    gone: AtomicU64,
    /// Destructors at work: not many at a time, since they nest, and the stack of a checked thread is small.
    busy: AtomicU64,
}

/// A value whose destructor calls the cache.
struct Restless {
    stage: std::sync::Weak<Stage>,
    entry: i64,
    /// How many more of its kind it may put in.
    heirs: u32,
    tracked: Tracked<()>,
}

impl Weigh for Restless {
    fn weight(&self) -> u64 {
        1
    }
}

impl Drop for Restless {
    fn drop(&mut self) {
        let Some(stage) = self.stage.upgrade() else { return };
        self.tracked.get();
        let busy = stage.busy.fetch_add(1, Ordering::Relaxed);
        match self.entry % 4 {
            _ if busy >= 3 => {}
            0 => stage.insert(self.entry, self.heirs),
            1 => stage.remove(self.entry, self.entry + 2),
            2 => stage.evict(),
            _ => {
                stage.cache.for_each_in_range(.., |_, other| {
                    other.tracked.get();
                });
                stage.insert(self.entry + 64, self.heirs);
            }
        }
        stage.busy.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Stage {
    /// Puts a value in that may leave so many heirs, unless it is the last.
    fn insert(self: &Arc<Self>, entry: i64, heirs: u32) {
        let Some(heirs) = heirs.checked_sub(1) else { return };
        let value = Restless { stage: Arc::downgrade(self), entry, heirs, tracked: Tracked::new(()) };
        if self.cache.insert((1, entry), value, 0, at(1)).is_ok() {
            self.within.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn remove(&self, first: i64, last: i64) {
        let removed = self.cache.remove_range((1, first)..=(1, last));
        self.gone.fetch_add(removed.entries, Ordering::Relaxed);
    }

    fn evict(&self) {
        match self.queue.evict_weight(2, LATE) {
            Ok(evicted) => _ = self.gone.fetch_add(evicted.entries, Ordering::Relaxed),
            Err(error) => assert_eq!(error, EvictError::Busy),
        }
    }
}

/// I11: destructors that insert, remove, evict and read, wherever their values are dropped.
#[test]
fn destructors_that_call_the_cache() {
    shuttle_check("cache with destructors that call it", 1_000, || {
        let _spurious = spurious_every(7);
        let mut options = EvictionOptions::default();
        options.max_requeues = 0;
        let queue = EvictionQueue::new(options);
        let stage = Arc::new(Stage {
            cache: RangeCache::new(&queue),
            queue,
            within: AtomicU64::new(0),
            gone: AtomicU64::new(0),
            busy: AtomicU64::new(0),
        });
        let spawn = |part: fn(&Arc<Stage>)| {
            let stage = Arc::clone(&stage);
            thread::spawn(move || part(&stage))
        };
        let threads = [
            spawn(|stage| (0..6).for_each(|entry| stage.insert(entry, 3))),
            spawn(|stage| (2..4).for_each(|entry| stage.insert(entry, 2))),
            spawn(|stage| {
                stage.cache.for_each_in_range(.., |_, other| {
                    other.tracked.get();
                });
            }),
            spawn(|stage| (0..2).for_each(|_| stage.remove(0, 5))),
            spawn(|stage| (0..2).for_each(|_| stage.evict())),
        ];
        for thread in threads {
            thread.join().unwrap();
        }
        // What destructors put in goes, too.
        while !stage.cache.is_empty() {
            stage.remove(0, 200);
        }
        assert_eq!(stage.within.load(Ordering::Relaxed), stage.gone.load(Ordering::Relaxed));
        let (cache, queue) = (&stage.cache, &stage.queue);
        assert_eq!((cache.weight(), cache.retired_weight(), cache.pages()), (0, 0, 0));
        assert_eq!((queue.charged_weight(), queue.pages()), (0, 0));
        queue.evict_before(Instant::ORIGIN, LATE).unwrap();
        assert_eq!(queue.keys(), 0);
    });
}
