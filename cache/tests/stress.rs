//! I11, I15, bug 4: after millions of inserts and removals with ranges in flight memory is where it was; readers that overlap without end keep one page.
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests run on the standard library only, and their helpers unwrap as they do"
)]

#[cfg(not(any(loom, shuttle)))]
mod common;

#[cfg(any(loom, shuttle))]
fn main() {}

#[cfg(not(any(loom, shuttle)))]
fn main() {
    count::the_counter_sees_an_allocation();
    count::a_page_is_all_that_an_insert_allocates();
    count::reading_and_removing_allocate_nothing();
    count::readers_that_overlap_without_end_keep_one_page();
    count::memory_is_where_it_was();
    println!("stress: ok");
}

#[cfg(not(any(loom, shuttle)))]
mod count {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    use folio_cache::{EvictionQueue, RangeCache, Reason, Weigh};
    use folio_sync::Arc;
    use folio_sync::test_util::alloc::{Counting, Counts};
    use folio_sync::time::Instant;

    use super::common::{Random, assert_cache_empty, assert_drains, at, options, outcome, threads, until};

    #[global_allocator]
    static ALLOCATOR: Counting = Counting::system();

    /// Inserts of the long run, of a build that is optimised.
    const INSERTS: i64 = 10_000_000;

    /// Inserts of the long run of a plain debug build, which takes as long for a fifth; `AddressSanitizer`'s is one.
    const DEBUG_INSERTS: i64 = INSERTS / 5;

    /// Inserts of the long run under `ThreadSanitizer`, which is a hundred times as slow and sees a race the first time.
    const TSAN_INSERTS: i64 = INSERTS / 50;

    /// The profile `ci` has debug assertions as well; cargo tells the two apart by the folder that it builds in.
    fn inserts() -> i64 {
        let built = std::env::current_exe().unwrap();
        let debug = built.components().any(|folder| folder.as_os_str() == "debug");
        match (cfg!(tsan), debug) {
            (true, _) => TSAN_INSERTS,
            (false, true) => DEBUG_INSERTS,
            (false, false) => INSERTS,
        }
    }

    /// What a test may keep beside the index and the queue's room for keys: what threads leave.
    const SLACK: i64 = 64 << 10;

    /// Room for one key of the queue: where it is left, and where it is adopted, both as large as they ever had to be, and up to twice that.
    const KEY_BYTES: i64 = 2 * (56 + 48);

    /// A payload that allocates nothing, and is counted.
    struct Item {
        entry: i64,
        alive: Option<Arc<AtomicU64>>,
    }

    impl Item {
        fn new(entry: i64) -> Self {
            Self { entry, alive: None }
        }
    }

    impl Clone for Item {
        fn clone(&self) -> Self {
            Self::new(self.entry)
        }
    }

    impl Weigh for Item {
        fn weight(&self) -> u64 {
            1
        }
    }

