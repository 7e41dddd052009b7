//! What comes into the cache: appended entries, and what storage read.

use std::fmt;

use folio_sync::atomic::{AtomicU64, Ordering};
use folio_sync::time::{Clock, Instant};
use folio_sync::{Arc, step, unwind};

use super::counts::{Counts, add, get};
use super::gaps::{gaps, merge};
use super::payload::Payload;
use crate::active::ActiveCursors;
use crate::cache::RangeCache;
use crate::inserter::Inserter;
use crate::pending::{ReadDone, ReadStorage, StorageFailure, Stored, contained, drop_all, gather, whole};
use crate::range::Position;

/// What an entry is taken to weigh before one was added.
const UNKNOWN_WEIGHT: u64 = 10 << 10;

/// What an entry that is in flight takes beside its payload.
const OVERHEAD: u64 = 64;

/// Tells how many readers still have to read an entry; what nobody has to read is not cached.
///
/// Asked when storage has read the entry. Its panic ends there, and the entry is not cached.
pub trait ExpectedReads: Send + Sync + 'static {
    /// How many.
    fn expected_reads(&self, position: Position) -> u32;
}

impl ExpectedReads for ActiveCursors {
    fn expected_reads(&self, position: Position) -> u32 {
        self.at_or_before(position)
    }
}

impl<F: Fn(Position) -> u32 + Send + Sync + 'static> ExpectedReads for F {
    fn expected_reads(&self, position: Position) -> u32 {
        self(position)
    }
}

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
    fn insert(
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
        add(&self.added, entries as u64);
        add(&self.added_weight, weight);
    }

    /// The entries of a range that are there; none if a copy of them panics.
    fn found(&self, ledger: i64, first: i64, count: u32) -> Vec<(i64, V)> {
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

/// Asks storage, once more if what it reads from was closed; user code's panics are failures.
pub(super) fn ask<V: Send + 'static>(
    storage: &Arc<dyn ReadStorage<V>>,
    position: Position,
    count: u32,
    tries: u32,
    answered: impl FnOnce(Result<Stored<V>, StorageFailure>) + Send + 'static,
) {
    let again = Arc::clone(storage);
    let done = ReadDone::new(move |answer| match answer {
        Err(StorageFailure::Closed) if tries > 1 => {
            ask_boxed(&again, position, count, tries - 1, Box::new(answered));
        }
        answer => answered(answer),
    });
    contained(|| storage.read(position.0, position.1, count, done));
}

/// [`ask`] with a listener of one type, however often it is asked again.
fn ask_boxed<V: Send + 'static>(
    storage: &Arc<dyn ReadStorage<V>>,
    position: Position,
    count: u32,
    tries: u32,
    answered: Box<dyn FnOnce(Result<Stored<V>, StorageFailure>) + Send>,
) {
    ask(storage, position, count, tries, answered);
}

/// How often storage is asked for the same before it has failed.
pub(super) const TRIES: u32 = 2;

/// Storage as pending reads see it: what it reads goes into the cache before anybody is told.
pub(super) struct Filling<V> {
    pub(super) fill: Arc<Fill<V>>,
    pub(super) storage: Arc<dyn ReadStorage<V>>,
    /// Whether what has come into the cache by now is left out.
    pub(super) looks_again: bool,
}

impl<V: Payload> ReadStorage<V> for Filling<V> {
    fn read(&self, ledger: i64, first: i64, count: u32, done: ReadDone<V>) {
        // Reads that were under way when the cache was looked at may have ended since: what they have read is not read again.
        let found = if self.looks_again { self.fill.found(ledger, first, count) } else { Vec::new() };
        if found.is_empty() {
            return self.begin(ledger, first, count, move |answer| done.answer(answer));
        }
        let gaps = gaps(first, count, found.iter().map(|(entry, _)| *entry));
        let found: Vec<_> = found.into_iter().map(|(_, value)| value).collect();
        if gaps.is_empty() {
            return done.succeed(found);
        }
        let told = gaps.clone();
        let parts = gather(gaps.len(), move |parts| match whole(parts) {
            Ok(parts) => done.succeed(merge(found, &told, parts)),
            Err(failure) => {
                drop_all(found);
                done.fail(failure);
            }
        });
        for (gap, part) in gaps.into_iter().zip(parts) {
            self.begin(ledger, gap.first, gap.count, move |answer| part(answer.map(|stored| stored.values)));
        }
    }
}

impl<V: Payload> Filling<V> {
    /// Asks storage, and puts what it answers into the cache before that is told.
    fn begin(
        &self,
        ledger: i64,
        first: i64,
        count: u32,
        told: impl FnOnce(Result<Stored<V>, StorageFailure>) + Send + 'static,
    ) {
        let fill = Arc::clone(&self.fill);
        let generation = fill.generation();
        add(&fill.counts.storage_reads, 1);
        ask(&self.storage, (ledger, first), count, TRIES, move |answer| {
            match &answer {
                Ok(stored) => contained(|| fill.insert_stored(generation, (ledger, first), count, stored)),
                Err(_) => add(&fill.counts.storage_failures, 1),
            }
            told(answer);
        });
    }
}

/// Inserts what is appended to a ledger; of one writer at a time, as an [`Inserter`].
pub struct EntryInserter<V> {
    fill: Arc<Fill<V>>,
    inserter: Inserter<V>,
}

impl<V: Payload> EntryInserter<V> {
    pub(super) fn new(fill: &Arc<Fill<V>>) -> Self {
        Self { fill: Arc::clone(fill), inserter: fill.cache.inserter() }
    }

    /// Inserts an entry, of which so many reads are expected, at the caller's coarse time; whether it is cached now by this.
    ///
    /// It is not if it is there already, the budget is used up, or there is no memory for a copy.
    ///
    /// # Panics
    /// As [`Inserter::insert_batch`].
    pub fn insert(&mut self, position: Position, value: V, expected_reads: u32, now: Instant) -> bool {
        self.insert_batch([(position, value, expected_reads)], now) == 1
    }

    /// Inserts entries, each with its expected reads; how many are cached now by this.
    ///
    /// # Panics
    /// As [`Inserter::insert_batch`].
    pub fn insert_batch(
        &mut self,
        batch: impl IntoIterator<Item = (Position, V, u32)>,
        now: Instant,
    ) -> usize {
        self.fill.insert(&mut self.inserter, batch, false, now)
    }

    /// Leaves its page, as [`Inserter::leave`]; for a writer that will be idle.
    pub fn leave(&mut self) {
        self.inserter.leave();
    }
}

impl<V> fmt::Debug for EntryInserter<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EntryInserter").field("inserter", &self.inserter).finish_non_exhaustive()
    }
}
