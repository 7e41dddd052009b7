//! The hand-stepped timers.

use std::fmt;
use std::time::Duration;

use super::ManualClock;
use super::blocking::{Blocked, watch_for_blocking};
#[cfg(not(any(loom, shuttle)))]
use super::watchdog::Watchdog;
use crate::time::{Clock, Instant};
use crate::timers::schedule::Schedule;
use crate::timers::{TimerId, Timers};
use crate::{Arc, Job, Mutex, RejectReason, Rejected, unwind};

/// Timers that fire on the test's thread, when the test advances them.
///
/// They refuse on demand, count, and report jobs that block. Clones are the same timers.
///
/// ```
/// use std::time::Duration;
///
/// use folio_sync::Job;
/// use folio_sync::test_util::{ManualClock, ManualTimers};
/// use folio_sync::time::Clock;
/// use folio_sync::timers::Timers;
///
/// let clock = ManualClock::new();
/// let timers = ManualTimers::new(&clock);
/// timers.once(Duration::from_secs(5), Job::new(|| ())).unwrap();
/// let cancelled = timers.once(Duration::from_secs(1), Job::new(|| unreachable!())).unwrap();
/// assert!(timers.cancel(cancelled).is_some());
///
/// assert_eq!(timers.advance(Duration::from_secs(4)), 0, "not due yet");
/// assert_eq!(timers.advance(Duration::from_secs(4)), 1);
/// assert_eq!(clock.now().as_nanos(), 8_000_000_000);
///
/// timers.refuse_next(1);
/// assert!(timers.once(Duration::ZERO, Job::new(|| ())).is_err());
/// ```
#[derive(Clone)]
pub struct ManualTimers {
    clock: ManualClock,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    schedule: Schedule,
    capacity: Option<usize>,
    refuse_next: usize,
    refuse_every: usize,
    offered: usize,
    closed: bool,
    set: usize,
    cancelled: usize,
    fired: usize,
    blocked: Vec<Blocked>,
    #[cfg(not(any(loom, shuttle)))]
    watchdog: Option<Arc<Watchdog>>,
}

impl ManualTimers {
    /// Timers by this clock that take every job.
    pub fn new(clock: &ManualClock) -> Self {
        Self { clock: clock.clone(), state: Arc::new(Mutex::new(State::default())) }
    }

    /// Timers by this clock that refuse a job when this many are pending.
    pub fn bounded(clock: &ManualClock, capacity: usize) -> Self {
        let timers = Self::new(clock);
        timers.state.lock().capacity = Some(capacity);
        timers
    }

    /// Advances the clock and fires what becomes due, each job at its moment; how many.
    ///
    /// Jobs that are due at the same moment fire in the order in which they were set. What a job sets fires too, if it is due in time.
    ///
    /// # Panics
    /// When a job does: the clock then stands at the moment at which it fired.
    pub fn advance(&self, by: Duration) -> usize {
        let end = self.clock.now() + by;
        let mut count = self.fire_due();
        while let Some(due) = self.next_due().filter(|&due| due <= end) {
            self.clock.advance_to(due);
            count += self.fire_due();
        }
        self.clock.advance_to(end);
        count
    }

    /// Fires what is due at the clock's present time; how many.
    ///
    /// # Panics
    /// When a job does.
    pub fn fire_due(&self) -> usize {
        let mut count = 0;
        while self.fire_next() {
            count += 1;
        }
        count
    }

