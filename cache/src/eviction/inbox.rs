//! Where the makers of pages leave their keys, until the evictor takes them over.

use folio_sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use folio_sync::step;

use crate::index::{PageKey, Pool, Pooled};

/// What names one page for good: it is never the name of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    /// Which cache.
    pub(crate) cache: u64,
    pub(crate) page: PageKey,
    /// Which of the pages that ever stood there.
    pub(crate) birth: u64,
}

/// A place for a key, linked to the one that was left before it.
///
/// All fields are written by who took the cell from the pool, before it is pushed, and read by who took the whole stack, hence Relaxed.
#[derive(Default)]
struct Cell {
    /// In the pool: the next free one.
    next: AtomicU32,
    /// In the inbox: the number of the cell below, 0 for none.
    below: AtomicU32,
    cache: AtomicU64,
    ledger: AtomicI64,
    number: AtomicI64,
    birth: AtomicU64,
}

impl Pooled for Cell {
    fn next(&self) -> &AtomicU32 {
        &self.next
    }
}

/// A stack of keys: pushed one by one, taken all at once.
pub(super) struct Inbox {
    cells: Pool<Cell>,
    /// The number of the cell on top, 0 for none.
    top: AtomicU32,
}

impl Inbox {
    pub(super) fn new() -> Self {
        Self { cells: Pool::new(), top: AtomicU32::new(0) }
    }

    /// Leaves a key.
    pub(super) fn push(&self, key: Key) {
        let number = self.cells.take();
        let cell = self.cells.get(number);
        // Relaxed, all: published by the compare-and-set below.
        cell.cache.store(key.cache, Ordering::Relaxed);
        cell.ledger.store(key.page.ledger, Ordering::Relaxed);
        cell.number.store(key.page.number, Ordering::Relaxed);
        cell.birth.store(key.birth, Ordering::Relaxed);
        // Relaxed: only a first guess.
        let mut top = self.top.load(Ordering::Relaxed);
        loop {
            // Relaxed: published by the compare-and-set below.
            cell.below.store(top, Ordering::Relaxed);
            // Release: the cell is written before it is taken; pairs with the Acquire of `take_all`. Each push is a read-modify-write, so the
            // cells below are published, too.
            match step!(
                "eviction.push",
                self.top.compare_exchange_weak(top, number, Ordering::Release, Ordering::Relaxed)
            ) {
                Ok(_) => return,
                Err(now) => top = now,
            }
        }
    }

    /// Takes all keys, the last one first.
    pub(super) fn take_all(&self, mut each: impl FnMut(Key)) {
        // Acquire: the cells are written; pairs with the Release of `push`.
        let mut number = step!("eviction.take", self.top.swap(0, Ordering::Acquire));
        while number != 0 {
            let cell = self.cells.get(number);
            // Relaxed, all: see `Cell`.
            let key = Key {
                cache: cell.cache.load(Ordering::Relaxed),
                page: PageKey {
                    ledger: cell.ledger.load(Ordering::Relaxed),
                    number: cell.number.load(Ordering::Relaxed),
                },
                birth: cell.birth.load(Ordering::Relaxed),
            };
            let below = cell.below.load(Ordering::Relaxed);
            self.cells.put(number);
            number = below;
            each(key);
        }
    }
}
