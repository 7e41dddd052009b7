//! Passes: who demands one, who runs it, and what it evicts.

use folio_sync::atomic::{AtomicU64, Ordering};
use folio_sync::time::{Clock, Instant};
use folio_sync::timers::{TimerId, Timers};
use folio_sync::{Arc, Executor, Job, step, unwind};

use super::options::CacheOptions;
use super::ticks::Ticks;
use super::word::{TICK, Word};
use crate::eviction::{EvictError, Evicted, EvictionQueue, Shared};

/// How many passes a job runs at most before it makes way for others on its executor.
const PASSES_A_JOB: u32 = 16;

/// What passes go by, and what they did.
///
/// It knows no queue: the queue's pressure knows it. Numbers that publish nothing, hence Relaxed everywhere but in the word.
pub(super) struct Evictor {
    word: Word,
    /// The weight above which a pass evicts, and down to which.
    above: AtomicU64,
    to: AtomicU64,
    /// In nanoseconds.
    ttl: AtomicU64,
    ticks: Ticks,
    executor: Arc<dyn Executor>,
    timers: Arc<dyn Timers>,
    pub(super) clock: Arc<dyn Clock>,
    passes: AtomicU64,
    /// Passes that the executor did not take.
    refused: AtomicU64,
    expired: Sum,
    pressed: Sum,
}

/// What passes evicted for one reason.
#[derive(Default)]
struct Sum {
    entries: AtomicU64,
    weight: AtomicU64,
}

impl Sum {
    fn add(&self, evicted: Result<Evicted, EvictError>) {
        // Another pass, which works on the same queue, does what this one would have.
        let Ok(Evicted { entries, weight }) = evicted else { return };
        // Relaxed, both: see `Evictor`.
        self.entries.fetch_add(entries, Ordering::Relaxed);
        self.weight.fetch_add(weight, Ordering::Relaxed);
    }

    fn get(&self) -> Evicted {
        // Relaxed, both: see `Evictor`.
        Evicted { entries: self.entries.load(Ordering::Relaxed), weight: self.weight.load(Ordering::Relaxed) }
    }
}

impl Evictor {
    pub(super) fn new(
        options: &CacheOptions,
        executor: Arc<dyn Executor>,
        timers: Arc<dyn Timers>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let evictor = Self {
            word: Word::new(),
            above: AtomicU64::new(0),
            to: AtomicU64::new(0),
            ttl: AtomicU64::new(0),
            ticks: Ticks::new(options.pass_interval),
            executor,
            timers,
            clock,
            passes: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            expired: Sum::default(),
            pressed: Sum::default(),
        };
        evictor.set(options);
        evictor
    }

    pub(super) fn set(&self, options: &CacheOptions) {
        // Relaxed, all: see the type.
        self.above.store(options.above(), Ordering::Relaxed);
        self.to.store(options.to(), Ordering::Relaxed);
        self.ttl.store(super::nanos(options.ttl), Ordering::Relaxed);
    }

    /// The weight above which a pass is due.
    pub(super) fn above(&self) -> u64 {
        // Relaxed: see the type.
        self.above.load(Ordering::Relaxed)
    }

    /// Has the next tick set by these options' interval; the timer that is set is to be cancelled.
    #[must_use = "a timer that comes back has to be cancelled"]
    pub(super) fn set_interval(&self, options: &CacheOptions) -> Option<TimerId> {
        self.ticks.set_interval(options.pass_interval)
    }

    pub(super) fn cancel(&self, timer: Option<TimerId>) {
        if let Some(timer) = timer {
            drop(self.timers.cancel(timer));
        }
    }

    /// No pass begins after this.
    pub(super) fn close(&self) {
        step!("manager.close", self.word.close());
    }

    /// No timer is set after this.
    pub(super) fn stop_ticks(&self) {
        self.cancel(self.ticks.close());
    }

    pub(super) fn is_closed(&self) -> bool {
        self.word.is_closed()
    }

