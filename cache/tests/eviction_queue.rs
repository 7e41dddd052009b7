//! What the eviction queue takes, in which order, and what it keeps.
#![cfg(not(any(loom, shuttle)))]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests run on the standard library only, and their helpers unwrap as they do"
)]

mod common;

use common::{EVER, Scene, assert_drains, at, evicted, options, outcome, removed};
use folio_cache::{EvictError, EvictionQueue, Position, RangeCache, Reason};

/// A queue with this many requeues at most, no life for what was accessed.
fn requeues(max_requeues: u32) -> Scene {
    Scene::with(options(max_requeues, false), 10_000)
}

/// The entries of ledger 1 that are cached.
fn left(scene: &Scene) -> Vec<i64> {
    scene.found((1, i64::MIN)..(2, i64::MIN)).into_iter().map(|(_, entry)| entry).collect()
}

/// 4.3: an entry's page is known to the queue once, and unknown when it has gone.
#[test]
fn a_queue_knows_a_page_once_until_it_is_gone() {
    let scene = Scene::new();
    assert_eq!(scene.queue.keys(), 0);
    scene.put((1, 0), 1);
    scene.put((1, 1), 1);
    assert_eq!(scene.queue.keys(), 1);
    scene.put((1, 64), 1);
    assert_eq!((scene.queue.keys(), scene.queue.pages()), (2, 2));
    assert_eq!(scene.evict_before(u64::MAX, 2), (3, 3));
    assert_eq!(scene.queue.keys(), 0);
    scene.assert_empty();
}

/// 4.3, I20: an expired entry that is still expected is queued again as often as the threshold says, and then goes.
#[test]
fn eviction_by_time_requeues_what_is_expected_up_to_the_threshold() {
    for most in [0, 1, 2, 5] {
        let scene = requeues(most);
        scene.put_at((1, 0), 10, 1, 1);
        for requeued in 0..u64::from(most) {
            let time = 10 * (requeued + 1);
            assert_eq!(scene.evict_before(time, time), (0, 0), "requeued {requeued} times of {most}");
            assert_eq!(scene.evict_before(time, time), (0, 0), "its time is the pass's now");
        }
        assert_eq!(scene.evict_before(1_000, 1_000), (1, 10));
        scene.assert_empty();
    }
}

/// 4.3, I19: an expected entry that was read as often as expected goes at once.
#[test]
fn eviction_by_time_takes_what_was_read() {
    let scene = requeues(5);
    scene.put_at((1, 0), 10, 2, 1);
    scene.put_at((1, 1), 10, 1, 1);
    scene.cache.mark_range_read((1, 0)..(1, 2));
    assert_eq!(scene.evict_before(2, 2), (1, 10));
    assert_eq!(left(&scene), [0]);
    assert!(scene.cache.mark_read((1, 0)));
    assert_eq!(scene.evict_before(3, 3), (1, 10));
    scene.assert_empty();
}

/// 4.3: with that setting, what was accessed lives on once, and again only if it is accessed again.
#[test]
fn a_recent_access_extends_the_life_of_an_entry_once() {
    let scene = Scene::with(options(5, true), 100);
    (0..4).for_each(|entry| scene.put((1, entry), 10));
    drop(scene.cache.get((1, 0)));
    drop(scene.cache.range((1, 1)..(1, 2)));
    scene.cache.for_each_in_range((1, 2)..(1, 3), |_, _| ());
    assert!(scene.cache.contains((1, 3)), "no access");
    assert_eq!(scene.evict_before(2, 2), (1, 10));
    assert_eq!(left(&scene), [0, 1, 2], "which is an access");
    assert_eq!(scene.evict_before(3, 3), (0, 0));
    drop(scene.cache.get((1, 1)));
    assert_eq!(scene.evict_before(4, 4), (2, 20));
    assert_eq!(scene.evict_before(5, 5), (1, 10));
    scene.assert_empty();
}

