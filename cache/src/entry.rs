//! What a slot holds: the value and what the cache has to know about it.

use folio_sync::atomic::{AtomicBool, AtomicI32, AtomicU16, AtomicU64, Ordering};
use folio_sync::time::Instant;

/// A value in a slot.
///
/// The words beside it are numbers that publish nothing, hence Relaxed everywhere. Who reads or writes them is inside the page.
pub(crate) struct Entry<V> {
    pub(crate) value: V,
    /// Never changes.
    pub(crate) weight: u64,
    /// When it was inserted, or queued again; written by the evictor.
    time: AtomicU64,
    /// Reads that are still to come: less for each delivery, also below zero; the newcomer's when an insert finds the position occupied.
    expected: AtomicI32,
    /// How often it was queued again; written by the evictor.
    requeues: AtomicU16,
    /// Looked up since it was inserted or queued again.
    accessed: AtomicBool,
}

impl<V> Entry<V> {
    #[inline]
    pub(crate) fn new(value: V, weight: u64, expected_reads: u32, now: Instant) -> Self {
        Self {
            value,
            weight,
            time: AtomicU64::new(now.as_nanos()),
            expected: AtomicI32::new(count(expected_reads)),
            requeues: AtomicU16::new(0),
            accessed: AtomicBool::new(false),
        }
    }

    /// Reads that are still to come; not above zero: none.
    pub(crate) fn expected(&self) -> i32 {
        // Relaxed: see the type.
        self.expected.load(Ordering::Relaxed)
    }

    /// From now on deliveries count against this.
    pub(crate) fn expect(&self, reads: u32) {
        // Relaxed: see the type.
        self.expected.store(count(reads), Ordering::Relaxed);
    }

    /// One delivery.
    #[inline]
    pub(crate) fn mark_read(&self) {
        // Relaxed: see the type.
        self.expected.fetch_sub(1, Ordering::Relaxed);
    }

    /// It was looked up.
    #[inline]
    pub(crate) fn mark_accessed(&self) {
        // Relaxed, both: see the type. Looked at first, so that readers do not take each other's cache line.
        if !self.accessed.load(Ordering::Relaxed) {
            self.accessed.store(true, Ordering::Relaxed);
        }
    }

    /// When it was inserted or queued again.
    pub(crate) fn time(&self) -> Instant {
        // Relaxed: see the type.
        Instant::from_nanos(self.time.load(Ordering::Relaxed))
    }

    /// Whether an evictor that comes to this entry keeps it for another round, which the entry then remembers.
    pub(crate) fn requeue(&self, max_requeues: u32, extend_accessed: bool, now: Instant) -> bool {
        // Relaxed, all: see the type.
        let requeues = self.requeues.load(Ordering::Relaxed);
        let accessed = extend_accessed && self.accessed.load(Ordering::Relaxed);
        // As many as can be counted are the most there are.
        let expected = self.expected() > 0 && u32::from(requeues) < max_requeues.min(u16::MAX.into());
        if !accessed && !expected {
            return false;
        }
        self.accessed.store(false, Ordering::Relaxed);
        self.requeues.store(requeues.saturating_add(1), Ordering::Relaxed);
        self.time.store(now.as_nanos(), Ordering::Relaxed);
        true
    }
}

/// As many reads as can be counted.
fn count(reads: u32) -> i32 {
    i32::try_from(reads).unwrap_or(i32::MAX)
}
