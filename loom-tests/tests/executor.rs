//! Models of the batching executor and of the ordered executor.
#![cfg(loom)]
#![allow(clippy::disallowed_types, reason = "what the model must not see is kept in standard types")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the model")]

use std::sync::Mutex as Unseen;
use std::sync::atomic::{AtomicUsize, Ordering};

use folio_executor::{BatchingExecutor, Builder, Linger, OrderedExecutor, Part};
use folio_sync::cell::UnsafeCell;
use folio_sync::test_util::{Model, Tracked, model};
use folio_sync::{Arc, Executor, Job, Mutex, RejectReason, Rejected, SerialExecutor, thread};

type Task = Tracked<u32>;
type Small = BatchingExecutor<Task, 2>;

/// What became of the tasks. Out of the model's sight, since its locks would order what is to be shown unordered.
#[derive(Default)]
struct Fates {
    ran: Unseen<Vec<u32>>,
    rejected: Unseen<Vec<u32>>,
}

impl Fates {
    /// All that came out, sorted.
    fn all(&self) -> Vec<u32> {
        let mut all = self.ran.lock().unwrap().clone();
        all.extend(self.rejected.lock().unwrap().iter());
        all.sort_unstable();
        all
    }

    fn ran(&self) -> Vec<u32> {
        self.ran.lock().unwrap().clone()
    }
}

/// Refuses every job.
struct Refuses;

impl Executor for Refuses {
    fn submit(&self, job: Job) -> Result<(), Rejected<Job>> {
        Err(Rejected::new(job, RejectReason::Refused))
    }
}

impl SerialExecutor for Refuses {
    fn is_current(&self) -> bool {
        false
    }
}

/// Runs every job where it is submitted.
struct Inline;

impl Executor for Inline {
    fn submit(&self, job: Job) -> Result<(), Rejected<Job>> {
        job.run();
        Ok(())
    }
}

impl SerialExecutor for Inline {
    fn is_current(&self) -> bool {
        false
    }
}

/// Keeps jobs until somebody takes them. Its lock is the model's: handing a job over orders what came before it.
#[derive(Clone)]
struct Held(Arc<Mutex<Vec<Job>>>);

impl Held {
    fn new() -> Self {
        Self(Arc::new(Mutex::new(Vec::new())))
    }

    fn take(&self) -> Option<Job> {
        self.0.lock().pop()
    }

    fn run_all(&self) {
        while let Some(job) = self.take() {
            job.run();
        }
    }
}

impl Executor for Held {
    fn submit(&self, job: Job) -> Result<(), Rejected<Job>> {
        self.0.lock().push(job);
        Ok(())
    }
}

impl SerialExecutor for Held {
    fn is_current(&self) -> bool {
        false
    }
}

/// An executor whose blocks hold two tasks, and what becomes of its tasks. Task 13 panics.
fn executor(
    max_items: usize,
    delegate: impl SerialExecutor + 'static,
) -> (Arc<Small>, std::sync::Arc<Fates>) {
    let fates = std::sync::Arc::new(Fates::default());
    let (ran, rejected) = (std::sync::Arc::clone(&fates), std::sync::Arc::clone(&fates));
    let executor = Builder::new(move |task: Task| {
        ran.ran.lock().unwrap().push(*task.get());
        if *task.get() == 13 {
            std::panic::resume_unwind(Box::new("thirteen"));
        }
    })
    .on_rejected(move |task: Rejected<Task>| rejected.rejected.lock().unwrap().push(*task.value.get()))
    .max_items(max_items)
    .linger(Linger::OFF)
    .build(delegate)
    .unwrap();
    (Arc::new(executor), fates)
}

/// Submits on a thread of its own and notes a task that comes back.
fn submit(
    executor: &Arc<Small>,
    fates: &std::sync::Arc<Fates>,
    tasks: &'static [u32],
) -> thread::JoinHandle<()> {
    let (executor, fates) = (Arc::clone(executor), std::sync::Arc::clone(fates));
    thread::spawn(move || submit_here(&executor, &fates, tasks))
}

fn submit_here(executor: &Small, fates: &Fates, tasks: &[u32]) {
    for &task in tasks {
        if let Err(rejected) = executor.submit(Tracked::new(task)) {
            fates.rejected.lock().unwrap().push(*rejected.value.get());
        }
    }
}

/// I1, I7: a refused caller gets its own task back, the other's goes to it or to the handler, and none runs.
#[test]
fn refusal_racing_a_second_producer() {
    Model::new("refusal racing a second producer").at_every_step().check(|| {
        let (executor, fates) = executor(8, Refuses);
        let other = submit(&executor, &fates, &[1]);
        submit_here(&executor, &fates, &[2]);
        other.join().unwrap();
        assert_eq!(fates.all(), [1, 2], "each comes back exactly once");
        assert!(fates.ran().is_empty(), "a refused task never runs");
        assert_eq!(executor.queued(), 0);
    });
}

