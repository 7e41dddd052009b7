//! A store of ledgers: the trait and what it takes.

use std::fmt;

use bytes::Bytes;
use folio_sync::Arc;

use super::done::Done;

/// Keeps the entries of many ledgers.
///
/// A ledger belongs to a group, which is written by one owner at a time. Each owner has an epoch, greater than those before; the store refuses
/// whoever has a smaller one than the newest that it has seen, be it by [`create`](Self::create) or by [`recover`](Self::recover). A ledger is written only in the epoch that
/// created it, and entries are numbered from 0 on without gaps.
///
/// Calls do not block for long and answer by their [`Done`], once, on any thread, perhaps before they return. What they refuse without a change says
/// so; [`StoreError::Failed`](super::StoreError::Failed) and [`Dropped`](super::StoreError::Dropped) leave open what was done. The appends of one ledger are answered in the order
/// in which they were asked; anything else may overtake.
///
/// A ledger's number is never used again, except after its deletion was answered.
pub trait LogStore: Send + Sync + 'static {
    /// What the store can do.
    fn capabilities(&self) -> Capabilities;

    /// Makes a ledger in a group. It is there after any crash once this is answered, if the store keeps anything at all.
    fn create(&self, group: &str, ledger: i64, epoch: u64, done: Done<()>);

    /// Appends a batch, all of it or nothing of it unless the store fails.
    ///
    /// Answered when all of it can be read and has reached the durability that the store is set to. Others may be asked before one is
    /// answered; after one that is refused those that follow it are refused, too, as they do not follow what is there.
    fn append(&self, append: Append, done: Done<Appended>);

    /// Reads confirmed entries that follow each other, at least one, at most what the limits say; the first one whatever its size.
    fn read(&self, ledger: i64, first: i64, limits: ReadLimits, done: Done<Vec<Bytes>>);

    /// The number of the last entry that can be read; -1 if there is none.
    fn last_confirmed(&self, ledger: i64, done: Done<i64>);

    /// Closes a ledger after what was appended before; tells the number of the last entry. It may be closed again.
    fn close(&self, ledger: i64, epoch: u64, done: Done<i64>);

    /// Fences a ledger's earlier owners, and closes it; tells the number of the last entry.
    ///
    /// Every append that was or will be answered well is before that. One that was answered otherwise may be there, if the store failed, or one that never was.
    fn recover(&self, ledger: i64, epoch: u64, done: Done<i64>);

    /// Deletes a ledger, open or closed.
    fn delete(&self, ledger: i64, epoch: u64, done: Done<()>);

    /// The ledgers of a group, by number.
    fn list(&self, group: &str, done: Done<Vec<LedgerInfo>>);
}

impl<S: LogStore + ?Sized> LogStore for Arc<S> {
    fn capabilities(&self) -> Capabilities {
        (**self).capabilities()
    }

    fn create(&self, group: &str, ledger: i64, epoch: u64, done: Done<()>) {
        (**self).create(group, ledger, epoch, done);
    }

    fn append(&self, append: Append, done: Done<Appended>) {
        (**self).append(append, done);
    }

    fn read(&self, ledger: i64, first: i64, limits: ReadLimits, done: Done<Vec<Bytes>>) {
        (**self).read(ledger, first, limits, done);
    }

    fn last_confirmed(&self, ledger: i64, done: Done<i64>) {
        (**self).last_confirmed(ledger, done);
    }

    fn close(&self, ledger: i64, epoch: u64, done: Done<i64>) {
        (**self).close(ledger, epoch, done);
    }

    fn recover(&self, ledger: i64, epoch: u64, done: Done<i64>) {
        (**self).recover(ledger, epoch, done);
    }

    fn delete(&self, ledger: i64, epoch: u64, done: Done<()>) {
        (**self).delete(ledger, epoch, done);
    }

    fn list(&self, group: &str, done: Done<Vec<LedgerInfo>>) {
        (**self).list(group, done);
    }
}

/// A batch to append.
#[derive(Clone, Debug)]
pub struct Append {
    /// The ledger's number.
    pub ledger: i64,
    /// The owner's, in which the ledger was created.
    pub epoch: u64,
    /// The number of the first entry.
    pub first: i64,
    /// The payloads, at least one.
    pub entries: Vec<Bytes>,
}

/// A batch was appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// The number of the batch's last entry.
    pub last: i64,
    /// What the batch survives.
    pub durability: Durability,
}

/// What an entry survives; each level more than the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Durability {
    /// Nothing: it is in memory.
    Memory,
    /// The end of the process: it is written, and the system will put it to disk some time.
    Written,
    /// The loss of power: it is on disk.
    Synced,
    /// The loss of a disk: it is on several machines.
    Replicated,
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Memory => "memory",
            Self::Written => "written",
            Self::Synced => "synced",
            Self::Replicated => "replicated",
        })
    }
}

/// What a newer epoch fences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FenceScope {
    /// The one ledger that is recovered.
    Ledger,
    /// All ledgers of its group.
    Group,
}

/// What a store can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// What an appended entry survives.
    pub durability: Durability,
    /// What a newer epoch fences.
    pub fences: FenceScope,
    /// How large an entry may be.
    pub max_entry_bytes: usize,
    /// How much a batch may have, with 64 bytes counted for each entry beside its payload.
    pub max_batch_bytes: usize,
}

impl Capabilities {
    /// Of a store that keeps so much; for implementations of [`LogStore`].
    pub const fn new(
        durability: Durability,
        fences: FenceScope,
        max_entry_bytes: usize,
        max_batch_bytes: usize,
    ) -> Self {
        Self { durability, fences, max_entry_bytes, max_batch_bytes }
    }
}

/// How much one read may give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadLimits {
    /// At most so many entries; at least 1.
    pub entries: usize,
    /// At most so many bytes of payload, unless the first entry alone has more.
    pub bytes: usize,
}

/// A ledger of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LedgerInfo {
    /// The ledger's number.
    pub ledger: i64,
    /// In which it was created.
    pub epoch: u64,
    /// The number of the last confirmed entry; -1 if there is none.
    pub last: i64,
    /// Whether nothing more comes.
    pub closed: bool,
}

impl LedgerInfo {
    /// Of a ledger; for implementations of [`LogStore`].
    pub const fn new(ledger: i64, epoch: u64, last: i64, closed: bool) -> Self {
        Self { ledger, epoch, last, closed }
    }
}
