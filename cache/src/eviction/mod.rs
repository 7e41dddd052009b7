//! The eviction queue: what decides which entries go first, for all caches of a manager.
//!
//! # Guarantees
//! *Order.* Pages in the order in which they were made, and in a page its slots. An entry that is kept for another round comes after all pages that were
//! queued before.
//!
//! *Retention is bounded.* An entry with expected reads is kept for at most `max_requeues` rounds more, and one that was looked up for one more each time;
//! a pass ends after `max_requeues` + 1 rounds.
//!
//! *Progress.* Leaving a key is lock-free. One evictor works at a time; another caller returns at once. No destructor runs while the queue is held: it may
//! evict, or never return.
//!
//! *Memory.* The queue holds keys of pages, never pages. Keys of pages that are gone are dropped when a pass comes to them, and by any pass when they
//! outnumber the others. So some pass has to run from time to time, also if nothing is to be evicted. The places of keys that no pass has taken over
//! yet are kept up to their peak and used again.
//!
//! # Protocol
//! A page's key (cache, ledger, number and a birth number that no other page has) goes its way:
//!
//! | state | next | by whom |
//! |---|---|---|
//! | linked, not announced | left | its maker, after it linked the page, or whoever enters the page to insert and finds it not announced |
//! | left, not announced | announced | the same, by a store after it left the key |
//! | left | adopted, or dropped | the evictor: dropped if the page is gone or has been adopted by another key |
//! | adopted | judged | the evictor, when the key comes to the head of the queue |
//! | judged | adopted | the evictor: stays at the head if nothing is due yet, else goes behind all others, once, also when the page is empty |
//! | judged | dropped | the evictor, when the page is sealed |
//!
//! So whoever inserts has the page's key in the queue before its entry can be seen, however long the maker is stopped. An entry that is due is
//! removed by the range cache's own protocol; between deciding and removing another one may take its place, and then goes too early, which is allowed.
//!
//! # Orderings
//! | operation | word | ordering | pairs with | why |
//! |---|---|---|---|---|
//! | push: compare-and-set | top of the inbox | Release | take, Acquire | the key is written |
//! | announce: store | `announced` | Release | the load on entering, Acquire | the key is left before another inserter relies on it; no model tells it from Relaxed, since a read-modify-write of the inbox sees the latest |
//! | adopt | `adopted` | Relaxed | | the evictor's alone, under its lock |
//! | age, count, flag | the entry's words | Relaxed | | numbers, read and written inside the page |
//!
//! # Limits
//! While a pass is stopped, no other one runs: nothing is evicted, and the keys of new pages gather. A pass visits every page that an inserter holds
//! empty.
//!
//! A page is walked when its oldest entry is due; then the others go behind all pages, and are due later than they could be by up to one pass of
//! the whole queue.

use std::collections::BTreeMap;
use std::fmt;

use folio_sync::atomic::{AtomicUsize, Ordering};
use folio_sync::time::Instant;
use folio_sync::{Arc, Mutex};

mod inbox;
#[cfg(all(test, loom))]
mod models;
mod pass;

pub(crate) use inbox::Key;

use crate::budget::Budget;
use crate::core::{Core, Removed};
use crate::range::Span;
use inbox::Inbox;
use pass::{Fifo, Goal};

/// Settings of an [`EvictionQueue`]; all can be changed while it works.
///
/// More may come: begin with the default, and set what is to be different.
///
/// ```
/// use bytes::Bytes;
/// use folio_cache::{EvictionOptions, EvictionQueue};
///
/// let mut options = EvictionOptions::default();
/// options.budget = 256 << 20; // bytes
/// options.max_requeues = 2;
/// let queue: EvictionQueue<Bytes> = EvictionQueue::new(options);
/// queue.set_budget(512 << 20); // from now on
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EvictionOptions {
    /// How many more rounds an entry with expected reads is kept; 5 by default.
    pub max_requeues: u32,
    /// Whether an entry that was looked up is kept for another round; not by default.
    pub extend_recently_accessed: bool,
    /// The weight to stay below; no limit by default. Keeping it is up to who calls the evictor; only above 1.25 times of it inserts are given back.
    pub budget: u64,
}

impl Default for EvictionOptions {
    fn default() -> Self {
        Self { max_requeues: 5, extend_recently_accessed: false, budget: u64::MAX }
    }
}

/// What a pass removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evicted {
    /// Entries.
    pub entries: u64,
    /// The sum of their weights.
    pub weight: u64,
}

