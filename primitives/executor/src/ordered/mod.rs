//! A fixed set of serial workers, chosen by key.
//!
//! # Guarantees
//! *Progress*: submitting is lock-free, and wakes the worker only when its queue was empty. *Order*: jobs of one key run in the order
//! of their submission and never overlap. *Memory*: one block for every 64 queued jobs, freed as they are taken; submitting
//! a shared job allocates nothing else.
//!
//! # Protocol
//! A worker is the consumer of a [queue](crate::queue) of its own: the push that finds nothing pending, or an awaited slot, sets
//! `QUEUED` and then unparks the thread. The thread looks for `QUEUED` before it parks, and an unpark that came first is kept by the
//! thread, so none is lost. *Shutdown* sets `SHUT`: the worker moves what is queued into a list, for whoever joins it.
//!
//! # Orderings
//! Those of the queue. The figures are Relaxed numbers with one writer.
//!
//! # Limits
//! A job that blocks holds up every key of its worker. Without a bound a worker queues up to 2^28 - 1 jobs.

mod worker;

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;

use folio_sync::time::Clock;
use folio_sync::{Arc, Executor, Job, Rejected, arc_dyn, thread, unwind};

use worker::Shared;
pub use worker::Worker;

use crate::WouldDeadlock;
use crate::queue::word::MOST;

/// A fixed set of named worker threads; a key always maps to the same one.
///
/// # Guarantees
/// *Progress*: submitting is lock-free, and wakes the worker only when its queue was empty. *Order*: jobs of one key run in the order
/// of their submission and never overlap. *Memory*: one block for every 64 queued jobs, freed as they are taken; submitting
/// a shared job allocates nothing else.
///
/// ```
/// use folio_executor::OrderedExecutor;
/// use folio_sync::Job;
///
/// let pool = OrderedExecutor::builder().name("ledger").threads(2).build()?;
/// let (tell, told) = std::sync::mpsc::channel();
/// for number in 0..3 {
///     let tell = tell.clone();
///     pool.submit(&"topic-a", Job::new(move || tell.send(number).unwrap()))?;
/// }
/// let unrun = pool.join()?;
/// assert!(unrun.is_empty(), "a graceful end runs what is queued");
/// assert_eq!(told.try_iter().collect::<Vec<_>>(), [0, 1, 2]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Dropping
/// Dropping is [`close`](Self::close): the workers run what is queued and end, and nobody waits for them. Jobs that a
/// [`shutdown_now`](Self::shutdown_now) kept from running are dropped then, here or on their worker.
pub struct OrderedExecutor {
    workers: Vec<Worker>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl OrderedExecutor {
    /// Begins with the default settings.
    pub fn builder() -> OrderedBuilder {
        OrderedBuilder::new()
    }

    /// The workers, in order of their names.
    pub fn workers(&self) -> &[Worker] {
        &self.workers
    }

    /// The worker of a key; the same one for equal keys, for the life of this executor.
    ///
    /// Not across processes: the choice depends on the number of workers and on the standard library's hasher.
    pub fn worker<K: Hash + ?Sized>(&self, key: &K) -> &Worker {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        let count = self.workers.len() as u64;
        // An index of a Vec is a usize.
        let index = usize::try_from(hasher.finish() % count).unwrap_or_default();
        &self.workers[index]
    }

    /// Submits a job to the worker of a key.
    ///
    /// # Memory
    /// A block for every 64 jobs that are queued; nothing else.
    ///
    /// # Progress
    /// Lock-free.
    ///
    /// # Errors
    /// [`Rejected`] with the job: the worker is full or closed.
    pub fn submit<K: Hash + ?Sized>(&self, key: &K, job: Job) -> Result<(), Rejected<Job>> {
        self.worker(key).submit(job)
    }

    /// Refuses new jobs from now on; those queued run, and what they continue with.
    ///
    /// A [`BatchingExecutor`](crate::BatchingExecutor) on a worker runs all that it has taken, batch after batch. It goes on taking tasks as
    /// long as its batches follow each other: close it first.
    pub fn close(&self) {
        for worker in &self.workers {
            worker.close();
        }
    }

    /// Refuses new jobs from now on and keeps those queued from running.
    ///
    /// Does not wait. Each worker ends after its current job; [`join`](Self::join) has the jobs that did not run.
    pub fn shutdown_now(&self) {
        for worker in &self.workers {
            worker.shut();
        }
    }

    /// Closes, waits until all workers have ended, and returns the jobs that did not run.
    ///
    /// There are such jobs only after [`shutdown_now`](Self::shutdown_now). Run or drop them: a shared job that is dropped tells its owner,
    /// and a batch of a [`BatchingExecutor`](crate::BatchingExecutor) gives back its tasks only then.
    ///
    /// # Errors
    /// [`WouldDeadlock`] on a thread of one of the workers; the executor is closed then.
    ///
    /// # Panics
    /// When a worker ended by a panic of its own, which is a fault of this crate: those of jobs are contained.
    pub fn join(mut self) -> Result<Vec<Job>, WouldDeadlock> {
        self.close();
        let here = thread::current().id();
        if self.workers.iter().any(|worker| worker.thread.id() == here) {
            return Err(WouldDeadlock);
        }
        for thread in std::mem::take(&mut self.threads) {
            // A worker contains the panics of its jobs; one of its own is a fault, and goes on here.
            if let Err(payload) = thread.join() {
                std::panic::resume_unwind(payload);
            }
        }
        let mut unrun = Vec::new();
        for worker in &self.workers {
            unrun.append(&mut worker.shared.take_unrun());
        }
        Ok(unrun)
    }
}

impl Drop for OrderedExecutor {
    fn drop(&mut self) {
        self.close();
        for worker in &self.workers {
            worker::drop_each(worker.shared.take_unrun());
        }
    }
}

impl fmt::Debug for OrderedExecutor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OrderedExecutor").field("workers", &self.workers).finish_non_exhaustive()
    }
}

