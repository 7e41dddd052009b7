//! A node of the index: a life that counts, and words that name what is below.

use folio_sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use folio_sync::cell::UnsafeCell;
use folio_sync::step;

use super::pool::{Pool, Pooled, halves, high, low};
use crate::size::NODE_BITS;

/// Words of a node.
pub(super) const WORDS: usize = 1 << NODE_BITS;

/// A node's life: in which use it is (upper half), `SEALED`, and how many it has below, with reservations.
const SEALED: u32 = 1 << 31;

/// The number of a parent that is no node.
pub(super) const ROOT: u32 = 0;

/// A node in one of its uses, as the word of its parent names it: the use and its number. 0 names none.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct NodeRef(pub(super) u64);

impl NodeRef {
    /// What a word names, if anything.
    #[inline]
    pub(super) fn of(word: u64) -> Option<Self> {
        (word != 0).then_some(Self(word))
    }

    /// Its number in the pool.
    #[inline]
    pub(super) fn number(self) -> u32 {
        low(self.0)
    }
}

/// Why a node was not entered.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Closed {
    /// It is in another use by now.
    Stale,
    /// It lost its last child, and is to be unlinked.
    Sealed,
}

/// A node: the pages of 4,096 consecutive entry ids, or the leaves of a region and other regions.
pub(super) struct Node {
    /// The use, `SEALED`, and the count of linked children and reservations.
    life: AtomicU64,
    /// In the pool: the next free one.
    next: AtomicU32,
    /// In use: the number of the node above, `ROOT` for none; written by its maker before it is linked.
    parent: AtomicU32,
    /// In use: which word of the parent names this node; as `parent`.
    at: AtomicU32,
    /// In use, of a head: its ledger and region; as `parent`.
    ledger: AtomicI64,
    region: AtomicI64,
    /// Written by who takes the node, read by who asks where it is: nothing in itself, but models see whether one precedes the other.
    home: UnsafeCell<()>,
    /// What is below. All are 0 while the node is not in use.
    pub(super) words: [AtomicU64; WORDS],
}

// SAFETY: `home` holds `()`: there is nothing in it that two threads could race for. All else is atomic.
unsafe impl Sync for Node {}

impl Default for Node {
    fn default() -> Self {
        Self {
            life: AtomicU64::new(0),
            next: AtomicU32::new(0),
            parent: AtomicU32::new(0),
            at: AtomicU32::new(0),
            ledger: AtomicI64::new(0),
            region: AtomicI64::new(0),
            home: UnsafeCell::new(()),
            words: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }
}

impl Pooled for Node {
    fn next(&self) -> &AtomicU32 {
        &self.next
    }
}

impl Node {
    /// Takes a node into use below a parent, with one reservation, which is the caller's; nobody sees it before it is linked.
    pub(super) fn take(pool: &Pool<Self>, parent: u32, at: usize, (ledger, region): (i64, i64)) -> NodeRef {
        let number = pool.take();
        let node = pool.get(number);
        // Relaxed, all but the last: published by linking the node. Who still looks at it from an earlier use may read any of them, and finds
        // out by the page that it meets.
        let used = high(node.life.load(Ordering::Relaxed));
        node.home.with_mut(|_| ());
        node.parent.store(parent, Ordering::Relaxed);
        node.at.store(u32::try_from(at).expect("a node has few words"), Ordering::Relaxed);
        node.ledger.store(ledger, Ordering::Relaxed);
        node.region.store(region, Ordering::Relaxed);
        // Release: as in `put`, whose store this one hides.
        node.life.store(halves(used, 1), Ordering::Release);
        NodeRef(halves(used, number))
    }

    /// Puts a node back that nobody can enter any more, or that was never linked: its next use is another one.
    pub(super) fn put(pool: &Pool<Self>, node: NodeRef) {
        // Release: who sees the next use sees that this one was taken out; pairs with the Acquire of `enter`.
        pool.get(node.number()).life.store(halves(high(node.0).wrapping_add(1), 0), Ordering::Release);
        pool.put(node.number());
    }

    /// Makes a reservation, so that the node stays.
    pub(super) fn enter(&self, node: NodeRef) -> Result<(), Closed> {
        // Acquire: who sees another use sees that the word of the parent names this one no more, and so does not come here again; pairs with the
        // Release of the store that ended this use, or began the next one.
        let mut life = self.life.load(Ordering::Acquire);
        loop {
            if high(life) != high(node.0) {
                return Err(Closed::Stale);
            }
            if low(life) & SEALED != 0 {
                return Err(Closed::Sealed);
            }
            // AcqRel: the words as those left them who were here before. Acquire: as above.
            match step!(
                "index.enter",
                self.life.compare_exchange_weak(life, life + 1, Ordering::AcqRel, Ordering::Acquire)
            ) {
                Ok(_) => return Ok(()),
                Err(now) => life = now,
            }
        }
    }

    /// Gives a reservation or a child back; if that sealed the node, this is what names it.
    pub(super) fn leave(&self, number: u32) -> Option<NodeRef> {
        // AcqRel: as in `enter`.
        let before = step!("index.leave", self.life.fetch_sub(1, Ordering::AcqRel));
        debug_assert!(low(before) & !SEALED != 0, "left more often than entered");
        if low(before) != 1 {
            return None;
        }
        let empty = before - 1;
        let sealed = empty | u64::from(SEALED);
        // AcqRel: as in `enter`. It compares the use, too: another one may have sealed the node and put it back.
        step!("index.seal", self.life.compare_exchange(empty, sealed, Ordering::AcqRel, Ordering::Relaxed))
            .ok()
            .map(|_| NodeRef(halves(high(before), number)))
    }

    /// Where the node is linked; holds while the node is entered, or has a child.
    pub(super) fn place(&self) -> (u32, usize) {
        self.home.with(|_| ());
        // Relaxed: written before the node was linked, and whoever asks came here by that link; the next use begins after they have left.
        (self.parent.load(Ordering::Relaxed), self.at.load(Ordering::Relaxed) as usize)
    }

    /// The ledger and region of a head; those of another use, or of two, if the node was put back meanwhile.
    #[inline]
    pub(super) fn key(&self) -> (i64, i64) {
        // Relaxed: as in `place`. A stale reader is told by the page that it meets.
        (self.ledger.load(Ordering::Relaxed), self.region.load(Ordering::Relaxed))
    }
}

#[cfg(all(test, loom))]
impl Node {
    /// In which use it is, whether it is sealed, and how many it counts.
    pub(super) fn state(&self) -> (u32, bool, u32) {
        // Relaxed: a model looks at it when nobody else does.
        let life = self.life.load(Ordering::Relaxed);
        (high(life), low(life) & SEALED != 0, low(life) & !SEALED)
    }
}