/// I1: while one refuses, two others join or come late; nobody waits for anybody, and nothing is left.
#[test]
fn refusal_racing_two_producers() {
    Model::new("refusal racing two producers").at_every_step().check(|| {
        let (executor, fates) = executor(8, Refuses);
        let one = submit(&executor, &fates, &[1]);
        let two = submit(&executor, &fates, &[2]);
        one.join().unwrap();
        two.join().unwrap();
        submit_here(&executor, &fates, &[3]);
        assert_eq!(fates.all(), [1, 2, 3]);
        assert!(fates.ran().is_empty());
    });
}

/// I2, I5: batches of one task on a delegate that runs at once: whoever is left with the rest runs it, in order, without recursion.
#[test]
fn leftovers_on_an_inline_delegate() {
    Model::new("leftovers on an inline delegate").at_every_step().check(|| {
        let (executor, fates) = executor(1, Inline);
        let other = submit(&executor, &fates, &[1, 2]);
        submit_here(&executor, &fates, &[3]);
        other.join().unwrap();
        assert_eq!(fates.all(), [1, 2, 3]);
        let ran = fates.ran();
        let place = |task| ran.iter().position(|other| *other == task);
        assert!(place(1) < place(2), "the order of one thread is kept: {ran:?}");
        assert_eq!(executor.queued(), 0);
    });
}

/// I1: a close races submits: what was taken runs, the rest comes back, and what begins after the close is refused.
#[test]
fn close_racing_submit() {
    model("close racing submit", || {
        let (executor, fates) = executor(8, Inline);
        let one = submit(&executor, &fates, &[1, 3]);
        let two = submit(&executor, &fates, &[4]);
        executor.close();
        submit_here(&executor, &fates, &[2]);
        one.join().unwrap();
        two.join().unwrap();
        assert_eq!(fates.all(), [1, 2, 3, 4]);
        assert!(!fates.ran().contains(&2), "a task that comes after the close is refused");
        assert_eq!(executor.queued(), 0);
    });
}

/// I1: a shutdown races a submit and the batch that it schedules: each task runs or is given back once.
#[test]
fn shutdown_racing_submit() {
    model("shutdown racing submit", || {
        let (executor, fates) = executor(8, Inline);
        let one = submit(&executor, &fates, &[1]);
        let two = submit(&executor, &fates, &[2]);
        executor.shutdown_now();
        one.join().unwrap();
        two.join().unwrap();
        assert_eq!(fates.all(), [1, 2]);
        assert_eq!(executor.queued(), 0);
    });
}

/// I1: a shutdown races submits to a delegate that begins no batch: all is given back without waiting for one.
#[test]
fn shutdown_gives_back_what_no_batch_begins() {
    Model::new("shutdown gives back what no batch begins").at_every_step().check(|| {
        let held = Held::new();
        let (executor, fates) = executor(8, held.clone());
        let one = submit(&executor, &fates, &[1]);
        let two = submit(&executor, &fates, &[2]);
        executor.shutdown_now();
        one.join().unwrap();
        two.join().unwrap();
        assert_eq!(fates.all(), [1, 2]);
        assert!(fates.ran().is_empty());
        assert_eq!(executor.queued(), 0);
        held.run_all();
    });
}

/// I1: a shutdown takes the turn of a batch that is queued, while a thread begins just that batch.
#[test]
fn shutdown_racing_the_beginning_of_a_batch() {
    Model::new("shutdown racing the beginning of a batch").at_every_step().check(|| {
        let held = Held::new();
        let (executor, fates) = executor(8, held.clone());
        submit_here(&executor, &fates, &[1, 2]);
        let worker = {
            let held = held.clone();
            thread::spawn(move || held.run_all())
        };
        executor.shutdown_now();
        worker.join().unwrap();
        assert_eq!(fates.all(), [1, 2]);
        assert_eq!(executor.queued(), 0);
    });
}

/// I1: the executor is dropped while its batch runs: the batch gives back what is left after its current task.
#[test]
fn drop_racing_the_batch() {
    Model::new("drop racing the batch").at_every_step().check(|| {
        let held = Held::new();
        let (executor, fates) = executor(8, held.clone());
        submit_here(&executor, &fates, &[1, 2, 3]);
        let worker = {
            let held = held.clone();
            thread::spawn(move || held.run_all())
        };
        drop(executor);
        worker.join().unwrap();
        held.run_all();
        assert_eq!(fates.all(), [1, 2, 3]);
    });
}

