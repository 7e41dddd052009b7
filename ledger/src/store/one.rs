//! One ledger of a store, as the storage of a [`Ledger`](crate::Ledger).

use bytes::Bytes;

use super::done::Done;
use super::error::StoreError;
use super::log::{Append, LogStore, ReadLimits};
use crate::position::Position;
use crate::storage::{LogStorage, StorageError};

/// One ledger of a store, made for one [`Ledger`](crate::Ledger), whose number is its own.
///
/// Nothing is trimmed: a store deletes whole ledgers.
#[derive(Debug)]
pub struct StoredLedger<S> {
    store: S,
    epoch: u64,
}

impl<S: LogStore> StoredLedger<S> {
    /// Makes the ledger; `done` has it, or hears why there is none.
    pub fn create(store: &S, group: &str, ledger: i64, epoch: u64, done: Done<Self>)
    where
        S: Clone,
    {
        let made = Self { store: store.clone(), epoch };
        store.create(
            group,
            ledger,
            epoch,
            Done::new(move |created: Result<(), StoreError>| done.tell(created.map(|()| made))),
        );
    }
}

impl<S: LogStore> LogStorage for StoredLedger<S> {
    fn append(&self, first: Position, entries: Vec<Bytes>, done: crate::Done<(), StorageError>) {
        let append = Append { ledger: first.ledger, epoch: self.epoch, first: first.entry, entries };
        self.store.append(
            append,
            Done::new(|appended: Result<_, StoreError>| {
                done.tell(appended.map(|_| ()).map_err(StorageError::from));
            }),
        );
    }

    fn read(&self, first: Position, count: usize, done: crate::Done<Vec<Bytes>, StorageError>) {
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
            StoreError::Dropped => Self::Unanswered,
            error => Self::Failed(error.to_string()),
        }
    }
}
