//! The reads that are expected of an entry: who counts them down, who takes them over.
#![cfg(not(any(loom, shuttle)))]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests run on the standard library only, and their helpers unwrap as they do"
)]

mod common;

use std::ops::Bound::{Excluded, Unbounded};
use std::sync::atomic::{AtomicU64, Ordering};

use common::{Random, Scene, at, gather, options, outcome, removed, threads};
use folio_cache::Reason;

/// A queue that keeps what is expected over five passes.
fn scene() -> Scene {
    Scene::with(options(5, false), 50_000)
}

/// Adds an entry at an occupied place: it comes back, and its count stays there.
#[track_caller]
fn add_again(scene: &Scene, entry: i64, expected_reads: u32) {
    let given_back = scene.cache.insert((1, entry), scene.value((1, entry), 1), expected_reads, at(1));
    assert_eq!(outcome(given_back), Some(Reason::Occupied));
}

/// 1.3, I19: each delivery takes one of the expected reads, also beyond the last.
#[test]
fn each_delivery_takes_one() {
    let scene = scene();
    scene.put_at((1, 0), 1, 2, 1);
    assert_eq!(scene.cache.expected_reads((1, 0)), Some(2));
    for left in [1, 0, -1, -2] {
        assert!(scene.cache.mark_read((1, 0)));
        assert_eq!(scene.cache.expected_reads((1, 0)), Some(left));
    }
    scene.put((1, 1), 1);
    assert_eq!(scene.cache.expected_reads((1, 1)), Some(0));
    assert_eq!(scene.cache.expected_reads((1, 2)), None);
    assert!(!scene.cache.mark_read((1, 2)) && !scene.cache.mark_read((2, 0)));
    scene.end();
}

/// 1.3: a count that no number of readers reaches is a count, and stays expected.
#[test]
fn a_count_of_any_size_is_expected() {
    let scene = scene();
    for (entry, count) in
        [i32::MAX.cast_unsigned(), i32::MAX.cast_unsigned() + 1, u32::MAX].into_iter().enumerate()
    {
        let position = (1, entry.cast_signed() as i64);
        scene.put_at(position, 1, count, 1);
        assert!(scene.cache.expected_reads(position).unwrap() > 0);
        assert!(scene.cache.mark_read(position));
        assert!(scene.cache.expected_reads(position).unwrap() > 0);
    }
    assert_eq!(scene.cache.expected_weight(), 3);
    scene.end();
}

/// 1.3, I19: the deliveries of a batch are marked at once, each entry of the range by one.
#[test]
fn the_deliveries_of_a_batch_are_marked_at_once() {
    let scene = scene();
    (0..200).filter(|entry| entry % 3 != 0).for_each(|entry| scene.put_at((1, entry), 1, 2, 1));
    assert_eq!(scene.cache.mark_range_read((1, 60)..=(1, 70)), 7);
    assert_eq!(scene.cache.mark_range_read((Excluded((1, 68)), Unbounded)), 87);
    let expected = |entry| scene.cache.expected_reads((1, entry));
    assert_eq!(
        [59, 60, 61, 68, 70, 71, 199].map(expected),
        [2, -1, 1, 1, 0, 1, 1].map(|count| (count >= 0).then_some(count))
    );
    scene.end();
}

/// 1.3, I19: entries that are looked up, copied or visited and never reach a reader take none.
#[test]
fn what_is_discarded_takes_none() {
    let scene = scene();
    scene.put_at((1, 0), 1, 1, 1);
    for _ in 0..3 {
        drop(scene.cache.get((1, 0)));
        drop(scene.cache.range(..));
        scene.cache.for_each_in_range(.., |_, _| ());
        assert!(scene.cache.contains((1, 0)));
        drop(scene.value((1, 0), 1));
    }
    assert_eq!(scene.cache.expected_reads((1, 0)), Some(1));
    assert_eq!(scene.evict_before(2, 2), (0, 0), "it is still expected");
    scene.end();
}

/// 1.3, I18, bug 11: an entry added at an occupied place leaves its count there, or none, and the data stays.
#[test]
fn the_count_of_a_newcomer_is_taken_over() {
    let scene = scene();
    scene.put_at((1, 0), 1, 3, 1);
    let cached = scene.cache.get((1, 0)).unwrap();
    for count in [7, 0, 1] {
        add_again(&scene, 0, count);
        assert_eq!(scene.cache.expected_reads((1, 0)), Some(count.cast_signed()));
        assert_eq!(scene.cache.get((1, 0)).unwrap().id, cached.id);
    }
    drop(cached);
    // Of a batch too.
    scene.put_at((1, 2), 1, 9, 1);
    let batch = (0..4).map(|entry| ((1, entry), scene.value((1, entry), 1), 4));
    assert_eq!(scene.cache.inserter().insert_batch(batch, at(1)).len(), 2);
    assert!((0..4).all(|entry| scene.cache.expected_reads((1, entry)) == Some(4)));
    scene.end();
}

