//! Delegates that misbehave on demand, and exact accounts of tasks.
#![allow(dead_code, reason = "each test binary uses a part")]

pub(crate) mod history;

use folio_sync::Arc;
use std::fmt;
use std::panic::panic_any;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use folio_executor::{Failure, OrderedExecutor, Part};
use folio_sync::test_util::ManualExecutor;
use folio_sync::{Executor, Job, Mutex, RejectReason, Rejected, SerialExecutor};

/// Longer than anything here takes; a test that waits this long fails.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// Waits until something is so.
#[track_caller]
pub(crate) fn until(what: &str, so: impl Fn() -> bool) {
    let began = Instant::now();
    while !so() {
        assert!(began.elapsed() < LONG, "waited too long until {what}");
        thread::yield_now();
    }
}

/// What a panic carries whose own destructor panics, and what that carries too, `LEFT` times.
///
/// It has no size: a payload that is forgotten, as one must be whose destructor cannot be trusted, then leaks no memory.
pub(crate) struct Bomb<const LEFT: u32>;

impl<const LEFT: u32> Drop for Bomb<LEFT> {
    fn drop(&mut self) {
        if LEFT > 0 {
            go_off(LEFT - 1);
        }
    }
}

/// Panics with a payload whose destructor panics, and so on, this many times; five at most.
pub(crate) fn go_off(times: u32) -> ! {
    match times {
        0 => panic_any(Bomb::<0>),
        1 => panic_any(Bomb::<1>),
        2 => panic_any(Bomb::<2>),
        3 => panic_any(Bomb::<3>),
        4 => panic_any(Bomb::<4>),
        _ => panic_any(Bomb::<5>),
    }
}

/// What was seen, in order. Never contended: those that write do so one after the other.
pub(crate) struct Log<T>(Arc<Mutex<Vec<T>>>);

impl<T> Log<T> {
    pub(crate) fn new() -> Self {
        Self(Arc::default())
    }

    pub(crate) fn push(&self, item: T) {
        self.0.lock().push(item);
    }

    pub(crate) fn take(&self) -> Vec<T> {
        std::mem::take(&mut *self.0.lock())
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().len()
    }
}

impl<T> Default for Log<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Clone for Log<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> fmt::Debug for Log<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log").field("len", &self.len()).finish()
    }
}

/// A failure sink that notes the part and the message.
pub(crate) fn failures_to(log: &Log<(Part, String)>) -> impl Fn(Failure) + Send + Sync + 'static {
    let log = log.clone();
    move |failure| log.push((failure.part, folio_sync::unwind::message(&*failure.payload).to_owned()))
}

/// Runs the delegate's jobs one by one; what each of them ran.
pub(crate) fn batches<T>(delegate: &ManualExecutor, ran: &Log<T>) -> Vec<Vec<T>> {
    let mut batches = Vec::new();
    while delegate.run_next() {
        batches.push(ran.take());
    }
    batches
}

/// A delegate whose `submit` is a closure, and which is current nowhere.
pub(crate) struct By<F>(F);

/// A delegate that does this with each job.
pub(crate) fn by<F>(submit: F) -> By<F>
where
    F: Fn(Job) -> Result<(), Rejected<Job>> + Send + Sync + 'static,
{
    By(submit)
}

impl<F: Fn(Job) -> Result<(), Rejected<Job>> + Send + Sync> Executor for By<F> {
    fn submit(&self, job: Job) -> Result<(), Rejected<Job>> {
        (self.0)(job)
    }
}

impl<F: Fn(Job) -> Result<(), Rejected<Job>> + Send + Sync> SerialExecutor for By<F> {
    fn is_current(&self) -> bool {
        false
    }
}

/// Refuses every job.
pub(crate) fn refusing() -> impl SerialExecutor + 'static {
    by(|job| Err(Rejected::new(job, RejectReason::Refused)))
}

/// Runs every job on the thread that submits it.
pub(crate) fn caller_runs() -> impl SerialExecutor + 'static {
    by(|job| {
        job.run();
        Ok(())
    })
}

/// One worker with a thread of its own.
pub(crate) fn worker() -> OrderedExecutor {
    OrderedExecutor::builder().name("test").threads(1).build().unwrap()
}

/// A job that holds up its executor until it is opened.
#[derive(Clone)]
pub(crate) struct Gate {
    open: Arc<AtomicBool>,
    reached: Arc<AtomicBool>,
}

impl Gate {
    /// A gate at which nobody stands.
    pub(crate) fn new() -> Self {
        Self { open: Arc::default(), reached: Arc::default() }
    }

    /// Holds up an executor; returns when its thread stands at the gate.
    pub(crate) fn hold(executor: &impl Executor) -> Self {
        let gate = Self::new();
        let inside = gate.clone();
        executor.submit(Job::new(move || inside.pass())).unwrap();
        gate.wait_until_reached();
        gate
    }