/// A job that panicked; its worker went on.
#[derive(Debug)]
#[non_exhaustive]
pub struct JobPanic {
    /// The name of the worker.
    pub worker: String,
    /// What the panic carried.
    pub payload: unwind::Payload,
}

impl fmt::Display for JobPanic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a job of {} panicked: {}", self.worker, unwind::message(&*self.payload))
    }
}

/// Settings of an [`OrderedExecutor`], fixed when it is built.
#[must_use = "no thread is started before `build`"]
pub struct OrderedBuilder {
    threads: usize,
    name: String,
    capacity: Option<usize>,
    spins: u32,
    clock: Option<Arc<dyn Clock>>,
    panicked: Arc<dyn Fn(JobPanic) + Send + Sync>,
}

impl OrderedBuilder {
    fn new() -> Self {
        Self {
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            name: "folio".into(),
            capacity: None,
            spins: 100,
            clock: system_clock(),
            panicked: arc_dyn!(drop => dyn Fn(JobPanic) + Send + Sync),
        }
    }

    /// The number of workers; one a processor by default.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// The workers are called by this name, a hyphen and their number; `folio` by default.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Bounds the jobs that each worker queues; without a bound by default.
    ///
    /// The running job counts.
    pub fn capacity(mut self, jobs: usize) -> Self {
        self.capacity = Some(jobs);
        self
    }

    /// How often a worker looks for work before it parks; 100 by default.
    ///
    /// It gives a spin hint after each look.
    pub fn spins(mut self, spins: u32) -> Self {
        self.spins = spins;
        self
    }

    /// The clock that measures how busy the workers are; the system's by default.
    pub fn clock(mut self, clock: impl Clock + 'static) -> Self {
        self.clock = Some(arc_dyn!(clock => dyn Clock));
        self
    }

    /// Hears of jobs that panic; by default only the process's panic hook does.
    ///
    /// Called on the worker's thread.
    pub fn on_panic(mut self, sink: impl Fn(JobPanic) + Send + Sync + 'static) -> Self {
        self.panicked = arc_dyn!(sink => dyn Fn(JobPanic) + Send + Sync);
        self
    }

    /// Starts the workers.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] for no threads, no capacity, one of more than 268,435,455 jobs, or a name with a zero byte;
    /// otherwise the system's, when it starts no thread. Threads that were started end again.
    pub fn build(self) -> io::Result<OrderedExecutor> {
        let invalid = |what: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        if self.threads == 0 {
            return invalid("an executor has at least one thread");
        }
        if self.name.contains('\0') {
            return invalid("a thread's name has no zero byte");
        }
        let capacity = match self.capacity.map(u32::try_from) {
            None => None,
            Some(Ok(jobs)) if (1..=MOST).contains(&jobs) => Some(jobs),
            Some(_) => return invalid("a worker queues between 1 and 268,435,455 jobs"),
        };
        let mut executor = OrderedExecutor { workers: Vec::new(), threads: Vec::new() };
        for index in 0..self.threads {
            let name = format!("{}-{index}", self.name);
            let shared = Arc::new(Shared::new(
                name.clone(),
                capacity,
                self.spins,
                self.clock.clone(),
                Arc::clone(&self.panicked),
            ));
            let work = Arc::clone(&shared);
            let handle = thread::Builder::new().name(name).spawn(move || work.work())?;
            executor.workers.push(Worker { shared, thread: handle.thread().clone() });
            executor.threads.push(handle);
        }
        Ok(executor)
    }
}

impl fmt::Debug for OrderedBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OrderedBuilder")
            .field("threads", &self.threads)
            .field("name", &self.name)
            .field("capacity", &self.capacity)
            .field("spins", &self.spins)
            .finish_non_exhaustive()
    }
}

#[cfg(not(any(loom, shuttle)))]
#[allow(clippy::unnecessary_wraps, reason = "models have no clock")]
fn system_clock() -> Option<Arc<dyn Clock>> {
    Some(arc_dyn!(folio_sync::time::SystemClock::new() => dyn Clock))
}

#[cfg(any(loom, shuttle))]
fn system_clock() -> Option<Arc<dyn Clock>> {
    None
}