    /// Fires the oldest job that is due now; whether there was one.
    ///
    /// # Panics
    /// When the job does.
    pub fn fire_next(&self) -> bool {
        let now = self.clock.now();
        let job = {
            let mut state = self.state.lock();
            let Some(job) = state.schedule.pop_due(now) else { return false };
            state.fired += 1;
            job
        };
        #[cfg(not(any(loom, shuttle)))]
        let watchdog = self.state.lock().watchdog.clone();
        #[cfg(not(any(loom, shuttle)))]
        let watch = watchdog.as_deref().map(|watchdog| {
            let state = Arc::clone(&self.state);
            watchdog.begin(move |overdue| state.lock().blocked.push(overdue))
        });
        let (result, mut blocked) = watch_for_blocking(|| unwind::catch(|| job.run()));
        #[cfg(not(any(loom, shuttle)))]
        drop(watch);
        // Only then: in models, which report nothing, the lock would order what the code under test does not.
        if !blocked.is_empty() {
            self.state.lock().blocked.append(&mut blocked);
        }
        if let Err(payload) = result {
            std::panic::resume_unwind(payload);
        }
        true
    }

    /// Refuses the next `count` jobs that are offered.
    pub fn refuse_next(&self, count: usize) {
        self.state.lock().refuse_next = count;
    }

    /// Refuses every `k`-th job that is offered from now on; 0 refuses none.
    pub fn refuse_every(&self, k: usize) {
        let mut state = self.state.lock();
        state.refuse_every = k;
        state.offered = 0;
    }

    /// Refuses every job from now on as closed and hands the pending ones back.
    ///
    /// The next one due comes first.
    #[must_use = "the pending jobs have not run and never will"]
    pub fn close(&self) -> Vec<Job> {
        let mut state = self.state.lock();
        state.closed = true;
        state.schedule.take_all()
    }

    /// The moment at which the next job is due.
    pub fn next_due(&self) -> Option<Instant> {
        self.state.lock().schedule.next_due()
    }

    /// How many timers are pending.
    pub fn pending(&self) -> usize {
        self.state.lock().schedule.len()
    }

    /// How many timers were set so far.
    pub fn set(&self) -> usize {
        self.state.lock().set
    }

    /// How many timers have fired so far.
    pub fn fired(&self) -> usize {
        self.state.lock().fired
    }

    /// How many timers were cancelled before they fired.
    pub fn cancelled(&self) -> usize {
        self.state.lock().cancelled
    }

    /// Reports each job that has not returned after this limit, while it is inside.
    ///
    /// As [`ManualExecutor::report_after`](super::ManualExecutor::report_after).
    #[cfg(not(any(loom, shuttle)))]
    pub fn report_after(&self, limit: Duration) {
        let watchdog = Arc::new(Watchdog::new(limit));
        let earlier = self.state.lock().watchdog.replace(watchdog);
        drop(earlier);
    }

    /// Takes the reports of jobs that blocked.
    pub fn take_blocked(&self) -> Vec<Blocked> {
        std::mem::take(&mut self.state.lock().blocked)
    }
}

impl fmt::Debug for ManualTimers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        f.debug_struct("ManualTimers")
            .field("clock", &self.clock)
            .field("pending", &state.schedule.len())
            .field("fired", &state.fired)
            .finish_non_exhaustive()
    }
}

impl Timers for ManualTimers {
    fn once(&self, delay: Duration, job: Job) -> Result<TimerId, Rejected<Job>> {
        let due = self.clock.now() + delay;
        let mut state = self.state.lock();
        state.offered += 1;
        let reason = if state.closed {
            Some(RejectReason::Closed)
        } else if state.refuse_next > 0 {
            state.refuse_next -= 1;
            Some(RejectReason::Refused)
        } else if state.refuse_every > 0 && state.offered.is_multiple_of(state.refuse_every) {
            Some(RejectReason::Refused)
        } else if state.capacity.is_some_and(|most| state.schedule.len() >= most) {
            Some(RejectReason::Full)
        } else {
            None
        };
        if let Some(reason) = reason {
            return Err(Rejected::new(job, reason));
        }
        state.set += 1;
        Ok(state.schedule.insert(due, job))
    }

    fn cancel(&self, timer: TimerId) -> Option<Job> {
        let mut state = self.state.lock();
        let job = state.schedule.cancel(timer)?;
        state.cancelled += 1;
        Some(job)
    }
}