/// 4.3: without that setting an access extends nothing.
#[test]
fn an_access_extends_nothing_unless_asked_to() {
    let scene = requeues(5);
    scene.put((1, 0), 10);
    drop(scene.cache.get((1, 0)));
    assert_eq!(scene.evict_before(2, 2), (1, 10));
    scene.assert_empty();
}

/// The three of the catalogue: 40 accessed, 50 expected, 30 neither; over one page, or each in its own.
fn easy_and_hard(apart: bool) -> Scene {
    let scene = Scene::with(options(5, true), 100);
    let step = if apart { 100 } else { 1 };
    scene.put_at((1, 0), 40, 0, 1);
    scene.put_at((1, step), 50, 1, 2);
    scene.put_at((1, 2 * step), 30, 0, 3);
    drop(scene.cache.get((1, 0)));
    scene
}

/// 4.3: eviction by size goes on until it has what it was asked for: 120 of 120.
#[test]
fn eviction_by_size_evicts_as_long_as_needed() {
    for apart in [false, true] {
        let scene = easy_and_hard(apart);
        assert_eq!(scene.evict_weight(120, 10), (3, 120));
        scene.assert_empty();
    }
}

/// 4.3: what is neither expected nor accessed goes first: asked for 20, the one of 30 goes.
#[test]
fn eviction_by_size_takes_the_easiest_first() {
    for apart in [false, true] {
        let scene = easy_and_hard(apart);
        assert_eq!(scene.evict_weight(20, 10), (1, 30));
        assert_eq!(scene.cache.weight(), 90);
        scene.end();
    }
}

/// 4.3, bug 10: what is expected goes last: asked for 35, those of 30 and 40 go.
#[test]
fn eviction_by_size_takes_the_expected_last() {
    for apart in [false, true] {
        let scene = easy_and_hard(apart);
        assert_eq!(scene.evict_weight(35, 10), (2, 70));
        assert_eq!((scene.cache.weight(), scene.cache.expected_weight()), (50, 50));
        assert_eq!(scene.evict_weight(1, 11), (1, 50), "memory pressure wins");
        scene.assert_empty();
    }
}

/// 4.3: the weight that eviction would rather not take is that of the entries with expected reads.
#[test]
fn the_weight_that_is_expected_is_told() {
    let scene = requeues(5);
    scene.put_at((1, 0), 1, 1, 1);
    scene.put_at((1, 1), 20, 0, 1);
    scene.put_at((1, 100), 300, 2, 1);
    scene.put_at((9, 0), 4_000, 1, 1);
    assert_eq!(scene.cache.expected_weight(), 4_301);
    assert!(scene.cache.mark_read((9, 0)) && scene.cache.mark_read((1, 100)));
    assert_eq!(scene.cache.expected_weight(), 301);
    assert!(scene.cache.mark_read((1, 100)) && scene.cache.mark_read((1, 100)));
    assert_eq!(scene.cache.expected_weight(), 1);
    scene.end();
}

/// I20: memory pressure takes all that is expected, however much, in one pass of at most the threshold and one rounds.
#[test]
fn memory_pressure_takes_what_is_expected() {
    let scene = requeues(5);
    (0..200).for_each(|entry| scene.put_at((1, entry), 10, 7, 1));
    assert_eq!(scene.evict_weight(5, 2), (1, 10));
    assert_eq!(scene.evict_weight(u64::MAX, 3), (199, 1_990));
    scene.assert_empty();
}

/// I20: a pass that goes on in the middle of a page also takes what was inserted before that meanwhile, after all that is older.
#[test]
fn a_pass_goes_on_in_the_middle_of_a_page_and_takes_all_of_it() {
    for expected in [0, 1] {
        let scene = requeues(1);
        (0..10).for_each(|entry| scene.put_at((1, entry), 10, 0, 1));
        assert_eq!(scene.evict_weight(50, 2), (5, 50));
        scene.put_at((1, 100), 10, 0, 3);
        (0..3).for_each(|entry| scene.put_at((1, entry), 10, expected, 4));
        assert_eq!(scene.evict_weight(25, 5), (3, 30));
        assert_eq!(left(&scene), [0, 1, 2, 8, 9, 100]);
        assert_eq!(scene.evict_weight(30, 6), (3, 30));
        assert_eq!(left(&scene), [0, 1, 2]);
        assert_eq!(scene.evict_weight(u64::MAX, 7), (3, 30));
        scene.assert_empty();
    }
}

