//! The completer.
//!
//! # Guarantees
//! A completion that may run here costs a thread-local counter and the call: no allocation, no atomic operation, no lock. Every
//! completion has exactly one end: it runs, it is given back, or it is refused. At most *limit* completions run inside one another
//! on a thread, whichever completers they belong to. Between a panic and the next completion the counter is as it was. There is no
//! order between completions: one that runs at once overtakes one that was queued.
//!
//! # Protocol
//! | state | next | who moves it |
//! |---|---|---|
//! | offered | running, below the limit and where the policy allows | the caller of `complete` |
//! | offered | queued: in its slot, one job under way | the caller; the executor takes the job |
//! | queued | given back, if the job was not taken | the caller, who takes it out of the slot |
//! | queued | running, if the thread is below its limit | the thread that the job lands on |
//! | queued | queued at the serial executor, if that thread is at its limit | the same; counted |
//! | queued | refused: not taken on the way, dropped unrun, or landed at the limit too often | whoever takes it out of the slot |
//! | running | ended, also by a panic, which is reported | the thread that runs it |
//!
//! Whoever takes the completion out of its slot decides; the slot's lock makes that one thread.
//!
//! # Orderings
//! | operation | word | ordering | pairs with | why |
//! |---|---|---|---|---|
//! | count | a counter of [`Counts`] | Relaxed | | a statistic, which publishes nothing |
//!
//! What a completion sees of its asker comes with the executor's hand-over, and with the slot's lock.
//!
//! # Limits
//! A completion that lands at the limit sixteen times is refused: its executors run their jobs inside other completions, and none
//! of them leaves the thread.

use std::fmt;

use folio_sync::atomic::{AtomicU64, Ordering};
use folio_sync::unwind::{self, Payload};
use folio_sync::{Arc, Executor, Job, RejectReason, Rejected, SerialExecutor, arc_dyn};

use crate::builder::Builder;
use crate::completion::Completion;
use crate::depth::Level;
use crate::parcel;

/// On which thread a completion may run at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Policy {
    /// On whatever thread has the result.
    Inline,
    /// Only inside a job of the serial executor; elsewhere it is queued there.
    Affine,
}

/// What became of a completion that was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Completed {
    /// It ran, inside the call.
    Ran,
    /// It ran inside the call and panicked; the result counts as delivered.
    ///
    /// The panic went to the sink.
    Panicked,
    /// It was queued: it runs elsewhere, or is refused there.
    Queued,
}

/// What a completer did so far, beyond running completions at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Completions that were queued.
    pub queued: u64,
    /// Times that a queued completion landed on a thread at its limit.
    ///
    /// It went to the serial executor then.
    pub landed_at_limit: u64,
    /// Completions that were refused after they were queued.
    pub refused: u64,
    /// Panics that were contained.
    pub panics: u64,
}

/// Runs a completion where its result is, to a bounded depth.
///
/// The policy, the limit and the executors are captured when it is built. Clones are the same completer.
///
/// # Memory
/// A queued completion keeps its completer, and so its executors, alive until it is run or dropped: an executor that is let go of with
/// completions queued is never freed, unless it drops what it has.
///
/// ```
/// use folio_completer::{Completed, InlineCompleter};
/// use folio_sync::test_util::ManualExecutor;
///
/// let worker = ManualExecutor::new();
/// let completer = InlineCompleter::inline(worker);
/// let completed = completer.complete(|| println!("here, now")).expect("nothing is queued, so nothing is refused");
/// assert_eq!(completed, Completed::Ran);
/// ```
#[derive(Clone)]
pub struct InlineCompleter {
    policy: Policy,
    limit: u32,
    shared: Arc<Shared>,
}

impl InlineCompleter {
    /// Sets up a completer of this policy, for the owner whose serial executor is `serial`.
    ///
    /// The executor must not run jobs inside `submit`: what is at the limit must leave the thread.
    pub fn builder(policy: Policy, serial: impl SerialExecutor + 'static) -> Builder {
        Builder::new(policy, arc_dyn!(serial => dyn SerialExecutor))
    }

    /// A completer that runs completions on whatever thread has the result.
    ///
    /// # Threads
    /// With the feature `rayon` this starts rayon's global pool if nothing has; see [`Builder::build`].
    pub fn inline(serial: impl SerialExecutor + 'static) -> Self {
        Self::builder(Policy::Inline, serial).build()
    }

    /// A completer that runs completions on the serial executor only, at once when already there.
    pub fn affine(serial: impl SerialExecutor + 'static) -> Self {
        Self::builder(Policy::Affine, serial).build()
    }

    pub(crate) fn new(shared: Shared) -> Self {
        Self { policy: shared.policy, limit: shared.limit, shared: Arc::new(shared) }
    }

    /// Runs a completion here if policy and depth allow that, and queues it otherwise.
    ///
    /// It may run before this call returns: the asker sets its own pending state *before* it asks. The caller holds no lock that
    /// a completion could want. A panic of the completion does not leave this call.
    ///
    /// # Errors
    /// The completion with what it captured, which has not run and never will, when the executor did not take it. One executor is
    /// tried, once. Release what it holds and fail the operation: [`Completion::refused`] does both.
    ///
    /// # Panics
    /// When an executor's `submit` does; the completion was refused then, if it was still there.
    ///
    /// # Memory
    /// Running at once allocates nothing. Queueing allocates the completion's slot and the job that carries it.
    ///
    /// # Progress
    /// Running at once is wait-free up to the completion itself.
    #[inline]
    pub fn complete<C: Completion>(&self, completion: C) -> Result<Completed, Rejected<C>> {
        let allowed = match self.policy {
            Policy::Inline => true,
            Policy::Affine => self.shared.serial.is_current(),
        };
        if allowed && let Some(level) = Level::enter(self.limit) {
            return Ok(self.shared.run(level, completion));
        }
        self.queue(completion)
    }

