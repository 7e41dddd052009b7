//! The handle of a cache.

use std::fmt;
use std::ops::RangeBounds;

use folio_sync::Arc;
use folio_sync::time::Instant;

use crate::core::{Core, Removed};
use crate::entry::Entry;
use crate::error::NotInserted;
use crate::eviction::{EvictionQueue, Shared};
use crate::index::PageKey;
use crate::inserter::Inserter;
use crate::range::{Position, Span};
use crate::weigh::Weigh;

/// The most bytes of a value: a page of them is moved out on the stack.
const MOST_BYTES: usize = 256;

/// A cache's place in its queue; ends the cache when the last handle and inserter are gone.
pub(crate) struct Registration<V> {
    pub(crate) core: Arc<Core<V>>,
    pub(crate) queue: Arc<Shared<V>>,
    /// The queue's number for it.
    pub(crate) id: u64,
}

impl<V> Drop for Registration<V> {
    fn drop(&mut self) {
        self.core.remove_range(Span::ALL);
        self.queue.delist(self.id);
    }
}

/// A cache of entries by ledger and entry id, made for logs: ids come in order, and go in order.
///
/// A handle: clones are the same cache, which drops its entries with the last handle or [`Inserter`]. See the [crate] for what it promises.
///
/// Ranges are of all kinds, over `(ledger, entry)`; one that ends before it begins has nothing.
///
/// # Progress
/// Inserting, looking up, visiting ranges and removing are lock-free: a thread that is stopped anywhere holds up nobody. A reader that is stopped
/// keeps what is removed from its page, and its places there busy. Making and dropping caches take a short lock of the queue.
///
/// # Memory
/// A page for 64 consecutive ids, made with the first insert and freed when its last entry has gone and no inserter stays in it; nothing an entry
/// beyond the value. Nodes of the index, of about 550 bytes for 4,096 ids, are kept up to the most that were needed at a time.
///
/// ```
/// use bytes::Bytes;
/// use folio_cache::{EvictionQueue, RangeCache};
/// use folio_sync::time::Instant;
///
/// let cache = RangeCache::new(&EvictionQueue::default());
/// let mut inserter = cache.inserter();
/// for entry in 0..200 {
///     inserter.insert((1, entry), Bytes::from_static(b"entry"), 0, Instant::ORIGIN).unwrap();
/// }
/// assert_eq!(cache.range((1, 150)..(1, 160)).len(), 10);
/// let removed = cache.remove_range(..(1, 150));
/// assert_eq!((removed.entries, removed.weight), (150, 750));
/// assert!(cache.get((1, 149)).is_none());
/// assert_eq!(cache.get((1, 150)).unwrap(), "entry");
/// ```
pub struct RangeCache<V> {
    core: Arc<Core<V>>,
    registration: Arc<Registration<V>>,
}

impl<V> RangeCache<V> {
    /// An empty cache whose entries this queue evicts.
    pub fn new(queue: &EvictionQueue<V>) -> Self {
        const {
            assert!(
                size_of::<V>() <= MOST_BYTES,
                "a value has at most 256 bytes: put it into an Arc or a Box"
            );
        };
        let queue = Arc::clone(queue.shared());
        let core = Arc::new(Core::new(Arc::clone(&queue.budget)));
        let id = queue.enlist(&core);
        Self { core: Arc::clone(&core), registration: Arc::new(Registration { core, queue, id }) }
    }

    /// A way to insert entries, for one writer.
    pub fn inserter(&self) -> Inserter<V> {
        Inserter::new(Arc::clone(&self.registration))
    }

    /// Inserts one entry, of which so many reads are expected, at the caller's coarse time.
    ///
    /// A writer of several entries has an [`Inserter`].
    ///
    /// # Errors
    /// As [`Inserter::insert`].
    ///
    /// # Panics
    /// As [`Inserter::insert`].
    pub fn insert(
        &self,
        position: Position,
        value: V,
        expected_reads: u32,
        now: Instant,
    ) -> Result<(), NotInserted<V>>
    where
        V: Weigh,
    {
        self.inserter().insert(position, value, expected_reads, now)
    }

    /// A clone of the value at a position.
    ///
    /// # Panics
    /// When `clone` does; the entry stays.
    #[inline]
    pub fn get(&self, position: Position) -> Option<V>
    where
        V: Clone,
    {
        let extends = self.core.budget.extends_accessed();
        let mut value = None;
        self.core.visit(position, |entry| {
            if extends {
                entry.mark_accessed();
            }
            value = Some(entry.value.clone());
        });
        value
    }

    /// Whether there is an entry at a position. Not a look-up: it keeps nothing from being evicted.
    pub fn contains(&self, position: Position) -> bool {
        let (key, slot) = PageKey::of(position);
        self.core.index.find(key).is_some_and(|linked| linked.page.present(1 << slot) != 0)
    }

