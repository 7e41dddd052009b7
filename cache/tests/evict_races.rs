//! What a pass, a removal and a batch come to when something comes between.
#![cfg(not(any(loom, shuttle)))]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests run on the standard library only, and their helpers unwrap as they do"
)]

use folio_cache::{EvictionOptions, EvictionQueue, RangeCache, Weigh};
use folio_sync::test_util::pause::{Stop, When};
use folio_sync::time::Instant;
use folio_sync::unwind;

const NOW: Instant = Instant::ORIGIN;

/// Weighs what it says, and inserts one like itself when it is dropped.
struct Heavy(u64, Option<(RangeCache<Heavy>, i64)>);

impl Weigh for Heavy {
    fn weight(&self) -> u64 {
        self.0
    }
}

impl Drop for Heavy {
    fn drop(&mut self) {
        if let Some((cache, entry)) = self.1.take() {
            cache.insert((1, entry), Heavy(self.0, None), 0, NOW).unwrap();
        }
    }
}

/// I20: an evictor whose only decision another one has carried out goes on in the same page, also in its last round.
#[test]
fn a_pass_evicts_what_it_was_asked_for_though_others_took_what_it_decided_on() {
    let mut options = EvictionOptions::default();
    options.max_requeues = 0;
    let queue = EvictionQueue::new(options);
    let cache = RangeCache::new(&queue);
    (0..64).for_each(|entry| cache.insert((1, entry), Heavy(1, None), 0, NOW).unwrap());
    let stop = Stop::new("eviction.judge", When::After);
    let evicted = std::thread::scope(|scope| {
        let pass = scope.spawn(|| stop.run(|| queue.evict_weight(3, NOW)));
        let stopped = stop.stopped();
        assert_eq!(cache.remove_range(..(1, 3)).entries, 3);
        drop(stopped);
        pass.join().unwrap().unwrap()
    });
    assert_eq!((evicted.entries, evicted.weight, cache.len()), (3, 3, 58));
    assert!(cache.contains((1, 6)) && !cache.contains((1, 5)), "in the order of the slots");
    assert_eq!(queue.evict_weight(u64::MAX, NOW).unwrap().entries, 58);
    assert_eq!((queue.keys(), queue.pages(), queue.charged_weight()), (0, 0, 0));
}

#[test]
fn a_removal_that_meets_the_greatest_weight_again_and_again_tells_the_greatest() {
    let queue = EvictionQueue::default();
    let cache = RangeCache::new(&queue);
    let again = Heavy(u64::MAX, Some((cache.clone(), 64)));
    cache.insert((1, 0), again, 0, NOW).unwrap();
    let removed = cache.clear();
    assert_eq!((removed.entries, removed.weight), (2, u64::MAX));
    assert_eq!((cache.weight(), queue.charged_weight()), (0, 0));
}

#[test]
fn what_a_batch_weighs_whose_iterator_panics_is_not_kept_as_credit() {
    let queue = EvictionQueue::default();
    let cache = RangeCache::new(&queue);
    let mut inserter = cache.inserter();
    let batch = (0..10).map(|entry| {
        assert!(entry < 9, "the last one");
        ((1, entry), Heavy(100 << 20, None), 0)
    });
    let panicked = unwind::catch(|| inserter.insert_batch(batch, NOW)).unwrap_err();
    assert_eq!(unwind::message(&*panicked), "the last one");
    assert!(cache.is_empty());
    assert!(queue.charged_weight() <= 64 << 10, "{}", queue.charged_weight());
    drop(inserter);
    assert_eq!((cache.weight(), queue.charged_weight()), (0, 0));
}
