//! Any executor, made serial.

use std::fmt;

use folio_sync::{Executor, Job, Rejected, SerialExecutor};

use crate::{BatchingExecutor, Failure, Linger};

/// Runs jobs one at a time and in order on an executor that promises neither.
///
/// The jobs queue here, and at most one job at a time stands for them on the executor below. Clones of the executor below may be
/// shared by many of these.
///
/// # Memory
/// As a [`BatchingExecutor`] of jobs, and what the executor below allocates for a job.
///
/// # Progress
/// Submitting is lock-free; the submission that finds nothing queued also submits to the executor below.
///
/// # Dropping
/// The jobs that are queued are dropped unrun, and shared jobs hear of it. The job that is running ends.
pub struct Serial {
    jobs: BatchingExecutor<Job>,
}

impl Serial {
    /// Queues for `executor`; a job that panics is told to `failed`.
    ///
    /// The next one runs then.
    #[allow(
        clippy::missing_panics_doc,
        reason = "the settings are constants that do not contradict each other"
    )]
    pub fn new(executor: impl Executor + 'static, failed: impl Fn(Failure) + Send + Sync + 'static) -> Self {
        let jobs = BatchingExecutor::builder(Job::run)
            .linger(Linger::OFF)
            .on_failure(failed)
            .build(Below(executor))
            .expect("the settings are constants that do not contradict each other");
        Self { jobs }
    }
}

impl Executor for Serial {
    fn submit(&self, job: Job) -> Result<(), Rejected<Job>> {
        self.jobs.submit(job)
    }
}

impl SerialExecutor for Serial {
    fn is_current(&self) -> bool {
        self.jobs.is_inside()
    }
}

impl fmt::Debug for Serial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Serial").field("queued", &self.jobs.queued()).finish_non_exhaustive()
    }
}

/// The executor below, on which nobody is serially: the turn of the queue keeps batches apart.
struct Below<E>(E);

impl<E: Executor> Executor for Below<E> {
    fn submit(&self, job: Job) -> Result<(), Rejected<Job>> {
        self.0.submit(job)
    }
}

impl<E: Executor> SerialExecutor for Below<E> {
    fn is_current(&self) -> bool {
        false
    }
}