    /// Clones of the values of a range, in order, each with its position; what is missing is left out.
    ///
    /// # Panics
    /// When `clone` does; the entries stay.
    pub fn range(&self, range: impl RangeBounds<Position>) -> Vec<(Position, V)>
    where
        V: Clone,
    {
        let Some(span) = Span::of(&range) else { return Vec::new() };
        let extends = self.core.budget.extends_accessed();
        self.core.collect_range(span, |entry| {
            if extends {
                entry.mark_accessed();
            }
            entry.value.clone()
        })
    }

    /// Shows the values of a range, in order, each at most once, without a clone.
    ///
    /// A value stays while it is shown, also if it is removed meanwhile. `visit` may do anything with the cache. The entries of a page are shown as they
    /// were at one moment. While `visit` runs, removed values of the page that it is in are not dropped yet.
    ///
    /// # Panics
    /// When `visit` does; nothing stays held.
    #[inline]
    pub fn for_each_in_range(&self, range: impl RangeBounds<Position>, mut visit: impl FnMut(Position, &V)) {
        let Some(span) = Span::of(&range) else { return };
        let extends = self.core.budget.extends_accessed();
        self.core.visit_range(span, |position, entry| {
            if extends {
                entry.mark_accessed();
            }
            visit(position, &entry.value);
        });
    }

    /// Removes the entries of a range.
    ///
    /// Their values are dropped here, or by the last reader that leaves their page. A panic of a destructor ends there.
    pub fn remove_range(&self, range: impl RangeBounds<Position>) -> Removed {
        Span::of(&range).map_or_else(Removed::default, |span| self.core.remove_range(span))
    }

    /// Removes the entries of a ledger; as [`remove_range`](Self::remove_range).
    pub fn remove_ledger(&self, ledger: i64) -> Removed {
        self.core.remove_range(Span::ledger(ledger))
    }

    /// Removes all entries; as [`remove_range`](Self::remove_range).
    pub fn clear(&self) -> Removed {
        self.core.remove_range(Span::ALL)
    }

    /// Counts one delivery of the entry at a position; whether there is one.
    ///
    /// To be called for what reached a reader, not for what was read and thrown away. If another entry stands there by now, that one is
    /// taken to be read, and goes earlier than it need.
    pub fn mark_read(&self, position: Position) -> bool {
        self.core.visit(position, Entry::mark_read)
    }

    /// Counts one delivery of each entry of a range; how many there are.
    pub fn mark_range_read(&self, range: impl RangeBounds<Position>) -> u64 {
        let mut marked = 0;
        if let Some(span) = Span::of(&range) {
            self.core.visit_range(span, |_, entry| {
                entry.mark_read();
                marked += 1;
            });
        }
        marked
    }

    /// How many reads of the entry at a position are still expected, below zero if there were more; none if it is not cached.
    pub fn expected_reads(&self, position: Position) -> Option<i32> {
        let mut reads = None;
        self.core.visit(position, |entry| reads = Some(entry.expected()));
        reads
    }

    /// The weight of the entries of which reads are still expected: a walk over all entries.
    pub fn expected_weight(&self) -> u64 {
        let mut weight = 0_u64;
        self.core.visit_range(Span::ALL, |_, entry| {
            if entry.expected() > 0 {
                weight = weight.saturating_add(entry.weight);
            }
        });
        weight
    }

    /// How many entries there are: a walk over all pages.
    pub fn len(&self) -> usize {
        self.core.len()
    }

    /// Whether there is no entry: a walk over all pages.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The weight of all entries, and of the credit that live inserters took ahead, at most 64 KiB each.
    pub fn weight(&self) -> u64 {
        self.core.weight()
    }

    /// The weight of removed entries that are not dropped yet, since a reader is in their page.
    pub fn retired_weight(&self) -> u64 {
        self.core.retired_weight()
    }

    /// How many pages there are, with those in which only an inserter stays.
    pub fn pages(&self) -> u64 {
        self.core.pages()
    }

    /// Bytes of the index beside the pages; as many as were ever needed at a time, and about a quarter more.
    pub fn index_bytes(&self) -> usize {
        self.core.index.bytes()
    }
}

impl<V> Clone for RangeCache<V> {
    fn clone(&self) -> Self {
        Self { core: Arc::clone(&self.core), registration: Arc::clone(&self.registration) }
    }
}

impl<V> fmt::Debug for RangeCache<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RangeCache")
            .field("pages", &self.pages())
            .field("weight", &self.weight())
            .field("retired_weight", &self.retired_weight())
            .finish_non_exhaustive()
    }
}
