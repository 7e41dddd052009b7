//! The ledger.

use std::fmt;

use bytes::Bytes;
use folio_cache::{EvictionQueue, RangeCache};
use folio_completer::{InlineCompleter, Policy};
use folio_sync::atomic::{AtomicI64, AtomicU64, Ordering};
use folio_sync::time::Clock;
use folio_sync::{Arc, Executor, Mutex, SerialExecutor, arc_dyn, step, unwind};

use crate::adds::{Adds, Handover};
use crate::append::{Add, AppendSink, Refuse, contained, tell};
use crate::cursor::{Cursor, CursorCore, Listener};
use crate::position::Position;
use crate::settle::Desk;
use crate::storage::{LogStorage, StorageError};

/// Settings of a ledger; what it was opened with never changes.
///
/// Times are by the clock that [`Ledger::open`] is given: its exact one, [`Clock::now`]. The coarse one is not used, so that nobody needs to keep it up.
/// It is read once a batch of appends, for the age of what is cached and for [`AppendSink::appended`]; once for each append that is refused; and when
/// the cache is looked through for what is too old, or too much: every 4,096 appends, every 1,024 entries that a cursor deletes, as a cursor is
/// dropped, and in [`Ledger::evict`]. So an idle ledger evicts nothing by itself.
pub struct LedgerOptions {
    /// The ledger's number; 0 by default.
    pub id: i64,
    /// On which thread reads complete; [`Policy::Inline`] by default.
    pub completion: Policy,
    /// Where inline completions go that are nested too deeply; the ledger's worker unless another one is given.
    pub overflow: Option<Arc<dyn Executor>>,
    /// How appends go to the worker; at most 1,024 with one submission by default.
    pub handover: Handover,
    /// How many appends may be queued for the worker before they are rejected; 1,000,000 by default, at most 268,435,455, and not 0.
    pub max_queued: usize,
    /// What evicts the cache's entries; without one nothing is cached, and every read goes to storage.
    pub eviction: Option<EvictionQueue<Bytes>>,
    /// The age at which cached entries are evicted, when the cache is looked through; one second by default. Not 0 where there is a cache.
    pub cache_ttl: std::time::Duration,
    /// The weight in bytes that the cache is brought down to when it is above it; 256 MiB by default. Not 0 where there is a cache.
    pub cache_budget: u64,
}

impl Default for LedgerOptions {
    fn default() -> Self {
        Self {
            id: 0,
            completion: Policy::Inline,
            overflow: None,
            handover: Handover::Batched(1_024),
            max_queued: 1_000_000,
            eviction: Some(EvictionQueue::default()),
            cache_ttl: std::time::Duration::from_secs(1),
            cache_budget: 256 << 20,
        }
    }
}

impl fmt::Debug for LedgerOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LedgerOptions")
            .field("id", &self.id)
            .field("completion", &self.completion)
            .field("handover", &self.handover)
            .field("max_queued", &self.max_queued)
            .field("caches", &self.eviction.is_some())
            .finish_non_exhaustive()
    }
}

/// Which of a ledger's settings cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigError {
    /// Batches of no append.
    BatchItems,
    /// A bound on queued appends of 0, or above the most that there can be.
    MaxQueued(usize),
    /// A cache in which everything is too old at once: open the ledger without `eviction` if nothing is to be cached.
    CacheTtl,
    /// A cache that may hold nothing: as above.
    CacheBudget,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BatchItems => f.write_str("a batch has at least 1 append"),
            Self::MaxQueued(given) => {
                write!(f, "at least 1 and at most 268435455 appends can be queued, not {given}")
            }
            Self::CacheTtl => {
                f.write_str("a cache keeps entries for some time: without eviction there is none")
            }
            Self::CacheBudget => f.write_str("a cache holds some bytes: without eviction there is none"),
        }
    }
}

impl std::error::Error for ConfigError {}

impl LedgerOptions {
    fn check(&self) -> Result<(), ConfigError> {
        if self.handover == Handover::Batched(0) {
            return Err(ConfigError::BatchItems);
        }
        if self.eviction.is_some() && self.cache_ttl.is_zero() {
            return Err(ConfigError::CacheTtl);
        }
        if self.eviction.is_some() && self.cache_budget == 0 {
            return Err(ConfigError::CacheBudget);
        }
        Ok(())
    }
}

/// How reads of a ledger were answered, in entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadCounts {
    /// From the cache.
    pub cached: u64,
    /// From storage.
    pub stored: u64,
}

