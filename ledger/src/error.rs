//! What can go wrong.

use std::fmt;

use folio_cache::PermitError;
use folio_cache::pending::StorageFailure;
use folio_sync::RejectReason;

use crate::position::Position;
use crate::storage::StorageError;

/// Why an entry was not appended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AppendError {
    /// The ledger is closed, or its worker is.
    Closed,
    /// The ledger's worker did not take it, since too much is queued, or was unwilling.
    Rejected(RejectReason),
    /// It is larger than storage takes.
    TooLarge {
        /// How many bytes it has.
        bytes: usize,
        /// How many it may have.
        most: usize,
    },
    /// Storage did not keep it. After [`Full`](StorageError::Full) later ones may be appended; after anything else, be it told for an entry before this
    /// one, the ledger takes no more.
    Storage(StorageError),
}

impl fmt::Display for AppendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("the ledger or its worker is closed"),
            Self::Rejected(reason) => write!(f, "the ledger's worker did not take the entry: {reason}"),
            Self::TooLarge { bytes, most } => {
                write!(f, "an entry has at most {most} bytes here, not {bytes}")
            }
            Self::Storage(error @ StorageError::Full) => write!(f, "the entry was not stored: {error}"),
            Self::Storage(error) => write!(f, "the ledger takes no more entries: {error}"),
        }
    }
}

impl std::error::Error for AppendError {}

/// Why a read has no entries.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadError {
    /// Storage could not read. The cursor has not moved.
    Storage(StorageError),
    /// Too many bytes are being read. The cursor has not moved: read again later.
    Busy(PermitError),
    /// The result could not be handed over. The cursor has moved on: seek back to read the entries again.
    Rejected(RejectReason),
}

impl From<folio_cache::ReadError> for ReadError {
    fn from(error: folio_cache::ReadError) -> Self {
        Self::Storage(match error {
            folio_cache::ReadError::TooManyReads(error) => return Self::Busy(error),
            folio_cache::ReadError::Missing((ledger, entry)) => {
                StorageError::Missing(Position { ledger, entry })
            }
            folio_cache::ReadError::Storage(StorageFailure::Failed(error)) => {
                match error.downcast_ref::<StorageError>() {
                    Some(error) => error.clone(),
                    None => StorageError::Failed(error.to_string()),
                }
            }
            other => StorageError::Failed(other.to_string()),
        })
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Storage(error) => write!(f, "entries could not be read: {error}"),
            Self::Busy(error) => write!(f, "entries could not be read: {error}"),
            Self::Rejected(reason) => write!(f, "the entries could not be handed over: {reason}"),
        }
    }
}

impl std::error::Error for ReadError {}
