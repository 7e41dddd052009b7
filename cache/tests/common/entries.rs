//! An entry cache over storage that waits, with hand-stepped surroundings.
#![allow(dead_code, reason = "each test binary uses a part")]

use folio_cache::{
    CacheManager, CacheOptions, EntryCache, EntryCacheOptions, EntryCacheSnapshot, Payload, Position,
    ReadEntry, ReadError, ReadRequest,
};
use folio_sync::test_util::{ManualClock, ManualExecutor, ManualTimers};
use folio_sync::time::Clock;
use folio_sync::timers::Timers;
use folio_sync::{Arc, Executor, Mutex, arc_dyn};

use crate::common::{Tally, Value, at};
use crate::storage::{Shelf, WEIGHT};

impl Payload for Value {
    fn copied(&self) -> Option<Self> {
        Some(self.clone())
    }
}

/// What a read came to.
pub(crate) type Outcome = Result<Vec<ReadEntry<Value>>, ReadError>;

/// What reads were told, by their names.
#[derive(Clone, Default)]
pub(crate) struct Told(Arc<Mutex<Vec<(&'static str, Outcome)>>>);

impl Told {
    pub(crate) fn listener(&self, who: &'static str) -> impl FnOnce(Outcome) + Send + 'static {
        let told = self.clone();
        move |outcome| told.0.lock().push((who, outcome))
    }

    /// What was told since this was asked for last.
    pub(crate) fn take(&self) -> Vec<(&'static str, Outcome)> {
        std::mem::take(&mut self.0.lock())
    }

    /// The one outcome that was told, of this read.
    #[track_caller]
    pub(crate) fn one(&self, who: &'static str) -> Outcome {
        let mut told = self.take();
        assert_eq!(told.iter().map(|(who, _)| *who).collect::<Vec<_>>(), [who]);
        told.pop().unwrap().1
    }

    /// The one outcome that was told: the entries of a read, each what it should be.
    #[track_caller]
    pub(crate) fn entries(&self, who: &'static str) -> Vec<i64> {
        let entries = self.one(who).unwrap();
        assert!(entries.iter().all(|entry| entry.position == entry.value.position));
        entries.iter().map(|entry| entry.position.1).collect()
    }

    /// The one outcome that was told: an error.
    #[track_caller]
    pub(crate) fn error(&self, who: &'static str) -> ReadError {
        self.one(who).err().expect("it has failed")
    }
}

pub(crate) struct Scene {
    pub(crate) manager: CacheManager<Value>,
    pub(crate) cache: EntryCache<Value>,
    pub(crate) shelf: Shelf,
    pub(crate) tally: Tally,
    pub(crate) told: Told,
    pub(crate) timers: ManualTimers,
    /// Of the manager's passes.
    pub(crate) executor: ManualExecutor,
    pub(crate) options: CacheOptions,
}

/// A manager that evicts nothing by itself, and permits for so many bytes.
pub(crate) fn cache_options(reads: u64) -> CacheOptions {
    let mut options = CacheOptions::default();
    options.reads.budget = reads;
    options
}

impl Scene {
    /// With room for all reads; one reader is expected for what storage reads.
    pub(crate) fn new() -> Self {
        Self::with(cache_options(1 << 20), EntryCacheOptions::default(), 1)
    }

    pub(crate) fn with(options: CacheOptions, entry_options: EntryCacheOptions, expected: u32) -> Self {
        Self::with_values(options, entry_options, expected, 16_384)
    }

    /// For at most so many values.
    pub(crate) fn with_values(
        options: CacheOptions,
        entry_options: EntryCacheOptions,
        expected: u32,
        values: usize,
    ) -> Self {
        let tally = Tally::new(values);
        let shelf = Shelf::new(&tally);
        let (executor, clock) = (ManualExecutor::new(), ManualClock::new());
        let timers = ManualTimers::new(&clock);
        let manager = CacheManager::new(
            options,
            arc_dyn!(executor.clone() => dyn Executor),
            arc_dyn!(timers.clone() => dyn Timers),
            arc_dyn!(clock => dyn Clock),
        )
        .unwrap();
        let cache = EntryCache::new(&manager, shelf.clone(), move |_| expected, entry_options);
        Self { manager, cache, shelf, tally, told: Told::default(), timers, executor, options }
    }

    /// Appends these entries of ledger 1, with one expected read each.
    pub(crate) fn append(&self, entries: impl IntoIterator<Item = i64>) {
        let mut inserter = self.cache.inserter();
        for entry in entries {
            assert!(inserter.insert((1, entry), self.tally.value((1, entry), WEIGHT), 1, at(1)));
        }
    }

    /// Reads these entries of ledger 1, of which all are confirmed.
    pub(crate) fn read(&self, who: &'static str, first: i64, last: i64) {
        self.cache.read(request(first, last), Vec::new(), self.told.listener(who));
    }

    /// The entries of ledger 1 that are cached.
    pub(crate) fn cached(&self) -> Vec<i64> {
        let cached = self.cache.range_cache().range((1, i64::MIN)..=(1, i64::MAX));
        cached.iter().map(|(position, _)| position.1).collect()
    }

    pub(crate) fn counts(&self) -> EntryCacheSnapshot {
        self.cache.snapshot()
    }

    /// All is told, all permits are back, and when the cache is cleared, every entry is gone.
    #[track_caller]
    pub(crate) fn end(self) {
        assert_eq!(self.shelf.waiting(), 0);
        assert!(self.told.take().is_empty(), "all that was told was looked at");
        self.assert_permits_back();
        self.cache.clear();
        assert_eq!(self.cached(), []);
        self.tally.assert_all_gone();
        // A pass that waits keeps its executor alive, which keeps the pass.
        while let Some(pass) = self.executor.take_next() {
            drop(pass);
        }
    }

    #[track_caller]
    pub(crate) fn assert_permits_back(&self) {
        let permits = self.manager.permits();
        assert_eq!((permits.in_use(), permits.queued()), (0, 0));
    }
}

/// These entries of ledger 1, all confirmed.
pub(crate) fn request(first: i64, last: i64) -> ReadRequest {
    let count = u32::try_from(last - first + 1).unwrap();
    ReadRequest { ledger: 1, first, count, last_confirmed: CONFIRMED }
}

/// Beyond all that is read.
pub(crate) const CONFIRMED: Position = (1, 1_000_000);
