//! A lock-free cache for append-shaped logs.
//!
//! [`RangeCache`] holds the entries of one log by `(ledger, entry)`; writers put them in by an [`Inserter`] each; one [`EvictionQueue`] decides
//! for all caches of a program which entries go first. [`page`] is what they stand on, a page of 64 slots, usable alone.
//!
//! A broker has more: a [`CacheManager`] that keeps all its caches within one budget by itself, and gives out [`ReadPermits`] for the bytes that reads
//! have in flight; [`ActiveCursors`] that tell how many readers an entry still has; and an [`EntryCache`] for each log, which reads what it does not
//! have from storage, each range [once](pending::PendingReads) for all who want it at the same time.
//!
//! ```
//! use bytes::Bytes;
//! use folio_cache::{EvictionQueue, RangeCache};
//! use folio_sync::time::Instant;
//!
//! let cache = RangeCache::new(&EvictionQueue::default());
//! let mut tail = cache.inserter();
//! for entry in 0..100 {
//!     tail.insert((1, entry), Bytes::from_static(b"payload"), 0, Instant::ORIGIN)?;
//! }
//! assert_eq!(cache.range((1, 90)..).len(), 10);
//! assert_eq!(cache.remove_range(..(1, 50)).entries, 50);
//! assert!(cache.get((1, 49)).is_none());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Guarantees
//! *Progress.* Inserting, looking up, reading and removing ranges are lock-free: nobody waits for a thread that is stopped anywhere, be it a writer, a
//! reader, a remover, or one in user code. What a stopped reader holds back is the values removed from the one page that it is in.
//!
//! *Consistency.* An insert, a look-up and a removal of one position take effect at one moment within the call. A range shows each page as it was at one
//! moment, one page after the other, in order, each entry at most once. A removal misses no entry that was there from its begin to its end.
//!
//! *Exactly once.* A value that was taken over goes to one remover, whatever races (ranges, ledgers, `clear`, both kinds of eviction), and is dropped
//! once: by that remover, or, if somebody is reading in its page, by the last one to leave.
//!
//! *Memory.* A page is allocated for 64 consecutive ids and freed when its last entry has gone and no inserter stays in it. Nothing is allocated for
//! an entry. The index keeps nodes of about 550 bytes for 4,096 ids up to the most that were ever needed at a time, and about a
//! quarter more.
//!
//! *Accounting.* The weight is never below what is there. It is above by at most the credit of live inserters, and exact once they have left.
//!
//! # User code
//! `weigh` runs before anything happens. `clone` and visitors run while their page is held: they may call any operation and may panic. Destructors run
//! when the value is out of the cache and the cache is whole again: they may call any operation; a panic ends there and stops no other; one that
//! never returns holds up nobody but its caller. One that removes others, whose destructors remove others, and so
//! on, nests on the stack: up to 64 values a level lie there.
//!
//! # Limits
//! A value has at most 256 bytes. [`Reason::Busy`] gives an entry back whose place is in use for a moment: a cache may do that.
//! [`RangeCache::len`] walks. A range over many ledgers looks at all of the cache's regions, of 131,072 ids each, once for every 32 that it meets. Sources of the ideas: pages of slots under one ordered map, sealed when empty, are Apache Pulsar's range cache; second
//! chances in a first-in, first-out queue are CLOCK's and S3-FIFO's; nodes that never go away and carry a number of their use are type-stable memory
//! (Greenwald and Cheriton); counts in the word that names a thing and a transfer of them are split reference counts.
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod active;
mod bits;
mod budget;
mod cache;
mod core;
mod entry;
pub mod entry_cache;
mod error;
pub mod eviction;
mod index;
mod inserter;
pub mod manager;
mod near;
pub mod page;
pub mod pending;
pub mod permits;
mod range;
mod size;
mod weigh;

/// Pages are known by their addresses.
#[cfg(all(test, loom))]
#[global_allocator]
static ALLOCATOR: folio_sync::test_util::FreshAddresses = folio_sync::test_util::FreshAddresses;

pub use crate::core::Removed;
pub use active::{ActiveCursor, ActiveCursors};
pub use cache::RangeCache;
pub use entry_cache::{
    EntryCache, EntryCacheOptions, EntryCacheSnapshot, EntryInserter, ExpectedReads, InFlight, Metadata,
    Parsed, Payload, PermitsFor, ReadEntry, ReadError, ReadRequest,
};
pub use error::{NotInserted, Reason};
pub use eviction::{EvictError, Evicted, EvictionOptions, EvictionQueue};
pub use inserter::Inserter;
pub use manager::{CacheManager, CacheOptions, CacheOptionsError, CacheSnapshot};
pub use permits::{Acquired, Permit, PermitError, PermitOptions, PermitSnapshot, ReadPermits};
pub use range::Position;
pub use weigh::Weigh;

/// The example of the README, which is run with those here.
#[cfg(all(doctest, feature = "bytes"))]
#[doc = include_str!("../README.md")]
struct Readme;
