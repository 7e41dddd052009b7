//! Models of the range cache through its public interface: inserters, removers and the evictor over one page.
//!
//! In models a page has four slots and a node four words: entries 0 to 3 of a ledger share a page.
#![cfg(loom)]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "counters of the test itself, which the checker must not see as synchronisation; models fail where they unwrap"
)]

use std::collections::BTreeSet;
use std::sync::Mutex as StdMutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use folio_cache::{
    EvictError, Evicted, EvictionOptions, EvictionQueue, Inserter, Position, RangeCache, Reason, Removed,
    Weigh,
};
use folio_sync::test_util::{FreshAddresses, Model, Tracked, model};
use folio_sync::thread;
use folio_sync::time::Instant;

/// Pages are known by their addresses.
#[global_allocator]
static ALLOCATOR: FreshAddresses = FreshAddresses;

/// What is cached: which one, and what it weighs.
struct Load {
    id: Tracked<u64>,
    weight: u64,
}

impl Weigh for Load {
    fn weight(&self) -> u64 {
        self.weight
    }
}

/// A value that weighs as much as its number says, but none of 10 or more.
///
/// What weighs nothing touches no counter, where a model is about other things.
fn load(id: u64) -> Load {
    Load { id: Tracked::new(id), weight: if id < 10 { id } else { 0 } }
}

fn at(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}

/// Later than all that models insert.
const LATE: Instant = Instant::from_nanos(100);

/// A queue that keeps nothing for another round, and a cache of it.
fn scene() -> (EvictionQueue<Load>, RangeCache<Load>) {
    within(u64::MAX)
}

/// The same with a budget.
fn within(budget: u64) -> (EvictionQueue<Load>, RangeCache<Load>) {
    let mut options = EvictionOptions::default();
    options.max_requeues = 0;
    options.budget = budget;
    let queue = EvictionQueue::new(options);
    let cache = RangeCache::new(&queue);
    (queue, cache)
}

/// Inserts, at time 1, a value that weighs as much as its number says; why it was given back.
fn put(inserter: &mut Inserter<Load>, position: Position, id: u64, reads: u32) -> Option<Reason> {
    let refused = inserter.insert(position, load(id), reads, at(1)).err()?;
    assert_eq!(*refused.value.id.get(), id, "the caller has its own value back");
    assert_eq!(refused.position, position);
    Some(refused.reason)
}

/// What is cached: entry ids of ledger 1, and the values' numbers.
fn found(cache: &RangeCache<Load>) -> Vec<(i64, u64)> {
    let mut found = Vec::new();
    cache.for_each_in_range(.., |(_, entry), load| found.push((entry, *load.id.get())));
    found
}

fn evict(queue: &EvictionQueue<Load>) -> (u64, u64) {
    let Evicted { entries, weight, .. } = queue.evict_before(LATE, LATE).unwrap();
    (entries, weight)
}

fn clear(cache: &RangeCache<Load>) -> (u64, u64) {
    let Removed { entries, weight } = cache.clear();
    (entries, weight)
}

fn sum(a: (u64, u64), b: (u64, u64)) -> (u64, u64) {
    (a.0 + b.0, a.1 + b.1)
}

/// With all inserters gone and everything removed, nothing is left, also of keys once a pass has come by.
fn ends_empty(queue: &EvictionQueue<Load>, cache: &RangeCache<Load>) {
    assert_eq!((cache.weight(), cache.retired_weight(), queue.charged_weight()), (0, 0, 0));
    assert_eq!((cache.pages(), queue.pages()), (0, 0));
    queue.evict_before(Instant::ORIGIN, LATE).unwrap();
    assert_eq!(queue.keys(), 0);
}

/// 1.6, I14: a walk between two inserts of one inserter leaves the page's key for the walk that takes the second one.
#[test]
fn evictor_walks_twice_against_an_insert() {
    model("evictor walks twice against an insert", || {
        let (queue, cache) = scene();
        let mut inserter = cache.inserter();
        assert_eq!(put(&mut inserter, (1, 0), 1, 0), None);
        let inserts = thread::spawn(move || {
            assert_eq!(put(&mut inserter, (1, 1), 2, 0), None);
            inserter.leave();
            inserter
        });
        let first = evict(&queue);
        let second = evict(&queue);
        drop(inserts.join().unwrap());
        let rest = evict(&queue);
        assert_eq!(sum(sum(first, second), rest), (2, 3), "each goes once");
        ends_empty(&queue, &cache);
    });
}

