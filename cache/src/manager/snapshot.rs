//! The numbers of a manager.

use super::evictor::Evictor;
use crate::eviction::{Evicted, EvictionQueue};
use crate::permits::{PermitSnapshot, ReadPermits};

/// How the caches of a [`CacheManager`](crate::CacheManager) stand, and what became of their entries so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheSnapshot {
    /// The budget.
    pub budget: u64,
    /// What counts towards it: entries, removed ones that a reader keeps, and credit that inserters took ahead.
    pub charged_weight: u64,
    /// The weight of removed entries that a reader keeps.
    pub retired_weight: u64,
    /// Pages of all caches.
    pub pages: u64,
    /// Keys of pages in the queue.
    pub keys: usize,
    /// Inserts given back, so far, since they would have gone above five quarters of the budget.
    pub refused_inserts: u64,
    /// Passes, so far.
    pub passes: u64,
    /// Passes that the executor did not take, so far.
    pub refused_passes: u64,
    /// What went so far since it was too old.
    pub expired: Evicted,
    /// What went so far since there was too much.
    pub pressed: Evicted,
    /// The weight that passes kept for another round, so far: for reads that are expected, or since it was looked up.
    pub retained_weight: u64,
    /// The bytes that reads have in flight.
    pub reads: PermitSnapshot,
}

impl CacheSnapshot {
    pub(super) fn of<V>(queue: &EvictionQueue<V>, evictor: &Evictor, permits: &ReadPermits) -> Self {
        Self {
            budget: queue.budget(),
            charged_weight: queue.charged_weight(),
            retired_weight: queue.retired_weight(),
            pages: queue.pages(),
            keys: queue.keys(),
            refused_inserts: queue.refused(),
            passes: evictor.passes(),
            refused_passes: evictor.refused(),
            expired: evictor.expired(),
            pressed: evictor.pressed(),
            retained_weight: queue.retained_weight(),
            reads: permits.snapshot(),
        }
    }
}