/// Why a pass did not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EvictError {
    /// No weight is asked for: a pass that is to free nothing is a mistake.
    ZeroWeight,
    /// Another pass is running; it does the work.
    Busy,
}

impl fmt::Display for EvictError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ZeroWeight => "the weight to evict is zero: ask for at least 1",
            Self::Busy => "another eviction pass is running: call again later",
        })
    }
}

impl std::error::Error for EvictError {}

/// Decides which entries of all its caches go first, by age or by weight.
///
/// A handle: clones are the same queue. See the [module](self) for what it promises.
///
/// # Progress
/// What inserters leave for it, they leave lock-free. One pass runs at a time; whoever asks for another meanwhile is [told so](EvictError::Busy) at
/// once. While a pass is stopped nothing is evicted, and inserting goes on up to 1.25 times the budget.
///
/// # Memory
/// A key of a few words for each page, also of pages that are gone until some pass drops it: so passes have to run from time to time, every 10 ms
/// or so, even of nothing. The places of keys are kept up to the most that were left between two passes.
///
/// ```
/// use std::sync::Arc;
///
/// use folio_cache::{EvictionOptions, EvictionQueue, RangeCache};
/// use folio_sync::time::Instant;
///
/// let queue = EvictionQueue::new(EvictionOptions::default());
/// let cache = RangeCache::new(&queue);
/// let time = Instant::from_nanos;
/// for entry in 0..4_u8 {
///     cache.insert((1, i64::from(entry)), Arc::new(vec![entry; 10]), 0, time(entry.into())).unwrap();
/// }
/// let evicted = queue.evict_before(time(1), time(9)).unwrap();
/// assert_eq!((evicted.entries, evicted.weight), (1, 10));
/// let evicted = queue.evict_weight(11, time(9)).unwrap();
/// assert_eq!((evicted.entries, evicted.weight), (2, 20));
/// assert_eq!(cache.len(), 1);
/// ```
pub struct EvictionQueue<V>(Arc<Shared<V>>);

/// Called when an inserter has charged weight, or could not: while nothing is held, before its entry is taken over.
type Pressure<V> = Box<dyn Fn(&Arc<Shared<V>>) + Send + Sync>;

/// What the handles of a queue share.
pub(crate) struct Shared<V> {
    /// None for a queue whose user calls the evictor.
    pressure: Option<Pressure<V>>,
    pub(crate) budget: Arc<Budget>,
    inbox: Inbox,
    /// The keys that were taken over; who holds this is the evictor.
    fifo: Mutex<Fifo>,
    /// The caches by number. Locked for a look only.
    caches: Mutex<BTreeMap<u64, Arc<Core<V>>>>,
    /// Keys left and not dropped.
    keys: AtomicUsize,
}

impl<V> Shared<V> {
    /// Takes up a new cache; its number.
    pub(crate) fn enlist(&self, core: &Arc<Core<V>>) -> u64 {
        // A birth number serves as a number of a cache, too.
        let id = self.budget.birth();
        self.caches.lock().insert(id, Arc::clone(core));
        id
    }

    /// Forgets a cache; its keys are dead from now on.
    pub(crate) fn delist(&self, id: u64) {
        let core = self.caches.lock().remove(&id);
        // Dropped when the lock is free.
        drop(core);
    }

    fn core(&self, id: u64) -> Option<Arc<Core<V>>> {
        self.caches.lock().get(&id).cloned()
    }

    /// Tells that the charged weight has changed, or is at its limit.
    pub(crate) fn pressed(shared: &Arc<Self>) {
        if let Some(pressure) = &shared.pressure {
            pressure(shared);
        }
    }

    /// Leaves the key of a page.
    pub(crate) fn push(&self, key: Key) {
        // Relaxed: a number.
        self.keys.fetch_add(1, Ordering::Relaxed);
        self.inbox.push(key);
    }

