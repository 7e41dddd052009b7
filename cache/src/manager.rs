//! One budget over all caches of a program, kept by itself.
//!
//! # Guarantees
//! *The budget.* An insert that brings the weight above [`evict_above`](CacheOptions::evict_above_permille) of it has a pass queued, which evicts down to
//! [`evict_to`](CacheOptions::evict_to_permille). Inserts are not held up by a pass, and those above five quarters of the budget are given back.
//!
//! *Time.* At each interval a pass is queued that evicts what is older than the time to live, and drops keys of pages that are gone.
//!
//! *One pass at a time.* Demand that comes while a pass is queued is left to it, and demand that comes while it runs is seen before it ends.
//!
//! *The end.* After [`close`](CacheManager::close), which the drop of the last handle is as well, no timer is left, no pass begins, no insert is taken
//! and no read permit given. All of it may race with everything else.
//!
//! *Memory.* One allocation for each pass that is queued, and one for each tick. A pass that is queued keeps no entry alive.
//!
//! # Protocol
//! One word decides who runs passes: *queued*, *closed*, and what is demanded (a tick, or pressure).
//!
//! | step | from | to | by |
//! |---|---|---|---|
//! | `demand` | any | queued, and demanded | a tick, or an inserter above the threshold; who finds it not queued, submits the job |
//! | `begin` | queued | queued, nothing demanded | the job, before each pass |
//! | `end` | queued, nothing demanded | nothing | the job, after each pass; if it is demanded again, it goes on, and submits itself again after some |
//! | `abandon` | queued | nothing | a job that is dropped unrun, refused, or panics, or finds it closed |
//! | `close` | any | closed, for good | `close` |
//!
//! Ticks have a number each; a timer's job that is not the one that is pending does nothing. A timer is set without the lock, and given back if
//! the manager was closed, or set up anew, meanwhile.
//!
//! # Orderings
//! | operation | word | ordering | pairs with | why |
//! |---|---|---|---|---|
//! | `demand` | the word | Release | `begin`, Acquire | the pass sees the weight that was charged before |
//! | `begin` | the word | Acquire | `demand`, `end`, `abandon` | a demand continues the release sequence of the end before it |
//! | `end`, `abandon` | the word | Release | `begin`, Acquire | the next pass comes after this one |
//! | counters, settings | their words | Relaxed | | numbers that publish nothing |
//!
//! # Limits
//! If the timers refuse a tick, the next one is set by the next pass, cache, or change of options. The weight is in the user's unit, as for a single
//! cache; credit that inserters took ahead counts. Passes go by the given clock, which inserts should have their time from.

use std::fmt;
use std::time::Duration;

use folio_sync::time::{Clock, Instant};
use folio_sync::timers::Timers;
use folio_sync::{Arc, Executor, Mutex, arc_dyn};

use crate::cache::RangeCache;
use crate::eviction::{EvictionOptions, EvictionQueue};
use crate::permits::ReadPermits;

mod evictor;
#[cfg(all(test, loom))]
mod models;
mod options;
mod snapshot;
mod ticks;
mod word;

pub use options::{CacheOptions, CacheOptionsError};
pub use snapshot::CacheSnapshot;

use evictor::Evictor;
use word::PRESSURE;

/// Keeps all caches of a program within one budget of memory, and their reads within one of bytes in flight.
///
/// A handle: clones are the same manager, which is [closed](Self::close) with the last one. See the [module](self) for what it promises.
///
/// ```
/// use bytes::Bytes;
/// use folio_cache::{CacheManager, CacheOptions};
/// use folio_sync::test_util::{ManualClock, ManualExecutor, ManualTimers};
/// use folio_sync::time::Instant;
///
/// let (executor, clock) = (ManualExecutor::new(), ManualClock::new());
/// let timers = ManualTimers::new(&clock);
/// let mut options = CacheOptions::default();
/// options.budget = 1000;
/// let manager = CacheManager::<Bytes>::new(options, executor.clone(), timers, clock)?;
///
/// let cache = manager.cache();
/// for entry in 0..99 {
///     cache.insert((1, entry), Bytes::from_static(b"ten bytes!"), 0, Instant::ORIGIN)?;
/// }
/// assert_eq!(executor.run_all(), 1, "above 980 bytes a pass is queued");
/// assert_eq!(manager.snapshot().charged_weight, 900);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct CacheManager<V>(Arc<Inner<V>>);

/// What the handles share; the last one closes it.
struct Inner<V> {
    queue: EvictionQueue<V>,
    evictor: Arc<Evictor>,
    permits: ReadPermits,
    /// Held for the time of a change: one reaches all places before the next one. Nothing of a user is called under it.
    options: Mutex<CacheOptions>,
}