/// What the worker, the cursors and the handles share.
pub(crate) struct Core {
    pub(crate) id: i64,
    pub(crate) storage: Arc<dyn LogStorage>,
    pub(crate) cache: Option<RangeCache<Bytes>>,
    eviction: Option<EvictionQueue<Bytes>>,
    ttl: std::time::Duration,
    budget: u64,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) worker: Arc<dyn SerialExecutor>,
    pub(crate) completer: InlineCompleter,
    /// How many entries are confirmed: the number of the first that is not.
    pub(crate) confirmed: AtomicI64,
    /// Locked for a look only.
    cursors: Mutex<Cursors>,
    pub(crate) cached_reads: AtomicU64,
    pub(crate) stored_reads: AtomicU64,
}

/// Who reads a ledger, and what is there to read.
#[derive(Default)]
struct Cursors {
    /// Those that are told of confirmed entries, and that trimming waits for.
    open: Vec<Arc<CursorCore>>,
    /// What comes before this entry may be gone.
    trimmed: i64,
    /// Nothing comes any more.
    ended: bool,
}

impl Core {
    /// Raises the count of confirmed entries, the cursors' too; those that wait come into `waiting`.
    pub(crate) fn confirm(&self, confirmed: i64, waiting: &mut Vec<Arc<CursorCore>>) {
        // Release: the entries are in storage and in the cache; pairs with the Acquire of whoever reads up to here.
        step!("ledger.confirm", self.confirmed.store(confirmed, Ordering::Release));
        let cursors = self.cursors.lock();
        waiting.extend(cursors.open.iter().filter(|cursor| cursor.tail.confirm(confirmed)).map(Arc::clone));
    }

    /// How far the slowest cursor is behind.
    fn unread(&self) -> u64 {
        self.cursors.lock().open.iter().map(|cursor| cursor.backlog()).max().unwrap_or(0)
    }

    /// Lets the cursors know that nothing comes any more, and tells those that wait.
    fn end(&self) {
        let mut cursors = self.cursors.lock();
        cursors.ended = true;
        let waiting: Vec<_> =
            cursors.open.iter().filter(|cursor| cursor.tail.close()).map(Arc::clone).collect();
        // A listener may open and close cursors: it is not called under the lock.
        drop(cursors);
        tell(waiting.into_iter(), |cursor| cursor.tell());
    }

    /// Drops what no cursor needs any more, from the cache and from storage; and what is too old, or too much, from the cache.
    pub(crate) fn trim(&self) {
        let mut cursors = self.cursors.lock();
        let slowest = cursors.open.iter().map(|cursor| cursor.first_left()).min();
        let Some(slowest) = slowest else { return };
        // Acquire: as in `Ledger::confirmed`. A cursor may begin beyond it.
        let end = slowest.min(self.confirmed.load(Ordering::Acquire));
        // Under the lock: a cursor that is opened from now on begins here at the earliest.
        cursors.trimmed = cursors.trimmed.max(end);
        let before = Position { ledger: self.id, entry: cursors.trimmed };
        drop(cursors);
        if let Some(cache) = &self.cache {
            cache.remove_range((self.id, 0)..(self.id, before.entry));
        }
        contained(|| self.storage.trim(before));
        self.evict();
    }

    /// Asks storage; its panic is a failure.
    pub(crate) fn ask<R>(
        &self,
        ask: impl FnOnce(&dyn LogStorage) -> Result<R, StorageError>,
    ) -> Result<R, StorageError> {
        unwind::catch(|| ask(&*self.storage)).unwrap_or_else(|payload| {
            let why = format!("it panicked: {}", unwind::message(&*payload));
            unwind::discard(payload);
            Err(StorageError::Failed(why))
        })
    }

    /// Evicts by age and by weight; another one may do it at the same time, and then does it all.
    pub(crate) fn evict(&self) {
        let Some(queue) = &self.eviction else { return };
        let now = self.clock.now();
        let _another_one_evicts = queue.evict_before(now - self.ttl, now);
        if let Some(excess) = queue.charged_weight().checked_sub(self.budget).filter(|excess| *excess > 0) {
            let _another_one_evicts = queue.evict_weight(excess + self.budget / 10, now);
        }
    }
}