/// I18, bug 11: what becomes of the count of an insert at a place whose entry is replaced meanwhile.
#[test]
fn count_of_an_occupied_insert_racing_removal() {
    let outcomes: &StdMutex<BTreeSet<String>> = Box::leak(Box::default());
    Model::new("count of an occupied insert racing removal").at_every_step().check(|| {
        let (queue, cache) = scene();
        let mut other = cache.inserter();
        assert_eq!(put(&mut other, (1, 0), 1, 1), None);
        let mut mine = cache.inserter();
        assert_eq!(put(&mut mine, (1, 1), 9, 0), None, "the page stays");
        let newcomer = thread::spawn(move || {
            let reason = put(&mut other, (1, 0), 7, 7);
            (reason, other)
        });
        assert_eq!(cache.remove_range((1, 0)..=(1, 0)).entries, 1);
        let here = put(&mut mine, (1, 0), 3, 3);
        let (there, other) = newcomer.join().unwrap();
        drop((mine, other));
        let cached = found(&cache).into_iter().find(|(entry, _)| *entry == 0);
        let outcome = (there, here, cached.map(|(_, id)| id), cache.expected_reads((1, 0)));
        outcomes.lock().unwrap().insert(format!("{outcome:?}"));
        assert!(
            matches!(
                outcome,
                (None, Some(Reason::Occupied), Some(7), Some(3))
                    | (None, Some(Reason::Busy), Some(7), Some(7))
                    | (Some(Reason::Occupied), None, Some(3), Some(3 | 7))
                    | (Some(Reason::Busy), None, Some(3), Some(3))
                    | (Some(Reason::Occupied | Reason::Busy), Some(Reason::Busy), None, None)
            ),
            "{outcome:?}"
        );
        clear(&cache);
        ends_empty(&queue, &cache);
    });
    assert_eq!(outcomes.lock().unwrap().len(), 7, "each outcome is seen");
}

/// I11, I12: each entry goes to the evictor or to the range removal, and the page and its key go with the last.
#[test]
fn eviction_racing_range_removal() {
    model("eviction racing range removal", || {
        let (queue, cache) = scene();
        let mut inserter = cache.inserter();
        assert_eq!(put(&mut inserter, (1, 0), 1, 0), None);
        assert_eq!(put(&mut inserter, (1, 1), 2, 0), None);
        drop(inserter);
        let other = cache.clone();
        let remover = thread::spawn(move || (clear(&other), other));
        let evicted = evict(&queue);
        let (cleared, _other) = remover.join().unwrap();
        assert_eq!(sum(evicted, cleared), (2, 3), "each entry is one removal's");
        ends_empty(&queue, &cache);
    });
}

/// I20: two inserters and a remover at five quarters of the budget: never above it, and exact in the end.
#[test]
fn credit_racing_the_budget_check() {
    model("credit racing the budget check", || {
        let (queue, cache) = within(4);
        let mut mine = cache.inserter();
        assert_eq!(put(&mut mine, (1, 0), 2, 0), None);
        let mut other = cache.inserter();
        assert_eq!(put(&mut other, (1, 1), 1, 0), None);
        let observer = queue.clone();
        let inserts = thread::spawn(move || {
            let refused = put(&mut other, (1, 2), 2, 0);
            assert!(observer.charged_weight() <= 5);
            (refused, other, observer)
        });
        let handle = cache.clone();
        let remover = thread::spawn(move || (handle.remove_range((1, 0)..=(1, 0)).weight, handle));
        let here = put(&mut mine, (1, 3), 2, 0);
        assert!(queue.charged_weight() <= 5);
        let (there, other, _queue) = inserts.join().unwrap();
        assert_eq!(remover.join().unwrap().0, 2);
        assert!([here, there].iter().all(|reason| matches!(reason, None | Some(Reason::OverBudget))));
        let refused = [here, there].iter().flatten().count() as u64;
        assert!(refused < 2, "there is room for one at any time");
        assert_eq!(queue.refused(), refused);
        drop((mine, other));
        let left = 1 + 2 * (2 - refused);
        assert_eq!((queue.charged_weight(), cache.weight()), (left, left));
        clear(&cache);
        ends_empty(&queue, &cache);
    });
}

/// I20: the same with credit: what an inserter has charged ahead is given back when it leaves, and none is taken that does not fit.
#[test]
fn credit_given_back_racing_the_budget_check() {
    // Credit of 2, and at most 10,240.
    const MOST: u64 = 10_240;
    Model::new("credit given back racing the budget check").at_every_step().check(|| {
        let (queue, cache) = within(8_192);
        let mut mine = cache.inserter();
        let all_but_three = Load { id: Tracked::new(99), weight: MOST - 3 };
        assert!(mine.insert((1, 0), all_but_three, 0, at(1)).is_ok());
        let mut other = cache.inserter();
        let observer = queue.clone();
        let inserts = thread::spawn(move || {
            let refused = [1, 2].map(|entry| put(&mut other, (1, entry), 1, 0));
            assert!(observer.charged_weight() <= MOST);
            other.leave();
            (refused, other, observer)
        });
        let here = put(&mut mine, (1, 3), 1, 0);
        assert!(queue.charged_weight() <= MOST);
        mine.leave();
        let (there, _other, _queue) = inserts.join().unwrap();
        let taken = [here, there[0], there[1]].iter().filter(|reason| reason.is_none()).count() as u64;
        assert_eq!(queue.refused(), 3 - taken);
        assert!(taken >= 2, "there is room for two at any time");
        let left = MOST - 3 + taken;
        assert_eq!((queue.charged_weight(), cache.weight()), (left, left));
        clear(&cache);
        ends_empty(&queue, &cache);
    });
}

