//! A lock-free cache for append-shaped logs.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod bits;
mod budget;
mod cache;
mod core;
mod entry;
mod error;
pub mod eviction;
mod index;
mod inserter;
pub mod page;
mod range;
mod size;
mod weigh;

pub use crate::core::Removed;
pub use cache::RangeCache;
pub use error::{NotInserted, Reason};
pub use eviction::{EvictError, Evicted, EvictionOptions, EvictionQueue};
pub use inserter::Inserter;
pub use range::Position;
pub use weigh::Weigh;
