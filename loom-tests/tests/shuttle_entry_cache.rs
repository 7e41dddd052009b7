//! The entry cache under shuttle: readers, storage that answers as it likes, a writer, invalidations, time and the end of the manager at once.
#![cfg(shuttle)]
#![allow(
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "a count over all schedules, which are executions of their own; a checked body fails where it unwraps"
)]

use std::sync::atomic::AtomicUsize as Unseen;
use std::time::Duration;

use folio_cache::pending::{ReadDone, ReadStorage, StorageFailure, Stored};
use folio_cache::{
    CacheManager, CacheOptions, EntryCache, EntryCacheOptions, Payload, ReadError, ReadRequest, Weigh,
};
use folio_sync::atomic::{AtomicUsize, Ordering};
use folio_sync::test_util::{ManualClock, ManualTimers, Tracked, shuttle_check, spurious_every};
use folio_sync::time::Clock;
use folio_sync::timers::Timers;
use folio_sync::{Arc, Executor, Job, Mutex, Rejected, arc_dyn, thread};

const SCHEDULES: usize = 300;

/// Entries that are read: they come to lie in two pages.
const FIRST: i64 = 60;
const ENTRIES: i64 = 8;

/// What an entry weighs.
const WEIGHT: u64 = 8;

/// What is cached: it knows where it belongs.
#[derive(Clone)]
struct Load(Arc<Tracked<i64>>);

impl Load {
    fn new(entry: i64) -> Self {
        Self(Arc::new(Tracked::new(entry)))
    }
}

impl Weigh for Load {
    fn weight(&self) -> u64 {
        WEIGHT
    }
}

impl Payload for Load {
    fn copied(&self) -> Option<Self> {
        Some(Self::new(*self.0.get()))
    }
}

/// A read: the first entry, how many, and whom to tell.
type Read = (i64, u32, ReadDone<Load>);

/// Keeps reads until they are answered.
#[derive(Clone, Default)]
struct Shelf(Arc<Mutex<Vec<Read>>>);

impl ReadStorage<Load> for Shelf {
    fn read(&self, _ledger: i64, first: i64, count: u32, done: ReadDone<Load>) {
        self.0.lock().push((first, count, done));
    }
}

impl Shelf {
    /// Answers the newest read in the way of this number; whether there was one.
    fn answer(&self, way: usize) -> bool {
        let read = self.0.lock().pop();
        let Some((first, count, done)) = read else { return false };
        let values = |count: u32| (first..first + i64::from(count)).map(Load::new).collect::<Vec<_>>();
        match way % 7 {
            0 => drop(done),
            1 => done.fail(StorageFailure::Closed),
            2 => done.succeed(values(count - 1)),
            3 => done.succeed(Stored::sliced(values(count + 1))),
            _ => done.succeed(values(count)),
        }
        true
    }
}

/// Runs each job at once, on the thread that submits it.
struct CallerRuns;

impl Executor for CallerRuns {
    fn submit(&self, job: Job) -> Result<(), Rejected<Job>> {
        job.run();
        Ok(())
    }
}

#[derive(Clone)]
struct Scene {
    manager: CacheManager<Load>,
    cache: EntryCache<Load>,
    shelf: Shelf,
    timers: ManualTimers,
    asked: Arc<AtomicUsize>,
    told: Arc<AtomicUsize>,
    read: Arc<AtomicUsize>,
}

impl Scene {
    fn new() -> Self {
        let clock = ManualClock::new();
        let timers = ManualTimers::new(&clock);
        let mut options = CacheOptions::default();
        options.budget = 6 * WEIGHT;
        options.reads.budget = 10 * (WEIGHT + 64);
        options.reads.max_queued = 2;
        options.reads.timeout = Some(Duration::from_millis(1));
        let manager = CacheManager::new(
            options,
            arc_dyn!(CallerRuns => dyn Executor),
            arc_dyn!(timers.clone() => dyn Timers),
            arc_dyn!(clock => dyn Clock),
        )
        .unwrap();
        let shelf = Shelf::default();
        let cache = EntryCache::new(&manager, shelf.clone(), |_| 1, EntryCacheOptions::default());
        cache.inserter().insert((1, FIRST), Load::new(FIRST), 1, manager.now());
        Self {
            manager,
            cache,
            shelf,
            timers,
            asked: Arc::default(),
            told: Arc::default(),
            read: Arc::default(),
        }
    }

