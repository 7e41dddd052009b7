//! An append-only ledger, and cursors that read it through a cache.
//!
//! Appends of many threads go to one serial worker in batches; a batch goes to storage, into the cache, is confirmed, and is told to those
//! who wait. Reads of cached entries complete on the thread that asks. See [`Ledger`] and [`Cursor`].
//!
//! Storage is behind a trait and answers when it likes, on any thread: [`MemoryStorage`], or, by `StoredLedger`, a ledger of a `LogStore`, of which module
//! `store` has one in memory and one in files.
//!
//! It is thin: one ledger, not a sequence of them; cursors are not durable.
#![forbid(unsafe_code)]

mod acks;
mod adds;
mod append;
mod cursor;
mod done;
mod error;
mod ledger;
#[cfg(all(test, loom))]
mod models;
mod position;
mod settle;
mod storage;
#[cfg(not(any(loom, shuttle)))]
pub mod store;
mod tail;

pub use adds::Handover;
pub use append::{AppendSink, Callbacks};
pub use cursor::Cursor;
pub use done::{Done, Unanswered};
pub use error::{AppendError, ReadError};
pub use folio_cache::{CacheManager, CacheOptions};
pub use folio_completer::Policy;
pub use ledger::{ConfigError, Ledger, LedgerOptions};
pub use position::{Entry, Position};
pub use storage::{ENTRY_OVERHEAD, Limits, LogStorage, MemoryStorage, StorageError};
pub use tail::Wait;

/// The example of the README, which is run with those here.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
