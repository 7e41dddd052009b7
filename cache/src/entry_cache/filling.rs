//! Storage that fills the cache.

use folio_sync::Arc;

use super::ask::{TRIES, ask};
use super::counts::add;
use super::fill::Fill;
use super::gaps::{gaps, merge};
use super::payload::Payload;
use crate::pending::{ReadDone, ReadStorage, StorageFailure, Stored, contained, drop_all, gather, whole};

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
