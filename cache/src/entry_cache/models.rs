//! Models of what fills the cache while others read and invalidate it.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the model")]

use folio_sync::atomic::{AtomicUsize, Ordering};
use folio_sync::test_util::{ManualClock, Tracked, model};
use folio_sync::time::Clock;
use folio_sync::{Arc, Mutex, arc_dyn, thread};

use super::expected::ExpectedReads;
use super::fill::Fill;
use super::payload::Payload;
use super::{EntryCache, PermitsFor, ReadRequest};
use crate::cache::RangeCache;
use crate::eviction::EvictionQueue;
use crate::pending::{ReadDone, ReadStorage};
use crate::weigh::Weigh;

/// What is read: clones are clones of the owner, as of a buffer.
#[derive(Clone)]
struct Load(Arc<Tracked<i64>>);

impl Weigh for Load {
    fn weight(&self) -> u64 {
        1
    }
}

impl Payload for Load {
    fn copied(&self) -> Option<Self> {
        Some(Self(Arc::new(Tracked::new(*self.0.get()))))
    }
}

/// Keeps reads until they are answered.
#[derive(Clone, Default)]
struct Shelf(Arc<Mutex<Vec<Read>>>);

/// First entry, how many, and whom to tell.
type Read = (i64, u32, ReadDone<Load>);

impl ReadStorage<Load> for Shelf {
    fn read(&self, _ledger: i64, first: i64, count: u32, done: ReadDone<Load>) {
        self.0.lock().push((first, count, done));
    }
}

impl Shelf {
    /// Answers a read, if there is one, in full.
    fn answer(&self) -> bool {
        let read = self.0.lock().pop();
        let Some((first, count, done)) = read else { return false };
        let entries = first..first + i64::from(count);
        done.succeed(entries.map(|entry| Load(Arc::new(Tracked::new(entry)))).collect::<Vec<_>>());
        true
    }
}

#[derive(Clone)]
struct Scene {
    cache: EntryCache<Load>,
    shelf: Shelf,
    told: Arc<AtomicUsize>,
}

impl Scene {
    /// What storage reads is expected so often.
    fn new(expected: u32) -> Self {
        let shelf = Shelf::default();
        let expected = arc_dyn!(move |_| expected => dyn ExpectedReads);
        let clock = arc_dyn!(ManualClock::new() => dyn Clock);
        let fill = Fill::new(RangeCache::new(&EvictionQueue::default()), expected, clock, false);
        let cache = EntryCache::over(fill, shelf.clone(), None, PermitsFor::NoRead, None);
        Self { cache, shelf, told: Arc::default() }
    }

    /// Reads a range, which is told in full.
    fn read(&self, first: i64, count: u32) {
        let told = Arc::clone(&self.told);
        let request = ReadRequest { ledger: 1, first, count, last_confirmed: (1, 7) };
        self.cache.read(request, Vec::new(), move |entries| {
            let entries = entries.unwrap();
            let positions: Vec<_> = entries.iter().map(|entry| *entry.value.0.get()).collect();
            assert_eq!(positions, (first..first + i64::from(count)).collect::<Vec<_>>());
            // Relaxed: read when all threads are joined.
            told.fetch_add(1, Ordering::Relaxed);
        });
    }

    /// So many reads were told, by so many reads of storage.
    fn ends(&self, told: usize, storage_reads: u64) {
        while self.shelf.answer() {}
        assert_eq!(self.told.load(Ordering::Relaxed), told);
        assert_eq!(self.cache.snapshot().storage_reads, storage_reads);
    }
}

/// 1.7, I12: what was read before an invalidation is not in the cache after it, whichever of the two comes first where.
#[test]
fn invalidation_racing_the_answer() {
    model("invalidation racing the answer", || {
        let scene = Scene::new(1);
        scene.read(0, 1);
        let answering = scene.clone();
        let storage = thread::spawn(move || assert!(answering.shelf.answer()));
        scene.cache.invalidate_all(1);
        storage.join().unwrap();
        assert!(scene.cache.range_cache().is_empty());
        scene.ends(1, 1);
    });
}

/// 1.9, I24: a read that comes as what it wants goes from storage into the cache has it from one of them, and storage is not asked again.
#[test]
fn read_racing_the_answer() {
    model("read racing the answer", || {
        let scene = Scene::new(1);
        scene.read(0, 1);
        let answering = scene.clone();
        let storage = thread::spawn(move || assert!(answering.shelf.answer()));
        scene.read(0, 1);
        storage.join().unwrap();
        scene.ends(2, 1);
    });
}

/// I24, I32: a read whose two gaps are answered at the same time is told once, in full.
#[test]
fn two_gaps_answered_at_once() {
    model("two gaps answered at once", || {
        // Nothing is cached: that is modelled above.
        let scene = Scene::new(0);
        let middle = Load(Arc::new(Tracked::new(1)));
        assert!(scene.cache.inserter().insert((1, 1), middle, 0, ManualClock::new().now()));
        scene.read(0, 3);
        let answering = scene.clone();
        let storage = thread::spawn(move || assert!(answering.shelf.answer()));
        assert!(scene.shelf.answer());
        storage.join().unwrap();
        scene.ends(1, 2);
    });
}