/// I18, I19, bug 11: deliveries of either addition count against the one that is cached.
#[test]
fn deliveries_of_either_addition_count() {
    let scene = scene();
    scene.put_at((1, 0), 1, 1, 1);
    let of_the_first = scene.cache.get((1, 0)).unwrap();
    let of_the_second = scene.value((1, 0), 1);
    let given_back = scene.cache.insert((1, 0), of_the_second, 2, at(1)).unwrap_err();
    for delivered in [of_the_first, given_back.value] {
        assert!(scene.cache.mark_read(delivered.position));
    }
    assert_eq!(scene.cache.expected_reads((1, 0)), Some(0));
    assert_eq!(scene.evict_before(2, 2), (1, 1), "nobody needs it any more");
    scene.assert_empty();
}

/// I18, I19, bug 11: a partial read that failed, then a read of all, whose entries are added again: nothing stays needed.
#[test]
fn nothing_stays_needed_after_a_partial_read_that_failed() {
    let scene = scene();
    (0..5).for_each(|entry| scene.put_at((1, entry), 1, 1, 1));
    // The cached half of a read of ten, dropped when the other half fails.
    drop(scene.cache.range((1, 0)..(1, 10)));
    // All ten come from storage, are added, and delivered.
    for entry in 0..10 {
        let result = scene.cache.insert((1, entry), scene.value((1, entry), 1), 1, at(1));
        assert_eq!(outcome(result), (entry < 5).then_some(Reason::Occupied));
    }
    assert_eq!(scene.cache.mark_range_read((1, 0)..(1, 10)), 10);
    assert_eq!(scene.cache.expected_weight(), 0);
    assert_eq!(scene.evict_before(2, 2), (10, 10));
    scene.assert_empty();
}

/// I19: a mark that comes late meets whatever is there: it can only make it leave earlier.
#[test]
fn a_late_mark_meets_what_is_there() {
    let scene = scene();
    scene.put_at((1, 0), 1, 1, 1);
    assert_eq!(removed(scene.cache.clear()), (1, 1));
    assert!(!scene.cache.mark_read((1, 0)));
    scene.put_at((1, 0), 1, 1, 1);
    assert_eq!(scene.cache.expected_reads((1, 0)), Some(1), "the new one has its own count");
    assert!(scene.cache.mark_read((1, 0)));
    assert_eq!(scene.evict_before(2, 2), (1, 1));
    scene.assert_empty();
}

/// I18: a newcomer's count does not make an entry younger, nor its requeues fewer.
#[test]
fn a_newcomer_changes_the_count_and_nothing_else() {
    let scene = Scene::with(options(1, false), 100);
    scene.put_at((1, 0), 1, 1, 1);
    assert_eq!(scene.evict_before(5, 5), (0, 0), "queued again, once");
    let given_back = scene.cache.insert((1, 0), scene.value((1, 0), 1), 1, at(100));
    assert_eq!(outcome(given_back), Some(Reason::Occupied));
    assert_eq!(scene.evict_before(6, 6), (1, 1));
    scene.assert_empty();
}

/// I19: many threads mark the same entries: each delivery counts once.
#[test]
fn deliveries_on_many_threads_count_once_each() {
    const THREADS: i32 = 4;
    const MARKS: i32 = 10_000;
    let scene = scene();
    (0..3).for_each(|entry| scene.put_at((1, entry), 1, 50_000, 1));
    threads(4, |thread| {
        for round in 0..MARKS {
            if (round + i32::try_from(thread).unwrap()) % 2 == 0 {
                assert_eq!(scene.cache.mark_range_read((1, 0)..(1, 3)), 3);
            } else {
                assert!((0..3).all(|entry| scene.cache.mark_read((1, entry))));
            }
        }
    });
    assert!((0..3).all(|entry| scene.cache.expected_reads((1, entry)) == Some(50_000 - THREADS * MARKS)));
    scene.end();
}

/// I11, I18, I19: deliveries and newcomers against removal: a count is that of one of the additions, less what was delivered.
#[test]
fn deliveries_and_newcomers_against_removal() {
    const ROUNDS: usize = 10_000;
    let marked = AtomicU64::new(0);
    let run = || {
        let scene = Scene::with(options(5, false), 2 * ROUNDS);
        scene.tally.let_others_run();
        threads(4, |thread| {
            let mut random = Random::new(thread);
            for _ in 0..ROUNDS {
                let position = (1, random.entry(4));
                match thread {
                    0 | 1 => drop(scene.cache.insert(position, scene.value(position, 1), 1_000_000, at(1))),
                    2 => _ = scene.cache.remove_range(position..=position),
                    _ => _ = marked.fetch_add(u64::from(scene.cache.mark_read(position)), Ordering::Relaxed),
                }
                if let Some(count) = scene.cache.expected_reads(position) {
                    assert!((1_000_000 - 10_000..=1_000_000).contains(&count), "{count}");
                }
            }
        });
        scene.end();
    };
    gather("deliveries that meet an entry", run, || marked.load(Ordering::Relaxed) > 100);
}
