//! Why an entry was not inserted.

use std::fmt;

use crate::range::Position;

/// Why a value was given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// There is an entry at the position; it stays.
    Occupied,
    /// Somebody is inserting at the position, or what was removed there is not dropped yet, since a reader is in its page.
    ///
    /// It passes by itself; the entry need not be cached.
    Busy,
    /// It would have gone above 1.25 times the budget: evict, and insert it again, or do without.
    OverBudget,
}

/// An entry that the cache did not take over, with the value.
#[non_exhaustive]
pub struct NotInserted<V> {
    /// Where it was to go.
    pub position: Position,
    /// The caller's again.
    pub value: V,
    /// Why.
    pub reason: Reason,
}

impl<V> fmt::Debug for NotInserted<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NotInserted")
            .field("position", &self.position)
            .field("reason", &self.reason)
            .finish_non_exhaustive()
    }
}

impl<V> fmt::Display for NotInserted<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ledger, entry) = self.position;
        let why = match self.reason {
            Reason::Occupied => "there is one already",
            Reason::Busy => "its place is in use for a moment",
            Reason::OverBudget => "the cache is above its budget: evict first",
        };
        write!(f, "entry {ledger}:{entry} was not cached: {why}")
    }
}

impl<V> std::error::Error for NotInserted<V> {}
