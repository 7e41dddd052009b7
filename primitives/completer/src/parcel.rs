//! A completion under way to another thread.

use folio_sync::{Arc, Job, Mutex, RejectReason, Rejected, step, unwind};

use crate::completer::Shared;
use crate::completion::Completion;
use crate::depth::Level;

/// How often a completion may land at the limit before it is refused.
const MOST_LANDINGS: u8 = 16;

/// Where a completion waits; whoever takes it out has it, alone.
///
/// The lock is held for the move only: no user code runs under it.
struct Slot<C>(Arc<Mutex<Option<C>>>);

impl<C> Slot<C> {
    fn take(&self) -> Option<C> {
        let mut slot = self.0.lock();
        slot.take()
    }
}

impl<C> Clone for Slot<C> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// A queued completion. One that is dropped before it ran refuses it.
struct Parcel<C: Completion> {
    slot: Slot<C>,
    shared: Arc<Shared>,
    landings: u8,
}

/// Queues a completion by `submit`.
///
/// # Errors
/// The completion, untouched, when the job that carries it was not taken.
pub(crate) fn send<C: Completion>(
    completion: C,
    shared: &Arc<Shared>,
    submit: impl FnOnce(Job) -> Result<(), Rejected<Job>>,
) -> Result<(), Rejected<C>> {
    let parcel = Parcel {
        slot: Slot(Arc::new(Mutex::new(Some(completion)))),
        shared: Arc::clone(shared),
        landings: 0,
    };
    parcel.hand_over(submit)
}

impl<C: Completion> Parcel<C> {
    fn hand_over(self, submit: impl FnOnce(Job) -> Result<(), Rejected<Job>>) -> Result<(), Rejected<C>> {
        let slot = self.slot.clone();
        let job = Job::new(move || self.land());
        let Err(Rejected { value: job, reason }) = step!("completer.submit", submit(job)) else {
            return Ok(());
        };
        // Taken out first, so that the parcel inside the job finds nothing to refuse when it is dropped.
        let taken = step!("completer.take_back", slot.take());
        drop(job);
        match taken {
            Some(completion) => Err(Rejected::new(completion, reason)),
            // Refused and run all the same: then it has had its end.
            None => Ok(()),
        }
    }

    /// Arrives: runs here if this thread is below the limit.
    fn land(self) {
        let Some(level) = Level::enter(self.shared.limit()) else { return self.land_at_limit() };
        if let Some(completion) = step!("completer.take", self.slot.take()) {
            self.shared.run(level, completion);
        }
    }

    /// Goes on to the serial executor, or gives up after too many tries.
    fn land_at_limit(mut self) {
        let shared = Arc::clone(&self.shared);
        shared.count_landed_at_limit();
        self.landings += 1;
        if self.landings >= MOST_LANDINGS {
            if let Some(completion) = self.slot.take() {
                shared.refuse(completion, RejectReason::Refused);
            }
            return;
        }
        match unwind::catch(|| self.hand_over(|job| shared.submit_to_serial(job))) {
            Ok(Ok(())) => {}
            Ok(Err(rejected)) => shared.refuse(rejected.value, rejected.reason),
            Err(payload) => shared.report(payload),
        }
    }
}

impl<C: Completion> Drop for Parcel<C> {
    fn drop(&mut self) {
        if let Some(completion) = self.slot.take() {
            self.shared.refuse(completion, RejectReason::Closed);
        }
    }
}