    /// Stands at the gate until it is open.
    pub(crate) fn pass(&self) {
        self.reached.store(true, Ordering::Release);
        until("the gate opens", || self.open.load(Ordering::Acquire));
    }

    pub(crate) fn wait_until_reached(&self) {
        until("the gate is reached", || self.reached.load(Ordering::Acquire));
    }

    pub(crate) fn open(&self) {
        self.open.store(true, Ordering::Release);
    }
}

/// What became of how many tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settled {
    pub(crate) ran: usize,
    /// Given to the reject handler.
    pub(crate) handed: usize,
    /// Given back to the submitter.
    pub(crate) returned: usize,
}

/// Notes what becomes of each of a number of tasks, and whether those of one producer keep their order.
pub(crate) struct Account {
    per_producer: usize,
    /// How many times each task ran, was handed to the reject handler, was returned.
    tasks: Vec<[AtomicU8; 3]>,
    /// One past the number of the task that was done with last, by producer.
    last: Vec<AtomicU64>,
    ran: AtomicU64,
    disordered: AtomicU64,
    overlapped: AtomicU64,
    inside: AtomicBool,
}

/// A task: who submitted it, and as which of his.
pub(crate) type Task = (usize, usize);

impl Account {
    pub(crate) fn new(producers: usize, per_producer: usize) -> Arc<Self> {
        Arc::new(Self {
            per_producer,
            tasks: (0..producers * per_producer).map(|_| Default::default()).collect(),
            last: (0..producers).map(|_| AtomicU64::new(0)).collect(),
            ran: AtomicU64::new(0),
            disordered: AtomicU64::new(0),
            overlapped: AtomicU64::new(0),
            inside: AtomicBool::new(false),
        })
    }

    fn note(&self, (producer, number): Task, what: usize) {
        self.tasks[producer * self.per_producer + number][what].fetch_add(1, Ordering::Relaxed);
    }

    fn in_order(&self, (producer, number): Task) {
        let place = number as u64 + 1;
        if self.last[producer].swap(place, Ordering::Relaxed) >= place {
            self.disordered.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn alone(&self, work: impl FnOnce()) {
        if self.inside.swap(true, Ordering::Relaxed) {
            self.overlapped.fetch_add(1, Ordering::Relaxed);
        }
        work();
        self.inside.store(false, Ordering::Relaxed);
    }

    /// For the handler: a task runs.
    pub(crate) fn run(&self, task: Task) {
        self.alone(|| {
            self.note(task, 0);
            self.in_order(task);
            self.ran.fetch_add(1, Ordering::Release);
        });
    }

    /// For a task that runs beside others.
    pub(crate) fn ran_beside(&self, task: Task) {
        self.note(task, 0);
    }

    /// For the reject handler.
    pub(crate) fn hand(&self, task: Task) {
        self.alone(|| {
            self.note(task, 1);
            self.in_order(task);
        });
    }

    /// For a submitter that got its task back.
    pub(crate) fn give_back(&self, task: Task) {
        self.note(task, 2);
    }

    /// How many tasks have run so far.
    pub(crate) fn ran(&self) -> u64 {
        self.ran.load(Ordering::Acquire)
    }

    /// Settles the first tasks of each producer, as many as given; the others were never submitted.
    #[track_caller]
    pub(crate) fn settle_first(&self, counts: &[usize]) -> Settled {
        for (producer, &count) in counts.iter().enumerate() {
            for number in count..self.per_producer {
                // As if returned.
                self.note((producer, number), 2);
            }
        }
        let mut settled = self.settle();
        settled.returned -= counts.len() * self.per_producer - counts.iter().sum::<usize>();
        settled
    }

    /// Asserts that each task ran, was handed or was returned, exactly once in all, and each producer's in order, none overlapping.
    #[track_caller]
    pub(crate) fn settle(&self) -> Settled {
        let mut settled = [0; 3];
        for (id, task) in self.tasks.iter().enumerate() {
            let counts = [0, 1, 2].map(|what| usize::from(task[what].load(Ordering::Relaxed)));
            assert_eq!(counts.iter().sum::<usize>(), 1, "task {id}: ran, handed, returned {counts:?} times");
            for (sum, count) in settled.iter_mut().zip(counts) {
                *sum += count;
            }
        }
        assert_eq!(self.disordered.load(Ordering::Relaxed), 0, "tasks of one producer changed places");
        assert_eq!(self.overlapped.load(Ordering::Relaxed), 0, "two tasks overlapped");
        let [ran, handed, returned] = settled;
        Settled { ran, handed, returned }
    }
}

/// Runs this many producers at once, each with its number, and waits for them.
pub(crate) fn producers(count: usize, produce: impl Fn(usize) + Send + Sync) {
    let produce = &produce;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..count).map(|producer| scope.spawn(move || produce(producer))).collect();
        // Joined one by one: the scope itself would wait for those that panicked without a word.
        for thread in threads {
            thread.join().unwrap();
        }
    });
}
