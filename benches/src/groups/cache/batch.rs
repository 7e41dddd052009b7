//! B8: reading a batch whose bytes in flight are counted.
//!
//! An operation has a batch of entries of 128 bytes, and drops them in reverse; then as many bytes may be in flight as before. *Shared
//! guard*: a permit for the whole batch, which each entry keeps by a counted guard; the guard is one allocation. *Guard an entry*: each
//! entry has a permit of its own. Both clone the entries out of a list; the floor does that alone. *Entry cache*: a read through the cache
//! of a ledger, in which all entries are; *without permits* the same, uncounted.

use std::cell::Cell;
use std::hint::black_box;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use folio_cache::pending::{ReadDone, ReadStorage};
use folio_cache::{
    Acquired, CacheManager, CacheOptions, EntryCache, EntryCacheOptions, Permit, PermitOptions, PermitsFor,
    ReadEntry, ReadPermits, ReadRequest,
};
use folio_sync::time::{Instant, SystemClock};
use folio_sync::timers::{TimerId, Timers};
use folio_sync::{Executor, Job, Rejected};

use crate::runner::{Against, Block, Case, Metric, Row, Target};

const FLOOR: &str = "floor: clones";
const SHARED: &str = "shared guard";
const EACH: &str = "guard an entry";
const CACHE: &str = "entry cache";
const WITHOUT: &str = "entry cache, without permits";

/// Bytes of an entry.
const BYTES: u64 = 128;

/// Bytes that may be in flight.
const BUDGET: u64 = 16 << 20;

/// Entries of a batch.
const BATCHES: [u32; 3] = [1, 100, 1_000];

/// Entries read in a full trial.
const ENTRIES: u64 = 500_000;

fn name(batch: u32) -> String {
    format!("batch of {batch}, read and dropped")
}

/// Timers whose time never comes.
#[derive(Debug, Default)]
struct Never(Mutex<Vec<Job>>);

impl Timers for Never {
    fn once(&self, _delay: std::time::Duration, job: Job) -> Result<TimerId, Rejected<Job>> {
        self.0.lock().expect("nothing panics here").push(job);
        Ok(TimerId::from_raw(0))
    }

    fn cancel(&self, _timer: TimerId) -> Option<Job> {
        None
    }
}

/// Runs a job on the thread that submits it.
struct CallerRuns;

impl Executor for CallerRuns {
    fn submit(&self, job: Job) -> Result<(), Rejected<Job>> {
        job.run();
        Ok(())
    }
}

/// Storage of which nothing is read.
struct Nothing;

impl ReadStorage<Bytes> for Nothing {
    fn read(&self, _ledger: i64, _first: i64, _count: u32, done: ReadDone<Bytes>) {
        drop(done);
    }
}

/// A batch of entries, and permits for them.
struct Batch {
    entries: Vec<Bytes>,
    permits: ReadPermits,
}

impl Batch {
    fn new(batch: u32) -> Self {
        let mut options = PermitOptions::default();
        (options.budget, options.max_queued, options.timeout) = (BUDGET, 1, None);
        let entries = (0..batch).map(|_| entry()).collect();
        Self { entries, permits: ReadPermits::new(options, Arc::new(Never::default())) }
    }

    fn acquire(&self, bytes: u64) -> Permit {
        match self.permits.acquire(bytes, |_| ()) {
            Ok(Acquired::Now(permit)) => permit,
            other => unreachable!("there is room: {other:?}"),
        }
    }

    /// Has the batch, and drops it in reverse.
    fn read<G>(&self, buffer: &mut Vec<(Bytes, G)>, mut guard: impl FnMut() -> G) {
        buffer.extend(self.entries.iter().map(|entry| (entry.clone(), guard())));
        while let Some(entry) = buffer.pop() {
            drop(black_box(entry));
        }
    }
}

/// A shared buffer of the size of an entry.
fn entry() -> Bytes {
    // The clone makes it a shared one.
    Bytes::from(vec![7_u8; usize::try_from(BYTES).expect("small")]).clone()
}

