//! Where an entry is.

use std::fmt;

use bytes::Bytes;
use folio_cache::{InFlight, ReadEntry};

/// Where an entry is: its ledger, and its number there, from 0 on. Ordered by both.
///
/// ```
/// use folio_ledger::Position;
///
/// let first = Position { ledger: 3, entry: 0 };
/// assert!(first < first.next());
/// assert_eq!(first.to_string(), "3:0");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The ledger's number.
    pub ledger: i64,
    /// The entry's number.
    pub entry: i64,
}

impl Position {
    /// The position after this one in the same ledger.
    #[must_use]
    pub const fn next(self) -> Self {
        Self { ledger: self.ledger, entry: self.entry + 1 }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.ledger, self.entry)
    }
}

/// An entry as readers get it.
///
/// The entries of one read are counted as in flight until the last of them is dropped: what is kept for long, take the payload of.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Where it is.
    pub position: Position,
    /// What was appended, shared and not copied.
    pub payload: Bytes,
    _in_flight: InFlight,
}

impl Entry {
    /// An entry that is not counted as in flight; for tests, and for consumers of one's own.
    pub fn new(position: Position, payload: Bytes) -> Self {
        Self { position, payload, _in_flight: InFlight::default() }
    }
}

impl From<ReadEntry<Bytes>> for Entry {
    #[inline]
    fn from(read: ReadEntry<Bytes>) -> Self {
        let ((ledger, entry), payload, in_flight) = read.into_parts();
        Self { position: Position { ledger, entry }, payload, _in_flight: in_flight }
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        (self.position, &self.payload) == (other.position, &other.payload)
    }
}

impl Eq for Entry {}
