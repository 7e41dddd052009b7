//! The weight that all caches of a manager may hold, and what they share besides.

use crossbeam_utils::CachePadded;
use folio_sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use folio_sync::step;

use crate::eviction::EvictionOptions;

/// The most weight that an inserter takes ahead at a time.
const MOST_CREDIT: u64 = 64 << 10;

/// Which part of the budget it takes at most.
const CREDIT_SHARE: u64 = 4096;

/// Which part of the budget all of them take together, about.
const ALL_CREDIT_SHARE: u64 = 16;

/// Counters and settings that all caches of a manager share; numbers that publish nothing, hence Relaxed everywhere.
pub(crate) struct Budget {
    /// Weight of all entries, removed ones that are not dropped yet, and credit that was taken and not used.
    ///
    /// Charged before an entry can be seen, discharged after it was moved out: never below what is there.
    charged: CachePadded<AtomicU64>,
    /// Linked pages.
    pages: CachePadded<AtomicU64>,
    /// Live inserters.
    inserters: CachePadded<AtomicU64>,
    /// How many pages were ever made: the last birth number.
    births: CachePadded<AtomicU64>,
    /// Inserts given back.
    refused: CachePadded<AtomicU64>,
    /// Weight of removed entries that are not moved out yet.
    retired: CachePadded<AtomicU64>,
    /// Weight that passes kept for another round.
    retained: AtomicU64,
    /// The settings, which are read often and change seldom.
    limit: AtomicU64,
    max_requeues: AtomicU32,
    extend_recently_accessed: AtomicBool,
}

impl Budget {
    pub(crate) fn new(options: &EvictionOptions) -> Self {
        Self {
            charged: CachePadded::new(AtomicU64::new(0)),
            pages: CachePadded::new(AtomicU64::new(0)),
            inserters: CachePadded::new(AtomicU64::new(0)),
            births: CachePadded::new(AtomicU64::new(0)),
            refused: CachePadded::new(AtomicU64::new(0)),
            retired: CachePadded::new(AtomicU64::new(0)),
            retained: AtomicU64::new(0),
            limit: AtomicU64::new(options.budget),
            max_requeues: AtomicU32::new(options.max_requeues),
            extend_recently_accessed: AtomicBool::new(options.extend_recently_accessed),
        }
    }

    /// How much weight an inserter may take ahead.
    pub(crate) fn credit(&self) -> u64 {
        // Relaxed, both: see the type.
        let budget = self.limit.load(Ordering::Relaxed);
        let inserters = self.inserters.load(Ordering::Relaxed).max(1);
        MOST_CREDIT.min(budget / CREDIT_SHARE).min(budget / ALL_CREDIT_SHARE / inserters)
    }

    pub(crate) fn inserter_came(&self) {
        // Relaxed: see the type.
        self.inserters.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn inserter_went(&self) {
        // Relaxed: see the type.
        self.inserters.fetch_sub(1, Ordering::Relaxed);
    }

    /// Charges what an entry lacks and, if there is room, credit for those to come; how much. None, and counted, when that would go above
    /// 1.25 times the budget.
    pub(crate) fn charge(&self, need: u64) -> Option<u64> {
        // Relaxed, all: see the type.
        let budget = self.limit.load(Ordering::Relaxed);
        let most = budget.saturating_add(budget / 4);
        let credit = self.credit().max(need);
        let fits = |charged: u64, amount: u64| charged.checked_add(amount).filter(|sum| *sum <= most);
        let mut taken = 0;
        let charged = step!(
            "inserter.charge",
            self.charged.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |charged| {
                taken = credit;
                fits(charged, credit).or_else(|| {
                    taken = need;
                    fits(charged, need)
                })
            })
        );
        if charged.is_err() {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(taken)
    }

    pub(crate) fn discharge(&self, weight: u64) {
        if weight != 0 {
            // Relaxed: see the type.
            self.charged.fetch_sub(weight, Ordering::Relaxed);
        }
    }

    pub(crate) fn charged(&self) -> u64 {
        // Relaxed: see the type.
        self.charged.load(Ordering::Relaxed)
    }

    pub(crate) fn page_linked(&self) {
        // Relaxed: see the type.
        self.pages.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn page_unlinked(&self) {
        // Relaxed: see the type.
        self.pages.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn pages(&self) -> u64 {
        // Relaxed: see the type.
        self.pages.load(Ordering::Relaxed)
    }

    /// A number for a new page that no other one has.
    pub(crate) fn birth(&self) -> u64 {
        // Relaxed: see the type.
        self.births.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn refused(&self) -> u64 {
        // Relaxed: see the type.
        self.refused.load(Ordering::Relaxed)
    }

    /// The counter of removed entries that are not moved out yet.
    pub(crate) fn retired_counter(&self) -> &AtomicU64 {
        &self.retired
    }

    pub(crate) fn retired(&self) -> u64 {
        // Relaxed: see the type.
        self.retired.load(Ordering::Relaxed)
    }

    /// Counts what a pass kept.
    pub(crate) fn retain(&self, weight: u64) {
        if weight != 0 {
            // Relaxed: see the type.
            self.retained.fetch_add(weight, Ordering::Relaxed);
        }
    }

    pub(crate) fn retained(&self) -> u64 {
        // Relaxed: see the type.
        self.retained.load(Ordering::Relaxed)
    }

    pub(crate) fn limit(&self) -> u64 {
        // Relaxed: see the type.
        self.limit.load(Ordering::Relaxed)
    }

    pub(crate) fn set_budget(&self, budget: u64) {
        // Relaxed: see the type.
        self.limit.store(budget, Ordering::Relaxed);
    }

    pub(crate) fn max_requeues(&self) -> u32 {
        // Relaxed: see the type.
        self.max_requeues.load(Ordering::Relaxed)
    }

    pub(crate) fn set_max_requeues(&self, max: u32) {
        // Relaxed: see the type.
        self.max_requeues.store(max, Ordering::Relaxed);
    }

    pub(crate) fn extends_accessed(&self) -> bool {
        // Relaxed: see the type.
        self.extend_recently_accessed.load(Ordering::Relaxed)
    }

    pub(crate) fn set_extend_accessed(&self, extend: bool) {
        // Relaxed: see the type.
        self.extend_recently_accessed.store(extend, Ordering::Relaxed);
    }
}