    /// Runs a part on a thread of its own.
    fn spawn(&self, part: impl FnOnce(&Self) + Send + 'static) -> thread::JoinHandle<()> {
        let scene = self.clone();
        thread::spawn(move || part(&scene))
    }

    /// Reads a range, which is told once: its first entries, or why there are none.
    fn read(&self, first: i64, count: u32) {
        // Relaxed, here and below: read when all threads are joined.
        self.asked.fetch_add(1, Ordering::Relaxed);
        let (cache, told, read) = (self.cache.clone(), Arc::clone(&self.told), Arc::clone(&self.read));
        let request = ReadRequest { ledger: 1, first, count, last_confirmed: (1, FIRST + ENTRIES) };
        self.cache.read(request, Vec::new(), move |outcome| {
            match outcome {
                Ok(entries) => {
                    assert!(!entries.is_empty() && entries.len() <= count as usize);
                    for (entry, at) in entries.iter().zip(first..) {
                        assert_eq!((entry.position, *entry.value.0.get()), ((1, at), at));
                    }
                    cache.mark_read(&entries);
                    read.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => assert!(matches!(
                    error,
                    ReadError::Missing(_) | ReadError::Storage(_) | ReadError::TooManyReads(_)
                )),
            }
            told.fetch_add(1, Ordering::Relaxed);
        });
    }

    /// All is answered: each read was told once, the permits are back, and nothing is left when the cache is cleared.
    fn end(self) {
        while self.shelf.answer(5) {}
        self.timers.advance(Duration::from_millis(5));
        while self.shelf.answer(5) {}
        assert_eq!(self.told.load(Ordering::Relaxed), self.asked.load(Ordering::Relaxed));
        let permits = self.manager.permits();
        assert_eq!((permits.in_use(), permits.queued()), (0, 0));
        self.cache.clear();
        assert!(self.cache.range_cache().is_empty());
    }
}

/// I12, I24, I32, I33, I34, I35: readers, answers of every kind, a writer, invalidations and time at once.
#[test]
fn entry_cache_with_everything_at_once() {
    let told = Arc::new(Unseen::new(0));
    let sum = Arc::clone(&told);
    shuttle_check("entry cache with everything at once", SCHEDULES, move || {
        let _spurious = spurious_every(5);
        let scene = Scene::new();
        let readers = [0, 3].map(|from| {
            scene.spawn(move |scene| {
                for (first, count) in [(0, 4), (2, 3), (1, 5)] {
                    scene.read(FIRST + (first + from) % 4, count);
                }
            })
        });
        let storage = scene.spawn(|scene| {
            for way in 0..8 {
                if !scene.shelf.answer(way) {
                    thread::yield_now();
                }
            }
        });
        let changes = scene.spawn(|scene| {
            let mut inserter = scene.cache.inserter();
            for entry in FIRST..FIRST + 4 {
                inserter.insert((1, entry), Load::new(entry), 1, scene.manager.now());
            }
            scene.cache.invalidate_all(1);
            inserter.insert((1, FIRST + 2), Load::new(FIRST + 2), 1, scene.manager.now());
            scene.timers.advance(Duration::from_millis(2));
        });
        for thread in readers.into_iter().chain([storage, changes]) {
            thread.join().unwrap();
        }
        sum.fetch_add(scene.read.load(Ordering::Relaxed), Ordering::Relaxed);
        scene.end();
    });
    assert!(told.load(Ordering::Relaxed) > SCHEDULES, "reads were answered");
}

/// I24, I33: reads that wait, are answered and begin as the manager is closed are told once, and all permits are back.
#[test]
fn entry_cache_against_the_end_of_its_manager() {
    shuttle_check("entry cache against the end of its manager", SCHEDULES, || {
        let scene = Scene::new();
        let reader = scene.spawn(|scene| {
            for first in [FIRST, FIRST + 1, FIRST + 3] {
                scene.read(first, 5);
            }
        });
        let storage = scene.spawn(|scene| {
            for _ in 0..4 {
                if !scene.shelf.answer(6) {
                    thread::yield_now();
                }
            }
        });
        scene.read(FIRST, 2);
        scene.manager.close();
        reader.join().unwrap();
        storage.join().unwrap();
        scene.end();
    });
}
