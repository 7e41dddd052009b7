//! The hand-stepped executor.

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::ptr;

use super::blocking::{Blocked, watch_for_blocking};
use crate::{Arc, Executor, Job, Mutex, RejectReason, Rejected, SerialExecutor, unwind};

crate::thread_local! {
    /// The hand-stepped executor whose job this thread is inside of.
    static CURRENT: Cell<*const ()> = Cell::new(ptr::null());
}

/// A serial executor that runs a job when the test says so.
///
/// It refuses on demand, counts what it was handed and reports jobs that block. Clones are the same executor.
///
/// ```
/// use folio_sync::test_util::ManualExecutor;
/// use folio_sync::{Executor, Job};
///
/// let executor = ManualExecutor::new();
/// executor.submit(Job::new(|| ())).unwrap();
/// assert_eq!(executor.queued(), 1);
/// assert!(executor.run_next());
/// assert!(!executor.run_next(), "nothing is left");
///
/// executor.refuse_next(1);
/// assert!(executor.submit(Job::new(|| ())).is_err());
/// ```
#[derive(Clone)]
pub struct ManualExecutor {
    shared: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Job>,
    capacity: Option<usize>,
    refuse_next: usize,
    refuse_every: usize,
    closed: bool,
    offered: usize,
    submissions: usize,
    handovers: usize,
    blocked: Vec<Blocked>,
}

impl ManualExecutor {
    /// An executor with nothing queued that takes every job.
    pub fn new() -> Self {
        Self { shared: Arc::new(Mutex::new(State::default())) }
    }

    /// An executor that refuses a job when this many are queued; a continuation is taken all the same.
    pub fn bounded(capacity: usize) -> Self {
        let executor = Self::new();
        executor.shared.lock().capacity = Some(capacity);
        executor
    }

    /// Runs the oldest job on this thread; whether there was one.
    ///
    /// # Panics
    /// When the job does.
    pub fn run_next(&self) -> bool {
        let Some(job) = self.take_next() else { return false };
        let inside = Inside::enter(self.identity());
        let (result, mut blocked) = watch_for_blocking(|| unwind::catch(|| job.run()));
        drop(inside);
        self.shared.lock().blocked.append(&mut blocked);
        if let Err(payload) = result {
            std::panic::resume_unwind(payload);
        }
        true
    }

    /// Runs jobs until none is queued, those that they queue among them; how many.
    ///
    /// # Panics
    /// When a job does.
    pub fn run_all(&self) -> usize {
        let mut count = 0;
        while self.run_next() {
            count += 1;
        }
        count
    }

    /// Takes the oldest job out without running it.
    pub fn take_next(&self) -> Option<Job> {
        self.shared.lock().queue.pop_front()
    }

    /// Refuses the next `count` jobs that are offered.
    pub fn refuse_next(&self, count: usize) {
        self.shared.lock().refuse_next = count;
    }

    /// Refuses every `k`-th job that is offered from now on; 0 refuses none.
    pub fn refuse_every(&self, k: usize) {
        let mut state = self.shared.lock();
        state.refuse_every = k;
        state.offered = 0;
    }

    /// Refuses every job from now on as closed; those queued can still be run.
    pub fn close(&self) {
        self.shared.lock().closed = true;
    }

    /// How many jobs are queued.
    pub fn queued(&self) -> usize {
        self.shared.lock().queue.len()
    }

    /// How many jobs were taken so far.
    pub fn submissions(&self) -> usize {
        self.shared.lock().submissions
    }

    /// How many jobs were taken from outside of this executor: hand-overs from one thread to another.
    pub fn handovers(&self) -> usize {
        self.shared.lock().handovers
    }

    /// Takes the reports of jobs that blocked.
    pub fn take_blocked(&self) -> Vec<Blocked> {
        std::mem::take(&mut self.shared.lock().blocked)
    }

    fn identity(&self) -> *const () {
        ptr::from_ref::<Mutex<State>>(&self.shared).cast()
    }

    fn take(&self, job: Job, continues: bool) -> Result<(), Rejected<Job>> {
        let current = self.is_current();
        let mut state = self.shared.lock();
        state.offered += 1;
        let reason = if state.closed {
            Some(RejectReason::Closed)
        } else if state.refuse_next > 0 {
            state.refuse_next -= 1;
            Some(RejectReason::Refused)
        } else if state.refuse_every > 0 && state.offered.is_multiple_of(state.refuse_every) {
            Some(RejectReason::Refused)
        } else if state.capacity.is_some_and(|most| state.queue.len() >= most) && !(continues && current) {
            Some(RejectReason::Full)
        } else {
            None
        };
        if let Some(reason) = reason {
            return Err(Rejected::new(job, reason));
        }
        state.submissions += 1;
        state.handovers += usize::from(!current);
        state.queue.push_back(job);
        Ok(())
    }
}

impl Default for ManualExecutor {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for ManualExecutor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.shared.lock();
        f.debug_struct("ManualExecutor")
            .field("queued", &state.queue.len())
            .field("submissions", &state.submissions)
            .finish_non_exhaustive()
    }
}

impl Executor for ManualExecutor {
    fn submit(&self, job: Job) -> Result<(), Rejected<Job>> {
        self.take(job, false)
    }
}

impl SerialExecutor for ManualExecutor {
    fn is_current(&self) -> bool {
        CURRENT.with(Cell::get) == self.identity()
    }

    fn resubmit(&self, job: Job) -> Result<(), Rejected<Job>> {
        self.take(job, true)
    }
}

/// Marks the thread as inside a job, until dropped.
struct Inside {
    outer: *const (),
}

impl Inside {
    fn enter(executor: *const ()) -> Self {
        Self { outer: CURRENT.with(|current| current.replace(executor)) }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        CURRENT.with(|current| current.set(self.outer));
    }
}
