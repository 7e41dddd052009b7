//! Ours: a range cache with its eviction queue.
//!
//! *In the slot*: the value is the shared buffer itself, which is all that is left of an entry when the cache knows its position and
//! counts its reads. *`Arc` entries*: the value is the entry object of the peers, which its writer allocates.

use std::sync::Arc;

use bytes::Bytes;
use folio_cache::{EvictionOptions, EvictionQueue, Inserter, RangeCache, Reason, Weigh};
use folio_sync::time::Instant;

use super::entry::{Cut, Entry, Position, Run};
use super::tested::{Options, Tested};

/// Our case, values in the slots.
pub(super) const OURS: &str = "RangeCache";

/// Our case with the values of the peers.
pub(super) const OURS_ARC: &str = "RangeCache, Arc entries";

impl Weigh for Entry {
    fn weight(&self) -> u64 {
        Self::weight(self)
    }
}

/// What is cached.
pub(super) trait Payload: Weigh + Clone + Send + Sync + 'static {
    fn make(position: Position, data: &Bytes) -> Self;
}

impl Payload for Bytes {
    #[inline]
    fn make(_: Position, data: &Bytes) -> Self {
        data.clone()
    }
}

impl Payload for Arc<Entry> {
    #[inline]
    fn make(position: Position, data: &Bytes) -> Self {
        Self::new(Entry::new(position, data.clone()))
    }
}

/// A cache and the queue that it is evicted by.
pub(super) struct Ours<P> {
    cache: RangeCache<P>,
    queue: EvictionQueue<P>,
}

/// Inserts where there is nothing.
#[inline]
pub(super) fn insert_batch<P: Payload>(
    by: &mut Inserter<P>,
    batch: impl IntoIterator<Item = (Position, P, u32)>,
) {
    let refused = by.insert_batch(batch, Instant::from_nanos(1));
    assert!(refused.is_empty(), "nothing else is there, and there is no budget");
}

impl<P: Payload> Tested for Ours<P> {
    type Value = P;
    type Writer = Inserter<P>;

    fn open(options: Options) -> Self {
        let mut eviction = EvictionOptions::default();
        eviction.max_requeues = options.max_requeues;
        eviction.extend_recently_accessed = options.extend_recently_accessed;
        let queue = EvictionQueue::new(eviction);
        Self { cache: RangeCache::new(&queue), queue }
    }

    #[inline]
    fn writer(&self) -> Inserter<P> {
        self.cache.inserter()
    }

    #[inline]
    fn value(position: Position, data: &Bytes) -> P {
        P::make(position, data)
    }

    #[inline]
    fn insert(&self, by: &mut Inserter<P>, position: Position, value: P, expected: u32, now: u64) {
        let inserted = by.insert(position, value, expected, Instant::from_nanos(now));
        if let Err(refused) = inserted {
            // The evictor of another thread may be looking into the page from which the last run was removed just now.
            assert_eq!(refused.reason, Reason::Busy, "nothing else is there, and there is no budget");
        }
    }

    #[inline]
    fn remove(&self, cut: &Cut) {
        self.cache.remove_range(cut.range.clone());
    }

    #[inline]
    fn get(&self, position: Position) -> Option<P> {
        self.cache.get(position)
    }

    #[inline]
    fn owned(&self, run: Run) -> Vec<(Position, P)> {
        self.cache.range(run.range())
    }

    #[inline]
    fn visited(&self, run: Run, mut visit: impl FnMut(&P)) {
        self.cache.for_each_in_range(run.range(), |_, value| visit(value));
    }

    #[inline]
    fn mark_read(&self, position: Position) {
        self.cache.mark_read(position);
    }

    #[inline]
    fn evict_before(&self, before: u64, now: u64) -> u64 {
        let evicted = self.queue.evict_before(Instant::from_nanos(before), Instant::from_nanos(now));
        evicted.expect("nobody else evicts").entries
    }

    #[inline]
    fn evict_weight(&self, weight: u64, now: u64) -> u64 {
        let evicted = self.queue.evict_weight(weight, Instant::from_nanos(now));
        evicted.expect("nobody else evicts").entries
    }

    fn is_drained(&self) -> bool {
        self.queue.keys() == 0
    }
}