/// 4.2: a weight of zero is refused, and takes nothing.
#[test]
fn a_weight_of_zero_is_refused() {
    let scene = requeues(0);
    scene.put((1, 0), 10);
    assert!(matches!(scene.queue.evict_weight(0, at(2)), Err(EvictError::ZeroWeight)));
    assert_eq!(scene.cache.len(), 1);
    scene.end();
}

/// 1.6: nothing behind an entry that has not expired is taken by time, though the time of some passed.
#[test]
fn an_expired_entry_waits_behind_an_unexpired_page() {
    let scene = requeues(0);
    scene.put_at((1, 0), 1, 0, 10);
    scene.put_at((1, 100), 1, 0, 5);
    assert_eq!(scene.evict_before(8, 8), (0, 0));
    assert_eq!(scene.evict_before(11, 11), (2, 2));
    scene.assert_empty();
}

/// 1.6: several pages go in the order of their first inserts, and their entries in the order of their places.
#[test]
fn pages_go_in_the_order_of_their_first_inserts() {
    let order: [Position; 6] = [(5, 70), (1, 0), (9, 300), (1, 64), (-3, 5), (5, 0)];
    let scene = requeues(0);
    for (time, (ledger, entry)) in (1..).zip(order) {
        // Backwards: the place decides, not the time of the insert.
        for entry in (entry..entry + 3).rev() {
            scene.put_at((ledger, entry), 1, 0, time);
        }
    }
    let mut there = scene.found(..);
    for (ledger, entry) in
        order.into_iter().flat_map(|(ledger, entry)| (0..3).map(move |i| (ledger, entry + i)))
    {
        assert_eq!(scene.evict_weight(1, 100), (1, 1));
        there.retain(|&position| position != (ledger, entry));
        assert_eq!(scene.found(..), there);
    }
    scene.assert_empty();
}

/// 4.2, 1.6: by time, whole pages go in that order too; a page of which a part has expired loses that part, and the rest goes behind all pages.
#[test]
fn a_page_loses_what_has_expired() {
    let scene = requeues(0);
    (0..256_i64).for_each(|entry| scene.put_at((1, entry), 1, 0, entry.cast_unsigned()));
    assert_eq!(scene.evict_before(64, 1_000), (64, 64));
    assert_eq!(scene.evict_before(64, 1_000), (0, 0));
    assert_eq!(scene.evict_before(100, 1_000), (36, 36));
    assert_eq!(left(&scene), (100..256).collect::<Vec<_>>());
    assert_eq!(scene.evict_before(130, 1_000), (2, 2), "100 to 127 are behind 192 to 255");
    assert_eq!(scene.evict_before(193, 1_000), (1 + 28 + 62, 91));
    assert_eq!((left(&scene), scene.cache.pages()), ((193..256).collect(), 1));
    assert_eq!(scene.evict_before(u64::MAX, 1_000), (63, 63));
    scene.assert_empty();
}

