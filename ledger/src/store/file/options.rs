//! How a store is opened, and what is said of it.

use std::time::Duration;
use std::{fmt, io};

use crate::store::error::Damage;
use crate::store::log::{Capabilities, Durability, FenceScope};

/// How a [`FileStore`](super::FileStore) is opened.
#[derive(Clone, Debug)]
pub struct FileOptions {
    /// What an append has survived when it is answered: [`Written`](Durability::Written) or [`Synced`](Durability::Synced).
    pub durability: Durability,
    /// How large a segment is; at least 32 KiB. A batch may have a quarter of it, an entry an eighth, the list of all ledgers a quarter.
    pub segment_bytes: u32,
    /// How large an entry may be, if that is less.
    pub max_entry_bytes: usize,
    /// How many bytes are written at once, unless a batch alone has more.
    pub max_write_bytes: usize,
    /// How many entries are written at once, unless a batch alone has more.
    pub max_write_entries: usize,
    /// How many requests may wait, those in work included.
    pub max_queued: usize,
    /// How many bytes of entries may wait, with 64 counted for each beside its payload, and those in work included.
    pub max_queued_bytes: usize,
    /// How long the thread waits for company once something is there. None is needed: what comes during a sync goes with the next one.
    pub linger: Duration,
    /// Changes nothing, not even what a crash left.
    pub read_only: bool,
}

impl Default for FileOptions {
    fn default() -> Self {
        Self {
            durability: Durability::Synced,
            segment_bytes: 64 << 20,
            max_entry_bytes: 5 << 20,
            max_write_bytes: 4 << 20,
            max_write_entries: 65_536,
            max_queued: 65_536,
            max_queued_bytes: 64 << 20,
            linger: Duration::ZERO,
            read_only: false,
        }
    }
}

/// The smallest segment.
const MIN_SEGMENT: u32 = 32 * 1024;

impl FileOptions {
    pub(crate) fn check(&self) -> Result<Capabilities, OpenError> {
        if !matches!(self.durability, Durability::Written | Durability::Synced) {
            return Err(OpenError::Options("files are written or synced"));
        }
        if self.segment_bytes < MIN_SEGMENT || !self.segment_bytes.is_multiple_of(4096) {
            return Err(OpenError::Options("a segment has at least 32 KiB, in whole pages of 4 KiB"));
        }
        if self.max_queued == 0 || self.max_entry_bytes == 0 {
            return Err(OpenError::Options("a limit is zero"));
        }
        let bytes = self.segment_bytes as usize;
        let entry = self.max_entry_bytes.min(bytes / 8);
        Ok(Capabilities::new(self.durability, FenceScope::Group, entry, bytes / 4))
    }

    /// What of a segment is kept free for all but entries: so that a full store can delete.
    pub(crate) fn reserve(&self) -> u32 {
        self.segment_bytes / 16
    }

    /// How large the list of all ledgers may be.
    pub(crate) fn max_snapshot(&self) -> usize {
        self.segment_bytes as usize / 4
    }
}

/// What opening a store found.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct OpenReport {
    /// Something was being written as the store ended, and was cut off; nothing of it had been answered.
    pub cut: Option<Cut>,
    /// What is damaged; only ever in a store that is opened for reading only.
    pub damages: Vec<Damage>,
    /// How many ledgers there are.
    pub ledgers: usize,
    /// How many segments hold entries, the newest one among them.
    pub segments: usize,
    /// How many segments were read because their index was not there.
    pub scanned: usize,
}

/// Where the log was cut off.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cut {
    /// The file.
    pub file: String,
    /// The log ends here.
    pub offset: u64,
}

impl Cut {
    pub(crate) fn new(file: String, offset: u64) -> Self {
        Self { file, offset }
    }
}

/// Why a store is not opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// It is open elsewhere.
    Locked,
    /// The directory holds something else, or nothing.
    NotAStore,
    /// It is of another format.
    Format {
        /// The version that is there.
        found: u32,
        /// The version that is known here.
        supported: u32,
    },
    /// It is damaged; it can be opened for reading only.
    Damaged(Vec<Damage>),
    /// The options make no sense, in words.
    Options(&'static str),
    /// The system says so.
    Io(io::Error),
}

impl From<io::Error> for OpenError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Locked => f.write_str("the store is open elsewhere"),
            Self::NotAStore => f.write_str("this is not a store"),
            Self::Format { found, supported } => {
                write!(f, "the store is of format {found}; this program knows format {supported}")
            }
            Self::Damaged(damages) => {
                f.write_str("the store is damaged")?;
                damages.iter().try_for_each(|damage| write!(f, "; {damage}"))
            }
            Self::Options(why) => f.write_str(why),
            Self::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            _ => None,
        }
    }
}