/// I1: the last handle is dropped right after a submit on another thread: the task runs or is given back.
#[test]
fn drop_after_a_racing_submit() {
    Model::new("drop after a racing submit").at_every_step().check(|| {
        let held = Held::new();
        let (executor, fates) = executor(8, held.clone());
        let one = submit(&executor, &fates, &[1]);
        submit_here(&executor, &fates, &[2]);
        drop(executor);
        one.join().unwrap();
        assert_eq!(fates.all(), [1, 2]);
        assert!(fates.ran().is_empty(), "no batch was begun");
        held.run_all();
    });
}

/// I1: a batch is dropped unrun while another thread submits: what it stood for is given back.
#[test]
fn dropped_batch_racing_submit() {
    Model::new("dropped batch racing submit").at_every_step().check(|| {
        let held = Held::new();
        let (executor, fates) = executor(8, held.clone());
        submit_here(&executor, &fates, &[1]);
        let other = submit(&executor, &fates, &[2]);
        drop(held.take());
        other.join().unwrap();
        held.run_all();
        assert_eq!(fates.all(), [1, 2]);
        assert_eq!(executor.queued(), 0);
    });
}

/// I6: a task panics while another thread submits: the batch goes on, and the flag is not wedged.
#[test]
fn panic_in_the_batch() {
    model("panic in the batch", || {
        let (executor, fates) = executor(8, Inline);
        let other = submit(&executor, &fates, &[13, 2]);
        submit_here(&executor, &fates, &[3]);
        other.join().unwrap();
        assert_eq!(fates.all(), [2, 3, 13]);
        assert_eq!(fates.ran().len(), 3);
        assert_eq!(executor.queued(), 0);
    });
}

/// A flush races the end of the batch: it completes exactly once, and not before the task that was submitted first.
#[test]
fn flush_racing_the_end_of_a_batch() {
    Model::new("flush racing the end of a batch").at_every_step().check(|| {
        let held = Held::new();
        let (executor, fates) = executor(1, held.clone());
        submit_here(&executor, &fates, &[1, 2]);
        let other = submit(&executor, &fates, &[3]);
        let flushed = std::sync::Arc::new(AtomicUsize::new(0));
        let worker = {
            let held = held.clone();
            thread::spawn(move || held.run_all())
        };
        let (seen, count) = (std::sync::Arc::clone(&fates), std::sync::Arc::clone(&flushed));
        executor.flush_with(move || {
            assert_eq!(seen.ran()[..2], [1, 2], "not before what was submitted first");
            count.fetch_add(1, Ordering::Relaxed);
        });
        worker.join().unwrap();
        other.join().unwrap();
        held.run_all();
        assert_eq!(flushed.load(Ordering::Relaxed), 1);
    });
}

/// What the handler did is visible to the completion of a flush, wherever that runs.
#[test]
fn flush_sees_what_the_handler_did() {
    Model::new("flush sees what the handler did").at_every_step().check(|| {
        let held = Held::new();
        let done = Arc::new(UnsafeCell::new(0));
        let written = SendCell(Arc::clone(&done));
        let failed = std::sync::Arc::new(AtomicUsize::new(0));
        let count = std::sync::Arc::clone(&failed);
        let handler = move |task: Task| {
            if *task.get() == 1 {
                written.set();
            }
        };
        let executor: Small = Builder::new(handler)
            .linger(Linger::OFF)
            .on_failure(move |_| {
                count.fetch_add(1, Ordering::Relaxed);
            })
            .build(held.clone())
            .unwrap();
        let executor = Arc::new(executor);
        executor.submit(Tracked::new(1)).unwrap();
        let other = {
            let executor = Arc::clone(&executor);
            thread::spawn(move || executor.submit(Tracked::new(2)).unwrap())
        };
        let worker = {
            let held = held.clone();
            thread::spawn(move || held.run_all())
        };
        let read = SendCell(done);
        executor.flush_with(move || assert_eq!(read.get(), 1));
        other.join().unwrap();
        worker.join().unwrap();
        held.run_all();
        assert_eq!(
            failed.load(Ordering::Relaxed),
            0,
            "what loom reports inside the completion is contained there"
        );
    });
}

/// A cell that loom watches: its accesses must be ordered by the executor alone.
struct SendCell(Arc<UnsafeCell<u32>>);

// SAFETY: loom runs one thread at a time, and reports accesses that are not ordered.
unsafe impl Send for SendCell {}

impl SendCell {
    fn set(&self) {
        // SAFETY: loom fails the model if another access is not ordered with this one.
        self.0.with_mut(|value| unsafe { *value = 1 });
    }

    fn get(&self) -> u32 {
        // SAFETY: loom fails the model if the write is not ordered with this.
        self.0.with(|value| unsafe { *value })
    }
}