/// 1.6, bug 9: one queue serves two caches: the oldest goes first, whichever it is in.
#[test]
fn two_caches_on_one_queue_give_up_their_oldest() {
    let scene = requeues(0);
    let other = RangeCache::new(&scene.queue);
    for entry in 0..6_i64 {
        let (position, now) = ((1, 100 * entry), at(entry.cast_unsigned()));
        let cache = if entry % 2 == 0 { &scene.cache } else { &other };
        assert_eq!(outcome(cache.insert(position, scene.value(position, 10), 0, now)), None);
    }
    assert_eq!((scene.queue.pages(), scene.queue.keys(), scene.queue.charged_weight()), (6, 6, 60));
    for gone in 0..3 {
        assert_eq!(scene.evict_weight(10, 100), (1, 10));
        let cache = if gone % 2 == 0 { &scene.cache } else { &other };
        assert!(!cache.contains((1, 100 * gone)), "entry {gone} was the oldest");
    }
    assert_eq!((scene.cache.len(), other.len(), scene.queue.charged_weight()), (1, 2, 30));
    drop(other);
    assert_eq!((scene.queue.pages(), scene.queue.charged_weight()), (1, 10), "it took its entries along");
    assert_eq!(scene.evict_before(10, 10), (1, 10));
    scene.assert_empty();
}

/// I15, I23: a pass that evicts nothing gives up the keys of pages that are gone.
#[test]
fn keys_of_pages_that_are_gone_are_reclaimed() {
    let scene = requeues(5);
    for round in 0..10 {
        scene.put_all(1, round * 640..(round + 1) * 640);
        assert_eq!(removed(scene.cache.remove_ledger(1)), (640, 640));
    }
    assert_eq!((scene.cache.pages(), scene.queue.keys()), (0, 100));
    assert_drains(&scene.queue);
    scene.assert_empty();
}

/// I23: also behind a page that has not expired, when they outnumber those of pages that are there.
#[test]
fn keys_of_pages_that_are_gone_are_reclaimed_behind_a_page_that_stays() {
    let scene = requeues(5);
    scene.put_at((1, 0), 1, 0, 1_000_000);
    for round in 1..=10 {
        scene.put_all(2, round * 640..(round + 1) * 640);
        scene.cache.remove_ledger(2);
    }
    assert_eq!(scene.evict_before(0, 0), (0, 0));
    assert!(scene.queue.keys() <= 2, "{} keys for one page", scene.queue.keys());
    // In steps too: the queue never grows to more than twice its pages, and what one pass may leave.
    for round in 0..1_000 {
        scene.put((3, round * 64), 1);
        scene.cache.remove_ledger(3);
        assert_eq!(scene.evict_before(0, 0), (0, 0));
        assert!(scene.queue.keys() <= 3, "{} keys for one page", scene.queue.keys());
    }
    scene.end();
}

/// I15, I23: a page that is empty and held by its inserter stays known, until the inserter has left.
#[test]
fn the_key_of_an_empty_page_that_is_held_stays() {
    let scene = requeues(5);
    let mut inserter = scene.cache.inserter();
    let mut put = |entry, time| {
        let value = scene.value((1, entry), 1);
        assert_eq!(outcome(inserter.insert((1, entry), value, 0, at(time))), None);
    };
    put(0, 1);
    for round in 2..10 {
        assert_eq!(scene.evict_before(round, round), (1, 1));
        assert_eq!((scene.cache.pages(), scene.queue.keys()), (1, 1), "round {round}");
        assert_eq!(scene.evict_before(u64::MAX, round), (0, 0));
        assert_eq!((scene.cache.pages(), scene.queue.keys()), (1, 1), "round {round}");
        put(round.cast_signed(), round);
    }
    assert_eq!(scene.evict_weight(100, 20), (1, 1), "it is found by size too");
    drop(inserter);
    assert_eq!(scene.cache.pages(), 0);
    assert_drains(&scene.queue);
    scene.assert_empty();
}

/// 1.6: the settings of a queue may change while it is in use.
#[test]
fn settings_change_while_the_queue_is_in_use() {
    let scene = requeues(5);
    scene.put_at((1, 0), 1, 1, 1);
    scene.put_at((1, 1), 1, 0, 1);
    scene.queue.set_extend_recently_accessed(true);
    drop(scene.cache.get((1, 1)));
    assert_eq!(scene.evict_before(2, 2), (0, 0), "one is expected, the other was accessed");
    drop(scene.cache.get((1, 1)));
    scene.queue.set_extend_recently_accessed(false);
    assert_eq!(scene.evict_before(3, 3), (1, 1));
    assert_eq!(left(&scene), [0]);
    scene.queue.set_max_requeues(2);
    assert_eq!(scene.evict_before(4, 4), (1, 1), "it was queued again twice");
    scene.assert_empty();
}