/// I19: each delivery counts, one by one or as a range, beside others.
#[test]
fn deliveries_of_one_entry() {
    model("deliveries of one entry", || {
        let (queue, cache) = scene();
        let mut inserter = cache.inserter();
        assert_eq!(put(&mut inserter, (1, 0), 1, 3), None);
        drop(inserter);
        let other = cache.clone();
        let reader = thread::spawn(move || (other.mark_read((1, 0)), other));
        assert_eq!(cache.mark_range_read(..), 1);
        assert!(reader.join().unwrap().0);
        assert_eq!(cache.expected_reads((1, 0)), Some(1));
        clear(&cache);
        ends_empty(&queue, &cache);
    });
}

/// I11, I20: weights while a reader holds up what is removed: never more than was ever there, hence never below zero, and exact in the end.
#[test]
fn weights_while_removed_entries_are_read() {
    model("weights while removed entries are read", || {
        let (queue, cache) = scene();
        let mut inserter = cache.inserter();
        assert_eq!(put(&mut inserter, (1, 0), 1, 0), None);
        assert_eq!(put(&mut inserter, (1, 1), 2, 0), None);
        drop(inserter);
        let other = cache.clone();
        let reader = thread::spawn(move || {
            found(&other);
            other
        });
        let (other, observer) = (cache.clone(), queue.clone());
        let remover = thread::spawn(move || {
            assert_eq!(clear(&other), (2, 3));
            let weights = (other.weight(), other.retired_weight(), observer.charged_weight());
            assert!(weights.0 == 0 && weights.1 <= 3 && weights.2 <= 3, "{weights:?}");
            (other, observer)
        });
        let weights = (cache.weight(), cache.retired_weight(), queue.charged_weight());
        assert!(weights.0 <= 3 && weights.1 <= 3 && weights.2 <= 3, "{weights:?}");
        reader.join().unwrap();
        remover.join().unwrap();
        ends_empty(&queue, &cache);
    });
}

/// 1.6: one evictor at a time; the other one is told, and nothing is lost by it.
#[test]
fn two_evictors() {
    let busy: &AtomicUsize = Box::leak(Box::default());
    Model::new("two evictors").few_executions("one lock decides").check(|| {
        let (queue, cache) = scene();
        let mut inserter = cache.inserter();
        assert_eq!(put(&mut inserter, (1, 0), 10, 0), None);
        drop(inserter);
        let other = queue.clone();
        let other = thread::spawn(move || (other.evict_before(LATE, LATE), other));
        let here = queue.evict_before(LATE, LATE);
        let (there, _queue) = other.join().unwrap();
        let results = [here, there];
        busy.fetch_add(results.iter().filter(|result| **result == Err(EvictError::Busy)).count(), Relaxed);
        let entries: u64 = results.iter().flatten().map(|evicted| evicted.entries).sum();
        assert_eq!(entries, 1, "who is not told to be late has evicted it, or comes after");
        assert_eq!(queue.keys(), 0, "the key went with the page");
        ends_empty(&queue, &cache);
    });
    assert!(busy.load(Relaxed) > 0, "some execution has two at once");
}

/// I14, I15: the page of an inserter stays through a removal of everything, and goes when the inserter has left, whoever comes last.
#[test]
fn page_of_an_inserter_through_a_clear() {
    Model::new("page of an inserter through a clear").at_every_step().check(|| {
        // No credit: each insert is charged by itself.
        let (queue, cache) = within(100);
        let mut inserter = cache.inserter();
        assert_eq!(put(&mut inserter, (1, 0), 1, 0), None);
        let other = cache.clone();
        let remover = thread::spawn(move || {
            let cleared = clear(&other);
            assert!(other.weight() <= 3, "what is removed was charged before");
            (cleared, other)
        });
        assert_eq!(put(&mut inserter, (1, 1), 2, 0), None, "its page takes entries");
        assert_eq!(cache.pages(), 1, "its page stays");
        inserter.leave();
        let (cleared, _other) = remover.join().unwrap();
        assert_eq!(sum(cleared, clear(&cache)), (2, 3));
        drop(inserter);
        ends_empty(&queue, &cache);
    });
}

/// I14: an insert into a page that is just losing its last entry goes into that page, or into a new one, never into none.
#[test]
fn insert_racing_the_end_of_its_page() {
    model("insert racing the end of its page", || {
        let (queue, cache) = scene();
        let mut inserter = cache.inserter();
        let mut beside = cache.inserter();
        assert_eq!(put(&mut beside, (1, 4), 10, 0), None);
        assert_eq!(put(&mut inserter, (1, 0), 11, 0), None);
        inserter.leave();
        let other = cache.clone();
        let remover = thread::spawn(move || (other.remove_range((1, 0)..=(1, 0)).entries, other));
        assert_eq!(put(&mut inserter, (1, 1), 12, 0), None);
        assert_eq!(found(&cache).iter().filter(|(entry, _)| *entry == 1).count(), 1, "it can be seen");
        assert_eq!(remover.join().unwrap().0, 1);
        drop((inserter, beside));
        assert_eq!(cache.pages(), 2);
        assert_eq!(evict(&queue), (2, 0), "the evictor knows of its page");
        ends_empty(&queue, &cache);
    });
}