    impl Drop for Item {
        fn drop(&mut self) {
            if let Some(alive) = &self.alive {
                alive.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    fn cache() -> (EvictionQueue<Item>, RangeCache<Item>) {
        let queue = EvictionQueue::new(options(0, false));
        let cache = RangeCache::new(&queue);
        (queue, cache)
    }

    /// Inserts at the tail of a ledger, each 100 followed by a trim to so many entries and a pass of the queue.
    fn tail_and_trim(
        queue: &EvictionQueue<Item>,
        cache: &RangeCache<Item>,
        inserts: std::ops::Range<i64>,
        kept: i64,
    ) {
        let mut inserter = cache.inserter();
        for entry in inserts {
            assert_eq!(outcome(inserter.insert((2, entry), Item::new(entry), 0, at(1))), None);
            if entry % 100 == 99 {
                cache.remove_range((2, 0)..(2, entry + 1 - kept));
                queue.evict_before(Instant::ORIGIN, at(1)).unwrap();
            }
        }
    }

    pub(super) fn the_counter_sees_an_allocation() {
        let before = Counts::now();
        drop(std::hint::black_box(Box::new(7_u64)));
        assert_eq!((Counts::now() - before).allocations, 1, "a deliberate allocation is seen");
    }

    pub(super) fn a_page_is_all_that_an_insert_allocates() {
        const EACH: i64 = 100_000;
        for kept in [1, 10, 63, 1_000, 20_000] {
            let (queue, cache) = cache();
            tail_and_trim(&queue, &cache, 0..EACH, kept);
            let before = Counts::now();
            tail_and_trim(&queue, &cache, EACH..2 * EACH, kept);
            let during = Counts::now() - before;
            // At most 0.05 an insert.
            assert!(during.allocations * 20 <= EACH.cast_unsigned(), "with {kept} kept: {during:?}");
            assert!(during.live_bytes() <= SLACK, "{during:?}");
        }
        // In batches.
        let (queue, cache) = cache();
        let mut inserter = cache.inserter();
        let before = Counts::now();
        for first in (0..EACH).step_by(50) {
            let batch = (first..first + 50).map(|entry| ((2, entry), Item::new(entry), 0));
            assert!(inserter.insert_batch(batch, at(1)).is_empty());
            cache.remove_range((2, 0)..(2, first));
        }
        let during = Counts::now() - before;
        assert!(during.allocations * 20 <= EACH.cast_unsigned(), "{during:?}");
        drop(queue);
    }

    pub(super) fn reading_and_removing_allocate_nothing() {
        let (queue, cache) = cache();
        tail_and_trim(&queue, &cache, 0..1_000, 1_000);
        let before = Counts::now();
        let mut sum = 0;
        for _ in 0..10 {
            cache.for_each_in_range((2, 0)..(2, 1_000), |_, item| sum += item.entry);
            (0..1_000).for_each(|entry| sum += cache.get((2, entry)).unwrap().entry);
            assert!(cache.mark_read((2, 7)) && cache.contains((2, 7)));
            assert_eq!((cache.len(), cache.expected_reads((2, 7)).is_some()), (1_000, true));
        }
        assert_eq!(sum, 2 * 10 * 999 * 500);
        assert_eq!(cache.remove_range((2, 900)..(2, 1_000)).entries, 100);
        let during = Counts::now() - before;
        assert_eq!(during.allocations, 0, "{during:?}");
        assert_eq!(queue.evict_weight(300, at(2)).unwrap().entries, 300);
        let during = Counts::now() - before;
        assert!(during.allocations <= 4, "room for the keys of 16 pages: {during:?}");
        assert_eq!(cache.clear().entries, 600);
        assert_eq!((Counts::now() - before).allocations, during.allocations);
        assert!((Counts::now() - before).frees >= 15, "the pages are freed");
    }

    /// Two readers, one of which is always inside; each leaves when the other has come in.
    pub(super) fn readers_that_overlap_without_end_keep_one_page() {
        const ROUNDS: u64 = 100_000;
        let (queue, cache) = cache();
        let item = |alive: &Arc<AtomicU64>| {
            alive.fetch_add(1, Ordering::Relaxed);
            Item { entry: 0, alive: Some(Arc::clone(alive)) }
        };
        let (alive, came, stop) = (Arc::new(AtomicU64::new(0)), AtomicU64::new(0), AtomicBool::new(false));
        cache.insert((1, 63), item(&alive), 0, at(1)).unwrap();
        let [taken, most] = [const { AtomicU64::new(0) }; 2];
        threads(3, |thread| {
            if thread > 0 {
                while !stop.load(Ordering::Acquire) {
                    cache.for_each_in_range((1, 63)..=(1, 63), |_, _| {
                        let mine = came.fetch_add(1, Ordering::AcqRel) + 1;
                        until("the other one has come", || {
                            came.load(Ordering::Acquire) > mine || stop.load(Ordering::Acquire)
                        });
                    });
                }
                return;
            }
            let mut inserter = cache.inserter();
            until("a reader is inside", || came.load(Ordering::Acquire) > 0);
            let mut random = Random::new(1);
            for _ in 0..ROUNDS {
                let entry = random.entry(63);
                match outcome(inserter.insert((1, entry), item(&alive), 0, at(1))) {
                    None => _ = taken.fetch_add(1, Ordering::Relaxed),
                    outcome => assert_eq!(outcome, Some(Reason::Busy)),
                }
                cache.remove_range((1, entry)..=(1, entry));
                let now = alive.load(Ordering::Relaxed).max(cache.retired_weight());
                assert!(most.fetch_max(now, Ordering::Relaxed).max(now) <= 64, "{now} values are alive");
            }
            stop.store(true, Ordering::Release);
        });
        assert!(came.load(Ordering::Relaxed) > 2, "the readers took turns");
        assert_eq!(
            (taken.into_inner(), most.into_inner()),
            (63, 64),
            "each place was taken once, and its value kept"
        );
        assert_eq!((cache.retired_weight(), cache.len()), (0, 1));
        cache.clear();
        assert_eq!(alive.load(Ordering::Relaxed), 0);
        assert_cache_empty(&cache);
        assert_drains(&queue);
    }

    /// A tail, a thread that reads up, and two that read ranges all the while.
    pub(super) fn memory_is_where_it_was() {
        let start = Counts::now();
        let (queue, cache) = cache();
        // The most keys that the queue had at a time.
        let most_keys = AtomicU64::new(0);
        let run = |inserts: std::ops::Range<i64>| {
            let busy = AtomicBool::new(true);
            let (tail, read) = (AtomicU64::new(0), AtomicU64::new(0));
            threads(4, |thread| match thread {
                0 => {
                    for first in inserts.clone().step_by(1_000) {
                        tail_and_trim(&queue, &cache, first..first + 1_000, 500);
                        tail.store(first.cast_unsigned(), Ordering::Relaxed);
                    }
                    busy.store(false, Ordering::Relaxed);
                }
                1 => {
                    let mut random = Random::new(thread);
                    while busy.load(Ordering::Relaxed) {
                        let first = random.entry(50_000);
                        let batch = (first..first + 100).map(|entry| ((1, entry), Item::new(entry), 0));
                        assert!(cache.inserter().insert_batch(batch, at(1)).len() <= 100);
                        cache.remove_range((1, first)..(1, first + 100));
                        most_keys.fetch_max(queue.keys() as u64, Ordering::Relaxed);
                    }
                }
                _ => {
                    let mut random = Random::new(thread);
                    while busy.load(Ordering::Relaxed) {
                        let end = (tail.load(Ordering::Relaxed) + 1_000).cast_signed();
                        let mut seen = 0;
                        let look = |position: (i64, i64), item: &Item| {
                            assert_eq!(position.1, item.entry);
                            seen += 1;
                        };
                        if random.below(2) == 0 {
                            cache.for_each_in_range((2, end - 1_500)..(2, end), look);
                        } else {
                            let first = random.entry(50_000);
                            cache.for_each_in_range((1, first)..(1, first + 150), look);
                        }
                        read.fetch_add(seen, Ordering::Relaxed);
                    }
                }
            });
            cache.clear();
            assert_cache_empty(&cache);
            assert_drains(&queue);
            assert!(read.load(Ordering::Relaxed) > 0, "the readers met entries");
        };
        run(0..100_000);
        let kept = || {
            let keys = most_keys.load(Ordering::Relaxed).cast_signed();
            i64::try_from(cache.index_bytes()).unwrap() + keys * KEY_BYTES + SLACK
        };
        let warm = Counts::now() - start;
        assert!(warm.live_bytes() <= kept(), "{warm:?} of {}", kept());
        run(0..inserts());
        let end = Counts::now() - start;
        assert!(end.live_bytes() <= kept(), "{end:?} of {}", kept());
        assert!(cache.index_bytes() <= 64 << 10, "{} of nodes", cache.index_bytes());
        drop((queue, cache));
        let left = (Counts::now() - start).live_bytes();
        // ThreadSanitizer's Arc leaves its counters behind.
        assert!(left == 0 || cfg!(tsan) && left < SLACK, "{left} bytes are left");
        println!("{} inserts and removals at the tail: memory is where it was", inserts());
    }
}
