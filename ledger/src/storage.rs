//! Where entries are kept: a trait, and memory.

use std::collections::VecDeque;
use std::fmt;

use bytes::Bytes;
use folio_cache::pending::{ReadDone, ReadStorage, StorageFailure, Stored};
use folio_sync::{Arc, Mutex};

use crate::done::{Done, Unanswered};
use crate::position::Position;

/// Keeps the entries of one ledger.
///
/// Called by the ledger's worker for appends, by whoever misses the cache for reads.
pub trait LogStorage: Send + Sync + 'static {
    /// The most that it takes; by default anything.
    fn limits(&self) -> Limits {
        Limits::default()
    }

    /// Appends entries that follow each other; the first one has this position, which is the one after the last entry's.
    ///
    /// `done` is told once they are kept and can be read, or that none of them is: here, or later and on any thread. Some more may be appended before
    /// that, and are to fail if it does. After [`Full`](StorageError::Full) the ledger goes on when all of those are answered, with the position that was
    /// refused first; after any other failure nothing more comes. A storage that keeps `done` for ever keeps the ledger, and itself.
    fn append(&self, first: Position, entries: Vec<Bytes>, done: Done<(), StorageError>);

    /// Reads the payloads of the entries from a position on, at most so many, at least one.
    ///
    /// `done` is told here, or later and on any thread. There may be fewer, for whatever reason.
    fn read(&self, first: Position, count: usize, done: Done<Vec<Bytes>, StorageError>);

    /// Nobody reads what is before this position any more.
    fn trim(&self, before: Position);
}

/// The most that a storage takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How many bytes an entry may have.
    pub entry_bytes: usize,
    /// How many bytes may be appended at once, with [`ENTRY_OVERHEAD`] counted for each entry beside its payload.
    pub batch_bytes: usize,
}

impl Default for Limits {
    /// None.
    fn default() -> Self {
        Self { entry_bytes: usize::MAX, batch_bytes: usize::MAX }
    }
}

/// What an entry counts in a batch beside its payload, in bytes.
pub const ENTRY_OVERHEAD: usize = 64;

/// Why storage did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StorageError {
    /// There is no such entry: never appended, or trimmed.
    Missing(Position),
    /// There is no room now: nothing was kept. It may be appended again later.
    Full,
    /// What was appended does not follow the last entry: nothing was kept.
    OutOfOrder {
        /// The number of the entry that is next.
        expected: i64,
    },
    /// Another owner has come.
    Fenced {
        /// Its epoch.
        epoch: u64,
    },
    /// Something else, in words.
    Failed(String),
    /// It dropped the call unanswered, perhaps as it panicked: what was asked may be done or not.
    Unanswered,
}

impl Unanswered for StorageError {
    fn unanswered() -> Self {
        Self::Unanswered
    }
}

impl fmt::Display for StorageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(position) => {
                write!(f, "entry {position} is not in storage: never appended, or trimmed")
            }
            Self::Full => f.write_str("storage has no room now"),
            Self::OutOfOrder { expected } => write!(f, "out of order: entry {expected} is next"),
            Self::Fenced { epoch } => write!(f, "storage was fenced by the owner of epoch {epoch}"),
            Self::Failed(why) => write!(f, "storage failed: {why}"),
            Self::Unanswered => f.write_str("storage dropped the call unanswered"),
        }
    }
}

impl std::error::Error for StorageError {}

/// Reads for the cache.
pub(crate) struct Reads(pub(crate) Arc<dyn LogStorage>);

impl ReadStorage<Bytes> for Reads {
    fn read(&self, ledger: i64, first: i64, count: u32, done: ReadDone<Bytes>) {
        let answered = Done::new(move |answer: Result<Vec<Bytes>, StorageError>| {
            done.answer(answer.map(Stored::new).map_err(StorageFailure::failed));
        });
        self.0.read(
            Position { ledger, entry: first },
            usize::try_from(count).unwrap_or(usize::MAX),
            answered,
        );
    }
}

/// Entries of a segment: as many are freed together.
const SEGMENT: usize = 4096;
const SEGMENT_IDS: i64 = 4096;

/// Keeps entries in memory, until they are trimmed.
///
/// # Memory
/// The payloads, shared with whoever appended them, and 32 bytes each; freed in segments of 4,096.
#[derive(Debug, Default)]
pub struct MemoryStorage {
    segments: Mutex<Segments>,
}

