//! Timers that are given, not reached for.

use std::fmt;
use std::time::Duration;

use crate::{Arc, Job, Rejected};

/// Names a timer that was set, for cancelling it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
pub trait Timers: Send + Sync {
    /// Runs `job` once, when at least `delay` has passed.
    ///
    /// It runs on the timers' own thread and must not block: it hands work on to an executor.
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
