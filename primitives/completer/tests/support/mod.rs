//! A real serial worker, executors that misbehave on demand, and a ruler for the stack.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle, ThreadId};
use std::time::Duration;

use folio_sync::{Executor, Job, RejectReason, Rejected, SerialExecutor};

/// Longer than anything here takes; a test that waits this long fails.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// Counts one more.
pub(crate) fn count(counter: &AtomicUsize) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// A serial executor with a thread of its own.
#[derive(Clone)]
pub(crate) struct Worker {
    jobs: Sender<Job>,
    id: ThreadId,
}

impl Worker {
    pub(crate) fn start() -> (Self, JoinHandle<()>) {
        let (jobs, queue): (Sender<Job>, Receiver<Job>) = channel();
        let thread = thread::spawn(move || queue.into_iter().for_each(Job::run));
        (Self { jobs, id: thread.thread().id() }, thread)
    }

    pub(crate) fn id(&self) -> ThreadId {
        self.id
    }

    /// Runs a closure on the worker and waits for what it returns.
    pub(crate) fn ask<R: Send + 'static>(&self, work: impl FnOnce() -> R + Send + 'static) -> R {
        let (tell, told) = channel();
        self.submit(Job::new(move || tell.send(work()).unwrap())).unwrap();
        told.recv_timeout(LONG).unwrap()
    }
}

impl Executor for Worker {
    fn submit(&self, job: Job) -> Result<(), Rejected<Job>> {
        self.jobs.send(job).map_err(|refused| Rejected::new(refused.0, RejectReason::Closed))
    }
}

impl SerialExecutor for Worker {
    fn is_current(&self) -> bool {
        thread::current().id() == self.id
    }
}

/// What a misbehaving executor does with a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Does {
    Refuse,
    Drop,
    RunInside,
    RunAndRefuse,
    Panic,
}

/// An executor that does one thing with every job, and counts them.
#[derive(Clone)]
pub(crate) struct Always {
    does: Does,
    current: bool,
    attempts: Arc<AtomicUsize>,
}

impl Always {
    pub(crate) fn new(does: Does) -> Self {
        Self { does, current: false, attempts: Arc::default() }
    }

    /// The same executor, which believes that every thread is its own.
    pub(crate) fn current(mut self) -> Self {
        self.current = true;
        self
    }

    pub(crate) fn attempts(&self) -> usize {
        self.attempts.load(Ordering::SeqCst)
    }
}

impl Executor for Always {
    fn submit(&self, job: Job) -> Result<(), Rejected<Job>> {
        self.attempts.fetch_add(1, Ordering::SeqCst);
        match self.does {
            Does::Refuse => Err(Rejected::new(job, RejectReason::Full)),
            Does::Drop => Ok(()),
            Does::RunInside => {
                job.run();
                Ok(())
            }
            Does::RunAndRefuse => {
                job.run();
                Err(Rejected::new(Job::new(|| ()), RejectReason::Refused))
            }
            Does::Panic => panic!("the executor broke"),
        }
    }
}

impl SerialExecutor for Always {
    fn is_current(&self) -> bool {
        self.current
    }
}

/// The stretch of stack between the shallowest and the deepest mark, thread by thread.
#[derive(Clone, Default)]
pub(crate) struct Ruler(Arc<Mutex<HashMap<ThreadId, (usize, usize)>>>);

impl Ruler {
    /// Marks where the stack of this thread is.
    #[inline(never)]
    pub(crate) fn mark(&self) {
        let local = 0_u8;
        let here = std::hint::black_box(&raw const local).addr();
        let mut marks = self.0.lock().unwrap();
        let (low, high) = marks.entry(thread::current().id()).or_insert((here, here));
        *low = here.min(*low);
        *high = here.max(*high);
    }

    /// The longest stretch of any thread, in bytes.
    pub(crate) fn longest(&self) -> usize {
        self.0.lock().unwrap().values().map(|(low, high)| high - low).max().unwrap_or(0)
    }
}
