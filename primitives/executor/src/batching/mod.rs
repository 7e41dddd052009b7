//! The batching executor's interface.

mod core;
mod delegate;
mod flush;
mod frame;

use std::fmt;
use std::sync::atomic::Ordering;

use folio_sync::atomic::{AtomicBool, AtomicU64};
use folio_sync::cell::UnsafeCell;
use folio_sync::{Arc, Rejected, SerialExecutor, SharedJob, arc_dyn, unwind};

use self::core::{Batches, Core, Handlers, Weigher};
use delegate::Delegate;
pub use flush::{Flush, WouldDeadlock};

use crate::queue::Queue;
use crate::queue::word::{CLOSED, MOST};

/// The number of tasks in a block of the queue, unless chosen otherwise.
pub const DEFAULT_BLOCK: usize = 128;

/// Hands the tasks of many producers to one serial executor, one submission a batch.
///
/// Tasks are values of one type, run in order by one handler. The first task of an idle executor submits a batch to the delegate;
/// tasks that come before the batch ends go with it, or with the batch after it. See the [crate] for an example.
///
/// # Guarantees
/// * **Order.** If one [`submit`](Self::submit) returned before another began, on whatever threads, its task runs first. Tasks never
///   overlap.
/// * **Exactly once.** Each task runs, or is given back once: to its submitter by the error, or to the reject handler. That holds
///   whatever panics, re-enters, refuses, runs jobs at once or drops them unrun.
/// * **Fairness.** A batch ends at its limits, and the rest goes behind what the delegate has been given meanwhile.
///
/// # Progress
/// Submitting is lock-free. A batch never waits for a producer: where one has claimed its place and not yet filled it, the batch ends
/// there, and that producer submits the next.
///
/// # Memory
/// Nothing is allocated for the queue before the first task; then one block for every `BLOCK` tasks, freed as the tasks are taken.
/// A batch allocates nothing beyond what the delegate allocates for a shared job.
///
/// # Limits
/// A producer that the system stops between claiming its place and filling it holds back what came after it. At most 268,435,455 tasks
/// are queued. A handler that blocks holds up all that its delegate runs.
///
/// # Sharing
/// It is not `Clone`: share it by reference or `Arc`.
///
/// # Dropping
/// Dropping is [`shutdown_now`](Self::shutdown_now): [`flush`](Self::flush) first. Without [`on_rejected`](Builder::on_rejected) the
/// queued tasks are lost silently.
pub struct BatchingExecutor<T: Send + 'static, const BLOCK: usize = DEFAULT_BLOCK> {
    core: Arc<Core<T, BLOCK>>,
    handle: Arc<dyn SharedJob>,
}

impl<T: Send + 'static> BatchingExecutor<T> {
    /// Begins an executor whose tasks are run by `handler`.
    ///
    /// A handler that panics fails that task only; see [`Builder::on_failure`].
    pub fn builder(handler: impl FnMut(T) + Send + 'static) -> Builder<T> {
        Builder::new(handler)
    }

    /// Begins an executor whose tasks are run by a handler that also hears where batches end.
    pub fn handled_by(handler: impl Handler<T> + 'static) -> Builder<T> {
        Builder::handled_by(handler)
    }
}

