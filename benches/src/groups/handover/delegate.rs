//! Serial executors under the batched peers.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle, ThreadId};

use folio_sync::{Executor, Job, RejectReason, Rejected, SerialExecutor};

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    closed: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    filled: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next(&self) -> Option<Job> {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                return Some(job);
            }
            if state.closed {
                return None;
            }
            state = self.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// One thread and a queue behind a mutex and a condition variable.
pub(super) struct MutexWorker {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

impl MutexWorker {
    /// Starts the thread.
    pub(super) fn start() -> Self {
        let shared = Arc::new(Shared::default());
        let taken = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            while let Some(job) = taken.next() {
                job.run();
            }
        });
        Self { shared, thread }
    }

    /// What jobs are submitted by.
    pub(super) fn handle(&self) -> MutexDelegate {
        MutexDelegate { shared: Arc::clone(&self.shared), thread: self.thread.thread().id() }
    }

    /// Runs what is queued and ends the thread.
    pub(super) fn close(self) {
        self.shared.lock().closed = true;
        self.shared.filled.notify_one();
        self.thread.join().expect("a job of a benchmark does not panic");
    }
}

/// Submits jobs to a [`MutexWorker`].
#[derive(Clone)]
pub(super) struct MutexDelegate {
    shared: Arc<Shared>,
    thread: ThreadId,
}

impl Executor for MutexDelegate {
    fn submit(&self, job: Job) -> Result<(), Rejected<Job>> {
        let mut state = self.shared.lock();
        if state.closed {
            return Err(Rejected::new(job, RejectReason::Closed));
        }
        state.jobs.push_back(job);
        drop(state);
        self.shared.filled.notify_one();
        Ok(())
    }
}

impl SerialExecutor for MutexDelegate {
    fn is_current(&self) -> bool {
        thread::current().id() == self.thread
    }
}

/// Counts what is submitted to another executor.
#[derive(Clone)]
pub(super) struct Counted<E> {
    inner: E,
    submissions: Arc<AtomicU64>,
}

impl<E> Counted<E> {
    /// Counts the submissions to `inner`.
    pub(super) fn new(inner: E) -> Self {
        Self { inner, submissions: Arc::default() }
    }

    /// The count, to read after `self` has been given away.
    pub(super) fn counter(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.submissions)
    }

    fn count(&self) {
        // Relaxed: read after all threads have been joined.
        self.submissions.fetch_add(1, Ordering::Relaxed);
    }
}

impl<E: Executor> Executor for Counted<E> {
    fn submit(&self, job: Job) -> Result<(), Rejected<Job>> {
        self.count();
        self.inner.submit(job)
    }
}

impl<E: SerialExecutor> SerialExecutor for Counted<E> {
    fn is_current(&self) -> bool {
        self.inner.is_current()
    }

    fn resubmit(&self, job: Job) -> Result<(), Rejected<Job>> {
        self.count();
        self.inner.resubmit(job)
    }
}
