//! The cache as it is filled: with appended entries, and with what storage read.

use folio_sync::atomic::{AtomicU64, Ordering};
use folio_sync::time::{Clock, Instant};
use folio_sync::{Arc, step, unwind};

use super::counts::{Counts, add, get};
use super::expected::ExpectedReads;
use super::payload::Payload;
use crate::cache::RangeCache;
use crate::inserter::Inserter;
use crate::pending::Stored;
use crate::range::Position;

/// What an entry is taken to weigh before one was added.
const UNKNOWN_WEIGHT: u64 = 10 << 10;

/// What an entry that is in flight takes beside its payload.
const OVERHEAD: u64 = 64;

/// The cache, and what is known of the entries that come into it.
pub(super) struct Fill<V> {
    pub(super) cache: RangeCache<V>,
    pub(super) counts: Counts,
    expected: Arc<dyn ExpectedReads>,
    clock: Arc<dyn Clock>,
    copies: bool,
    /// How often all of a ledger was invalidated: what was read before that is not cached after it.
    invalidations: AtomicU64,
    /// Entries that were added, or read from storage, and what they weighed.
    added: AtomicU64,
    added_weight: AtomicU64,
}

impl<V: Payload> Fill<V> {
    pub(super) fn new(
        cache: RangeCache<V>,
        expected: Arc<dyn ExpectedReads>,
        clock: Arc<dyn Clock>,
        copies: bool,
    ) -> Self {
        Self {
            cache,
            counts: Counts::default(),
            expected,
            clock,
            copies,
            invalidations: AtomicU64::new(0),
            added: AtomicU64::new(0),
            added_weight: AtomicU64::new(0),
        }
    }

    /// What an entry in flight is taken to weigh.
    pub(super) fn estimate(&self) -> u64 {
        let average = get(&self.added_weight).checked_div(get(&self.added)).unwrap_or(UNKNOWN_WEIGHT);
        average.saturating_add(OVERHEAD)
    }

    /// The payload as it is cached, if there is memory for it.
    fn as_cached(&self, value: V, sliced: bool) -> Option<V> {
        if !self.copies && !sliced && value.weight() <= value.copied_weight().saturating_mul(2) {
            return Some(value);
        }
        unwind::catch(|| value.copied()).unwrap_or_else(|payload| {
            unwind::discard(payload);
            None
        })
    }

    /// Inserts entries, each with its expected reads; how many were taken.
    pub(super) fn insert(
        &self,
        inserter: &mut Inserter<V>,
        entries: impl IntoIterator<Item = (Position, V, u32)>,
        sliced: bool,
        now: Instant,
    ) -> usize {
        let (mut offered, mut weight) = (0, 0_u64);
        let entries = entries.into_iter().filter_map(|(position, value, reads)| {
            let value = self.as_cached(value, sliced)?;
            offered += 1;
            weight = weight.saturating_add(value.weight());
            Some((position, value, reads))
        });
        // What was not taken over can be read from storage.
        let refused = inserter.insert_batch(entries, now).len();
        self.note(offered, weight);
        offered - refused
    }

    /// Remembers what entries weigh.
    fn note(&self, entries: usize, weight: u64) {
        // In this order: who looks in between takes entries for heavier, not for lighter.
        add(&self.added_weight, weight);
        add(&self.added, entries as u64);
    }

    /// The entries of a range that are there; none if a copy of them panics.
    pub(super) fn found(&self, ledger: i64, first: i64, count: u32) -> Vec<(i64, V)> {
        let last = first.saturating_add(i64::from(count) - 1);
        let found = unwind::catch(|| {
            let mut found = Vec::new();
            self.cache.for_each_in_range((ledger, first)..=(ledger, last), |(_, entry), value| {
                found.push((entry, value.clone()));
            });
            found
        });
        found.unwrap_or_else(|payload| {
            unwind::discard(payload);
            Vec::new()
        })
    }

    /// What was invalidated so far.
    pub(super) fn generation(&self) -> u64 {
        // Acquire: what is read from now on comes after the invalidations that are seen; pairs with their Release.
        self.invalidations.load(Ordering::Acquire)
    }

    /// What was read before this, or is being read, is not to be in the cache after it; to be followed by a removal.
    pub(super) fn invalidate(&self) {
        // AcqRel: one of this and `is_current` sees the other: the removal that follows comes after what was inserted before that look, or that look
        // finds this.
        step!("entry_cache.invalidate", self.invalidations.fetch_add(1, Ordering::AcqRel));
    }

    /// Whether nothing was invalidated since then.
    fn is_current(&self, generation: u64) -> bool {
        // AcqRel: as above; a read-modify-write, since a load may miss what comes at the same time.
        step!("entry_cache.current", self.invalidations.fetch_add(0, Ordering::AcqRel)) == generation
    }

    /// Inserts what storage read and somebody still has to read.
    pub(super) fn insert_stored(
        &self,
        generation: u64,
        (ledger, first): Position,
        count: u32,
        stored: &Stored<V>,
    ) {
        let values = &stored.values[..stored.values.len().min(count as usize)];
        add(&self.counts.storage_entries, values.len() as u64);
        if self.generation() != generation {
            return;
        }
        let mut uncached = (0, 0_u64);
        let entries = (first..=i64::MAX).zip(values).filter_map(|(entry, value)| {
            let position = (ledger, entry);
            let reads = self.expected.expected_reads(position);
            if reads == 0 {
                uncached.0 += 1;
                uncached.1 = uncached.1.saturating_add(value.weight());
                return None;
            }
            Some((position, value.clone(), reads))
        });
        let taken = self.insert(&mut self.cache.inserter(), entries, stored.sliced, self.clock.now());
        self.note(uncached.0, uncached.1);
        if taken > 0 && !self.is_current(generation) {
            let last = first.saturating_add(i64::from(count) - 1);
            self.cache.remove_range((ledger, first)..=(ledger, last));
        }
    }
}
