//! What has a bound: credit, requeues, dead keys, what a page takes.
#![cfg(not(any(loom, shuttle)))]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests run on the standard library only, and their helpers unwrap as they do"
)]

use folio_cache::page::{Fate, Owner, Page, Values};
use folio_cache::{EvictionOptions, EvictionQueue, RangeCache, Reason, Weigh};
use folio_sync::time::Instant;
use folio_sync::unwind;

/// Weighs what it says.
#[derive(Clone, Debug)]
struct Heavy(u64);

impl Weigh for Heavy {
    fn weight(&self) -> u64 {
        self.0
    }
}

const CREDIT: u64 = 64 << 10;
const NOW: Instant = Instant::ORIGIN;

#[test]
fn what_refused_entries_weigh_is_not_kept_as_credit() {
    let queue = EvictionQueue::default();
    let cache = RangeCache::new(&queue);
    let mut inserter = cache.inserter();
    inserter.insert((1, 0), Heavy(10), 0, NOW).unwrap();
    for weight in [10 << 20, 1 << 40] {
        let refused = inserter.insert((1, 0), Heavy(weight), 0, NOW).unwrap_err();
        assert_eq!((refused.reason, refused.value.0), (Reason::Occupied, weight));
        assert!(queue.charged_weight() <= 10 + CREDIT, "{}", queue.charged_weight());
    }
    (1..64).for_each(|entry| cache.insert((1, entry), Heavy(0), 0, NOW).unwrap());
    let refused = inserter.insert_batch((0..64).map(|entry| ((1, entry), Heavy(10 << 20), 0)), NOW);
    assert_eq!(refused.len(), 64);
    assert!(cache.weight() <= 10 + CREDIT, "{}", cache.weight());
    drop(inserter);
    assert_eq!((cache.weight(), queue.charged_weight()), (10, 10));
}

#[test]
fn thousands_of_inserters_leave_most_of_the_budget_to_entries() {
    let mut options = EvictionOptions::default();
    options.budget = 64 << 20;
    let queue = EvictionQueue::new(options);
    let caches: Vec<_> = (0..6_000).map(|_| RangeCache::new(&queue)).collect();
    let mut inserters: Vec<_> = caches.iter().map(RangeCache::inserter).collect();
    for entry in 0..3 {
        for inserter in &mut inserters {
            inserter.insert((1, entry), Heavy(10), 0, NOW).unwrap();
        }
    }
    assert!(queue.charged_weight() < 180_000 + (64 << 20) / 2, "{}", queue.charged_weight());
    assert_eq!(queue.refused(), 0);
    drop(inserters);
    assert_eq!(queue.charged_weight(), 180_000);
}

/// I20: however many requeues are allowed, memory pressure wins in the end.
#[test]
fn a_limit_of_requeues_beyond_what_is_counted_is_a_limit() {
    let mut options = EvictionOptions::default();
    options.max_requeues = u32::MAX;
    let queue = EvictionQueue::new(options);
    let cache = RangeCache::new(&queue);
    cache.insert((1, 0), Heavy(1), 1, NOW).unwrap();
    assert_eq!(queue.evict_weight(1, NOW).unwrap().entries, 1);
    assert!(cache.is_empty());
}

/// I23: keys of pages that are gone go with the next pass once they are more than the others.
#[test]
fn two_dead_keys_behind_one_live_one_are_dropped() {
    let queue = EvictionQueue::default();
    let cache = RangeCache::new(&queue);
    let later = Instant::from_nanos(5);
    for page in 0..3 {
        cache.insert((1, page * 64), Heavy(1), 0, later).unwrap();
    }
    queue.evict_before(Instant::from_nanos(1), later).unwrap();
    cache.remove_range((1, 64)..);
    queue.evict_before(Instant::from_nanos(1), later).unwrap();
    assert_eq!((queue.keys(), queue.pages()), (1, 1));
}

/// Has nothing to keep.
struct Nobody;

impl Owner<u32> for Nobody {
    #[allow(single_use_lifetimes, reason = "an iterator of references has no other way to say so")]
    fn retiring<'a>(&self, _values: impl Iterator<Item = &'a u32>) {}

    fn released(&self, _values: &Values<u32>, _retired: bool, _fate: Fate) {}
}

#[test]
fn what_a_page_cannot_do_is_refused_before_anything_happens() {
    let page = Page::boxed(2);
    assert!(unwind::catch(|| page.insert(64, 7)).is_err());
    assert!(unwind::catch(|| page.reserve(65)).is_err());
    page.insert(0, 7).unwrap();
    page.insert(1, 8).unwrap();
    let mut values = Values::new();
    assert_eq!(page.remove(1, &Nobody, &mut values), 1);
    assert!(unwind::catch(|| page.remove(2, &Nobody, &mut values)).is_err());
    assert!(unwind::catch(|| page.read(2, |_, _| (), &Nobody, &mut values)).is_err());
    assert_eq!(page.present(u64::MAX), 2, "the second value is still there");
}