/// An append-only sequence of entries, confirmed in order, that cursors read.
///
/// Appends of any threads go to one serial worker, many with one submission. There a batch goes to storage; then its entries are put into the cache,
/// confirmed, and told to those who appended them and to the cursors that wait, in this order.
///
/// # Guarantees
/// If one [`append`](Self::append) returned before another began, its entry comes first. Each append is told what became of it exactly once. An
/// entry that was told to be appended can be read. After a failure of storage nothing is appended any more.
///
/// # Progress
/// Appending is lock-free up to the worker. Reads of cached entries are lock-free and complete, by default, on the thread that asks.
///
/// ```
/// use bytes::Bytes;
/// use folio_ledger::{Callbacks, Ledger, LedgerOptions, MemoryStorage, Wait};
/// use folio_sync::test_util::{ManualClock, ManualExecutor};
///
/// let worker = ManualExecutor::new();
/// let options = LedgerOptions::default();
/// let ledger = Ledger::open(options, MemoryStorage::new(), worker.clone(), ManualClock::new(), Callbacks)?;
/// let cursor = ledger.cursor(0, || ());
/// let (tell, told) = std::sync::mpsc::channel();
/// ledger.append(Bytes::from_static(b"entry"), move |result, _| tell.send(result).unwrap());
/// worker.run_all();
/// assert_eq!(told.recv()?.unwrap().to_string(), "0:0");
///
/// let (tell, told) = std::sync::mpsc::channel();
/// cursor.read(100, Vec::new(), move |entries: Result<Vec<_>, _>| tell.send(entries).unwrap());
/// assert_eq!(told.recv()?.unwrap()[0].payload, "entry");
/// assert_eq!(cursor.wait(), Wait::Waiting);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Ledger<T: Send + 'static> {
    adds: Adds<T>,
    desk: Desk<T>,
    refuse: Refuse<T>,
    core: Arc<Core>,
}

