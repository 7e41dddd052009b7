//! Why a read has no entries.

use std::fmt;

use crate::pending::StorageFailure;
use crate::permits::PermitError;
use crate::range::Position;

/// Why a read has no entries. It has given back all that it had taken.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ReadError {
    /// It would go beyond the last confirmed position; neither cache nor storage was asked.
    Unconfirmed {
        /// The last entry that was asked for.
        last: Position,
        /// The last that is confirmed.
        confirmed: Position,
    },
    /// Too many bytes are in flight, and it could not wait, or waited in vain: read again later.
    TooManyReads(PermitError),
    /// Storage has no entry there, though it is confirmed: lost, or trimmed.
    Missing(Position),
    /// Storage failed.
    Storage(StorageFailure),
    /// It was dropped before it was done: the executor that was to go on with it did not.
    Abandoned,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unconfirmed { last, confirmed } => write!(
                f,
                "entry {}:{} is beyond the last confirmed one, {}:{}",
                last.0, last.1, confirmed.0, confirmed.1
            ),
            Self::TooManyReads(error) => error.fmt(f),
            Self::Missing((ledger, entry)) => write!(f, "entry {ledger}:{entry} is not in storage"),
            Self::Storage(failure) => failure.fmt(f),
            Self::Abandoned => f.write_str("the read was dropped by the executor that was to go on with it"),
        }
    }
}

impl std::error::Error for ReadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::TooManyReads(error) => Some(error),
            Self::Storage(failure) => Some(failure),
            _ => None,
        }
    }
}
