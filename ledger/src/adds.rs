//! How appends come to the ledger's worker.

use folio_executor::BatchingExecutor;
use folio_sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use folio_sync::{Arc, Job, RejectReason, SerialExecutor};

use crate::append::{Add, Appender, Refuse, contained};
use crate::ledger::ConfigError;
use crate::settle::{Batch, Desk};

/// How appends go to the ledger's worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Handover {
    /// Many with one submission, at most so many: not 0.
    Batched(usize),
    /// Each as a job of its own. It is there to be compared with: whatever else the worker has to do waits behind all of them. A worker that is full refuses
    /// them, flushes and the close, too, which then do not wait.
    Single,
}

/// Takes appends to the worker.
pub(crate) enum Adds<T: Send + 'static> {
    Batched(BatchingExecutor<Add<T>>),
    Single(Single<T>),
}

impl<T: Send + 'static> Adds<T> {
    pub(crate) fn open(
        handover: Handover,
        max_queued: usize,
        worker: impl SerialExecutor + 'static,
        desk: &Desk<T>,
        refuse: &Refuse<T>,
    ) -> Result<Self, ConfigError> {
        Ok(match handover {
            Handover::Batched(most) => {
                let refuses = refuse.clone();
                let builder = BatchingExecutor::handled_by(Appender::new(desk.clone(), refuse.clone()));
                let builder = builder.max_items(most).max_queued(max_queued);
                let built = builder.on_rejected(move |rejected| refuses.rejected(rejected)).build(worker);
                // Nothing weighs appends: there is no other setting to be wrong.
                Self::Batched(built.map_err(|_| ConfigError::MaxQueued(max_queued))?)
            }
            Handover::Single => {
                let worker = folio_sync::arc_dyn!(worker => dyn SerialExecutor);
                let door = Door { queued: AtomicUsize::new(0), ended: AtomicBool::new(false), max_queued };
                let (desk, refuse) = (desk.clone(), refuse.clone());
                Self::Single(Single { worker, door: Arc::new(door), desk, refuse })
            }
        })
    }

    pub(crate) fn submit(&self, add: Add<T>, refuse: &Refuse<T>) {
        match self {
            Self::Batched(adds) => {
                if let Err(rejected) = adds.submit(add) {
                    refuse.rejected(rejected);
                }
            }
            Self::Single(single) => single.submit(add),
        }
    }

    pub(crate) fn queued(&self) -> usize {
        match self {
            Self::Batched(adds) => adds.queued(),
            // Relaxed: a number.
            Self::Single(single) => single.door.queued.load(Ordering::Relaxed),
        }
    }

    /// Takes no more; then calls `then`, after what was taken.
    pub(crate) fn close(&self, desk: Desk<T>, then: impl FnOnce() + Send + 'static) {
        match self {
            Self::Batched(adds) => {
                adds.close();
                adds.flush_with(move || desk.call(then));
            }
            Self::Single(single) => {
                let door = Arc::clone(&single.door);
                single.after(move || {
                    // Relaxed: the worker's alone, unless that is shut.
                    door.ended.store(true, Ordering::Relaxed);
                    desk.call(then);
                });
            }
        }
    }

    /// Calls `done` when everything before has been settled.
    pub(crate) fn flush(&self, desk: Desk<T>, done: impl FnOnce() + Send + 'static) {
        match self {
            Self::Batched(adds) => adds.flush_with(move || desk.call(done)),
            Self::Single(single) => single.after(move || desk.call(done)),
        }
    }
}

/// What the jobs of single appends share.
struct Door {
    /// Jobs that the worker has not run.
    queued: AtomicUsize,
    /// Nothing more is taken.
    ended: AtomicBool,
    max_queued: usize,
}

/// Each append is a job of its own.
pub(crate) struct Single<T: Send + 'static> {
    worker: Arc<dyn SerialExecutor>,
    door: Arc<Door>,
    desk: Desk<T>,
    refuse: Refuse<T>,
}

impl<T: Send + 'static> Single<T> {
    fn submit(&self, add: Add<T>) {
        // Relaxed: a number.
        let queued = self.door.queued.fetch_add(1, Ordering::Relaxed);
        let (door, desk, refuse) = (Arc::clone(&self.door), self.desk.clone(), self.refuse.clone());
        let mut one = One { add: Some(add), door, refuse, reason: RejectReason::Refused };
        if queued >= self.door.max_queued {
            one.reason = RejectReason::Full;
            return;
        }
        let job = Job::new(move || one.run(&desk));
        // A job that is not taken is dropped, and refuses the append.
        let _taken = self.worker.submit(job);
    }

    /// Does this after the appends that were taken: on the worker, or here if that takes nothing.
    fn after(&self, call: impl FnOnce() + Send + 'static) {
        let call = Late(Some(call));
        let _taken = self.worker.submit(Job::new(move || drop(call)));
    }
}

/// Is called when it is dropped, whether its job ran or not.
struct Late<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> Drop for Late<F> {
    fn drop(&mut self) {
        if let Some(call) = self.0.take() {
            contained(call);
        }
    }
}

/// One append; refused if it is dropped before it ran.
struct One<T: Send + 'static> {
    add: Option<Add<T>>,
    door: Arc<Door>,
    refuse: Refuse<T>,
    reason: RejectReason,
}

impl<T: Send + 'static> One<T> {
    fn run(mut self, desk: &Desk<T>) {
        // Relaxed: as where it is written.
        if self.door.ended.load(Ordering::Relaxed) {
            self.reason = RejectReason::Closed;
        } else if let Some(add) = self.add.take() {
            let mut batch = Batch::default();
            batch.push(add.payload, add.token);
            if let Err(batch) = desk.hand_in(&mut batch) {
                batch.into_tokens().into_iter().for_each(|token| self.refuse.one(token, RejectReason::Full));
            }
        }
    }
}

impl<T: Send + 'static> Drop for One<T> {
    fn drop(&mut self) {
        // Relaxed: a number.
        self.door.queued.fetch_sub(1, Ordering::Relaxed);
        if let Some(Add { payload, token }) = self.add.take() {
            contained(|| drop(payload));
            self.refuse.one(token, self.reason);
        }
    }
}
