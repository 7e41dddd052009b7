//! Batches: beginning, running, giving back.

use folio_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use folio_sync::cell::UnsafeCell;
use folio_sync::{Arc, Job, RejectReason, Rejected, SerialExecutor, SharedJob, hint, thread, unwind};

use super::delegate::Delegate;
use super::flush::Waiters;
use super::frame::Frame;
use super::{Failure, Handler, Limits, Part};
use crate::queue::word::{CLOSED, FLUSH, SHUT, Word};
use crate::queue::{Ended, HEAVIEST, Next, Pushed, Queue, Turn};

/// Weighs a task.
pub(super) type Weigher<T> = Box<dyn Fn(&T) -> u64 + Send + Sync>;

/// User code that only the holder of the turn calls.
pub(super) struct Handlers<T> {
    pub(super) run: Box<dyn Handler<T>>,
    pub(super) reject: Box<dyn FnMut(Rejected<T>) + Send>,
}

/// What the executor's handle and its batches share.
pub(super) struct Core<T, const N: usize> {
    pub(super) queue: Queue<T, N>,
    pub(super) limits: Limits,
    pub(super) weigh: Option<Weigher<T>>,
    pub(super) failed: Box<dyn Fn(Failure) + Send + Sync>,
    /// Let go of when the executor is shut: a batch that still waits there, unbegun, must not keep its own executor alive.
    pub(super) delegate: Delegate,
    /// The weight of what is queued; counted only under a bound.
    pub(super) queued_weight: AtomicU64,
    /// Set before the word's `SHUT`: by it a running batch stops early. The word decides.
    pub(super) stop: AtomicBool,
    pub(super) waiters: Waiters,
    pub(super) handlers: UnsafeCell<Handlers<T>>,
}

// SAFETY: the handlers are called only by the holder of the queue's turn, which passes them from thread to thread with it. Tasks and
// handlers are `Send`; everything else is `Sync` of itself.
unsafe impl<T: Send, const N: usize> Sync for Core<T, N> {}

/// What a batch found when it ended.
enum Batch {
    /// Nothing more for this thread to see to.
    Over,
    /// Tasks are left and the turn is up: submit a further batch.
    Again,
}

/// What became of a batch that was handed to the delegate.
enum HandOver {
    /// The delegate has it, or it was dropped and gave back what it stood for.
    Taken,
    /// Nobody has it, and the turn is up.
    Refused(RejectReason),
}

