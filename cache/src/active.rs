//! Where the active cursors of a log stand: how many of them still have to read an entry.
//!
//! # Guarantees
//! *Rank.* A count is exact as of a moment within the call: each cursor counts once, at the position where it stood last. A cursor that is moved counts at
//! the old or at the new position, at each moment at one of them.
//!
//! *Progress.* Adding, moving, leaving and counting take one short lock. Whether an entry is worth caching takes none.
//!
//! *Cost.* Logarithmic in the number of distinct positions, expected, whatever the order of calls: priorities depend on nothing that a user does.
//!
//! *Memory.* A node for each distinct position, in one allocation that is kept at its peak. Moving a cursor allocates nothing. A cursor that has left
//! leaves nothing behind.
//!
//! # Protocol
//! The lock guards a search tree by position, a node for all cursors at the same one, with the number of cursors below each node. A move is a
//! removal and an insertion under one hold of it. Why not lazily: a move by itself costs less than the read that it belongs to, and what would be saved
//! by putting moves off is paid for by whoever asks, which is the path on which entries are added.
//!
//! *Worth caching* is one word: the moment until which it is. Who adds the first cursor stores the end of time, who drops the last one the time by its
//! clock and the linger, both under the lock.
//!
//! # Orderings
//! | operation | word | ordering | pairs with | why |
//! |---|---|---|---|---|
//! | store, load | `worth_until`, `len` | Relaxed | | numbers that publish nothing, stored under the lock |
//!
//! # Limits
//! At most 2^32 - 1 cursors. What is asked and what moves at the same time is a matter of luck, as it is without a lock.

use std::fmt;
use std::time::Duration;

use folio_sync::atomic::{AtomicU32, AtomicU64, Ordering};
use folio_sync::time::{Clock, Instant};
use folio_sync::{Arc, Mutex};

use crate::range::Position;

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
mod tree;

use tree::Tree;

/// The active cursors of one log, by the position that each reads next.
///
/// A handle: clones are the same cursors. See the [module](self) for what it promises.
///
/// ```
/// use std::time::Duration;
///
/// use folio_cache::ActiveCursors;
/// use folio_sync::arc_dyn;
/// use folio_sync::time::{Clock, SystemClock};
///
/// let clock = arc_dyn!(SystemClock::new() => dyn Clock);
/// let cursors = ActiveCursors::new(Duration::from_secs(2), clock.clone());
/// assert!(!cursors.worth_caching(clock.now()), "nobody reads");
///
/// let slow = cursors.add((1, 10));
/// let mut fast = cursors.add((1, 10));
/// fast.advance_to((1, 200));
/// assert_eq!((cursors.at_or_before((1, 9)), cursors.at_or_before((1, 10))), (0, 1));
/// assert_eq!(cursors.at_or_before((1, 300)), 2);
/// assert_eq!(cursors.slowest(), Some((1, 10)));
/// drop(slow);
/// assert_eq!((cursors.len(), cursors.slowest()), (1, Some((1, 200))));
/// ```
#[derive(Clone)]
pub struct ActiveCursors(Arc<Shared>);

struct Shared {
    tree: Mutex<Tree>,
    /// As of the last change under the lock.
    len: AtomicU32,
    /// Until when added entries are worth caching, in nanoseconds: `u64::MAX` as long as there is a cursor, 0 before the first.
    worth_until: AtomicU64,
    linger: Duration,
    clock: Arc<dyn Clock>,
}

impl Shared {
    fn add(&self, position: Position) {
        let mut tree = self.tree.lock();
        tree.insert(position);
        self.tell(&tree, u64::MAX);
    }

    fn remove(&self, position: Position) {
        let until = (self.clock.now() + self.linger).as_nanos();
        let mut tree = self.tree.lock();
        tree.remove(position);
        self.tell(&tree, until);
    }

    /// Tells how many there are, and until when entries are worth caching if this was the first or the last.
    fn tell(&self, tree: &Tree, worth_until: u64) {
        let len = tree.len();
        // Relaxed, both: see the module.
        self.len.store(len, Ordering::Relaxed);
        if len == 0 || worth_until == u64::MAX {
            self.worth_until.store(worth_until, Ordering::Relaxed);
        }
    }
}

impl ActiveCursors {
    /// No cursors yet; entries are worth caching for `linger` after the last one has left, by this clock.
    pub fn new(linger: Duration, clock: Arc<dyn Clock>) -> Self {
        Self(Arc::new(Shared {
            tree: Mutex::new(Tree::new()),
            len: AtomicU32::new(0),
            worth_until: AtomicU64::new(0),
            linger,
            clock,
        }))
    }

    /// Counts a cursor that reads this position next, until the result is dropped.
    pub fn add(&self, position: Position) -> ActiveCursor {
        self.0.add(position);
        ActiveCursor { cursors: self.clone(), position }
    }

    /// How many cursors still have to read a position: those that stand there or before it.
    pub fn at_or_before(&self, position: Position) -> u32 {
        self.0.tree.lock().at_or_before(position)
    }

    /// Where the slowest cursor stands.
    pub fn slowest(&self) -> Option<Position> {
        self.0.tree.lock().first()
    }

    /// How many cursors there are; takes no lock.
    pub fn len(&self) -> u32 {
        // Relaxed: see the module.
        self.0.len.load(Ordering::Relaxed)
    }

    /// Whether there is no cursor; takes no lock.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether an entry that is added now is worth caching; takes no lock.
    ///
    /// It is if there are cursors, and for the linger after the last one has left.
    pub fn worth_caching(&self, now: Instant) -> bool {
        // Relaxed: see the module.
        let until = self.0.worth_until.load(Ordering::Relaxed);
        until == u64::MAX || now.as_nanos() < until
    }
}

impl fmt::Debug for ActiveCursors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ActiveCursors").field("len", &self.len()).finish_non_exhaustive()
    }
}

/// One active cursor; counts until dropped.
#[must_use = "the cursor counts until this is dropped"]
pub struct ActiveCursor {
    cursors: ActiveCursors,
    position: Position,
}

impl ActiveCursor {
    /// Moves the cursor to the position that it reads next, which may also be an earlier one.
    pub fn advance_to(&mut self, position: Position) {
        if position != self.position {
            let mut tree = self.cursors.0.tree.lock();
            tree.remove(self.position);
            tree.insert(position);
            self.position = position;
        }
    }

    /// Where it stands.
    pub fn position(&self) -> Position {
        self.position
    }
}

impl Drop for ActiveCursor {
    fn drop(&mut self) {
        self.cursors.0.remove(self.position);
    }
}

impl fmt::Debug for ActiveCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ActiveCursor").field("position", &self.position).finish_non_exhaustive()
    }
}
