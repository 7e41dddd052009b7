//! The eviction queue's keys when their pages go, or are walked in two parts; what batches and inserters are charged.
#![cfg(not(any(loom, shuttle)))]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests run on the standard library only, and their helpers unwrap as they do"
)]

mod common;

use std::thread;

use common::{Scene, at, options};
use folio_cache::Reason;
use folio_sync::test_util::pause::{Stop, When};

/// I23: keys that the evictor has taken over go with their pages, too, also behind a page that has not expired.
#[test]
fn keys_taken_over_are_reclaimed_behind_a_page_that_stays() {
    let scene = Scene::with(options(0, false), 8_192);
    scene.put_at((1, 0), 1, 0, 1_000_000);
    scene.put_all(2, 0..10 * 64);
    assert_eq!(scene.evict_before(1, 1), (0, 0));
    assert_eq!((scene.queue.keys(), scene.queue.pages()), (11, 11));
    scene.cache.remove_ledger(2);
    assert_eq!(scene.queue.keys(), 11);
    assert_eq!(scene.evict_before(0, 0), (0, 0));
    assert_eq!((scene.queue.keys(), scene.queue.pages()), (1, 1));
    scene.end();
}

/// I23: the key of a page that is gone is not that of the page that stands there now.
#[test]
fn a_key_is_not_the_name_of_a_later_page_at_its_place() {
    let scene = Scene::with(options(0, false), 8_192);
    scene.put_at((1, 0), 1, 0, 10);
    assert_eq!(scene.evict_before(1, 1), (0, 0));
    scene.put_at((2, 0), 1, 0, 20);
    assert_eq!(scene.cache.remove_ledger(1).entries, 1);
    scene.put_at((1, 0), 1, 0, 30);
    assert_eq!(scene.queue.keys(), 3);
    assert_eq!(scene.evict_before(20, 20), (0, 0));
    assert_eq!((scene.queue.keys(), scene.queue.pages()), (2, 2), "its own key names it");
    assert_eq!(scene.evict_weight(1, 40), (1, 1));
    assert_eq!(scene.found(..), [(1, 0)], "it came after the other one");
    scene.end();
}

/// I14, I15: an evictor that meets a sealed page takes it out, though the remover stands that has sealed it.
#[test]
fn an_evictor_takes_out_the_sealed_page_that_it_meets() {
    let scene = Scene::with(options(0, false), 8_192);
    for known in [false, true] {
        scene.put_at((1, 0), 1, 0, 10);
        if known {
            assert_eq!(scene.evict_before(1, 1), (0, 0));
        }
        let (pause, shown) = (Stop::new("index.unlink_page", When::Before), &scene);
        thread::scope(|scope| {
            let remover = scope.spawn(|| pause.run(|| shown.cache.clear().entries));
            let stopped = pause.stopped();
            assert_eq!((shown.queue.pages(), shown.queue.keys()), (1, 1));
            assert_eq!(shown.evict_before(1, 1), (0, 0));
            assert_eq!((shown.queue.pages(), shown.queue.keys()), (0, 0));
            drop(stopped);
            assert_eq!(remover.join().unwrap(), 1);
        });
        scene.assert_empty();
    }
}

/// I20: a page that a pass by size begins in its middle is walked once a round, in two parts.
#[test]
fn a_page_begun_in_its_middle_is_walked_once_a_round() {
    let scene = Scene::with(options(1, false), 8_192);
    scene.put((1, 0), 1);
    for entry in [1, 2] {
        scene.put_at((1, entry), 1, 1, 1);
    }
    assert_eq!(scene.evict_weight(1, 2), (1, 1), "the first entry, and the next pass begins after it");
    scene.put((1, 0), 1);
    scene.put_at((2, 0), 1, 1, 1);
    // All that is expected is kept once, the entry before the middle goes, and then the other page's comes first.
    assert_eq!(scene.evict_weight(2, 3), (2, 2));
    assert_eq!(scene.found(..), [(1, 1), (1, 2)]);
    scene.end();
}

/// I20: a batch is charged by what it has in a page, and what does not fit into the budget is given back.
#[test]
fn a_batch_is_charged_page_by_page() {
    let mut options = options(0, false);
    options.budget = 100;
    let scene = Scene::with(options, 8_192);
    let mut inserter = scene.cache.inserter();
    let batch = (62..67).map(|entry| ((1, entry), scene.value((1, entry), 30), 0));
    let refused = inserter.insert_batch(batch, at(1));
    let refused: Vec<_> = refused.into_iter().map(|refused| (refused.position, refused.reason)).collect();
    assert_eq!(refused, [((1, 66), Reason::OverBudget)]);
    assert_eq!((scene.queue.charged_weight(), scene.cache.weight(), scene.cache.len()), (120, 120, 4));
    drop(inserter);
    scene.end();
}

/// I20: what an inserter may take ahead is its share among those that are there, and more again when the others have gone.
#[test]
fn credit_is_shared_among_the_inserters_that_are_there() {
    let mut options = options(0, false);
    options.budget = 64 << 20;
    let scene = Scene::with(options, 8_192);
    let credit = |entry| {
        let (mut inserter, before) = (scene.cache.inserter(), scene.queue.charged_weight());
        inserter.insert((1, entry), scene.value((1, entry), 1), 0, at(1)).unwrap();
        scene.queue.charged_weight() - before
    };
    assert_eq!(credit(0), 16 << 10, "a 4096th of the budget");
    let others: Vec<_> = (1..4096).map(|_| scene.cache.inserter()).collect();
    assert_eq!(credit(1), 1 << 10, "a 4096th of its 16th");
    drop(others);
    assert_eq!(credit(2), 16 << 10);
    scene.end();
}
