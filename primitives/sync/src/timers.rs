//! Timers that are given, not reached for.

use std::fmt;
use std::time::Duration;

use crate::{Arc, Job, Rejected};

#[cfg(any(feature = "test-util", not(any(loom, shuttle))))]
pub(crate) mod schedule;
#[cfg(not(any(loom, shuttle)))]
mod threaded;

#[cfg(not(any(loom, shuttle)))]
pub use threaded::{ThreadTimers, ThreadTimersBuilder};

/// Names a timer that was set, for cancelling it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimerId(u64);

impl TimerId {
    /// The id of this number; for implementations of [`Timers`].
    pub const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    /// The number of this id; for implementations of [`Timers`].
    pub const fn as_raw(self) -> u64 {
        self.0
    }
}

/// Runs jobs later.
///
/// ```
/// use std::time::Duration;
///
/// use folio_sync::timers::{ThreadTimers, Timers};
/// use folio_sync::{Executor, Job, Rejected};
///
/// /// Submits a job again after a pause; who cannot be delayed is tried at once.
/// fn retry_later(timers: &impl Timers, job: Job) {
///     if let Err(rejected) = timers.once(Duration::from_millis(10), job) {
///         rejected.into_inner().run();
///     }
/// }
///
/// let timers = ThreadTimers::new();
/// let (tell, told) = std::sync::mpsc::channel();
/// retry_later(&timers, Job::new(move || tell.send("ran").unwrap()));
/// assert_eq!(told.recv(), Ok("ran"));
/// ```
pub trait Timers: Send + Sync {
    /// Runs `job` once, when at least `delay` has passed.
    ///
    /// It runs on the timers' own thread and must not block: it hands work on to an executor. Timers that are due at the same moment
    /// run in the order in which they were set.
    ///
    /// # Errors
    /// [`Rejected`] with the same job when no timer can be set.
    fn once(&self, delay: Duration, job: Job) -> Result<TimerId, Rejected<Job>>;

    /// Takes a timer back; `None` when it has run, runs now or was cancelled before.
    ///
    /// Whoever gets the job back knows that it has not run and never will.
    fn cancel(&self, timer: TimerId) -> Option<Job>;
}

impl<T: Timers + ?Sized> Timers for Arc<T> {
    fn once(&self, delay: Duration, job: Job) -> Result<TimerId, Rejected<Job>> {
        (**self).once(delay, job)
    }

    fn cancel(&self, timer: TimerId) -> Option<Job> {
        (**self).cancel(timer)
    }
}

impl fmt::Display for TimerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "timer {}", self.0)
    }
}
