//! Batches over a `SegQueue`: the plain way to batch, which ours must beat.
//!
//! A producer pushes its task, passes a fence and looks at a flag; whoever raises the flag submits one batch. A batch takes at most
//! [`MAX_ITEMS`] tasks, lowers the flag, passes a fence and looks at the queue again. The fences order each side's write before its
//! look at the other's: one of the two sees the other, and no task stays behind.

use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Mutex, PoisonError};

use crossbeam_queue::SegQueue;
use folio_executor::Worker;
use folio_sync::{Arc, Job, SerialExecutor, SharedJob};

use super::delegate::{Counted, MutexDelegate, MutexWorker};
use super::{Open, Peer, Sink, Task, ours};

/// Tasks a batch.
const MAX_ITEMS: usize = 1024;

/// The queue, its flag and its handler; as a job it is one batch.
pub(super) struct Batched<E> {
    queue: SegQueue<Task>,
    scheduled: AtomicBool,
    /// Taken once a batch, by the one batch that runs.
    sink: Mutex<Sink>,
    delegate: E,
}

impl<E: SerialExecutor + 'static> Batched<E> {
    fn new(sink: Sink, delegate: E) -> Self {
        Self { queue: SegQueue::new(), scheduled: AtomicBool::new(false), sink: Mutex::new(sink), delegate }
    }

    /// Submits a batch unless one is submitted or running.
    fn schedule(&self, this: &Arc<dyn SharedJob>) {
        // Relaxed load: the fence before this call orders it. AcqRel: whoever raises the flag sees what the last batch did.
        if !self.scheduled.load(Ordering::Relaxed) && !self.scheduled.swap(true, Ordering::AcqRel) {
            self.delegate.submit(Job::shared(Arc::clone(this))).expect("the delegate takes every batch");
        }
    }
}

impl<E: SerialExecutor + 'static> SharedJob for Batched<E> {
    fn run(&self, this: &Arc<dyn SharedJob>) {
        let mut sink = self.sink.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..MAX_ITEMS {
            let Some(task) = self.queue.pop() else { break };
            sink.handle(task);
        }
        drop(sink);
        // Release: pairs with the next holder's AcqRel.
        self.scheduled.store(false, Ordering::Release);
        // SeqCst: orders the lowered flag before the look at the queue; pairs with the fence in `send`.
        fence(Ordering::SeqCst);
        if !self.queue.is_empty() {
            self.schedule(this);
        }
    }

    fn abandoned(&self, _: &Arc<dyn SharedJob>) {}
}

/// A producer's end.
pub(super) struct Sender<E> {
    batched: Arc<Batched<E>>,
    job: Arc<dyn SharedJob>,
}

impl<E: SerialExecutor + 'static> Sender<E> {
    fn new(sink: Sink, delegate: E) -> Self {
        let batched = Arc::new(Batched::new(sink, delegate));
        let job: Arc<dyn SharedJob> = batched.clone();
        Self { batched, job }
    }

    #[inline]
    fn send(&self, task: Task) {
        self.batched.queue.push(task);
        // SeqCst: orders the push before the look at the flag; pairs with the fence in `run`.
        fence(Ordering::SeqCst);
        self.batched.schedule(&self.job);
    }
}

impl<E> Clone for Sender<E> {
    fn clone(&self) -> Self {
        Self { batched: Arc::clone(&self.batched), job: Arc::clone(&self.job) }
    }
}

/// Over a worker with a mutex and a condition variable.
#[derive(Debug)]
pub(super) struct OverMutex;

impl Peer for OverMutex {
    type Sender = Sender<Counted<MutexDelegate>>;

    fn open(sink: Sink, producers: u64) -> Open<Self::Sender> {
        let worker = MutexWorker::start();
        let delegate = Counted::new(worker.handle());
        let batches = delegate.counter();
        let sender = Sender::new(sink, delegate);
        Open {
            senders: (0..producers).map(|_| sender.clone()).collect(),
            close: Box::new(move || {
                drop(sender);
                worker.close();
                Some(batches.load(Ordering::Relaxed))
            }),
        }
    }

    #[inline]
    fn send(sender: &mut Self::Sender, task: Task) {
        sender.send(task);
    }
}

/// Over a worker of the ordered executor, as ours.
#[derive(Debug)]
pub(super) struct OverOrdered;

impl Peer for OverOrdered {
    type Sender = Sender<Counted<Worker>>;

    fn open(sink: Sink, producers: u64) -> Open<Self::Sender> {
        let pool = ours::pool();
        let delegate = Counted::new(pool.worker("baseline").clone());
        let batches = delegate.counter();
        let sender = Sender::new(sink, delegate);
        Open {
            senders: (0..producers).map(|_| sender.clone()).collect(),
            close: Box::new(move || {
                drop(sender);
                ours::end(pool);
                Some(batches.load(Ordering::Relaxed))
            }),
        }
    }

    #[inline]
    fn send(sender: &mut Self::Sender, task: Task) {
        sender.send(task);
    }
}
