//! A writer's way into the cache.

use std::fmt;

use folio_sync::Arc;
use folio_sync::time::Instant;

use super::fill::Fill;
use super::payload::Payload;
use crate::inserter::Inserter;
use crate::range::Position;

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
