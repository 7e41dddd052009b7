//! A boxed job a task.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;

use super::{Open, Peer, Sink, Task};

/// A boxed closure, which needs no lock to reach the handler.
type BoxedJob = Box<dyn FnOnce(&mut Sink) + Send>;

fn boxed(task: Task) -> BoxedJob {
    Box::new(move |sink| sink.handle(task))
}

/// Starts the thread that runs jobs until the last task.
fn run_all(
    mut sink: Sink,
    mut next: impl FnMut() -> BoxedJob + Send + 'static,
) -> Box<dyn FnOnce() -> Option<u64>> {
    let consumer = thread::spawn(move || {
        while !sink.is_finished() {
            next()(&mut sink);
        }
    });
    Box::new(move || {
        consumer.join().expect("the consumer does not panic");
        None
    })
}

/// The queue of a plain executor: one lock and one wake-up a job.
#[derive(Default)]
pub(super) struct JobQueue {
    jobs: Mutex<VecDeque<BoxedJob>>,
    filled: Condvar,
}

impl JobQueue {
    fn push(&self, job: BoxedJob) {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner).push_back(job);
        self.filled.notify_one();
    }

    fn pop(&self) -> BoxedJob {
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match jobs.pop_front() {
                Some(job) => return job,
                None => jobs = self.filled.wait(jobs).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

/// Boxed jobs over a mutex and a condition variable.
#[derive(Debug)]
pub(super) struct MutexCondvar;

impl Peer for MutexCondvar {
    type Sender = Arc<JobQueue>;

    fn open(sink: Sink, producers: u64) -> Open<Self::Sender> {
        let queue = Arc::new(JobQueue::default());
        let taken = Arc::clone(&queue);
        let close = run_all(sink, move || taken.pop());
        Open { senders: (0..producers).map(|_| Arc::clone(&queue)).collect(), close }
    }

    #[inline]
    fn send(sender: &mut Self::Sender, task: Task) {
        sender.push(boxed(task));
    }
}

/// Boxed jobs over crossbeam's channel.
#[derive(Debug)]
pub(super) struct Crossbeam;

impl Peer for Crossbeam {
    type Sender = crossbeam_channel::Sender<BoxedJob>;

    fn open(sink: Sink, producers: u64) -> Open<Self::Sender> {
        let (sender, receiver) = crossbeam_channel::unbounded::<BoxedJob>();
        let close = run_all(sink, move || receiver.recv().expect("a producer holds the other end"));
        Open { senders: (0..producers).map(|_| sender.clone()).collect(), close }
    }

    #[inline]
    fn send(sender: &mut Self::Sender, task: Task) {
        if sender.send(boxed(task)).is_err() {
            unreachable!("the consumer takes every task");
        }
    }
}