/// A case of a batch without a cache, with a guard for each entry.
fn guarded<G: 'static>(
    name: &str,
    batch: u32,
    guard: impl Fn(&Batch, &mut Vec<(Bytes, G)>) + 'static,
) -> Case {
    let mut opened = None;
    Case::looped(name, ENTRIES / u64::from(batch), move |operations| {
        let (batch, buffer) = opened.get_or_insert_with(|| (Batch::new(batch), Vec::new()));
        for _ in 0..operations {
            guard(batch, buffer);
        }
        assert_eq!(batch.permits.available(), BUDGET, "all is given back");
    })
}

/// A cache in which a batch is, and the buffer on its way from a read to the next.
struct Cached {
    manager: CacheManager<Bytes>,
    cache: EntryCache<Bytes>,
    batch: u32,
}

std::thread_local! {
    static BUFFER: Cell<Vec<ReadEntry<Bytes>>> = const { Cell::new(Vec::new()) };
}

impl Cached {
    fn new(batch: u32, permits: PermitsFor) -> Self {
        let mut options = CacheOptions::default();
        options.reads.budget = BUDGET;
        let manager = CacheManager::new(
            options,
            Arc::new(CallerRuns),
            Arc::new(Never::default()),
            Arc::new(SystemClock::new()),
        )
        .expect("the default is valid");
        let mut options = EntryCacheOptions::default();
        options.permits = permits;
        let cache = EntryCache::new(&manager, Nothing, |_| 0, options);
        let mut inserter = cache.inserter();
        for id in 0..batch.into() {
            assert!(inserter.insert((1, id), entry(), 0, Instant::ORIGIN), "there is room");
        }
        drop(inserter);
        Self { manager, cache, batch }
    }

    fn read(&self) {
        let request = ReadRequest { ledger: 1, first: 0, count: self.batch, last_confirmed: (1, i64::MAX) };
        self.cache.read(request, BUFFER.take(), |entries| {
            let mut entries = entries.expect("all are cached");
            while let Some(entry) = entries.pop() {
                drop(black_box(entry));
            }
            BUFFER.set(entries);
        });
    }
}

fn cached(name: &str, batch: u32, permits: PermitsFor) -> Case {
    let opened: Rc<Cell<Option<Cached>>> = Rc::default();
    Case::looped(name, ENTRIES / u64::from(batch), move |operations| {
        let cached = opened.take().unwrap_or_else(|| Cached::new(batch, permits));
        let hits = cached.cache.snapshot().hits;
        for _ in 0..operations {
            cached.read();
        }
        assert_eq!(cached.cache.snapshot().hits - hits, operations, "all are hits");
        assert_eq!(cached.manager.permits().in_use(), 0, "all is given back");
        opened.set(Some(cached));
    })
}

/// The rows of B8.
pub(super) fn blocks() -> Vec<Block> {
    BATCHES
        .map(|batch| {
            let cases = vec![
                guarded(FLOOR, batch, |batch, buffer| batch.read(buffer, || ())),
                guarded(SHARED, batch, |batch, buffer| {
                    let permit = Arc::new(batch.acquire(batch.entries.len() as u64 * BYTES));
                    batch.read(buffer, || Arc::clone(&permit));
                }),
                guarded(EACH, batch, |batch, buffer| batch.read(buffer, || batch.acquire(BYTES))),
                cached(CACHE, batch, PermitsFor::EveryRead),
                cached(WITHOUT, batch, PermitsFor::NoRead),
            ];
            Block::new(name(batch), cases)
        })
        .into()
}

/// What is asked of them.
pub(super) fn targets() -> Vec<Target> {
    let row = |case: &str| Row::case(name(100), case);
    let what = format!("{}: {SHARED}, of {EACH}", name(100));
    vec![
        Target::lower(what, row(SHARED), Against::Row(row(EACH)), Metric::Cpu, 0.9, 0.7),
        Target::lower(
            format!("{}: allocations", name(100)),
            row(CACHE),
            Against::Nothing,
            Metric::Allocations,
            1.01,
            1.0,
        ),
    ]
}
