//! The keys in the eviction queue when their pages go: behind a page that stays, at a place where a page comes again, while a remover stands.
#![cfg(not(any(loom, shuttle)))]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests run on the standard library only, and their helpers unwrap as they do"
)]

mod common;

use std::thread;

use common::{Scene, options};
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
