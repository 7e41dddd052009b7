//! A store of small values: the trait and what it takes.

use bytes::Bytes;
use folio_sync::Arc;

use super::done::Done;
use super::error::StoreError;

/// How long a key may be.
pub const MAX_KEY_BYTES: usize = 512;
/// How large a value may be.
pub const MAX_VALUE_BYTES: usize = 64 * 1024;

/// Keeps small values under keys, each with a version.
///
/// Ledger lists and cursor states live here. A version is a number that no other value of the key ever had, not even before it was deleted. Calls answer by
/// their [`Done`], once, on any thread, perhaps before they return.
pub trait MetadataStore: Send + Sync + 'static {
    /// The value of a key, if it has one.
    fn get(&self, key: &str, done: Done<Option<Versioned>>);

    /// The keys that begin so, in order, with their versions.
    fn list(&self, prefix: &str, done: Done<Vec<(String, u64)>>);

    /// Makes all changes or none; answers, when they are durable, the new version of each value in order, none for one that is deleted.
    ///
    /// A key may be in it once. A key that is to be deleted and has no value is left so.
    fn commit(&self, changes: Vec<Change>, done: Done<Vec<Option<u64>>>);
}

impl<S: MetadataStore + ?Sized> MetadataStore for Arc<S> {
    fn get(&self, key: &str, done: Done<Option<Versioned>>) {
        (**self).get(key, done);
    }

    fn list(&self, prefix: &str, done: Done<Vec<(String, u64)>>) {
        (**self).list(prefix, done);
    }

    fn commit(&self, changes: Vec<Change>, done: Done<Vec<Option<u64>>>) {
        (**self).commit(changes, done);
    }
}

/// A value and its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Versioned {
    /// The version.
    pub version: u64,
    /// The value.
    pub value: Bytes,
}

/// What a key must have for a change to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Whatever it has.
    Any,
    /// No value.
    Absent,
    /// A value of this version.
    Version(u64),
}

impl Expected {
    /// Whether a key that has this is as expected.
    pub fn allows(self, found: Option<u64>) -> bool {
        match self {
            Self::Any => true,
            Self::Absent => found.is_none(),
            Self::Version(version) => found == Some(version),
        }
    }
}

/// One change of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The key, not empty.
    pub key: String,
    /// What it must have.
    pub expected: Expected,
    /// Its new value; none deletes it.
    pub value: Option<Bytes>,
}

/// Whether a commit can be tried at all.
pub(crate) fn check(changes: &[Change]) -> Result<(), StoreError> {
    let mut keys: Vec<_> = changes.iter().map(|change| change.key.as_str()).collect();
    keys.sort_unstable();
    if keys.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(StoreError::Invalid("a key is changed twice at once"));
    }
    for change in changes {
        if change.key.is_empty() {
            return Err(StoreError::Invalid("a key is empty"));
        }
        let value = change.value.as_ref().map_or(0, Bytes::len);
        for (bytes, most) in [(change.key.len(), MAX_KEY_BYTES), (value, MAX_VALUE_BYTES)] {
            if bytes > most {
                return Err(StoreError::TooLarge { bytes, most });
            }
        }
    }
    Ok(())
}
