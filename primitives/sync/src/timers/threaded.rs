//! Timers with a thread of their own.
//!
//! # Guarantees
//! A job that was taken runs once, is handed back once, or is dropped once: whoever takes it out of the schedule has it. No user code
//! (a job, a destructor, a clock, a sink) runs while the lock is held, and the thread survives its panics. A timer is two map entries.
//!
//! # Protocol
//! | state of a timer | moved on by | to |
//! |---|---|---|
//! | pending | the thread, when it is due | runs |
//! | pending | `cancel` | handed back |
//! | pending | `close`, `shutdown` | handed back |
//! | pending | the drop of the timers, or of a thread whose clock panicked | dropped |
//!
//! The thread looks under the lock and parks without it. Whoever makes it look earlier (a sooner timer, a close) changes the schedule
//! first and unparks then: an unpark that comes between the look and the park makes the park return at once.
//!
//! # Orderings
//! | operation | word | ordering | pairs with | why |
//! |---|---|---|---|---|
//! | all | the lock | of a mutex | itself | what the setter did is visible to the job |
//!
//! # Limits
//! One lock and one thread for all timers. A job that blocks delays the others. The clock must go as real time does.

use std::fmt;
use std::time::Duration;

use super::schedule::Schedule;
use super::{TimerId, Timers};
use crate::thread::{self, JoinHandle};
use crate::time::{Clock, Instant, SystemClock};
use crate::{Arc, Job, Mutex, RejectReason, Rejected, unwind};

/// The longest time for which the thread sleeps without looking at its clock.
const LONGEST_SLEEP: Duration = Duration::from_secs(3600);

/// Timers that run their jobs on one thread, started with the first timer.
///
/// A job that panics harms nobody else: the payload goes to the sink given by [`on_panic`](ThreadTimersBuilder::on_panic). No job is
/// run or dropped while a lock is held. Dropping the timers closes them and drops what is pending, and does not wait for a job that
/// runs just now: a timer job may drop its own timers. [`shutdown`](Self::shutdown) waits.
///
/// # Memory
/// Two map entries for each pending timer, gone when it runs or is cancelled; and one thread, none before the first timer.
///
/// # Progress
/// Setting and cancelling take a lock for the time of a map operation, and once for starting the thread.
///
/// ```
/// use std::time::Duration;
///
/// use folio_sync::Job;
/// use folio_sync::timers::{ThreadTimers, Timers};
///
/// let timers = ThreadTimers::new();
/// let (tell, told) = std::sync::mpsc::channel();
/// timers.once(Duration::from_millis(1), Job::new(move || tell.send(7).unwrap())).unwrap();
/// assert_eq!(told.recv(), Ok(7));
///
/// let never = timers.once(Duration::from_secs(3600), Job::new(|| unreachable!())).unwrap();
/// assert!(timers.cancel(never).is_some(), "the job is back and will not run");
/// ```
pub struct ThreadTimers {
    shared: Arc<Shared>,
}

/// Receives what panicking jobs carried.
type Sink = Box<dyn Fn(unwind::Payload) + Send + Sync>;

struct Shared {
    clock: Arc<dyn Clock>,
    thread_name: String,
    stack_bytes: Option<usize>,
    max_pending: usize,
    on_panic: Option<Sink>,
    /// Held for operations on the schedule only: no clock is read, no job run or dropped under it.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    schedule: Schedule,
    /// There from the first timer until someone joins the thread.
    thread: Option<JoinHandle<()>>,
    closed: bool,
}

/// Settings of [`ThreadTimers`].
#[must_use = "`build` makes the timers"]
pub struct ThreadTimersBuilder {
    clock: Option<Arc<dyn Clock>>,
    thread_name: String,
    stack_bytes: Option<usize>,
    max_pending: usize,
    on_panic: Option<Sink>,
}

impl ThreadTimersBuilder {
    /// Takes the time from this clock, by default from a [`SystemClock`].
    ///
    /// A timer fires when the clock says that it is due. The thread sleeps for as long as the clock says is left and then looks
    /// again: the clock must go as real time does. A clock that panics closes the timers.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Refuses a timer when this many are pending; by default there is no limit.
    pub fn max_pending(mut self, timers: usize) -> Self {
        self.max_pending = timers;
        self
    }

    /// Names the thread, `folio-timers` by default.
    ///
    /// # Panics
    /// When the name contains a zero byte.
    pub fn thread_name(mut self, name: impl Into<String>) -> Self {
        self.thread_name = name.into();
        assert!(!self.thread_name.contains('\0'), "a thread's name contains no zero byte");
        self
    }

    /// Gives the thread a stack of this size instead of the usual one.
    pub fn stack_bytes(mut self, bytes: usize) -> Self {
        self.stack_bytes = Some(bytes);
        self
    }

    /// Reports each panic of a job to `sink`, on the timers' thread.
    ///
    /// Without a sink it is only printed, as every panic is.
    pub fn on_panic(mut self, sink: impl Fn(unwind::Payload) + Send + Sync + 'static) -> Self {
        self.on_panic = Some(Box::new(sink));
        self
    }

    /// Makes the timers; their thread starts with the first timer.
    pub fn build(self) -> ThreadTimers {
        ThreadTimers {
            shared: Arc::new(Shared {
                clock: self.clock.unwrap_or_else(|| crate::arc_dyn!(SystemClock::new() => dyn Clock)),
                thread_name: self.thread_name,
                stack_bytes: self.stack_bytes,
                max_pending: self.max_pending,
                on_panic: self.on_panic,
                state: Mutex::new(State::default()),
            }),
        }
    }
}

