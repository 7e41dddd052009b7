//! The word that decides: tickets, flags and the number of pending items in 64 bits.
//!
//! ```text
//! 63            32 31      30       29      28     27               0
//! +---------------+--------+--------+--------+------+-----------------+
//! | next ticket   | CLOSED | SHUT   | QUEUED | FLUSH| pending         |
//! +---------------+--------+--------+--------+------+-----------------+
//! ```

#![allow(clippy::cast_possible_truncation, reason = "halves of a word are cut out of it by casts")]

use std::fmt;

/// One ticket, in the upper half; overflow leaves the word.
pub(crate) const TICKET: u64 = 1 << 32;
/// Nothing more is taken.
pub(crate) const CLOSED: u64 = 1 << 31;
/// What is queued is to be given back.
pub(crate) const SHUT: u64 = 1 << 30;
/// The turn is up for whoever clears this bit.
pub(crate) const QUEUED: u64 = 1 << 29;
/// Somebody waits for earlier items to be done.
pub(crate) const FLUSH: u64 = 1 << 28;
/// The most that can be pending.
pub(crate) const MOST: u32 = (1 << 28) - 1;

/// A value of the word, taken apart.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Word(pub(crate) u64);

impl Word {
    /// The ticket that the next claim gets; tickets wrap.
    pub(crate) fn ticket(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Items claimed and not yet done with.
    pub(crate) fn pending(self) -> u32 {
        low(self.0) & MOST
    }

    pub(crate) fn has(self, flag: u64) -> bool {
        self.0 & flag != 0
    }

    /// The number of items done with, counted as tickets are.
    pub(crate) fn done(self) -> u32 {
        self.ticket().wrapping_sub(self.pending())
    }
}

impl fmt::Debug for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Word")
            .field("ticket", &self.ticket())
            .field("pending", &self.pending())
            .field("closed", &self.has(CLOSED))
            .field("shut", &self.has(SHUT))
            .field("queued", &self.has(QUEUED))
            .field("flush", &self.has(FLUSH))
            .finish()
    }
}

/// The lower half.
pub(crate) const fn low(word: u64) -> u32 {
    word as u32
}

/// Whether `position` has come to `mark` or past it, as long as they are less than half of all tickets apart.
pub(crate) fn reached(position: u32, mark: u32) -> bool {
    position.wrapping_sub(mark).cast_signed() >= 0
}
