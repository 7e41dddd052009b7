//! Executors, and the jobs they are given.

use std::error::Error;
use std::fmt;

use crate::Arc;

/// A job that can be submitted again and again without allocating.
///
/// Made once as an `Arc<dyn SharedJob>` (see [`arc_dyn!`](crate::arc_dyn)) and wrapped by [`Job::shared`] for each submission.
pub trait SharedJob: Send + Sync {
    /// Runs the job.
    ///
    /// `this` is the handle by which it was submitted, to clone for a further submission.
    fn run(&self, this: &Arc<dyn SharedJob>);

    /// Hears that one submission was dropped without having run.
    ///
    /// Called wherever the job is dropped, also while a thread unwinds: it must not panic.
    fn abandoned(&self, this: &Arc<dyn SharedJob>);
}

/// One piece of work for an [`Executor`].
///
/// A job runs at most once. A shared job that is dropped unrun says so to its owner by [`SharedJob::abandoned`].
pub struct Job(Option<Work>);

enum Work {
    Boxed(Box<dyn FnOnce() + Send>),
    Shared(Arc<dyn SharedJob>),
}

impl Job {
    /// A job of a closure.
    ///
    /// # Memory
    /// One allocation, unless the closure captures nothing.
    pub fn new(work: impl FnOnce() + Send + 'static) -> Self {
        Self(Some(Work::Boxed(Box::new(work))))
    }

    /// One submission of a shared job; allocates nothing.
    pub fn shared(job: Arc<dyn SharedJob>) -> Self {
        Self(Some(Work::Shared(job)))
    }

    /// Runs the job on this thread.
    ///
    /// # Panics
    /// When the job does; executors that must survive it use [`unwind::catch`](crate::unwind::catch).
    pub fn run(mut self) {
        match self.0.take() {
            Some(Work::Boxed(work)) => work(),
            Some(Work::Shared(job)) => job.run(&job),
            None => {}
        }
    }

    /// Drops the job unrun without telling its owner, who has it back and knows.
    pub fn forget(mut self) {
        self.0 = None;
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if let Some(Work::Shared(job)) = self.0.take() {
            job.abandoned(&job);
        }
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Some(Work::Boxed(_)) => "Job::Boxed",
            Some(Work::Shared(_)) => "Job::Shared",
            None => "Job::Taken",
        })
    }
}

/// Runs jobs, on threads of its own or wherever it likes.
///
/// What a thread did before it submitted a job is visible to the job. A job that was taken runs once, or is dropped unrun.
pub trait Executor: Send + Sync {
    /// Takes a job to run it, now or later.
    ///
    /// # Errors
    /// [`Rejected`] with the same job, unrun, when the executor is full, closed or unwilling.
    fn submit(&self, job: Job) -> Result<(), Rejected<Job>>;
}

/// An executor whose jobs never overlap and run in the order of their submission.
pub trait SerialExecutor: Executor {
    /// Whether the calling thread is inside a job of this executor.
    fn is_current(&self) -> bool;

    /// Takes the continuation of the job that is running on this executor now.
    ///
    /// It queues behind everything submitted so far, and it inherits the running job's place: a bounded executor that is merely
    /// full takes it, and one that is closed and still runs what is queued should too. Called from elsewhere it is the same as
    /// [`submit`](Executor::submit), as it is by default.
    ///
    /// # Errors
    /// [`Rejected`] with the same job, unrun, when the executor is shut down or unwilling.
    fn resubmit(&self, job: Job) -> Result<(), Rejected<Job>> {
        self.submit(job)
    }
}

impl<E: Executor + ?Sized> Executor for Arc<E> {
    fn submit(&self, job: Job) -> Result<(), Rejected<Job>> {
        (**self).submit(job)
    }
}

impl<E: SerialExecutor + ?Sized> SerialExecutor for Arc<E> {
    fn is_current(&self) -> bool {
        (**self).is_current()
    }

    fn resubmit(&self, job: Job) -> Result<(), Rejected<Job>> {
        (**self).resubmit(job)
    }
}

/// Why something was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RejectReason {
    /// A bound is reached: try again when some of the queued work is done.
    Full,
    /// Closed or shut down: nothing will be taken again.
    Closed,
    /// Unwilling just now; a later try may succeed.
    Refused,
}

impl fmt::Display for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "the queue is full",
            Self::Closed => "closed",
            Self::Refused => "refused",
        })
    }
}

/// Something that was not taken, given back unchanged.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Rejected<T> {
    /// What was offered.
    pub value: T,
    /// Why it was not taken.
    pub reason: RejectReason,
}

impl<T> Rejected<T> {
    /// Gives `value` back for this reason.
    pub fn new(value: T, reason: RejectReason) -> Self {
        Self { value, reason }
    }

    /// What was offered.
    pub fn into_inner(self) -> T {
        self.value
    }

    /// The same rejection of what `f` makes of the value.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Rejected<U> {
        Rejected { value: f(self.value), reason: self.reason }
    }
}

impl<T> fmt::Debug for Rejected<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rejected").field("reason", &self.reason).finish_non_exhaustive()
    }
}

impl<T> fmt::Display for Rejected<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not taken: {}", self.reason)
    }
}

impl<T> Error for Rejected<T> {}