/// I20: an insert above five quarters of the budget is given back and counted; eviction makes room.
#[test]
fn inserts_far_above_the_budget_are_given_back() {
    let mut options = options(0, false);
    options.budget = 1_000_000;
    let scene = Scene::with(options, 100);
    let insert = |entry: i64| {
        let result = scene.cache.insert((1, entry), scene.value((1, entry), 125_000), 0, at(1));
        outcome(result)
    };
    (0..10).for_each(|entry| assert_eq!(insert(entry), None));
    assert_eq!((scene.queue.charged_weight(), scene.queue.refused()), (1_250_000, 0));
    assert_eq!(insert(10), Some(Reason::OverBudget));
    assert_eq!(insert(11), Some(Reason::OverBudget));
    assert_eq!((scene.cache.len(), scene.queue.charged_weight(), scene.queue.refused()), (10, 1_250_000, 2));
    assert_eq!(insert(0), Some(Reason::OverBudget), "before it is looked for");
    assert_eq!(scene.evict_weight(125_000, 2), (1, 125_000));
    assert_eq!(insert(10), None);
    assert_eq!(insert(11), Some(Reason::OverBudget));
    scene.queue.set_budget(u64::MAX);
    assert_eq!((insert(11), scene.queue.refused()), (None, 4));
    scene.queue.set_budget(1);
    assert_eq!(insert(12), Some(Reason::OverBudget));
    assert_eq!(scene.evict_weight(u64::MAX, 2), (11, 11 * 125_000));
    scene.assert_empty();
}

/// I20: what inserters have reserved counts towards the budget, and is given back when they leave.
#[test]
fn what_an_inserter_has_reserved_is_given_back() {
    let scene = requeues(0);
    let mut inserter = scene.cache.inserter();
    assert_eq!(outcome(inserter.insert((1, 0), scene.value((1, 0), 10), 0, at(1))), None);
    assert!((10..=10 + (64 << 10)).contains(&scene.queue.charged_weight()));
    assert!((10..=10 + (64 << 10)).contains(&scene.cache.weight()));
    inserter.leave();
    assert_eq!((scene.queue.charged_weight(), scene.cache.weight()), (10, 10));
    drop(inserter);
    scene.end();
}

/// I11: values that a reader is inside of count as retired, and towards the budget, until the reader has left.
#[test]
fn a_retired_value_counts_until_its_readers_have_left() {
    let scene = requeues(0);
    scene.put((1, 0), 100);
    scene.put((1, 1), 20);
    scene.put((2, 0), 3);
    let mut looked = 0;
    scene.cache.for_each_in_range((1, 0)..(1, 2), |position, value| {
        if position == (1, 0) {
            assert_eq!(removed(scene.cache.clear()), (3, 123));
            assert_eq!(
                (scene.cache.len(), scene.cache.retired_weight()),
                (0, 120),
                "none is inside ledger 2"
            );
            assert_eq!(scene.queue.charged_weight(), 120);
        }
        assert_eq!((value.position, value.copies()), (position, 1));
        looked += 1;
    });
    assert_eq!(looked, 2);
    scene.assert_empty();
}

/// 1.6: an empty queue has nothing to give.
#[test]
fn an_empty_queue_has_nothing_to_give() {
    let queue = EvictionQueue::<String>::default();
    assert_eq!(evicted(queue.evict_before(EVER, EVER).unwrap()), (0, 0));
    assert_eq!(evicted(queue.evict_weight(u64::MAX, EVER).unwrap()), (0, 0));
    assert_eq!((queue.keys(), queue.pages(), queue.charged_weight(), queue.refused()), (0, 0, 0, 0));
}