/// The worker parks: a job that comes as it goes to park is run all the same.
#[test]
fn job_racing_the_park_of_its_worker() {
    Model::new("job racing the park of its worker").at_every_step().check(|| {
        let pool = OrderedExecutor::builder().threads(1).spins(0).build().unwrap();
        let done = Arc::new(Mutex::new(0));
        for expected in 1..=2 {
            let (count, waiting) = (Arc::clone(&done), thread::current());
            let job = Job::new(move || {
                *count.lock() += 1;
                waiting.unpark();
            });
            pool.workers()[0].submit(job).unwrap();
            // A job that nobody wakes the worker for leaves both parked for ever: loom calls that a deadlock.
            while *done.lock() < expected {
                thread::park();
            }
        }
        let unrun = pool.join().unwrap();
        assert!(unrun.is_empty());
    });
}

/// A worker is closed while a job comes: the job runs or comes back.
#[test]
fn close_of_a_worker_racing_submit() {
    Model::new("close of a worker racing submit").at_every_step().check(|| {
        let pool = OrderedExecutor::builder().threads(1).spins(0).build().unwrap();
        let worker = pool.workers()[0].clone();
        let ran = std::sync::Arc::new(AtomicUsize::new(0));
        let count = std::sync::Arc::clone(&ran);
        let submits = thread::spawn(move || {
            let job = Job::new(move || {
                count.fetch_add(1, Ordering::Relaxed);
            });
            usize::from(worker.submit(job).is_ok())
        });
        let unrun = pool.join().unwrap();
        let taken = submits.join().unwrap();
        assert!(unrun.is_empty());
        assert_eq!(ran.load(Ordering::Relaxed), taken, "what was taken has run when the workers have ended");
    });
}

/// I1: a worker is closed while batches follow each other: what was taken before runs to its end, batch by batch.
#[test]
fn close_of_a_worker_racing_the_next_batch() {
    model("close of a worker racing the next batch", || {
        let pool = OrderedExecutor::builder().threads(1).spins(0).build().unwrap();
        let (executor, fates) = executor(1, pool.workers()[0].clone());
        submit_here(&executor, &fates, &[1, 2]);
        let unrun = pool.join().unwrap();
        assert!(unrun.is_empty());
        assert_eq!(fates.ran(), [1, 2], "both were taken before the close");
    });
}

/// Loom sees whether the delegate is used after it was dropped.
struct Watched(Held, Tracked<()>);

impl Executor for Watched {
    fn submit(&self, job: Job) -> Result<(), Rejected<Job>> {
        self.1.get();
        self.0.submit(job)
    }
}

impl SerialExecutor for Watched {
    fn is_current(&self) -> bool {
        false
    }
}

/// I1: a shutdown lets go of the delegate while two threads submit to it: its destructor comes after every use.
#[test]
fn shutdown_letting_go_of_a_delegate_in_use() {
    model("shutdown letting go of a delegate in use", || {
        let held = Held::new();
        let (executor, fates) = executor(1, Watched(held.clone(), Tracked::new(())));
        let one = submit(&executor, &fates, &[1]);
        let two = submit(&executor, &fates, &[2]);
        executor.shutdown_now();
        one.join().unwrap();
        two.join().unwrap();
        held.run_all();
        assert_eq!(fates.all(), [1, 2]);
    });
}

/// A worker is shut down while a job comes: the job runs, comes back to its submitter, or is among the unrun.
#[test]
fn shutdown_of_a_worker_racing_submit() {
    Model::new("shutdown of a worker racing submit").check(|| {
        let pool = OrderedExecutor::builder().threads(1).spins(0).build().unwrap();
        let worker = pool.workers()[0].clone();
        let payload = Tracked::new(1);
        let fate = thread::spawn(move || worker.submit(Job::new(move || drop(payload))).is_ok());
        pool.shutdown_now();
        let unrun = pool.join().unwrap();
        let taken = fate.join().unwrap();
        assert!(unrun.len() <= usize::from(taken), "an unrun job was taken");
    });
}

/// What a panic of a task is reported as.
#[test]
fn panics_are_told_to_the_sink() {
    Model::new("panics are told")
        .few_executions("nothing races: it shows that a model survives a contained panic")
        .check(|| {
            let told = std::sync::Arc::new(Unseen::new(Vec::new()));
            let sink = std::sync::Arc::clone(&told);
            let executor = BatchingExecutor::builder(|_: u32| std::panic::resume_unwind(Box::new("no")))
                .on_failure(move |failure| sink.lock().unwrap().push(failure.part))
                .linger(Linger::OFF)
                .build(Inline)
                .unwrap();
            executor.submit(1).unwrap();
            assert_eq!(*told.lock().unwrap(), [Part::Task]);
        });
}