    #[cold]
    fn queue<C: Completion>(&self, completion: C) -> Result<Completed, Rejected<C>> {
        let shared = &self.shared;
        parcel::send(completion, shared, |job| shared.submit_overflow(job))?;
        // Relaxed: a statistic.
        shared.queued.fetch_add(1, Ordering::Relaxed);
        Ok(Completed::Queued)
    }

    /// On which thread its completions may run at once.
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// How many completions may run inside one another.
    pub fn depth_limit(&self) -> u32 {
        self.limit
    }

    /// What it did so far, it and its clones.
    pub fn counts(&self) -> Counts {
        let shared = &self.shared;
        // Relaxed, all four: statistics, each right by itself.
        Counts {
            queued: shared.queued.load(Ordering::Relaxed),
            landed_at_limit: shared.landed_at_limit.load(Ordering::Relaxed),
            refused: shared.refused.load(Ordering::Relaxed),
            panics: shared.panics.load(Ordering::Relaxed),
        }
    }
}

impl fmt::Debug for InlineCompleter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InlineCompleter")
            .field("policy", &self.policy)
            .field("limit", &self.limit)
            .field("overflow", &self.shared.overflow)
            .finish_non_exhaustive()
    }
}

/// Where completions go at the limit.
pub(crate) enum Overflow {
    Serial,
    Given(Arc<dyn Executor>),
    #[cfg(all(feature = "rayon", not(any(loom, shuttle))))]
    Pool,
}

impl Overflow {
    /// The global pool if there is one worth the name, or else the serial executor.
    pub(crate) fn by_default() -> Self {
        #[cfg(all(feature = "rayon", not(any(loom, shuttle))))]
        if crate::pool::usable() {
            return Self::Pool;
        }
        Self::Serial
    }
}

impl fmt::Debug for Overflow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Serial => "Serial",
            Self::Given(_) => "Given",
            #[cfg(all(feature = "rayon", not(any(loom, shuttle))))]
            Self::Pool => "Pool",
        })
    }
}

/// What the handles of a completer and its queued completions have in common.
pub(crate) struct Shared {
    policy: Policy,
    limit: u32,
    serial: Arc<dyn SerialExecutor>,
    overflow: Overflow,
    on_panic: Box<dyn Fn(Payload) + Send + Sync>,
    queued: AtomicU64,
    landed_at_limit: AtomicU64,
    refused: AtomicU64,
    panics: AtomicU64,
}

impl Shared {
    pub(crate) fn new(
        policy: Policy,
        limit: u32,
        serial: Arc<dyn SerialExecutor>,
        overflow: Overflow,
        on_panic: Box<dyn Fn(Payload) + Send + Sync>,
    ) -> Self {
        Self {
            policy,
            limit,
            serial,
            overflow,
            on_panic,
            queued: AtomicU64::new(0),
            landed_at_limit: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            panics: AtomicU64::new(0),
        }
    }

    pub(crate) fn limit(&self) -> u32 {
        self.limit
    }

    /// Runs a completion at a level that this thread has entered.
    #[inline]
    pub(crate) fn run<C: Completion>(&self, level: Level, completion: C) -> Completed {
        let result = unwind::catch(move || completion.run());
        drop(level);
        match result {
            Ok(()) => Completed::Ran,
            Err(payload) => {
                self.report(payload);
                Completed::Panicked
            }
        }
    }

    /// Tells a completion that was queued that it will never run.
    #[cold]
    pub(crate) fn refuse<C: Completion>(&self, completion: C, reason: RejectReason) {
        // Relaxed: a statistic.
        self.refused.fetch_add(1, Ordering::Relaxed);
        if let Err(payload) = unwind::catch(move || completion.refused(reason)) {
            self.report(payload);
        }
    }

    /// Reports a panic; one of the sink itself ends here.
    #[cold]
    pub(crate) fn report(&self, payload: Payload) {
        // Relaxed: a statistic.
        self.panics.fetch_add(1, Ordering::Relaxed);
        if let Err(again) = unwind::catch(|| (self.on_panic)(payload)) {
            unwind::discard(again);
        }
    }

    pub(crate) fn count_landed_at_limit(&self) {
        // Relaxed: a statistic.
        self.landed_at_limit.fetch_add(1, Ordering::Relaxed);
    }

    /// Hands over a job that may not run here.
    fn submit_overflow(&self, job: Job) -> Result<(), Rejected<Job>> {
        match &self.overflow {
            Overflow::Serial => self.submit_to_serial(job),
            Overflow::Given(executor) => executor.submit(job),
            #[cfg(all(feature = "rayon", not(any(loom, shuttle))))]
            Overflow::Pool => crate::pool::spawn(job).or_else(|job| self.submit_to_serial(job)),
        }
    }

    /// Hands a job to the serial executor. Asked by one of its own jobs, it is that job's continuation.
    pub(crate) fn submit_to_serial(&self, job: Job) -> Result<(), Rejected<Job>> {
        self.serial.resubmit(job)
    }
}
