//! A real serial worker, executors that misbehave on demand, and a ruler for the stack.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle, Thread, ThreadId};
use std::time::{Duration, Instant};

use folio_sync::{Arc, Executor, Job, Mutex, RejectReason, Rejected, SerialExecutor};

/// Longer than anything here takes; a test that waits this long fails.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// Counts one more.
pub(crate) fn count(counter: &AtomicUsize) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Where a thread leaves things for another, which finds them in that order.
///
/// `ThreadSanitizer` does not see into a channel of the standard library.
pub(crate) struct Mailbox<T>(Arc<Mutex<VecDeque<T>>>);

impl<T> Mailbox<T> {
    pub(crate) fn new() -> Self {
        Self(Arc::default())
    }

    pub(crate) fn put(&self, item: T) {
        self.0.lock().push_back(item);
    }

    pub(crate) fn try_take(&self) -> Option<T> {
        self.0.lock().pop_front()
    }

    /// Waits until something is there.
    #[track_caller]
    pub(crate) fn take(&self) -> T {
        let began = Instant::now();
        loop {
            if let Some(item) = self.try_take() {
                return item;
            }
            assert!(began.elapsed() < LONG, "nothing came");
            thread::sleep(Duration::from_micros(50));
        }
    }
}

impl<T> Clone for Mailbox<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// A serial executor with a thread of its own, which ends when all of these are gone and all jobs have run.
#[derive(Clone)]
pub(crate) struct Worker(Arc<Owner>);

/// Closes the queue with the last handle.
struct Owner {
    queue: Arc<Mutex<Queue>>,
    thread: Thread,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    closed: bool,
}

impl Worker {
    pub(crate) fn start() -> (Self, JoinHandle<()>) {
        let queue: Arc<Mutex<Queue>> = Arc::default();
        let served = Arc::clone(&queue);
        let running = thread::spawn(move || {
            loop {
                let (job, closed) = {
                    let mut queue = served.lock();
                    (queue.jobs.pop_front(), queue.closed)
                };
                match job {
                    Some(job) => job.run(),
                    None if closed => return,
                    None => thread::park(),
                }
            }
        });
        (Self(Arc::new(Owner { queue, thread: running.thread().clone() })), running)
    }

    pub(crate) fn id(&self) -> ThreadId {
        self.0.thread.id()
    }

    /// Runs a closure on the worker and waits for what it returns.
    pub(crate) fn ask<R: Send + 'static>(&self, work: impl FnOnce() -> R + Send + 'static) -> R {
        let answer = Mailbox::new();
        let told = answer.clone();
        self.submit(Job::new(move || told.put(work()))).unwrap();
        answer.take()
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.queue.lock().closed = true;
        self.thread.unpark();
    }
}

impl Executor for Worker {
    fn submit(&self, job: Job) -> Result<(), Rejected<Job>> {
        self.0.queue.lock().jobs.push_back(job);
        self.0.thread.unpark();
        Ok(())
    }
}

impl SerialExecutor for Worker {
    fn is_current(&self) -> bool {
        thread::current().id() == self.id()
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
        let mut marks = self.0.lock();
        let (low, high) = marks.entry(thread::current().id()).or_insert((here, here));
        *low = here.min(*low);
        *high = here.max(*high);
    }

    /// The longest stretch of any thread, in bytes.
    pub(crate) fn longest(&self) -> usize {
        self.0.lock().values().map(|(low, high)| high - low).max().unwrap_or(0)
    }
}
