//! The ledger.

use std::fmt;

use bytes::Bytes;
use folio_cache::{ActiveCursors, CacheManager, EntryCache, EntryCacheOptions, PermitsFor};
use folio_completer::{Completion, InlineCompleter, Policy, refusable};
use folio_sync::atomic::{AtomicI64, Ordering};
use folio_sync::time::Clock;
use folio_sync::{Arc, Executor, Mutex, SerialExecutor, arc_dyn, step};

use crate::adds::{Adds, Handover};
use crate::append::{Add, AppendSink, Refuse, contained, tell};
use crate::cursor::{Cursor, CursorCore, Listener};
use crate::error::ReadError;
use crate::position::{Entry, Position};
use crate::settle::Desk;
use crate::storage::{LogStorage, Reads};

/// Settings of a ledger; what it was opened with never changes. What is cached, and for how long, is the [`CacheManager`]'s business.
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
}

impl Default for LedgerOptions {
    fn default() -> Self {
        Self {
            id: 0,
            completion: Policy::Inline,
            overflow: None,
            handover: Handover::Batched(1_024),
            max_queued: 1_000_000,
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
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BatchItems => f.write_str("a batch has at least 1 append"),
            Self::MaxQueued(given) => {
                write!(f, "at least 1 and at most 268435455 appends can be queued, not {given}")
            }
        }
    }
}

impl std::error::Error for ConfigError {}

impl LedgerOptions {
    fn check(&self) -> Result<(), ConfigError> {
        if self.handover == Handover::Batched(0) {
            return Err(ConfigError::BatchItems);
        }
        Ok(())
    }
}

/// What the worker, the cursors and the handles share.
pub(crate) struct Core {
    pub(crate) id: i64,
    pub(crate) storage: Arc<dyn LogStorage>,
    /// It lives as long as the ledger does.
    _cache: CacheManager<Bytes>,
    pub(crate) entries: EntryCache<Bytes>,
    /// Where the cursors are.
    pub(crate) active: ActiveCursors,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) worker: Arc<dyn SerialExecutor>,
    completer: InlineCompleter,
    /// How many entries are confirmed: the number of the first that is not.
    pub(crate) confirmed: AtomicI64,
    /// Locked for a look only.
    cursors: Mutex<Cursors>,
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

    /// Drops what no cursor needs any more, from the cache and from storage.
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
        self.entries.range_cache().remove_range((self.id, 0)..(self.id, before.entry));
        contained(|| self.storage.trim(before));
    }

    /// Hands the result of a read to who asked for it.
    pub(crate) fn complete(
        &self,
        result: Result<Vec<Entry>, ReadError>,
        done: impl FnOnce(Result<Vec<Entry>, ReadError>) + Send + 'static,
    ) {
        let completion = refusable(
            (result, done),
            |(result, done)| done(result),
            |(_, done), reason| done(Err(ReadError::Rejected(reason))),
        );
        if let Err(rejected) = self.completer.complete(completion) {
            contained(|| rejected.value.refused(rejected.reason));
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
/// Appending is lock-free up to the worker. Reads of cached entries complete, by default, on the thread that asks; looking into the cache is lock-free, and
/// noting the place takes one short lock that the ledger's cursors share.
///
/// ```
/// use bytes::Bytes;
/// use folio_cache::{CacheManager, CacheOptions};
/// use folio_ledger::{Callbacks, Ledger, LedgerOptions, MemoryStorage, Wait};
/// use folio_sync::test_util::{ManualClock, ManualExecutor, ManualTimers};
///
/// let (worker, clock) = (ManualExecutor::new(), ManualClock::new());
/// let timers = ManualTimers::new(&clock);
/// let cache = CacheManager::new(CacheOptions::default(), worker.clone(), timers, clock)?;
/// let options = LedgerOptions::default();
/// let ledger = Ledger::open(options, MemoryStorage::new(), &cache, worker.clone(), Callbacks)?;
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
    /// Its entries are cached within the manager's budgets, and times are by the manager's clock.
    ///
    /// # Errors
    /// [`ConfigError`] when one of the settings cannot be.
    pub fn open(
        options: LedgerOptions,
        storage: impl LogStorage,
        cache: &CacheManager<Bytes>,
        worker: impl SerialExecutor + Clone + 'static,
        sink: impl AppendSink<T>,
    ) -> Result<Self, ConfigError> {
        options.check()?;
        let mut completer = InlineCompleter::builder(options.completion, worker.clone());
        completer = match options.overflow {
            Some(overflow) => completer.overflow(overflow),
            None => completer.overflow(worker.clone()),
        };
        let clock = Arc::clone(cache.clock());
        let storage = arc_dyn!(storage => dyn LogStorage);
        let active = ActiveCursors::new(cache.options().ttl * 2, Arc::clone(&clock));
        let reads = Reads(Arc::clone(&storage));
        let mut cached = EntryCacheOptions::default();
        // What readers have of the cache is bounded by what they ask for.
        cached.permits = PermitsFor::StorageReads;
        let core = Arc::new(Core {
            id: options.id,
            entries: EntryCache::new(cache, reads, active.clone(), cached),
            _cache: cache.clone(),
            storage,
            active,
            clock: Arc::clone(&clock),
            worker: arc_dyn!(worker.clone() => dyn SerialExecutor),
            completer: completer.build(),
            confirmed: AtomicI64::new(0),
            cursors: Mutex::default(),
        });
        let refuse = Refuse { sink: arc_dyn!(sink => dyn AppendSink<T>), clock };
        let desk = Desk::new(Arc::clone(&core), Arc::clone(&refuse.sink), worker.clone(), options.max_queued);
        let adds = Adds::open(options.handover, options.max_queued, worker, &desk, &refuse)?;
        Ok(Self { adds, desk, refuse, core })
    }

    /// Appends an entry; the sink is told what became of it, with this token.
    pub fn append(&self, payload: Bytes, token: T) {
        let (add, most) = (Add { payload, token }, self.desk.room.entry_bytes);
        if add.payload.len() > most {
            return self.refuse.too_large(add, most);
        }
        self.adds.submit(add, &self.refuse);
    }

    /// Calls `done` when everything that was appended before is confirmed, or failed, and its sinks were told.
    ///
    /// Here and now if that is so already, otherwise on the ledger's worker or whoever shuts it. It must not block; its panic ends there.
    pub fn flush(&self, done: impl FnOnce() + Send + 'static) {
        self.adds.flush(self.desk.clone(), done);
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
        let first = first(confirmed).max(cursors.trimmed);
        let active = self.core.active.add((self.core.id, first));
        let cursor = Arc::new(CursorCore::new(first, confirmed, more, active));
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

    /// How many appends are on their way: queued for the worker, or given to storage and not settled.
    pub fn queued(&self) -> usize {
        // In this order: what leaves the first is in the second before that.
        let queued = self.adds.queued();
        queued + self.desk.len()
    }

    /// The cache in front of storage.
    pub fn cache(&self) -> &EntryCache<Bytes> {
        &self.core.entries
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
