//! How reads were answered.

use crossbeam_utils::CachePadded;
use folio_sync::atomic::{AtomicU64, Ordering};

/// How the reads of an [`EntryCache`](super::EntryCache) went so far, each number by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EntryCacheSnapshot {
    /// Reads that found all in the cache.
    pub hits: u64,
    /// Reads that found a part of it.
    pub partial: u64,
    /// Reads that found nothing.
    pub misses: u64,
    /// Entries that were found.
    pub entries_hit: u64,
    /// Entries that were not.
    pub entries_missed: u64,
    /// Reads that waited for what storage was reading already.
    pub coalesced: u64,
    /// Reads of storage.
    pub storage_reads: u64,
    /// Entries that storage gave.
    pub storage_entries: u64,
    /// Reads of storage that failed.
    pub storage_failures: u64,
    /// Reads that found a part, could not get the rest, and were read as a whole.
    pub fallbacks: u64,
    /// Reads that ended in an error.
    pub failures: u64,
}

impl EntryCacheSnapshot {
    /// Which part of the entries was found, from 0 to 1; 1 before the first read.
    #[expect(clippy::cast_precision_loss, reason = "a ratio")]
    pub fn hit_ratio(&self) -> f64 {
        let all = self.entries_hit.saturating_add(self.entries_missed);
        if all == 0 { 1.0 } else { self.entries_hit as f64 / all as f64 }
    }
}

/// Counters: numbers that publish nothing, hence Relaxed everywhere.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Counted by every read: by itself, so that readers disturb nobody else.
    pub(super) hit: CachePadded<Hits>,
    pub(super) partial: AtomicU64,
    pub(super) misses: AtomicU64,
    pub(super) partial_hit: AtomicU64,
    pub(super) entries_missed: AtomicU64,
    pub(super) storage_reads: AtomicU64,
    pub(super) storage_entries: AtomicU64,
    pub(super) storage_failures: AtomicU64,
    pub(super) fallbacks: AtomicU64,
    pub(super) failures: AtomicU64,
}

/// What was found as a whole.
#[derive(Debug, Default)]
pub(super) struct Hits {
    pub(super) reads: AtomicU64,
    pub(super) entries: AtomicU64,
}

/// Adds to a counter.
pub(super) fn add(counter: &AtomicU64, count: u64) {
    // Relaxed: a number.
    counter.fetch_add(count, Ordering::Relaxed);
}

/// Reads a counter.
pub(super) fn get(counter: &AtomicU64) -> u64 {
    // Relaxed: a number.
    counter.load(Ordering::Relaxed)
}

impl Counts {
    pub(super) fn snapshot(&self, coalesced: u64) -> EntryCacheSnapshot {
        EntryCacheSnapshot {
            hits: get(&self.hit.reads),
            partial: get(&self.partial),
            misses: get(&self.misses),
            entries_hit: get(&self.hit.entries) + get(&self.partial_hit),
            entries_missed: get(&self.entries_missed),
            coalesced,
            storage_reads: get(&self.storage_reads),
            storage_entries: get(&self.storage_entries),
            storage_failures: get(&self.storage_failures),
            fallbacks: get(&self.fallbacks),
            failures: get(&self.failures),
        }
    }
}
