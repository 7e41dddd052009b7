//! What reads go to when the cache has nothing, and how it answers.

use std::error::Error;
use std::fmt;

use folio_sync::{Arc, arc_dyn};

/// Where entries are read from; answers whenever it can.
///
/// ```
/// use folio_cache::pending::{ReadDone, ReadStorage};
///
/// /// Has each entry: its number.
/// struct Numbers;
///
/// impl ReadStorage<u64> for Numbers {
///     fn read(&self, _ledger: i64, first: i64, count: u32, done: ReadDone<u64>) {
///         let first = first.unsigned_abs();
///         done.succeed((first..first + u64::from(count)).collect::<Vec<_>>());
///     }
/// }
/// ```
pub trait ReadStorage<V>: Send + Sync + 'static {
    /// Reads up to `count` entries of a ledger, at least one, that follow each other from `first` on.
    ///
    /// `done` is told on any thread, in this call or later. It is called under no lock of the cache, and may be itself. A panic is a failure.
    fn read(&self, ledger: i64, first: i64, count: u32, done: ReadDone<V>);
}

/// What storage read: entries that follow each other, from the first that was asked for on.
///
/// There may be fewer than were asked for; those behind the first that is missing cannot be told. What is too much is left out.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Stored<V> {
    /// The entries.
    pub values: Vec<V>,
    /// Whether they are slices of one buffer, which each of them keeps: what is cached of them is copied.
    pub sliced: bool,
}

impl<V> Stored<V> {
    /// Entries that have a buffer each.
    pub fn new(values: Vec<V>) -> Self {
        Self { values, sliced: false }
    }

    /// Entries that are slices of one receive buffer.
    pub fn sliced(values: Vec<V>) -> Self {
        Self { values, sliced: true }
    }
}

impl<V> From<Vec<V>> for Stored<V> {
    fn from(values: Vec<V>) -> Self {
        Self::new(values)
    }
}

/// Why storage read nothing. All who asked for it get the same.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum StorageFailure {
    /// What was read from is closed; opened again, it may have the entries: the read is tried once more.
    Closed,
    /// The completion was dropped without an answer.
    Abandoned,
    /// User code panicked: storage's, or a copy of an entry.
    Panicked,
    /// Storage's own error.
    Failed(Arc<dyn Error + Send + Sync>),
}

impl StorageFailure {
    /// Storage's own error.
    pub fn failed(error: impl Error + Send + Sync + 'static) -> Self {
        Self::Failed(arc_dyn!(error => dyn Error + Send + Sync))
    }
}

impl fmt::Display for StorageFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("what was read from was closed, twice"),
            Self::Abandoned => f.write_str("storage dropped the read without an answer"),
            Self::Panicked => f.write_str("storage, or the copy of an entry, panicked"),
            Self::Failed(error) => write!(f, "storage failed: {}", &**error),
        }
    }
}

impl Error for StorageFailure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Failed(error) => Some(&**error),
            _ => None,
        }
    }
}

/// Takes storage's answer to one read: once, since giving it uses this up.
///
/// Dropped without one, the answer is [`StorageFailure::Abandoned`]. Only forgetting it keeps who asked waiting.
#[must_use = "dropped, it fails the read"]
pub struct ReadDone<V>(Option<Answer<V>>);

/// Hears storage's answer.
type Answer<V> = Box<dyn FnOnce(Result<Stored<V>, StorageFailure>) + Send>;

impl<V> ReadDone<V> {
    /// Calls `answered` with the answer, wherever that is given; for storages that pass reads on.
    pub fn new(answered: impl FnOnce(Result<Stored<V>, StorageFailure>) + Send + 'static) -> Self {
        Self(Some(Box::new(answered)))
    }

    /// These are the entries.
    pub fn succeed(self, entries: impl Into<Stored<V>>) {
        self.answer(Ok(entries.into()));
    }

    /// There are none, for this reason.
    pub fn fail(self, failure: StorageFailure) {
        self.answer(Err(failure));
    }

    /// Either of them.
    pub fn answer(mut self, answer: Result<Stored<V>, StorageFailure>) {
        if let Some(answered) = self.0.take() {
            answered(answer);
        }
    }
}

impl<V> Drop for ReadDone<V> {
    fn drop(&mut self) {
        if let Some(answered) = self.0.take() {
            answered(Err(StorageFailure::Abandoned));
        }
    }
}

impl<V> fmt::Debug for ReadDone<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadDone").finish_non_exhaustive()
    }
}