    pub(super) fn passes(&self) -> u64 {
        // Relaxed: see the type.
        self.passes.load(Ordering::Relaxed)
    }

    pub(super) fn refused(&self) -> u64 {
        // Relaxed: see the type.
        self.refused.load(Ordering::Relaxed)
    }

    /// What went since it was too old.
    pub(super) fn expired(&self) -> Evicted {
        self.expired.get()
    }

    /// What went since there was too much.
    pub(super) fn pressed(&self) -> Evicted {
        self.pressed.get()
    }

    fn pass<V>(&self, queue: &EvictionQueue<V>, demanded: u32) {
        // Relaxed, all: see the type.
        self.passes.fetch_add(1, Ordering::Relaxed);
        let now = self.clock.now();
        if demanded & TICK != 0 {
            let ttl = self.ttl.load(Ordering::Relaxed);
            let before = Instant::from_nanos(now.as_nanos().saturating_sub(ttl));
            self.expired.add(queue.evict_before(before, now));
        }
        let charged = queue.charged_weight();
        if charged > self.above() {
            let excess = charged.saturating_sub(self.to.load(Ordering::Relaxed));
            self.pressed.add(queue.evict_weight(excess, now));
        }
    }
}

/// Has a pass run, unless one is queued, which will do.
pub(super) fn demand<V: Send + Sync + 'static>(evictor: &Arc<Evictor>, queue: &Arc<Shared<V>>, what: u32) {
    if step!("manager.demand", evictor.word.demand(what)) {
        Passes { evictor: Arc::clone(evictor), queue: EvictionQueue::of(queue), queued: true }.submit();
    }
}

/// Sets the timer of the next tick, if none is set.
pub(super) fn arm<V: Send + Sync + 'static>(evictor: &Arc<Evictor>, queue: &Arc<Shared<V>>) {
    let Some((tick, interval)) = evictor.ticks.begin() else { return };
    let (own, queue) = (Arc::clone(evictor), Arc::clone(queue));
    let fire = move || {
        if own.ticks.fired(tick) {
            demand(&own, &queue, TICK);
            arm(&own, &queue);
        }
    };
    match evictor.timers.once(interval, Job::new(fire)) {
        Ok(timer) => evictor.cancel(evictor.ticks.set(tick, timer)),
        Err(rejected) => {
            evictor.ticks.refused(tick);
            drop(rejected);
        }
    }
}

/// The job: whoever has it is the one that is queued.
struct Passes<V: Send + Sync + 'static> {
    evictor: Arc<Evictor>,
    queue: EvictionQueue<V>,
    /// Not ended yet.
    queued: bool,
}

impl<V: Send + Sync + 'static> Passes<V> {
    fn submit(self) {
        let evictor = Arc::clone(&self.evictor);
        let taken = unwind::catch(|| evictor.executor.submit(Job::new(move || self.run())));
        // What was not taken is dropped, and so abandoned: the next demand tries again.
        let refused = match taken {
            Ok(Ok(())) => return,
            Ok(Err(rejected)) => unwind::catch(|| drop(rejected)).err(),
            Err(payload) => Some(payload),
        };
        // Relaxed: see `Evictor`.
        evictor.refused.fetch_add(1, Ordering::Relaxed);
        if let Some(payload) = refused {
            unwind::discard(payload);
        }
    }

    fn run(mut self) {
        for _ in 0..PASSES_A_JOB {
            let Some(demanded) = step!("manager.begin", self.evictor.word.begin()) else { return };
            self.evictor.pass(&self.queue, demanded);
            arm(&self.evictor, self.queue.shared());
            if step!("manager.end", self.evictor.word.end()) {
                self.queued = false;
                return;
            }
        }
        self.submit();
    }
}

impl<V: Send + Sync + 'static> Drop for Passes<V> {
    fn drop(&mut self) {
        if self.queued {
            self.evictor.word.abandon();
        }
    }
}
