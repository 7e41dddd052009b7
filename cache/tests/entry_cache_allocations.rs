//! 1.7: a read that finds all in the cache allocates one guard of its permit, and nothing for an entry; without permits nothing.
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests of the standard build use the standard library's own types, and unwrap also in their helpers"
)]

#[cfg(all(not(any(loom, shuttle, tsan)), feature = "bytes"))]
fn main() {
    counted::main();
}

/// The counting allocator is there for the standard build only, and an `Arc` that `ThreadSanitizer` follows allocates more.
#[cfg(not(all(not(any(loom, shuttle, tsan)), feature = "bytes")))]
fn main() {}

#[cfg(all(not(any(loom, shuttle, tsan)), feature = "bytes"))]
mod counted {
    use std::cell::Cell;

    use bytes::Bytes;
    use folio_cache::pending::{ReadDone, ReadStorage, Stored};
    use folio_cache::{
        CacheManager, CacheOptions, EntryCache, EntryCacheOptions, PermitsFor, ReadEntry, ReadRequest,
    };
    use folio_sync::test_util::alloc::{Counting, Counts};
    use folio_sync::test_util::{ManualClock, ManualExecutor, ManualTimers};
    use folio_sync::time::Clock;
    use folio_sync::timers::Timers;
    use folio_sync::{Executor, arc_dyn};

    #[global_allocator]
    static ALLOCATOR: Counting = Counting::system();

    /// Answers by slices, so that what is cached are copies.
    struct Disk;

    impl ReadStorage<Bytes> for Disk {
        fn read(&self, _ledger: i64, _first: i64, count: u32, done: ReadDone<Bytes>) {
            let frame = Bytes::from(vec![7; 100 * count as usize]);
            let slices = (0..count as usize).map(|at| frame.slice(at * 100..(at + 1) * 100));
            done.succeed(Stored::sliced(slices.collect()));
        }
    }

    std::thread_local! {
        /// The buffer on its way from a read to the next.
        static BUFFER: Cell<Vec<ReadEntry<Bytes>>> = const { Cell::new(Vec::new()) };
    }

    fn read(cache: &EntryCache<Bytes>, count: u32) {
        let request = ReadRequest { ledger: 1, first: 0, count, last_confirmed: (1, 1_000) };
        cache.read(request, BUFFER.take(), move |entries| {
            let mut entries = entries.unwrap();
            assert_eq!(entries.len(), count as usize);
            entries.clear();
            BUFFER.set(entries);
        });
    }

    /// What a number of reads allocates, and what is left of it.
    fn allocations(cache: &EntryCache<Bytes>, count: u32, reads: u64) -> u64 {
        read(cache, count);
        let before = Counts::now();
        for _ in 0..reads {
            read(cache, count);
        }
        let during = Counts::now() - before;
        assert_eq!(during.allocations, during.frees, "nothing is kept");
        during.allocations
    }

    pub(super) fn main() {
        let clock = ManualClock::new();
        let manager = CacheManager::new(
            CacheOptions::default(),
            arc_dyn!(ManualExecutor::new() => dyn Executor),
            arc_dyn!(ManualTimers::new(&clock) => dyn Timers),
            arc_dyn!(clock => dyn Clock),
        )
        .unwrap();
        for permits in [PermitsFor::EveryRead, PermitsFor::StorageReads, PermitsFor::NoRead] {
            let mut options = EntryCacheOptions::default();
            options.permits = permits;
            let guards = u64::from(permits == PermitsFor::EveryRead);
            let cache = EntryCache::new(&manager, Disk, |_| 1, options);
            let before = Counts::now();
            read(&cache, 100);
            assert!((Counts::now() - before).allocations > 100, "what is read from storage is seen");
            // The copies that are cached are read for the first time here.
            let before = Counts::now();
            read(&cache, 50);
            assert_eq!((Counts::now() - before).allocations, guards, "nor for a first reader");
            for count in [1, 100] {
                assert_eq!(allocations(&cache, count, 1_000), 1_000 * guards);
            }
            cache.mark_read(&[]);
        }
        println!("a hit allocates nothing for an entry");
    }
}
