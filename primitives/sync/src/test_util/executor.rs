//! The hand-stepped executor.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::ptr;

use super::blocking::{Blocked, watch_for_blocking};
#[cfg(not(any(loom, shuttle)))]
use super::watchdog::Watchdog;
use crate::{Arc, Executor, Job, Mutex, RejectReason, Rejected, SerialExecutor, unwind};

crate::thread_local! {
    /// The hand-stepped executors whose jobs this thread is inside of, the innermost last.
    static CURRENT: RefCell<Vec<*const ()>> = RefCell::new(Vec::new());
}

/// A serial executor that runs a job when the test says so.
///
/// It refuses on demand, counts what it was handed and reports jobs that block. Clones are the same executor. A test that steps it
/// from several threads does so from one at a time: it is serial only as long as the test is.
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
    #[cfg(not(any(loom, shuttle)))]
    watchdog: Option<Arc<Watchdog>>,
}

impl ManualExecutor {
    /// An executor with nothing queued that takes every job.
    pub fn new() -> Self {
        Self { shared: Arc::new(Mutex::new(State::default())) }
    }

    /// An executor that refuses a job when this many are queued.
    ///
    /// The continuation of its running job is taken all the same.
    pub fn bounded(capacity: usize) -> Self {
        let executor = Self::new();
        executor.shared.lock().capacity = Some(capacity);
        executor
    }

    /// Runs the oldest job on this thread; whether there was one.
    ///
    /// # Panics
    /// When the job does; the executor can be used on.
    pub fn run_next(&self) -> bool {
        let Some(job) = self.take_next() else { return false };
        #[cfg(not(any(loom, shuttle)))]
        let watchdog = self.shared.lock().watchdog.clone();
        #[cfg(not(any(loom, shuttle)))]
        let watch = watchdog.as_deref().map(|watchdog| {
            let shared = Arc::clone(&self.shared);
            watchdog.begin(move |overdue| shared.lock().blocked.push(overdue))
        });
        let inside = Inside::enter(self.identity());
        let (result, mut blocked) = watch_for_blocking(|| unwind::catch(|| job.run()));
        drop(inside);
        #[cfg(not(any(loom, shuttle)))]
        drop(watch);
        // Only then: in models, which report nothing, the lock would order what the code under test does not.
        if !blocked.is_empty() {
            self.shared.lock().blocked.append(&mut blocked);
        }
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

    /// How many jobs were taken from outside of this executor.
    ///
    /// These are the hand-overs from one thread to another.
    pub fn handovers(&self) -> usize {
        self.shared.lock().handovers
    }

    /// Reports each job that has not returned after this limit, while it is inside.
    ///
    /// It catches what blocks in ways that [`watch_for_blocking`] does not see. A job that must be seen to block need not be timed: let
    /// it block until [`wait_for_blocked`](Self::wait_for_blocked) has returned. Not offered to models, which have no time.
    ///
    /// ```
    /// use std::sync::mpsc;
    /// use std::time::Duration;
    ///
    /// use folio_sync::test_util::{Blocked, ManualExecutor};
    /// use folio_sync::{Executor, Job};
    ///
    /// let executor = ManualExecutor::new();
    /// executor.report_after(Duration::from_millis(5));
    /// let (release, released) = mpsc::channel();
    /// executor.submit(Job::new(move || released.recv().unwrap())).unwrap();
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| executor.run_next());
    ///     assert_eq!(executor.wait_for_blocked(), [Blocked { call: Blocked::OVERDUE }]);
    ///     release.send(()).unwrap();
    /// });
    /// ```
    #[cfg(not(any(loom, shuttle)))]
    pub fn report_after(&self, limit: std::time::Duration) {
        let watchdog = Arc::new(Watchdog::new(limit));
        let earlier = self.shared.lock().watchdog.replace(watchdog);
        drop(earlier);
    }

    /// Waits until there are reports of jobs that blocked, and takes them.
    #[cfg(not(any(loom, shuttle)))]
    pub fn wait_for_blocked(&self) -> Vec<Blocked> {
        loop {
            let blocked = self.take_blocked();
            if !blocked.is_empty() {
                return blocked;
            }
            std::thread::sleep(std::time::Duration::from_micros(100));
        }
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
        let identity = self.identity();
        // Thread-locals may be gone while the thread exits: then it is inside no job.
        CURRENT.try_with(|current| current.borrow().contains(&identity)).unwrap_or(false)
    }

    fn resubmit(&self, job: Job) -> Result<(), Rejected<Job>> {
        self.take(job, true)
    }
}

/// Marks the thread as inside a job, until dropped.
struct Inside(());

impl Inside {
    fn enter(executor: *const ()) -> Self {
        CURRENT.with(|current| current.borrow_mut().push(executor));
        Self(())
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        CURRENT.with(|current| current.borrow_mut().pop());
    }
}