#[derive(Debug, Default)]
struct Segments {
    /// The number of the first entry of the first segment.
    first: i64,
    /// All full but the last.
    segments: VecDeque<Vec<Bytes>>,
}

impl Segments {
    /// The number of the entry that would be appended next.
    fn end(&self) -> i64 {
        let last = self.segments.back().map_or(0, Vec::len);
        let full = self.segments.len().saturating_sub(1) * SEGMENT;
        self.first + i64::try_from(full + last).expect("entries in memory are few")
    }

    fn get(&self, entry: i64) -> Option<&Bytes> {
        let at = usize::try_from(entry.checked_sub(self.first)?).ok()?;
        self.segments.get(at / SEGMENT)?.get(at % SEGMENT)
    }
}

impl MemoryStorage {
    /// Empty.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many entries are kept.
    pub fn len(&self) -> usize {
        self.segments.lock().segments.iter().map(Vec::len).sum()
    }

    /// Whether none is kept.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl LogStorage for MemoryStorage {
    fn append(&self, first: Position, entries: Vec<Bytes>, done: Done<(), StorageError>) {
        let mut segments = self.segments.lock();
        let expected = segments.end();
        if first.entry != expected {
            drop(segments);
            return done.tell(Err(StorageError::OutOfOrder { expected }));
        }
        let mut rest = entries.into_iter();
        while rest.len() > 0 {
            if segments.segments.back().is_none_or(|last| last.len() == SEGMENT) {
                segments.segments.push_back(Vec::with_capacity(SEGMENT));
            }
            let Some(last) = segments.segments.back_mut() else { break };
            last.extend(rest.by_ref().take(SEGMENT - last.len()));
        }
        drop(segments);
        done.tell(Ok(()));
    }

    fn read(&self, first: Position, count: usize, done: Done<Vec<Bytes>, StorageError>) {
        let segments = self.segments.lock();
        let there = (first.entry..).map_while(|entry| segments.get(entry)).take(count);
        let payloads: Vec<_> = there.cloned().collect();
        drop(segments);
        done.tell(if payloads.is_empty() { Err(StorageError::Missing(first)) } else { Ok(payloads) });
    }

    fn trim(&self, before: Position) {
        let mut freed = Vec::new();
        let mut segments = self.segments.lock();
        // The last segment stays, so that the next entry has its number.
        while segments.segments.len() > 1 && segments.first + SEGMENT_IDS <= before.entry {
            freed.extend(segments.segments.pop_front());
            segments.first += SEGMENT_IDS;
        }
        drop(segments);
        // Many payloads may go with them: nobody waits for that.
        drop(freed);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

    use std::sync::mpsc;

    use super::*;

    fn at(entry: i64) -> Position {
        Position { ledger: 1, entry }
    }

    /// What memory answers in the call.
    fn append(storage: &MemoryStorage, first: Position, entries: &[Bytes]) -> Result<(), StorageError> {
        let (tell, told) = mpsc::channel();
        storage.append(first, entries.to_vec(), Done::new(move |answer| tell.send(answer).unwrap()));
        told.try_recv().unwrap()
    }

    fn read(storage: &MemoryStorage, first: Position, count: usize) -> Result<Vec<Bytes>, StorageError> {
        let (tell, told) = mpsc::channel();
        storage.read(first, count, Done::new(move |answer| tell.send(answer).unwrap()));
        told.try_recv().unwrap()
    }

    #[test]
    fn what_was_appended_is_read_across_segments_until_it_is_trimmed() {
        let storage = MemoryStorage::new();
        let entries: Vec<_> = (0..SEGMENT * 2 + 5).map(|n| Bytes::from(n.to_string())).collect();
        assert_eq!(append(&storage, at(0), &entries[..7]), Ok(()));
        assert_eq!(append(&storage, at(7), &entries[7..]), Ok(()));
        assert_eq!(read(&storage, at(4_090), 10), Ok(entries[4_090..4_100].to_vec()));
        storage.trim(at(5_000));
        assert_eq!(storage.len(), SEGMENT + 5);
        assert_eq!(read(&storage, at(4_000), 1), Err(StorageError::Missing(at(4_000))));
        assert_eq!(read(&storage, at(8_196), 2), Ok(entries[8_196..].to_vec()), "as many as there are");
        storage.trim(at(i64::MAX));
        assert_eq!(append(&storage, at(8_197), &entries[..1]), Ok(()));
        assert!(append(&storage, at(5), &entries[..1]).is_err(), "a gap is refused");
    }
}