impl<T: Send + 'static, const N: usize> Core<T, N> {
    fn identity(&self) -> *const () {
        std::ptr::from_ref(self).cast()
    }

    /// Whether this thread is inside a batch, or would run it.
    pub(super) fn is_inside(&self) -> bool {
        Frame::is_inside(self.identity())
            || matches!(self.use_delegate(|delegate| delegate.is_current()), Some(true))
    }

    /// Calls the delegate, unless it was let go of or panics.
    fn use_delegate<R>(&self, f: impl FnOnce(&dyn SerialExecutor) -> R) -> Option<R> {
        let used = self.delegate.using(f, |payload| self.report(Part::Delegate, payload))?;
        used.map_err(|payload| self.report(Part::Delegate, payload)).ok()
    }

    /// Queues a task and schedules a batch if none is.
    pub(super) fn submit(&self, task: T, handle: &Arc<dyn SharedJob>) -> Result<(), Rejected<T>> {
        if Frame::is_rejecting(self.identity()) {
            return Err(Rejected::new(task, RejectReason::Refused));
        }
        let weight = self.weigh(&task);
        if !self.charge(weight) {
            let closed = self.queue.word().has(CLOSED);
            return Err(Rejected::new(task, if closed { RejectReason::Closed } else { RejectReason::Full }));
        }
        match self.queue.push(task, weight, self.limits.max_queued) {
            Ok(Pushed::Joined) => Ok(()),
            Ok(Pushed::MustSchedule(ticket)) => self.schedule(Some(ticket), handle),
            Err(rejected) => {
                self.discharge(weight);
                Err(rejected)
            }
        }
    }

    fn weigh(&self, task: &T) -> u64 {
        let Some(weigh) = &self.weigh else { return 0 };
        let weight = unwind::catch(|| weigh(task)).unwrap_or_else(|payload| {
            self.report(Part::Weigher, payload);
            0
        });
        // As much as the queue keeps: what is charged is what will be discharged.
        weight.min(HEAVIEST)
    }

    /// Counts the weight as queued, unless the bound forbids it. An empty queue takes any one task.
    fn charge(&self, weight: u64) -> bool {
        let Some(most) = self.limits.max_queued_weight else { return true };
        // Relaxed: a number that publishes nothing.
        self.queued_weight
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |queued| {
                let sum = queued.checked_add(weight)?;
                (queued == 0 || sum <= most).then_some(sum)
            })
            .is_ok()
    }

    fn discharge(&self, weight: u64) {
        if self.limits.max_queued_weight.is_some() && weight > 0 {
            // Relaxed: a number that publishes nothing.
            self.queued_weight.fetch_sub(weight, Ordering::Relaxed);
        }
    }

    /// Submits a batch for a turn that is up; `own` is the ticket of the task whose submitter asks.
    ///
    /// If the delegate refuses, this thread takes the turn back and gives back what is queued: its own task to its submitter, by the
    /// error, and all others to the reject handler.
    fn schedule(&self, mut own: Option<u32>, handle: &Arc<dyn SharedJob>) -> Result<(), Rejected<T>> {
        let mut given_back = None;
        while let HandOver::Refused(reason) = self.hand_over(handle, |delegate, job| delegate.submit(job)) {
            // Somebody else has it: a shutdown, or a batch that was queued before.
            let Some(mut turn) = self.queue.begin() else { break };
            if let Some(ticket) = own.take()
                && let Next::Item(task, weight) = turn.next_if(ticket)
            {
                self.discharge(weight);
                given_back =
                    Some(Rejected::new(task, if turn.is_shut() { RejectReason::Closed } else { reason }));
            }
            let batch = Frame::within(self.identity(), true, |_| self.give_back(turn, reason));
            self.complete_flushes(self.queue.word());
            match batch {
                Batch::Over => break,
                Batch::Again => {}
            }
        }
        given_back.map_or(Ok(()), Err)
    }

    /// Gives everything that is left of the turn to the reject handler, and ends the turn.
    ///
    /// Called inside a rejecting frame. Under `SHUT` it goes on as long as the turn is to be had.
    fn give_back<'q>(&'q self, mut turn: Turn<'q, T, N>, reason: RejectReason) -> Batch {
        loop {
            let reason = if turn.is_shut() { RejectReason::Closed } else { reason };
            while let Next::Item(task, weight) = turn.next() {
                self.discharge(weight);
                let rejected = Rejected::new(task, reason);
                let called = self.handlers.with_mut(|handlers| {
                    // SAFETY: `turn` is held, so nobody else uses the handlers, and a handler that submits is refused.
                    let handlers = unsafe { &mut *handlers };
                    unwind::catch(|| (handlers.reject)(rejected))
                });
                if let Err(payload) = called {
                    self.report(Part::RejectHandler, payload);
                }
            }
            match turn.end() {
                (Ended::Idle | Ended::Awaited, _) => return Batch::Over,
                (Ended::Again, word) if !word.has(SHUT) => return Batch::Again,
                (Ended::Again, _) => match self.queue.begin() {
                    Some(next) => turn = next,
                    None => return Batch::Over,
                },
            }
        }
    }

    /// Takes the turn, if it is up, and runs one batch.
    fn run_batch(&self, frame: &Frame) -> Batch {
        let Some(mut turn) = self.queue.begin() else { return Batch::Over };
        let mut progress = Progress::default();
        if !turn.is_shut() {
            // A panic ends `run_some`, not the batch.
            while let Err(payload) = unwind::catch(|| self.run_some(&mut turn, &mut progress)) {
                self.report(Part::Task, payload);
            }
            if progress.items > 0 {
                self.end_batch(&mut turn);
            }
            self.discharge(progress.weight);
        }
        if turn.is_shut() || self.stops() {
            frame.set_rejecting(true);
            let batch = self.give_back(turn, RejectReason::Closed);
            frame.set_rejecting(false);
            self.complete_flushes(self.queue.word());
            return batch;
        }
        if progress.found_all && progress.items < self.limits.linger.below {
            for _ in 0..self.limits.linger.spins {
                hint::spin_loop();
            }
            for _ in 0..self.limits.linger.yields {
                thread::yield_now();
            }
        }
        let (ended, word) = turn.end();
        self.complete_flushes(word);
        match ended {
            Ended::Idle | Ended::Awaited => Batch::Over,
            Ended::Again => Batch::Again,
        }
    }

    /// Runs tasks until the batch is over or one panics.
    fn run_some(&self, turn: &mut Turn<'_, T, N>, progress: &mut Progress) {
        self.handlers.with_mut(|handlers| {
            // SAFETY: `turn` is held, so nobody else uses the handlers; a batch inside a batch is left to the outer one.
            let handlers = unsafe { &mut *handlers };
            while progress.items < self.limits.max_items
                && (progress.weight < self.limits.max_weight || progress.items == 0)
                && !self.stops()
            {
                let Next::Item(task, weight) = turn.next() else {
                    progress.found_all = true;
                    break;
                };
                progress.items += 1;
                progress.weight = progress.weight.saturating_add(weight);
                handlers.run.run(task);
            }
        });
    }

    /// Tells the handler that the batch has run its last task. Called with the turn held.
    fn end_batch(&self, _turn: &mut Turn<'_, T, N>) {
        let called = self.handlers.with_mut(|handlers| {
            // SAFETY: `turn` is held, so nobody else uses the handlers; a batch inside a batch is left to the outer one.
            let handlers = unsafe { &mut *handlers };
            unwind::catch(|| handlers.run.batch_ended())
        });
        if let Err(payload) = called {
            self.report(Part::BatchEnd, payload);
        }
    }

    fn stops(&self) -> bool {
        // Relaxed: a hint to stop early; the word's `SHUT` decides.
        self.stop.load(Ordering::Relaxed)
    }

    /// Runs the batch that a job stands for, and sees to the next one.
    fn run_job(&self, frame: &Frame, handle: &Arc<dyn SharedJob>) {
        let mut batch = self.run_batch(frame);
        loop {
            match batch {
                // A completed flush may have submitted to a delegate that runs at once.
                Batch::Over if frame.take_again() => batch = self.run_batch(frame),
                Batch::Over => return,
                Batch::Again => {
                    batch = match self.hand_over(handle, |delegate, job| delegate.resubmit(job)) {
                        HandOver::Taken => Batch::Over,
                        HandOver::Refused(reason) => {
                            frame.set_rejecting(true);
                            let batch = match self.queue.begin() {
                                Some(turn) => self.give_back(turn, reason),
                                None => Batch::Over,
                            };
                            frame.set_rejecting(false);
                            self.complete_flushes(self.queue.word());
                            batch
                        }
                    };
                }
            }
        }
    }

    /// Hands a batch to the delegate, for a turn that is up.
    fn hand_over(
        &self,
        handle: &Arc<dyn SharedJob>,
        submit: impl FnOnce(&dyn SerialExecutor, Job) -> Result<(), Rejected<Job>>,
    ) -> HandOver {
        // A shutdown that comes after this look finds the turn up and takes it.
        if self.queue.word().has(SHUT) {
            return HandOver::Refused(RejectReason::Closed);
        }
        let job = Job::shared(Arc::clone(handle));
        let used = self
            .delegate
            .using(|delegate| submit(delegate, job), |payload| self.report(Part::Delegate, payload));
        match used {
            // Without a delegate it was shut since the look above: the job was dropped, and gave back what was left.
            Some(Ok(Ok(()))) | None => HandOver::Taken,
            Some(Ok(Err(rejected))) => {
                rejected.value.forget();
                HandOver::Refused(rejected.reason)
            }
            Some(Err(payload)) => {
                // The job was dropped as the delegate unwound, and gave back what was queued; or the delegate has it.
                self.report(Part::Delegate, payload);
                HandOver::Taken
            }
        }
    }

    /// Gives everything back that is queued, if the turn is up.
    fn give_all_back(&self, reason: RejectReason) {
        Frame::within(self.identity(), true, |_| {
            while let Some(turn) = self.queue.begin() {
                match self.give_back(turn, reason) {
                    Batch::Over => break,
                    Batch::Again => {}
                }
            }
        });
        self.complete_flushes(self.queue.word());
    }

    /// Refuses new tasks; those queued run.
    pub(super) fn close(&self) {
        self.queue.set(CLOSED);
    }

    /// Refuses new tasks and gives back those queued: here, or in the batch that is running.
    pub(super) fn shut(&self) {
        // Relaxed: a hint; see `stops`.
        self.stop.store(true, Ordering::Relaxed);
        self.queue.set(CLOSED | SHUT);
        self.give_all_back(RejectReason::Closed);
        self.delegate.let_go(|payload| self.report(Part::Delegate, payload));
    }

    fn complete_flushes(&self, word: Word) {
        if word.has(FLUSH) {
            for done in self.waiters.take_done(&self.queue) {
                self.complete_flush(done);
            }
        }
    }

    pub(super) fn complete_flush(&self, done: Box<dyn FnOnce() + Send>) {
        if let Err(payload) = unwind::catch(done) {
            self.report(Part::Flush, payload);
        }
    }

    /// Tells the failure sink, whose own panic goes no further.
    fn report(&self, part: Part, payload: unwind::Payload) {
        if let Err(again) = unwind::catch(|| (self.failed)(Failure { part, payload })) {
            unwind::discard(again);
        }
    }
}

/// How far a batch has come.
#[derive(Default)]
struct Progress {
    items: u32,
    weight: u64,
    /// It ended since nothing more was there, not at a limit.
    found_all: bool,
}

/// The one job of an executor: each submission of it stands for one batch.
pub(super) struct Batches<T, const N: usize>(pub(super) Arc<Core<T, N>>);

impl<T: Send + 'static, const N: usize> SharedJob for Batches<T, N> {
    fn run(&self, this: &Arc<dyn SharedJob>) {
        let core = &*self.0;
        if !Frame::leave_to_outer(core.identity()) {
            Frame::within(core.identity(), false, |frame| core.run_job(frame, this));
        }
    }

    fn abandoned(&self, _this: &Arc<dyn SharedJob>) {
        self.0.give_all_back(RejectReason::Refused);
    }
}