impl<V> Inner<V> {
    fn close(&self) {
        {
            // No change of options comes after this.
            let _changes = self.options.lock();
            self.evictor.close();
            self.queue.set_budget(0);
        }
        self.evictor.stop_ticks();
        self.permits.close();
        self.queue.clear();
    }
}

impl<V> Drop for Inner<V> {
    fn drop(&mut self) {
        self.close();
    }
}

impl<V: Send + Sync + 'static> CacheManager<V> {
    /// A manager whose passes run on this executor, by these timers and this clock.
    ///
    /// A pass may take as long as the destructors of what it evicts: the executor is best one of its own.
    ///
    /// # Errors
    /// [`CacheOptionsError`] names the setting that is no good.
    pub fn new(
        options: CacheOptions,
        executor: impl Executor + 'static,
        timers: impl Timers + 'static,
        clock: impl Clock + 'static,
    ) -> Result<Self, CacheOptionsError> {
        options.check()?;
        let executor = arc_dyn!(executor => dyn Executor);
        let timers: Arc<dyn Timers> = arc_dyn!(timers => dyn Timers);
        let clock = arc_dyn!(clock => dyn Clock);
        let evictor = Arc::new(Evictor::new(&options, executor, Arc::clone(&timers), clock));
        let pressed = Arc::clone(&evictor);
        let queue = EvictionQueue::with_pressure(options.eviction(), move |queue| {
            if queue.budget.charged() > pressed.above() {
                evictor::demand(&pressed, queue, PRESSURE);
            }
        });
        evictor::arm(&evictor, queue.shared());
        let permits = ReadPermits::new(options.reads, timers);
        Ok(Self(Arc::new(Inner { queue, evictor, permits, options: Mutex::new(options) })))
    }

    /// An empty cache that counts against the budget, for one ledger or several.
    ///
    /// Its entries and their weight are gone when its last handle and inserter are, or when the manager is closed; after that it takes no entry.
    pub fn cache(&self) -> RangeCache<V> {
        let Inner { queue, evictor, .. } = &*self.0;
        evictor::arm(evictor, queue.shared());
        RangeCache::new(queue)
    }

    /// The budget of bytes in flight.
    pub fn permits(&self) -> &ReadPermits {
        &self.0.permits
    }

    /// The clock that passes go by.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.0.evictor.clock
    }

    /// The clock's time, to insert with.
    pub fn now(&self) -> Instant {
        self.0.evictor.clock.now()
    }

    /// The settings as they are.
    pub fn options(&self) -> CacheOptions {
        *self.0.options.lock()
    }

    /// Changes all settings; what is above a smaller budget goes by a pass that is queued now.
    ///
    /// # Errors
    /// [`CacheOptionsError`] names the setting that is no good, or that the manager is closed; nothing has changed then.
    pub fn set_options(&self, options: CacheOptions) -> Result<(), CacheOptionsError> {
        options.check()?;
        let inner = &*self.0;
        let (call_granted, timer) = {
            let mut current = inner.options.lock();
            if inner.evictor.is_closed() {
                return Err(CacheOptionsError::Closed);
            }
            *current = options;
            inner.evictor.set(&options);
            let EvictionOptions { max_requeues, extend_recently_accessed, budget } = options.eviction();
            inner.queue.set_max_requeues(max_requeues);
            inner.queue.set_extend_recently_accessed(extend_recently_accessed);
            inner.queue.set_budget(budget);
            (inner.permits.change(options.reads), inner.evictor.set_interval(&options))
        };
        call_granted();
        inner.evictor.cancel(timer);
        evictor::arm(&inner.evictor, inner.queue.shared());
        evictor::demand(&inner.evictor, inner.queue.shared(), PRESSURE);
        Ok(())
    }

    /// Stops the timer, ends the reads that wait for a permit, empties all caches and takes no entry again.
    ///
    /// A pass that runs just now runs to its end. An insert that races with this may leave its entry in its cache, where it goes with the cache.
    pub fn close(&self) {
        self.0.close();
    }
}

impl<V> CacheManager<V> {
    /// How things stand: each number by itself, as of a moment within the call. Neither locks nor walks.
    pub fn snapshot(&self) -> CacheSnapshot {
        let Inner { queue, evictor, permits, .. } = &*self.0;
        CacheSnapshot::of(queue, evictor, permits)
    }
}

impl<V> Clone for CacheManager<V> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<V> fmt::Debug for CacheManager<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CacheManager").field(&self.snapshot()).finish()
    }
}

/// Whole nanoseconds of a duration, at most what fits.
fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
