//! The word by which a cursor waits for the tail.

use folio_sync::atomic::{AtomicU64, Ordering};
use folio_sync::step;

#[cfg(all(test, loom))]
mod models;

/// The cursor's reader wants to be told when there is more.
const WAITING: u64 = 1;
/// There will be no more.
const CLOSED: u64 = 2;
/// Where the count of confirmed entries begins.
const SHIFT: u32 = 2;

/// How far a ledger is confirmed, as one cursor knows it; whether its reader waits; whether the ledger is closed.
///
/// The ledger's worker raises the count, and takes the wish to be told with the same operation; the reader leaves the wish only while the count
/// is the one that it has seen. So either the reader sees the entry, or whoever confirms it sees the reader.
#[derive(Debug)]
pub(crate) struct Tail(AtomicU64);

/// What waiting came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "who does not wait is not told"]
pub enum Wait {
    /// There is an entry to read now: read it, and ask again. The listener is not told of it.
    More,
    /// All that is confirmed has been read. The listener will be told, once, of the next entry or of the end; then ask again.
    Waiting,
    /// All has been read, and nothing comes any more, since the ledger is closed.
    Closed,
}

impl Tail {
    /// So many entries are confirmed.
    pub(crate) fn new(confirmed: i64) -> Self {
        Self(AtomicU64::new(pack(confirmed)))
    }

    /// How many entries are confirmed.
    pub(crate) fn confirmed(&self) -> i64 {
        // Acquire: the entries are in the cache and in storage; pairs with the Release of `confirm`.
        unpack(self.0.load(Ordering::Acquire))
    }

    /// Raises the count; whether the reader is to be told. The worker's alone.
    pub(crate) fn confirm(&self, confirmed: i64) -> bool {
        // Relaxed: a first guess; the count is this caller's alone.
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            // A cursor that has just been opened knows it already.
            if unpack(word) >= confirmed {
                return false;
            }
            let next = pack(confirmed) | (word & CLOSED);
            // AcqRel: publishes the entries; and what the reader did before it waited is visible to whom it is told by.
            match step!(
                "tail.confirm",
                self.0.compare_exchange_weak(word, next, Ordering::AcqRel, Ordering::Relaxed)
            ) {
                Ok(_) => return word & WAITING != 0,
                Err(now) => word = now,
            }
        }
    }

    /// Says that there will be no more; whether the reader is to be told.
    pub(crate) fn close(&self) -> bool {
        // AcqRel: as in `confirm`.
        let word = step!("tail.close", self.0.fetch_or(CLOSED, Ordering::AcqRel));
        // Relaxed: the wish is taken by whoever clears it.
        word & WAITING != 0 && self.0.fetch_and(!WAITING, Ordering::Relaxed) & WAITING != 0
    }

    /// Leaves the wish to be told when more than `read` entries are confirmed.
    pub(crate) fn wait(&self, read: i64) -> Wait {
        // Acquire: as in `confirmed`.
        let mut word = self.0.load(Ordering::Acquire);
        loop {
            if unpack(word) > read {
                return Wait::More;
            }
            if word & CLOSED != 0 {
                return Wait::Closed;
            }
            // Release: what the reader did comes before it is told; pairs with the Acquire of `confirm`.
            match step!(
                "tail.wait",
                self.0.compare_exchange_weak(word, word | WAITING, Ordering::AcqRel, Ordering::Acquire)
            ) {
                Ok(_) => return Wait::Waiting,
                Err(now) => word = now,
            }
        }
    }
}

#[expect(clippy::cast_sign_loss, reason = "a count is never negative")]
fn pack(confirmed: i64) -> u64 {
    (confirmed as u64) << SHIFT
}

#[expect(clippy::cast_possible_wrap, reason = "its upper bits were shifted in as zeros")]
fn unpack(word: u64) -> i64 {
    (word >> SHIFT) as i64
}