    /// Counts a key that is dropped.
    fn forget(&self) {
        // Relaxed: a number.
        self.keys.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<V> EvictionQueue<V> {
    /// A queue for the caches that are made with it.
    pub fn new(options: EvictionOptions) -> Self {
        Self::make(options, None)
    }

    /// A queue that tells when weight was charged.
    pub(crate) fn with_pressure(
        options: EvictionOptions,
        pressure: impl Fn(&Arc<Shared<V>>) + Send + Sync + 'static,
    ) -> Self {
        Self::make(options, Some(Box::new(pressure)))
    }

    /// A handle of this queue.
    pub(crate) fn of(shared: &Arc<Shared<V>>) -> Self {
        Self(Arc::clone(shared))
    }

    fn make(options: EvictionOptions, pressure: Option<Pressure<V>>) -> Self {
        Self(Arc::new(Shared {
            pressure,
            budget: Arc::new(Budget::new(&options)),
            inbox: Inbox::new(),
            fifo: Mutex::default(),
            caches: Mutex::default(),
            keys: AtomicUsize::new(0),
        }))
    }

    pub(crate) fn shared(&self) -> &Arc<Shared<V>> {
        &self.0
    }

    /// Evicts the entries that are older than `before`, in the order of the queue until one is not.
    ///
    /// What is kept for another round is as old as `now` from then on. `Instant::ORIGIN` as `before` evicts nothing and only drops keys of pages
    /// that are gone.
    ///
    /// # Errors
    /// [`EvictError::Busy`] when another pass is running and there may be something to do.
    pub fn evict_before(&self, before: Instant, now: Instant) -> Result<Evicted, EvictError> {
        if before == Instant::ORIGIN && self.keys() as u64 <= self.pages() {
            // Nothing is older, and there are no more keys than pages: but for those whose makers are about to leave one, each page has its own.
            return Ok(Evicted::default());
        }
        self.0.pass(Goal::Before(before), now)
    }

    /// Evicts until at least this weight was, in the order of the queue; less if there is no more, or if another pass went on while destructors ran.
    ///
    /// # Errors
    /// [`EvictError::ZeroWeight`] when no weight is asked for, [`EvictError::Busy`] when another pass is running.
    pub fn evict_weight(&self, weight: u64, now: Instant) -> Result<Evicted, EvictError> {
        if weight == 0 {
            return Err(EvictError::ZeroWeight);
        }
        self.0.pass(Goal::Weight(weight), now)
    }

    /// Sets how many more rounds an entry with expected reads is kept.
    pub fn set_max_requeues(&self, max: u32) {
        self.0.budget.set_max_requeues(max);
    }

    /// Sets whether an entry that was looked up is kept for another round.
    ///
    /// Look-ups before that do not count.
    pub fn set_extend_recently_accessed(&self, extend: bool) {
        self.0.budget.set_extend_accessed(extend);
    }

    /// Removes the entries of all caches.
    pub(crate) fn clear(&self) -> Removed {
        let cores: Vec<_> = self.0.caches.lock().values().cloned().collect();
        let mut removed = Removed::default();
        for core in cores {
            removed.add(core.remove_range(Span::ALL));
        }
        removed
    }

    pub(crate) fn budget(&self) -> u64 {
        self.0.budget.limit()
    }

    /// The weight of removed entries that a reader keeps, in all caches.
    pub(crate) fn retired_weight(&self) -> u64 {
        self.0.budget.retired()
    }

    /// The weight that passes kept for another round, so far.
    pub(crate) fn retained_weight(&self) -> u64 {
        self.0.budget.retained()
    }

    /// Sets the budget.
    pub fn set_budget(&self, budget: u64) {
        self.0.budget.set_budget(budget);
    }

    /// What counts towards the budget, in all caches: entries, removed ones that a reader keeps, and credit that inserters took ahead.
    ///
    /// Credit is at most 64 KiB for each live inserter; less if that is more than a 4096th of the budget, or its share of a 16th.
    pub fn charged_weight(&self) -> u64 {
        self.0.budget.charged()
    }

    /// Pages of all caches.
    pub fn pages(&self) -> u64 {
        self.0.budget.pages()
    }

    /// Keys that the queue holds, also of pages that are gone.
    pub fn keys(&self) -> usize {
        // Relaxed: a number.
        self.0.keys.load(Ordering::Relaxed)
    }

    /// Inserts given back since they would have gone above 1.25 times the budget.
    pub fn refused(&self) -> u64 {
        self.0.budget.refused()
    }
}

impl<V> Default for EvictionQueue<V> {
    fn default() -> Self {
        Self::new(EvictionOptions::default())
    }
}

impl<V> Clone for EvictionQueue<V> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<V> fmt::Debug for EvictionQueue<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EvictionQueue")
            .field("keys", &self.keys())
            .field("pages", &self.pages())
            .field("charged_weight", &self.charged_weight())
            .finish_non_exhaustive()
    }
}