impl<T: Send + 'static, const BLOCK: usize> BatchingExecutor<T, BLOCK> {
    /// Queues a task.
    ///
    /// May be called from anywhere, from the handler too. On a delegate that runs jobs at once, the task may have run when this
    /// returns.
    ///
    /// # Errors
    /// [`Rejected`] with the task, which then never runs: closed, full, or refused by the delegate. A task that was queued by another
    /// thread while the delegate refused goes to the reject handler instead. From inside the reject handler every submission is refused.
    pub fn submit(&self, task: T) -> Result<(), Rejected<T>> {
        self.core.submit(task, &self.handle)
    }

    /// Completes when every task submitted before has run or been given back.
    ///
    /// The flush counts from this call, not from the first poll.
    ///
    /// # Memory
    /// Three small allocations, and a place in the list of those who wait.
    ///
    /// # Progress
    /// Takes the short lock of that list, which a batch takes as it ends only while somebody waits.
    pub fn flush(&self) -> Flush {
        let core = Arc::clone(&self.core);
        let (flush, done) = Flush::new(Box::new(move || core.is_inside()));
        self.on_flushed(done);
        flush
    }

    /// Calls `done` when every earlier task has run or been given back.
    ///
    /// It is called here and now if that is so already, otherwise by whoever ends the batch, outside of all locks. It must not block.
    /// Its panic goes to the failure sink.
    ///
    /// # Memory
    /// One allocation, unless `done` captures nothing, and a place in the list of those who wait.
    ///
    /// # Progress
    /// As for [`flush`](Self::flush).
    pub fn flush_with(&self, done: impl FnOnce() + Send + 'static) {
        self.on_flushed(Box::new(done));
    }

    fn on_flushed(&self, done: Box<dyn FnOnce() + Send>) {
        if let Some(done) = self.core.waiters.add(&self.core.queue, done) {
            self.core.complete_flush(done);
        }
    }

    /// Refuses new tasks from now on; those queued run.
    ///
    /// # Memory
    /// Allocates nothing.
    ///
    /// # Progress
    /// Wait-free: one atomic operation. [`flush`](Self::flush) waits for what is queued.
    pub fn close(&self) {
        self.core.close();
    }

    /// Refuses new tasks from now on and gives those queued to the reject handler.
    ///
    /// If a batch is running, it gives the rest back after its current task. A batch not yet begun loses its turn, and the tasks are
    /// given back here.
    ///
    /// # Memory
    /// Allocates nothing for the tasks; the blocks of the queue are freed as they are given back.
    ///
    /// # Progress
    /// Does not wait for a running batch. Otherwise it runs the reject handler on this thread, once for each queued task, and the
    /// completions of flushes.
    pub fn shutdown_now(&self) {
        self.core.shut();
    }

    /// Whether this thread runs a task of this executor or a job of its delegate.
    ///
    /// Or its reject handler. Waiting for a flush here would wait for itself.
    pub fn is_inside(&self) -> bool {
        self.core.is_inside()
    }

    /// Whether new tasks are refused for good.
    pub fn is_closed(&self) -> bool {
        self.core.queue.word().has(CLOSED)
    }

    /// How many tasks are queued, those of the running batch among them.
    pub fn queued(&self) -> usize {
        self.core.queue.word().pending() as usize
    }

    /// The weight of what is queued, where [`Builder::max_queued_weight`] bounds it; otherwise 0.
    pub fn queued_weight(&self) -> u64 {
        // Relaxed: a number that publishes nothing.
        self.core.queued_weight.load(Ordering::Relaxed)
    }
}

impl<T: Send + 'static, const BLOCK: usize> Drop for BatchingExecutor<T, BLOCK> {
    fn drop(&mut self) {
        self.core.shut();
    }
}

impl<T: Send + 'static, const BLOCK: usize> fmt::Debug for BatchingExecutor<T, BLOCK> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchingExecutor")
            .field("queued", &self.queued())
            .field("closed", &self.is_closed())
            .finish_non_exhaustive()
    }
}

/// A batch that found little waits a moment, so that the next one finds more.
///
/// After a batch of fewer than `below` tasks the thread gives `spins` spin hints and yields `yields` times before it looks for further
/// tasks; a batch that ended at one of its limits does not, since it knows of more. The tasks that were there have run by then: at low load nothing waits. Under load it keeps the worker from taking each task from its producer's cache
/// as soon as it is written, which costs both sides more than the task itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Linger {
    /// Batches of fewer tasks than this linger.
    pub below: u32,
    /// How many spin hints the thread gives.
    pub spins: u32,
    /// How many times the thread yields after that.
    pub yields: u32,
}

impl Linger {
    /// Never wait.
    pub const OFF: Self = Self { below: 0, spins: 0, yields: 0 };
}

impl Default for Linger {
    /// Thirty spin hints and one yield after a batch of fewer than 256 tasks.
    fn default() -> Self {
        Self { below: 256, spins: 30, yields: 1 }
    }
}

/// The limits of an executor, checked and fixed.
#[derive(Clone, Copy, Debug)]
struct Limits {
    max_items: u32,
    /// `u64::MAX` for none.
    max_weight: u64,
    max_queued: u32,
    max_queued_weight: Option<u64>,
    linger: Linger,
}

