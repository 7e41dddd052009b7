//! Why a store did not do what it was asked.

use std::{fmt, io};

use crate::position::Position;

/// Why a store did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreError {
    /// There is no ledger of this number.
    NoSuchLedger(i64),
    /// There is a ledger of this number already.
    Exists(i64),
    /// A newer owner has come, with this epoch: the caller is to stop.
    Fenced {
        /// The newest owner's.
        epoch: u64,
    },
    /// The ledger is closed for good; its last entry is this, -1 if it has none.
    LedgerClosed {
        /// The last entry's number.
        last: i64,
    },
    /// The first entry of a batch must be the one after the last that was appended: nothing of the batch is kept.
    OutOfOrder {
        /// The number of the entry that is next.
        expected: i64,
    },
    /// There is no such entry, or it is not confirmed yet.
    NoSuchEntry(Position),
    /// An entry, a batch, a key or a value is larger than the store takes: nothing of it is kept.
    TooLarge {
        /// How large it is, in bytes.
        bytes: usize,
        /// How large it may be.
        most: usize,
    },
    /// There are as many ledgers as may be.
    TooManyLedgers,
    /// The caller asks for what makes no sense, in words.
    Invalid(&'static str),
    /// As much is waiting as may: nothing is kept; it may be asked again later.
    Busy,
    /// There is no room left: nothing is kept. It may be asked again when there is; reads go on.
    Full,
    /// What is stored is damaged, and is not given out.
    Damaged(Damage),
    /// The value of a key has another version: nothing of the changes is made.
    Conflict {
        /// The first key whose version is another.
        key: String,
        /// Its version; none if it has no value.
        found: Option<u64>,
    },
    /// A write or a sync failed. What was on its way may be kept or not; nothing more is taken until the store is opened again.
    Failed(String),
    /// A read failed, in words; it may be asked again.
    ReadFailed(String),
    /// The store is open for reading only.
    ReadOnly,
    /// The store is shut.
    Shut,
    /// The store dropped the call unanswered: what was asked may be done or not.
    Dropped,
}

impl StoreError {
    /// A write or a sync that failed for good.
    pub(crate) fn failed(what: &str, error: &io::Error) -> Self {
        Self::Failed(format!("{what}: {error}"))
    }

    /// A read that failed.
    pub(crate) fn read_failed(what: &str, error: &io::Error) -> Self {
        Self::ReadFailed(format!("{what}: {error}"))
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchLedger(ledger) => write!(f, "there is no ledger {ledger}"),
            Self::Exists(ledger) => write!(f, "there is a ledger {ledger} already"),
            Self::Fenced { epoch } => write!(f, "fenced by the owner of epoch {epoch}"),
            Self::LedgerClosed { last } => write!(f, "the ledger is closed; its last entry is {last}"),
            Self::OutOfOrder { expected } => write!(f, "out of order: entry {expected} is next"),
            Self::NoSuchEntry(position) => write!(f, "there is no entry {position}, or it is not confirmed"),
            Self::TooLarge { bytes, most } => write!(f, "{bytes} bytes are too many: at most {most}"),
            Self::TooManyLedgers => f.write_str("there are as many ledgers as may be"),
            Self::Invalid(why) => f.write_str(why),
            Self::Busy => f.write_str("as much is waiting as may"),
            Self::Full => f.write_str("there is no room left"),
            Self::Damaged(damage) => damage.fmt(f),
            Self::Conflict { key, found: Some(found) } => write!(f, "the version of {key} is {found}"),
            Self::Conflict { key, found: None } => write!(f, "{key} has no value"),
            Self::Failed(why) => write!(f, "the store failed: {why}"),
            Self::ReadFailed(why) => write!(f, "a read failed: {why}"),
            Self::ReadOnly => f.write_str("the store is open for reading only"),
            Self::Shut => f.write_str("the store is shut"),
            Self::Dropped => f.write_str("the store dropped the call unanswered"),
        }
    }
}

impl std::error::Error for StoreError {}

/// What is damaged, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Damage {
    /// The entry, where it is known which.
    pub position: Option<Position>,
    /// The file; empty where a whole file is missing and it is not known which.
    pub file: String,
    /// Where in the file.
    pub offset: u64,
    /// In words.
    pub what: &'static str,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(position) = self.position {
            write!(f, "entry {position} is damaged: ")?;
        }
        let file = if self.file.is_empty() { "a file that is not there" } else { &self.file };
        write!(f, "{} in {file} at {}", self.what, self.offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_tells_ledger_entry_file_and_offset() {
        let damage = Damage {
            position: Some(Position { ledger: 7, entry: 12 }),
            file: "a".into(),
            offset: 512,
            what: "a checksum is wrong",
        };
        let told = StoreError::Damaged(damage.clone()).to_string();
        assert_eq!(told, "entry 7:12 is damaged: a checksum is wrong in a at 512");
        let lost = Damage { position: None, file: String::new(), ..damage };
        assert_eq!(lost.to_string(), "a checksum is wrong in a file that is not there at 512");
    }
}
