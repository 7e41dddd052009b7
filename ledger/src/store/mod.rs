//! Where ledgers and their metadata are kept: the traits, memory, files.
//!
//! A [`LogStore`] keeps the entries of many ledgers, a [`MetadataStore`] small values under keys, by compare-and-set. Both answer by a [`Done`] that is
//! given with each call, on whatever thread they like. An implementation of one's own proves itself by the suites of `conformance`, which are
//! there with the feature `test-util`.

#[cfg(feature = "test-util")]
pub mod conformance;
mod done;
mod error;
#[cfg(feature = "test-util")]
mod faulty;
mod file;
#[cfg(feature = "test-util")]
#[doc(hidden)]
pub mod fuzzing;
mod inbox;
mod inspect;
pub mod layer;
mod log;
mod memory;
mod metadata;
mod one;
mod redb;
mod table;

pub use self::redb::{MetadataReport, RedbMetadata, RedbOptions};
pub use done::Done;
pub use error::{Damage, StoreError};
#[cfg(feature = "test-util")]
pub use faulty::{Faults, FaultyStore, Seed};
#[cfg(feature = "test-util")]
pub use file::Stepper;
pub use file::{Cut, FileOptions, FileStore, OpenError, OpenReport};
pub use inspect::{Inspection, LedgerReport, METADATA_FILE, inspect, inspect_log};
pub use log::{Append, Appended, Capabilities, Durability, FenceScope, LedgerInfo, LogStore, ReadLimits};
pub use memory::{MemoryMetadata, MemoryStore};
pub use metadata::{Change, Expected, MAX_KEY_BYTES, MAX_VALUE_BYTES, MetadataStore, Versioned};
pub use one::StoredLedger;