/// Runs the tasks of a [`BatchingExecutor`], and hears where batches end.
///
/// ```
/// use folio_executor::{BatchingExecutor, Handler};
/// use folio_sync::test_util::ManualExecutor;
///
/// /// Writes lines, and syncs once for all of a batch.
/// struct Writer {
///     unsynced: Vec<&'static str>,
///     log: std::sync::mpsc::Sender<usize>,
/// }
///
/// impl Handler<&'static str> for Writer {
///     fn run(&mut self, line: &'static str) {
///         self.unsynced.push(line);
///     }
///
///     fn batch_ended(&mut self) {
///         self.log.send(self.unsynced.drain(..).count()).unwrap();
///     }
/// }
///
/// let (log, synced) = std::sync::mpsc::channel();
/// let worker = ManualExecutor::new();
/// let writer = BatchingExecutor::handled_by(Writer { unsynced: Vec::new(), log }).build(worker.clone())?;
/// writer.submit("one")?;
/// writer.submit("two")?;
/// worker.run_all();
/// assert_eq!(synced.try_iter().collect::<Vec<_>>(), [2]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Handler<T>: Send {
    /// Runs one task. A panic fails that task only.
    fn run(&mut self, task: T);

    /// A batch has run its last task, and at least one: what can be done once for all of them is done here.
    ///
    /// Before a flush of these tasks completes, and before tasks of the next batch run; also when the executor is shut while the batch runs. A
    /// panic is told to the failure sink.
    fn batch_ended(&mut self) {}
}

/// A handler that wants to hear of nothing but tasks.
struct Closure<F>(F);

impl<T, F: FnMut(T) + Send> Handler<T> for Closure<F> {
    #[inline]
    fn run(&mut self, task: T) {
        (self.0)(task);
    }
}

/// Where user code panicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Part {
    /// The handler, with a task: the task counts as run.
    Task,
    /// The handler, at the end of a batch: its tasks count as run.
    BatchEnd,
    /// The weigher: the task counts as weighing nothing.
    Weigher,
    /// The reject handler: the task counts as given back.
    RejectHandler,
    /// The delegate, while it was given a batch or dropped.
    Delegate,
    /// A completion of a flush.
    Flush,
}

/// A panic that was contained.
#[derive(Debug)]
#[non_exhaustive]
pub struct Failure {
    /// Where it happened.
    pub part: Part,
    /// What the panic carried.
    pub payload: unwind::Payload,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} panicked: {}", self.part, unwind::message(&*self.payload))
    }
}

/// Settings that no executor can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigError {
    /// A bound on queued tasks of 0, or of more than 268,435,455.
    MaxQueued(usize),
    /// Queued weight is bounded, but nothing weighs the tasks.
    NoWeigher,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MaxQueued(given) => {
                write!(f, "at least 1 and at most {MOST} tasks can be queued, not {given}")
            }
            Self::NoWeigher => f.write_str("queued weight is bounded, but there is no weigher"),
        }
    }
}

impl std::error::Error for ConfigError {}

/// Settings of a [`BatchingExecutor`], fixed when it is built.
#[must_use = "nothing is built before `build`"]
pub struct Builder<T, const BLOCK: usize = DEFAULT_BLOCK> {
    max_items: usize,
    max_weight: u64,
    max_queued: usize,
    max_queued_weight: u64,
    linger: Linger,
    weigh: Option<Weigher<T>>,
    failed: Box<dyn Fn(Failure) + Send + Sync>,
    handlers: Handlers<T>,
}