impl<T: Send + 'static> Ledger<T> {
    /// Opens an empty ledger, whose appends run on `worker`; `sink` hears what becomes of them.
    ///
    /// What `clock` is asked for, [`LedgerOptions`] say.
    ///
    /// # Errors
    /// [`ConfigError`] when one of the settings cannot be.
    pub fn open(
        options: LedgerOptions,
        storage: impl LogStorage,
        worker: impl SerialExecutor + Clone + 'static,
        clock: impl Clock + 'static,
        sink: impl AppendSink<T>,
    ) -> Result<Self, ConfigError> {
        options.check()?;
        let mut completer = InlineCompleter::builder(options.completion, worker.clone());
        completer = match options.overflow {
            Some(overflow) => completer.overflow(overflow),
            None => completer.overflow(worker.clone()),
        };
        let clock: Arc<dyn Clock> = arc_dyn!(clock => dyn Clock);
        let core = Arc::new(Core {
            id: options.id,
            storage: arc_dyn!(storage => dyn LogStorage),
            cache: options.eviction.as_ref().map(RangeCache::new),
            eviction: options.eviction,
            ttl: options.cache_ttl,
            budget: options.cache_budget,
            clock: Arc::clone(&clock),
            worker: arc_dyn!(worker.clone() => dyn SerialExecutor),
            completer: completer.build(),
            confirmed: AtomicI64::new(0),
            cursors: Mutex::default(),
            cached_reads: AtomicU64::new(0),
            stored_reads: AtomicU64::new(0),
        });
        let refuse = Refuse { sink: arc_dyn!(sink => dyn AppendSink<T>), clock };
        let desk = Desk::new(Arc::clone(&core), Arc::clone(&refuse.sink), worker.clone(), options.max_queued);
        let adds = Adds::open(options.handover, options.max_queued, worker, &desk, &refuse)?;
        Ok(Self { adds, desk, refuse, core })
    }

    /// Appends an entry; the sink is told what became of it, with this token.
    pub fn append(&self, payload: Bytes, token: T) {
        self.adds.submit(Add { payload, token }, &self.refuse);
    }

    /// Calls `done` when everything that was appended before is confirmed, or failed, and its sinks were told.
    ///
    /// Here and now if that is so already, otherwise on the ledger's worker or whoever shuts it. It must not block; its panic ends there.
    ///
    /// ```
    /// use bytes::Bytes;
    /// use folio_ledger::{Callbacks, Ledger, LedgerOptions, MemoryStorage};
    /// use folio_sync::test_util::{ManualClock, ManualExecutor};
    ///
    /// let worker = ManualExecutor::new();
    /// let ledger =
    ///     Ledger::open(LedgerOptions::default(), MemoryStorage::new(), worker.clone(), ManualClock::new(), Callbacks)?;
    /// (0..3).for_each(|_| ledger.append(Bytes::from_static(b"entry"), |_, _| ()));
    /// let (tell, told) = std::sync::mpsc::channel();
    /// ledger.flush(move || tell.send(()).unwrap());
    /// assert!(told.try_recv().is_err());
    /// worker.run_all();
    /// told.recv()?;
    /// assert_eq!(ledger.confirmed(), 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn flush(&self, done: impl FnOnce() + Send + 'static) {
        self.adds.flush(self.desk.clone(), done);
    }

    /// Evicts from the cache what is too old by now, and what is above its budget.
    ///
    /// Appending and deleting do so now and then. Called from a timer, it frees the memory of a ledger that is idle, too.
    pub fn evict(&self) {
        self.core.evict();
    }

    /// Opens a cursor that reads from this entry on; `more` is called when entries come that it [waits](Cursor::wait) for.
    ///
    /// It begins with the first entry that is still there if that is a later one.
    ///
    /// `more` runs on the ledger's worker: it schedules something and returns. Entries from there on are kept until the cursor has deleted them,
    /// or is dropped.
    pub fn cursor(&self, first: i64, more: impl Fn() + Send + Sync + 'static) -> Cursor {
        self.cursor_at(arc_dyn!(more => Listener), |_| first)
    }

    /// Opens a cursor that reads what is appended from now on; otherwise as [`cursor`](Self::cursor).
    pub fn cursor_at_tail(&self, more: impl Fn() + Send + Sync + 'static) -> Cursor {
        self.cursor_at(arc_dyn!(more => Listener), |confirmed| confirmed)
    }

    fn cursor_at(&self, more: Arc<Listener>, first: impl FnOnce(i64) -> i64) -> Cursor {
        let mut cursors = self.core.cursors.lock();
        // Acquire: as whoever reads up to here. The worker raises this and then looks at the cursors: it comes before, or meets this one.
        let confirmed = self.core.confirmed.load(Ordering::Acquire);
        let cursor = Arc::new(CursorCore::new(first(confirmed).max(cursors.trimmed), confirmed, more));
        if cursors.ended {
            let _nobody_waits_yet = cursor.tail.close();
        }
        cursors.open.push(Arc::clone(&cursor));
        drop(cursors);
        Cursor::new(Arc::clone(&self.core), cursor)
    }

    /// Takes no more appends; those that were taken are appended. Cursors read to the end, and are told that there is one.
    ///
    /// Dropping the ledger closes it, too, and fails what is still queued.
    pub fn close(&self) {
        let core = Arc::clone(&self.core);
        self.adds.close(self.desk.clone(), move || core.end());
    }

    /// The ledger's number.
    pub fn id(&self) -> i64 {
        self.core.id
    }

    /// How many entries are confirmed.
    pub fn confirmed(&self) -> i64 {
        // Acquire: the entries can be read; pairs with the Release of the worker.
        self.core.confirmed.load(Ordering::Acquire)
    }

    /// How many confirmed entries the slowest cursor has not read yet; 0 without cursors. It looks at each cursor, under a short lock.
    pub fn unread(&self) -> u64 {
        self.core.unread()
    }

    /// A worker beside the ledger's own.
    #[cfg(all(test, loom))]
    pub(crate) fn appender(&self) -> crate::append::Appender<T> {
        crate::append::Appender::new(self.desk.clone(), self.refuse.clone())
    }

    /// How many appends are queued for the worker.
    pub fn queued(&self) -> usize {
        self.adds.queued()
    }

    /// How reads were answered so far.
    pub fn read_counts(&self) -> ReadCounts {
        // Relaxed: statistics.
        ReadCounts {
            cached: self.core.cached_reads.load(Ordering::Relaxed),
            stored: self.core.stored_reads.load(Ordering::Relaxed),
        }
    }

    /// The cache, if there is one.
    pub fn cache(&self) -> Option<&RangeCache<Bytes>> {
        self.core.cache.as_ref()
    }
}

impl Core {
    /// Forgets a cursor: it is told nothing, and nothing is kept for it.
    pub(crate) fn forget(&self, cursor: &Arc<CursorCore>) {
        self.cursors.lock().open.retain(|other| !Arc::ptr_eq(other, cursor));
        self.trim();
    }
}

impl<T: Send + 'static> Drop for Ledger<T> {
    fn drop(&mut self) {
        self.close();
    }
}

impl<T: Send + 'static> fmt::Debug for Ledger<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ledger")
            .field("id", &self.core.id)
            .field("confirmed", &self.confirmed())
            .field("queued", &self.queued())
            .finish_non_exhaustive()
    }
}
