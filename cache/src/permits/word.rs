//! The word that decides: how many bytes are out, and whether requests are held up.

use folio_sync::atomic::{AtomicU64, Ordering};

/// Set while requests have to go by way of the queue.
const HELD_UP: u64 = 1 << 63;

/// As many bytes as can be out.
pub(super) const MOST: u64 = HELD_UP - 1;

/// A number that publishes nothing, hence Relaxed everywhere; changed by read-modify-writes only.
pub(super) struct Word(AtomicU64);

/// Whether there is room for this many more.
fn fits(word: u64, bytes: u64, budget: u64) -> bool {
    budget.checked_sub(word & MOST).is_some_and(|room| bytes <= room)
}

impl Word {
    pub(super) fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Changes the word if the change is due; how it was before.
    fn change(&self, change: impl FnMut(u64) -> Option<u64>) -> Result<u64, u64> {
        // Relaxed, both: see the type.
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change)
    }

    /// Takes bytes out if there is room and nobody is held up.
    pub(super) fn take(&self, bytes: u64, budget: u64) -> bool {
        self.change(|word| (word & HELD_UP == 0 && fits(word, bytes, budget)).then(|| word + bytes)).is_ok()
    }

    /// Takes bytes out if there is room, else holds up all that come; which. Under the lock, with nobody queued.
    pub(super) fn take_or_hold_up(&self, bytes: u64, budget: u64) -> bool {
        let next = |word| Some(if fits(word, bytes, budget) { word + bytes } else { word | HELD_UP });
        self.change(next).is_ok_and(|word| fits(word, bytes, budget))
    }

    /// Takes bytes out for the first one in the queue, if there is room. Under the lock.
    pub(super) fn grant(&self, bytes: u64, budget: u64) -> bool {
        self.change(|word| fits(word, bytes, budget).then(|| word + bytes)).is_ok()
    }

    /// Gives bytes back; whether somebody may wait for them.
    pub(super) fn give_back(&self, bytes: u64) -> bool {
        // Relaxed: see the type.
        self.0.fetch_sub(bytes, Ordering::Relaxed) & HELD_UP != 0
    }

    /// Nobody is queued any more. Under the lock.
    pub(super) fn let_go(&self) {
        // Relaxed: see the type.
        self.0.fetch_and(MOST, Ordering::Relaxed);
    }

    /// All that come have to look under the lock from now on. Under the lock.
    pub(super) fn hold_up(&self) {
        // Relaxed: see the type.
        self.0.fetch_or(HELD_UP, Ordering::Relaxed);
    }

    /// Bytes that are out.
    pub(super) fn in_use(&self) -> u64 {
        // Relaxed: see the type.
        self.0.load(Ordering::Relaxed) & MOST
    }
}
