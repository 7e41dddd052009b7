//! Where an entry is.

use std::fmt;

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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where it is.
    pub position: Position,
    /// What was appended, shared and not copied.
    pub payload: bytes::Bytes,
}
