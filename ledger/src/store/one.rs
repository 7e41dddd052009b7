//! One ledger of a store, as the storage of a [`Ledger`](crate::Ledger).

use bytes::Bytes;

use super::done::Done;
use super::error::StoreError;
use super::log::{Append, LogStore, ReadLimits};
use crate::position::Position;
use crate::storage::{Limits, LogStorage, StorageError};

/// One ledger of a store, made for one [`Ledger`](crate::Ledger) with the same number: one with another number has all that it asks refused.
///
/// Nothing is trimmed: a store deletes whole ledgers. Reads run where the store reads: for files, on the thread that asks, which waits for the disk.
#[derive(Debug)]
pub struct StoredLedger<S> {
    store: S,
    ledger: i64,
    epoch: u64,
}

impl<S: LogStore> StoredLedger<S> {
    /// Makes the ledger; `done` has it, or hears why there is none.
    pub fn create(store: &S, group: &str, ledger: i64, epoch: u64, done: Done<Self>)
    where
        S: Clone,
    {
        let made = Self { store: store.clone(), ledger, epoch };
        store.create(
            group,
            ledger,
            epoch,
            Done::new(move |created: Result<(), StoreError>| done.tell(created.map(|()| made))),
        );
    }
}

impl<S> StoredLedger<S> {
    fn not(&self, ledger: i64) -> StorageError {
        StorageError::Failed(format!("this is ledger {} of its store, not {ledger}", self.ledger))
    }
}

impl<S: LogStore> LogStorage for StoredLedger<S> {
    fn limits(&self) -> Limits {
        let capabilities = self.store.capabilities();
        Limits { entry_bytes: capabilities.max_entry_bytes, batch_bytes: capabilities.max_batch_bytes }
    }

    fn append(&self, first: Position, entries: Vec<Bytes>, done: crate::Done<(), StorageError>) {
        if first.ledger != self.ledger {
            return done.tell(Err(self.not(first.ledger)));
        }
        let append = Append { ledger: first.ledger, epoch: self.epoch, first: first.entry, entries };
        self.store.append(
            append,
            Done::new(|appended: Result<_, StoreError>| {
                done.tell(appended.map(|_| ()).map_err(StorageError::from));
            }),
        );
    }

    fn read(&self, first: Position, count: usize, done: crate::Done<Vec<Bytes>, StorageError>) {
        if first.ledger != self.ledger {
            return done.tell(Err(self.not(first.ledger)));
        }
        // What a read may weigh is bounded by whoever asks.
        let limits = ReadLimits { entries: count, bytes: usize::MAX };
        self.store.read(
            first.ledger,
            first.entry,
            limits,
            Done::new(|read: Result<_, StoreError>| done.tell(read.map_err(StorageError::from))),
        );
    }

    fn trim(&self, _before: Position) {}
}

impl From<StoreError> for StorageError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::NoSuchEntry(position) => Self::Missing(position),
            StoreError::Full | StoreError::Busy => Self::Full,
            StoreError::OutOfOrder { expected } => Self::OutOfOrder { expected },
            StoreError::Fenced { epoch } => Self::Fenced { epoch },
            StoreError::Dropped => Self::Unanswered,
            error => Self::Failed(error.to_string()),
        }
    }
}