impl fmt::Debug for ThreadTimersBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadTimersBuilder")
            .field("thread_name", &self.thread_name)
            .field("stack_bytes", &self.stack_bytes)
            .field("max_pending", &self.max_pending)
            .finish_non_exhaustive()
    }
}

impl ThreadTimers {
    /// Timers by the system's clock, without a limit.
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Begins to set timers up.
    pub fn builder() -> ThreadTimersBuilder {
        ThreadTimersBuilder {
            clock: None,
            thread_name: "folio-timers".into(),
            stack_bytes: None,
            max_pending: usize::MAX,
            on_panic: None,
        }
    }

    /// How many timers are set and have not begun to run.
    pub fn pending(&self) -> usize {
        self.shared.state.lock().schedule.len()
    }

    /// Takes no timer again and hands the pending jobs back, the next one due first.
    ///
    /// A job that runs just now runs to its end. The thread ends soon after.
    #[must_use = "the pending jobs have not run and never will"]
    pub fn close(&self) -> Vec<Job> {
        self.shared.close()
    }

    /// Closes the timers and waits until their thread has ended; hands the pending jobs back.
    ///
    /// Called by a timer job it waits for nothing: that job is the last. Of several callers one waits. Whoever calls it must not hold
    /// what a timer job waits for.
    #[must_use = "the pending jobs have not run and never will"]
    pub fn shutdown(&self) -> Vec<Job> {
        let pending = self.close();
        let own = thread::current().id();
        let running = self.shared.state.lock().thread.take_if(|running| running.thread().id() != own);
        if let Some(running) = running {
            // The thread contains every panic of user code: there is none to tell of.
            let _ended = running.join();
        }
        pending
    }
}

impl Timers for ThreadTimers {
    fn once(&self, delay: Duration, job: Job) -> Result<TimerId, Rejected<Job>> {
        let due = self.shared.clock.now() + delay;
        let mut state = self.shared.state.lock();
        if state.closed {
            return Err(Rejected::new(job, RejectReason::Closed));
        }
        if state.schedule.len() >= self.shared.max_pending {
            return Err(Rejected::new(job, RejectReason::Full));
        }
        if state.thread.is_none() {
            match Shared::start(&self.shared) {
                Ok(thread) => state.thread = Some(thread),
                Err(_no_thread) => return Err(Rejected::new(job, RejectReason::Refused)),
            }
        }
        let sooner = state.schedule.next_due().is_none_or(|next| due < next);
        let timer = state.schedule.insert(due, job);
        if sooner && let Some(running) = &state.thread {
            running.thread().unpark();
        }
        Ok(timer)
    }

    fn cancel(&self, timer: TimerId) -> Option<Job> {
        self.shared.state.lock().schedule.cancel(timer)
    }
}

impl Default for ThreadTimers {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for ThreadTimers {
    fn drop(&mut self) {
        self.shared.drop_pending();
    }
}

impl fmt::Debug for ThreadTimers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.shared.state.lock();
        f.debug_struct("ThreadTimers")
            .field("thread_name", &self.shared.thread_name)
            .field("pending", &state.schedule.len())
            .field("closed", &state.closed)
            .finish_non_exhaustive()
    }
}

/// What the thread finds when it looks.
enum Next {
    /// Run this job.
    Run(Job),
    /// Nothing is due before this moment.
    Wait(Instant),
    /// Nothing is pending.
    Idle,
    /// Closed: the thread ends.
    Ended,
}

impl Shared {
    fn start(shared: &Arc<Self>) -> std::io::Result<JoinHandle<()>> {
        let mut builder = thread::Builder::new().name(shared.thread_name.clone());
        if let Some(bytes) = shared.stack_bytes {
            builder = builder.stack_size(bytes);
        }
        let shared = Arc::clone(shared);
        builder.spawn(move || {
            shared.contain(|| shared.serve());
            // Nothing is left unless the clock panicked: then there is no time to go by, and the owners hear that nothing will run.
            shared.drop_pending();
        })
    }

    fn close(&self) -> Vec<Job> {
        let mut state = self.state.lock();
        state.closed = true;
        if let Some(running) = &state.thread {
            running.thread().unpark();
        }
        state.schedule.take_all()
    }

    fn drop_pending(&self) {
        for job in self.close() {
            self.contain(|| drop(job));
        }
    }

    /// Runs what is due until the timers are closed.
    fn serve(&self) {
        let mut now = Instant::ORIGIN;
        loop {
            match self.next(now) {
                Next::Run(job) => self.contain(|| job.run()),
                Next::Wait(due) => {
                    now = self.clock.now();
                    if now < due {
                        thread::park_timeout(due.since(now).min(LONGEST_SLEEP));
                        now = self.clock.now();
                    }
                }
                Next::Idle => {
                    thread::park();
                    now = self.clock.now();
                }
                Next::Ended => return,
            }
        }
    }

    fn next(&self, now: Instant) -> Next {
        let mut state = self.state.lock();
        if state.closed {
            return Next::Ended;
        }
        match state.schedule.pop_due(now) {
            Some(job) => Next::Run(job),
            None => state.schedule.next_due().map_or(Next::Idle, Next::Wait),
        }
    }

    /// Runs user code and tells the sink if it panics.
    ///
    /// The sink's own panic is discarded.
    fn contain(&self, user_code: impl FnOnce()) {
        let Err(payload) = unwind::catch(user_code) else { return };
        match &self.on_panic {
            Some(sink) => {
                if let Err(again) = unwind::catch(|| sink(payload)) {
                    unwind::discard(again);
                }
            }
            None => unwind::discard(payload),
        }
    }
}
