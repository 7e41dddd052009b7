//! The word that decides who runs passes, and what for.

use folio_sync::atomic::{AtomicU32, Ordering};

/// A job is queued or running.
const QUEUED: u32 = 1;
/// No pass begins any more.
const CLOSED: u32 = 2;
/// What is older than the time to live is to go.
pub(super) const TICK: u32 = 4;
/// The weight is above the threshold.
pub(super) const PRESSURE: u32 = 8;

pub(super) struct Word(AtomicU32);

impl Word {
    pub(super) fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Demands a pass; whether the caller has to submit the job.
    #[must_use = "a job that is not submitted keeps all others from being"]
    pub(super) fn demand(&self, what: u32) -> bool {
        // Release: publishes what was charged; pairs with `begin`'s Acquire.
        self.0.fetch_or(QUEUED | what, Ordering::Release) & (QUEUED | CLOSED) == 0
    }

    /// Takes what is demanded, for a pass; none when it is closed.
    pub(super) fn begin(&self) -> Option<u32> {
        // Acquire: sees what was charged before it was demanded, and what the pass before did; pairs with the Release of `demand`, and of `end` and
        // `abandon`, whose release sequence a demand continues.
        let word = self.0.fetch_and(QUEUED | CLOSED, Ordering::Acquire);
        (word & CLOSED == 0).then_some(word & !QUEUED)
    }

    /// Ends the job, unless more is demanded.
    pub(super) fn end(&self) -> bool {
        // Release: what the pass did comes before the next one; pairs with `begin`'s Acquire. Relaxed on failure: `begin` is next.
        self.0.compare_exchange(QUEUED, 0, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    /// Ends the job, whatever is demanded.
    pub(super) fn abandon(&self) {
        // Release: as in `end`.
        self.0.fetch_and(CLOSED, Ordering::Release);
    }

    pub(super) fn close(&self) {
        // Relaxed: publishes nothing.
        self.0.fetch_or(CLOSED, Ordering::Relaxed);
    }

    pub(super) fn is_closed(&self) -> bool {
        // Relaxed: as above.
        self.0.load(Ordering::Relaxed) & CLOSED != 0
    }
}
