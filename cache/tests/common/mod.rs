//! Caches whose values are counted, and threads that are joined.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::ops::RangeBounds;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant as Wall};

use folio_cache::{
    Evicted, EvictionOptions, EvictionQueue, NotInserted, Position, RangeCache, Reason, Removed, Weigh,
};
use folio_sync::Arc;
use folio_sync::time::Instant;

/// Longer than anything here takes; a test that waits this long fails.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// Later than all that tests insert.
pub(crate) const EVER: Instant = Instant::from_nanos(u64::MAX);

/// The moment this many nanoseconds after the origin.
pub(crate) fn at(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}

/// Waits until something is so.
#[track_caller]
pub(crate) fn until(what: &str, so: impl Fn() -> bool) {
    let began = Wall::now();
    while !so() {
        assert!(began.elapsed() < LONG, "waited too long until {what}");
        thread::yield_now();
    }
}

/// Runs this many threads at once, each with its number, and joins them; none begins before all have started.
pub(crate) fn threads(count: usize, work: impl Fn(usize) + Send + Sync) {
    let (work, started) = (&work, &AtomicUsize::new(0));
    thread::scope(|scope| {
        let start = |number| {
            scope.spawn(move || {
                started.fetch_add(1, Ordering::AcqRel);
                until("all have started", || started.load(Ordering::Acquire) == count);
                work(number);
            })
        };
        let threads: Vec<_> = (0..count).map(start).collect();
        // Joined one by one: the scope itself would wait for those that panicked without a word.
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

/// Runs something again and again until enough is seen: threads may also take turns, and not meet.
#[track_caller]
pub(crate) fn gather(what: &str, mut run: impl FnMut(), seen: impl Fn() -> bool) {
    let began = Wall::now();
    run();
    while !seen() {
        assert!(began.elapsed() < LONG, "not seen: {what}");
        run();
    }
}

/// Seeded, so that a run can be had again.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: usize) -> Self {
        Self((seed as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }

    /// An entry id below `bound`.
    pub(crate) fn entry(&mut self, bound: i64) -> i64 {
        self.below(bound.cast_unsigned()).cast_signed()
    }
}

/// How many copies of each value of a test are alive; a handle.
#[derive(Clone)]
pub(crate) struct Tally(Arc<Counts>);

struct Counts {
    copies: Vec<AtomicI32>,
    made: AtomicUsize,
    /// Copies made of a dead value, and drops of one; not asserted where they happen, since the cache contains a destructor's panic.
    faults: AtomicUsize,
    /// Whether some values let other threads run while they are weighed, copied or dropped: that is, inside operations.
    yields: AtomicBool,
}

impl Tally {
    /// For at most this many values.
    pub(crate) fn new(values: usize) -> Self {
        Self(Arc::new(Counts {
            copies: (0..values).map(|_| AtomicI32::new(0)).collect(),
            made: AtomicUsize::new(0),
            faults: AtomicUsize::new(0),
            yields: AtomicBool::new(false),
        }))
    }

    /// From now on every fourth value lets other threads run while it is weighed, copied or dropped.
    pub(crate) fn let_others_run(&self) {
        self.0.yields.store(true, Ordering::Relaxed);
    }

    /// A value that weighs `weight` and knows where it belongs.
    pub(crate) fn value(&self, position: Position, weight: u64) -> Value {
        // Relaxed, here and below: counts that publish nothing; they are read when the threads are joined.
        let id = self.0.made.fetch_add(1, Ordering::Relaxed);
        self.0.copies[id].store(1, Ordering::Relaxed);
        Value { position, id, weight, tally: self.clone() }
    }

    fn of_made(&self) -> &[AtomicI32] {
        &self.0.copies[..self.0.made.load(Ordering::Relaxed)]
    }

    /// How many values were made.
    pub(crate) fn made(&self) -> usize {
        self.0.made.load(Ordering::Relaxed)
    }

    /// Copies alive of all values.
    pub(crate) fn copies(&self) -> usize {
        let alive: i32 = self.of_made().iter().map(|copies| copies.load(Ordering::Relaxed)).sum();
        usize::try_from(alive).unwrap()
    }

    /// Values of which exactly this many copies are alive.
    pub(crate) fn with_copies(&self, copies: i32) -> usize {
        self.of_made().iter().filter(|alive| alive.load(Ordering::Relaxed) == copies).count()
    }

    /// Each value was dropped as often as it was made and copied, and never after that.
    #[track_caller]
    pub(crate) fn assert_all_gone(&self) {
        let faults = self.0.faults.load(Ordering::Relaxed);
        assert_eq!(faults, 0, "values were copied or dropped when they were dead");
        for (id, alive) in self.of_made().iter().enumerate() {
            assert_eq!(alive.load(Ordering::Relaxed), 0, "copies of value {id} are left");
        }
    }

    /// Runs as user code of a value.
    fn user_code(&self, id: usize) {
        if id.is_multiple_of(4) && self.0.yields.load(Ordering::Relaxed) {
            thread::yield_now();
        }
    }

    /// Adds to the copies of a value, of which there must be one.
    fn add(&self, id: usize, copies: i32) {
        if self.0.copies[id].fetch_add(copies, Ordering::Relaxed) < 1 {
            self.0.faults.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A payload that is counted.
pub(crate) struct Value {
    /// Where it belongs.
    pub(crate) position: Position,
    pub(crate) id: usize,
    weight: u64,
    tally: Tally,
}

impl Value {
    /// Copies alive, this one included.
    pub(crate) fn copies(&self) -> i32 {
        self.tally.0.copies[self.id].load(Ordering::Relaxed)
    }
}

impl Clone for Value {
    fn clone(&self) -> Self {
        self.tally.user_code(self.id);
        self.tally.add(self.id, 1);
        Self { position: self.position, id: self.id, weight: self.weight, tally: self.tally.clone() }
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        self.tally.user_code(self.id);
        self.tally.add(self.id, -1);
    }
}

impl Weigh for Value {
    fn weight(&self) -> u64 {
        self.tally.user_code(self.id);
        self.weight
    }
}

/// Options of a queue.
pub(crate) fn options(max_requeues: u32, extend_recently_accessed: bool) -> EvictionOptions {
    let mut options = EvictionOptions::default();
    options.max_requeues = max_requeues;
    options.extend_recently_accessed = extend_recently_accessed;
    options
}

/// A cache with a queue of its own, and counted values.
pub(crate) struct Scene {
    pub(crate) queue: EvictionQueue<Value>,
    pub(crate) cache: RangeCache<Value>,
    pub(crate) tally: Tally,
}

impl Scene {
    /// For a few thousand values, with the queue's defaults.
    pub(crate) fn new() -> Self {
        Self::with(EvictionOptions::default(), 8_192)
    }

    /// For at most this many values.
    pub(crate) fn with(options: EvictionOptions, values: usize) -> Self {
        let queue = EvictionQueue::new(options);
        Self { cache: RangeCache::new(&queue), queue, tally: Tally::new(values) }
    }

    pub(crate) fn value(&self, position: Position, weight: u64) -> Value {
        self.tally.value(position, weight)
    }

    /// Inserts a value of this weight that nobody expects to read, at time 1.
    #[track_caller]
    pub(crate) fn put(&self, position: Position, weight: u64) {
        self.put_at(position, weight, 0, 1);
    }

    /// Inserts these entries of a ledger, each of weight 1, at time 1.
    #[track_caller]
    pub(crate) fn put_all(&self, ledger: i64, entries: impl IntoIterator<Item = i64>) {
        let mut inserter = self.cache.inserter();
        for entry in entries {
            let value = self.value((ledger, entry), 1);
            assert_eq!(outcome(inserter.insert((ledger, entry), value, 0, at(1))), None);
        }
    }

    /// Inserts a value of this weight with so many expected reads, at this time.
    #[track_caller]
    pub(crate) fn put_at(&self, position: Position, weight: u64, expected_reads: u32, time: u64) {
        let value = self.value(position, weight);
        assert_eq!(outcome(self.cache.insert(position, value, expected_reads, at(time))), None);
    }

    /// The positions cached in a range; each must hold the value that was put there.
    #[track_caller]
    pub(crate) fn found(&self, range: impl RangeBounds<Position>) -> Vec<Position> {
        let found = self.cache.range(range);
        assert!(found.iter().all(|(position, value)| value.position == *position));
        found.into_iter().map(|(position, _)| position).collect()
    }

    /// Runs one pass of eviction by time, which nobody else may be doing: entries and weight that went.
    #[track_caller]
    pub(crate) fn evict_before(&self, before: u64, now: u64) -> (u64, u64) {
        evicted(self.queue.evict_before(at(before), at(now)).unwrap())
    }

    /// Runs one pass of eviction by size, which nobody else may be doing: entries and weight that went.
    #[track_caller]
    pub(crate) fn evict_weight(&self, weight: u64, now: u64) -> (u64, u64) {
        evicted(self.queue.evict_weight(weight, at(now)).unwrap())
    }

    /// Nothing is left of what was inserted: no value, no page, no key, no weight.
    #[track_caller]
    pub(crate) fn assert_empty(&self) {
        assert_cache_empty(&self.cache);
        assert_drains(&self.queue);
        self.tally.assert_all_gone();
    }

    /// Clears the cache, and nothing is left.
    #[track_caller]
    pub(crate) fn end(self) {
        self.cache.clear();
        self.assert_empty();
    }
}

/// No entry, weight or page is left in a cache.
#[track_caller]
pub(crate) fn assert_cache_empty<V: Weigh>(cache: &RangeCache<V>) {
    assert_eq!((cache.len(), cache.weight(), cache.pages(), cache.retired_weight()), (0, 0, 0, 0));
    assert!(cache.is_empty());
}

/// A queue whose caches are empty drains by a pass that evicts nothing.
#[track_caller]
pub(crate) fn assert_drains<V: Weigh>(queue: &EvictionQueue<V>) {
    assert_eq!(evicted(queue.evict_before(Instant::ORIGIN, Instant::ORIGIN).unwrap()), (0, 0));
    assert_eq!((queue.keys(), queue.charged_weight(), queue.pages()), (0, 0, 0));
}

/// Entries and weight.
pub(crate) fn evicted(evicted: Evicted) -> (u64, u64) {
    (evicted.entries, evicted.weight)
}

/// Entries and weight.
pub(crate) fn removed(removed: Removed) -> (u64, u64) {
    (removed.entries, removed.weight)
}

/// Why an insert was given back, if it was; the value is dropped.
pub(crate) fn outcome<V>(result: Result<(), NotInserted<V>>) -> Option<Reason> {
    result.err().map(|given_back| given_back.reason)
}