impl<T: Send + 'static, const BLOCK: usize> Builder<T, BLOCK> {
    /// The default settings, with `handler` to run the tasks.
    ///
    /// Each block of the queue holds `BLOCK` tasks. A `BLOCK` that is no power of two, or above 65,536, does not compile.
    pub fn new(handler: impl FnMut(T) + Send + 'static) -> Self {
        Self::handled_by(Closure(handler))
    }

    /// As [`new`](Self::new), with a handler that also hears where batches end.
    pub fn handled_by(handler: impl Handler<T> + 'static) -> Self {
        Self {
            max_items: 1024,
            max_weight: 5 << 20,
            max_queued: MOST as usize,
            max_queued_weight: 0,
            linger: Linger::default(),
            weigh: None,
            failed: Box::new(|_| ()),
            handlers: Handlers { run: Box::new(handler), reject: Box::new(drop) },
        }
    }

    /// A batch runs at most this many tasks; 1024 by default. 0 and 1 hand each task over by itself.
    pub fn max_items(mut self, tasks: usize) -> Self {
        self.max_items = tasks;
        self
    }

    /// A batch stops once its tasks weigh this much; 5 MiB by default.
    ///
    /// 0 is no limit. A batch runs at least one task.
    pub fn max_weight(mut self, weight: u64) -> Self {
        self.max_weight = weight;
        self
    }

    /// Weighs a task when it is submitted; without a weigher every task weighs 0.
    ///
    /// Called on the submitting thread. A weight above 2^62 - 1 counts as that.
    pub fn weigh(mut self, weigh: impl Fn(&T) -> u64 + Send + Sync + 'static) -> Self {
        self.weigh = Some(Box::new(weigh));
        self
    }

    /// Bounds the queued tasks; beyond it `submit` says full.
    ///
    /// The tasks of the running batch count. 268,435,455 by default, which is also the most; `build` takes neither more nor 0.
    pub fn max_queued(mut self, tasks: usize) -> Self {
        self.max_queued = tasks;
        self
    }

    /// Bounds what the queued tasks weigh; beyond it `submit` says full.
    ///
    /// 0, the default, is no bound; any other needs a weigher. A heavier task is taken when nothing is queued.
    pub fn max_queued_weight(mut self, weight: u64) -> Self {
        self.max_queued_weight = weight;
        self
    }

    /// How long a batch that found little waits for more; `Linger::default()` by default.
    pub fn linger(mut self, linger: Linger) -> Self {
        self.linger = linger;
        self
    }

    /// Takes tasks given back that have no submitter left.
    ///
    /// By default they are dropped. Called on the thread that learns of the refusal, one task at a time, in order.
    pub fn on_rejected(mut self, handler: impl FnMut(Rejected<T>) + Send + 'static) -> Self {
        self.handlers.reject = Box::new(handler);
        self
    }

    /// Hears of panics of user code; by default nobody does, beyond the process's panic hook.
    pub fn on_failure(mut self, sink: impl Fn(Failure) + Send + Sync + 'static) -> Self {
        self.failed = Box::new(sink);
        self
    }

    /// Builds the executor; its batches are submitted to `delegate`.
    ///
    /// # Errors
    /// [`ConfigError`] when the settings contradict each other.
    pub fn build(
        self,
        delegate: impl SerialExecutor + 'static,
    ) -> Result<BatchingExecutor<T, BLOCK>, ConfigError> {
        let max_queued = u32::try_from(self.max_queued)
            .ok()
            .filter(|tasks| (1..=MOST).contains(tasks))
            .ok_or(ConfigError::MaxQueued(self.max_queued))?;
        if self.max_queued_weight > 0 && self.weigh.is_none() {
            return Err(ConfigError::NoWeigher);
        }
        let limits = Limits {
            max_items: u32::try_from(self.max_items).unwrap_or(u32::MAX).max(1),
            max_weight: if self.max_weight == 0 { u64::MAX } else { self.max_weight },
            max_queued,
            max_queued_weight: (self.max_queued_weight > 0).then_some(self.max_queued_weight),
            linger: self.linger,
        };
        let core = Arc::new(Core {
            queue: Queue::new(),
            limits,
            weigh: self.weigh,
            failed: self.failed,
            delegate: Delegate::new(delegate),
            queued_weight: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            waiters: flush::Waiters::default(),
            handlers: UnsafeCell::new(self.handlers),
        });
        let handle = arc_dyn!(Batches(Arc::clone(&core)) => dyn SharedJob);
        Ok(BatchingExecutor { core, handle })
    }
}

impl<T, const BLOCK: usize> fmt::Debug for Builder<T, BLOCK> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("max_items", &self.max_items)
            .field("max_weight", &self.max_weight)
            .field("max_queued", &self.max_queued)
            .field("max_queued_weight", &self.max_queued_weight)
            .field("linger", &self.linger)
            .finish_non_exhaustive()
    }
}
