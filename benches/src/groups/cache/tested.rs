//! What every cache under test can do.

use bytes::Bytes;

use super::entry::{Cut, Position, Run};

/// How entries are evicted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Options {
    /// How often an entry with expected reads is put off.
    pub(super) max_requeues: u32,
    /// Whether an entry that was looked up is put off.
    pub(super) extend_recently_accessed: bool,
}

/// A cache with its removal queue. Times are nanoseconds.
pub(super) trait Tested: Send + Sync + Sized + 'static {
    /// What is cached at a position.
    type Value: Clone + Send + Sync + 'static;

    /// What one writer inserts by.
    type Writer: Send + 'static;

    /// An empty cache.
    fn open(options: Options) -> Self;

    /// A new writer.
    fn writer(&self) -> Self::Writer;

    /// The value of a position, which retains the data.
    fn value(position: Position, data: &Bytes) -> Self::Value;

    /// Inserts at a position where there is nothing.
    ///
    /// # Panics
    /// When the cache does not take it.
    fn insert(&self, by: &mut Self::Writer, position: Position, value: Self::Value, expected: u32, now: u64);

    /// Removes a range.
    fn remove(&self, cut: &Cut);

    /// Looks a value up.
    fn get(&self, position: Position) -> Option<Self::Value>;

    /// Collects what there is of a run.
    fn owned(&self, run: Run) -> Vec<(Position, Self::Value)>;

    /// Visits what there is of a run.
    fn visited(&self, run: Run, visit: impl FnMut(&Self::Value));

    /// Counts a read.
    fn mark_read(&self, position: Position);

    /// Evicts what is older; how many entries. From 0 it only drops what was removed.
    fn evict_before(&self, before: u64, now: u64) -> u64;

    /// Evicts at least so much weight; how many entries.
    fn evict_weight(&self, weight: u64, now: u64) -> u64;

    /// Whether nothing waits to be evicted.
    fn is_drained(&self) -> bool;
}

/// Makes something of any of the caches, usually a case.
pub(super) trait Make {
    /// What it makes.
    type Made;

    fn make<C: Tested>(&self, name: &'static str) -> Self::Made;
}
