//! Threads that stand still right before or right after a step in a page, while others go on.
#![cfg(not(any(loom, shuttle)))]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests run on the standard library only, and their helpers unwrap as they do"
)]

mod common;
#[path = "common/stall.rs"]
mod stall;

use std::thread;

use common::{Scene, at, outcome, removed};
use folio_cache::Reason;
use folio_sync::test_util::pause::{Stop, When};
use stall::{Inside, PLACE, insert_there, others_go_on, scene, stalled};

/// A cache with an entry at the place.
fn with_an_entry() -> Scene {
    let scene = scene();
    scene.put(PLACE, 1);
    scene
}

fn insert(scene: &Scene) {
    drop(scene.cache.insert(PLACE, scene.value(PLACE, 1), 0, at(1)));
}

fn remove(scene: &Scene) {
    scene.cache.remove_range(PLACE..=PLACE);
}

fn read(scene: &Scene) {
    drop(scene.cache.get(PLACE));
}

/// A reader that removes what it is shown.
fn remove_inside(scene: &Scene) {
    scene.cache.for_each_in_range(PLACE..=PLACE, |_, _| remove(scene));
}

/// The place is claimed and shows nothing.
#[track_caller]
fn is_busy(scene: &Scene) {
    assert_eq!(insert_there(scene), Some(Reason::Busy));
    assert!(!scene.cache.contains(PLACE) && scene.cache.get(PLACE).is_none());
    assert_eq!(removed(scene.cache.remove_range(PLACE..=PLACE)), (0, 0));
}

/// The place is free.
#[track_caller]
fn is_free(scene: &Scene) {
    assert!(!scene.cache.contains(PLACE));
    assert_eq!(insert_there(scene), None);
}

/// The place shows its entry.
#[track_caller]
fn is_there(scene: &Scene) {
    assert_eq!(insert_there(scene), Some(Reason::Occupied));
    assert!(scene.cache.contains(PLACE));
}

/// I10, I14: free, claimed: an inserter that has not claimed is in nobody's way; one that has is told of as busy.
#[test]
fn an_inserter_stalled_at_its_claim() {
    stalled("page.claim", When::Before, Inside::No, scene(), insert, is_free);
    stalled("page.claim", When::After, Inside::No, scene(), insert, is_busy);
    // Others can win the place meanwhile.
    stalled("page.claim", When::Before, Inside::No, scene(), insert, |scene| scene.put(PLACE, 1));
}

/// I10, I11: claimed, present: what is not published is not there; what is can be read and removed, whatever its inserter does.
#[test]
fn an_inserter_stalled_at_its_publication() {
    stalled("page.publish", When::Before, Inside::No, scene(), insert, is_busy);
    stalled("page.publish", When::After, Inside::No, scene(), insert, |scene| {
        is_there(scene);
        assert_eq!(removed(scene.cache.clear()), (1, 1));
        is_free(scene);
    });
}

/// I11, I12: present, won: another remover wins before; after, the entry is gone and its place not free yet.
#[test]
fn a_remover_stalled_at_its_removal() {
    stalled("page.remove", When::Before, Inside::No, with_an_entry(), remove, |scene| {
        is_there(scene);
        assert_eq!(removed(scene.cache.remove_ledger(1)), (1, 1));
        is_free(scene);
    });
    stalled("page.remove", When::After, Inside::No, with_an_entry(), remove, is_busy);
}

/// I11: won: a remover that looks whether somebody is inside.
#[test]
fn a_remover_stalled_at_its_look() {
    stalled("page.look", When::Before, Inside::No, with_an_entry(), remove, is_busy);
    stalled("page.look", When::After, Inside::No, with_an_entry(), remove, is_busy);
    // Somebody comes in after the look, and reads what is there: not what is moved out.
    stalled("page.look", When::After, Inside::No, with_an_entry(), remove, |scene| {
        scene.put((1, 9), 1);
        assert_eq!(scene.found((1, 0)..(1, 10)), [(1, 9)]);
    });
}

/// I11, I14: won, free: the place is free when its bit is cleared, whatever its remover does then.
#[test]
fn a_remover_stalled_at_its_freeing() {
    stalled("page.free", When::Before, Inside::No, with_an_entry(), remove, is_busy);
    stalled("page.free", When::After, Inside::No, with_an_entry(), remove, is_free);
}

/// I14, I15: a claim that is not given back yet keeps the page, and nothing else.
#[test]
fn a_remover_stalled_as_it_gives_its_claim_back() {
    let keeps = |scene: &Scene| {
        is_free(scene);
        scene.cache.clear();
        assert_eq!((scene.cache.len(), scene.cache.pages()), (0, 1));
    };
    stalled("page.give_back", When::Before, Inside::No, with_an_entry(), remove, keeps);
    // Given back, and perhaps sealed by another one meanwhile.
    stalled("page.give_back", When::After, Inside::No, with_an_entry(), remove, is_free);
}

/// I14, I15: whoever brings the count to zero seals, unless others have reserved meanwhile; they do not wait for it.
#[test]
fn a_remover_stalled_at_its_sealing() {
    stalled("page.seal", When::Before, Inside::No, with_an_entry(), remove, |scene| {
        is_free(scene);
        scene.put(PLACE, 1);
        assert_eq!(removed(scene.cache.clear()), (1, 1));
        assert_eq!(scene.cache.pages(), 0, "another one has sealed and unlinked it");
    });
    stalled("page.seal", When::After, Inside::No, with_an_entry(), remove, |scene| {
        is_free(scene);
        assert_eq!(scene.cache.pages(), 0, "others took the sealed page out");
    });
}

/// I11: won, retired: what a reader is inside of waits, counted, and its place with it.
#[test]
fn a_remover_stalled_as_it_retires() {
    for when in [When::Before, When::After] {
        stalled("page.retire", when, Inside::Yes, with_an_entry(), remove_inside, |scene| {
            is_busy(scene);
            let retired = scene.cache.retired_weight();
            assert!((1..=64).contains(&retired), "{retired} is more than a page");
        });
    }
}

/// I11: retired, won: what is retired is moved out by whoever leaves last, or by who has taken it.
#[test]
fn the_last_one_out_stalled_as_it_takes_what_is_retired() {
    stalled("page.take", When::Before, Inside::No, with_an_entry(), remove_inside, |scene| {
        is_free(scene);
        assert_eq!(scene.cache.retired_weight(), 0, "others have moved it out");
    });
    stalled("page.take", When::After, Inside::No, with_an_entry(), remove_inside, |scene| {
        is_busy(scene);
        assert_eq!(scene.cache.retired_weight(), 1);
    });
}

/// I11: won from retired, back: who finds somebody inside again leaves it to that one.
#[test]
fn the_last_one_out_finds_another_one_inside() {
    let (scene, stop) = (with_an_entry(), Stop::new("page.take", When::After));
    scene.put((1, 9), 1);
    thread::scope(|scope| {
        let last = scope.spawn(|| stop.run(|| remove_inside(&scene)));
        let stopped = stop.stopped();
        let mut stopped = Some((stopped, last));
        scene.cache.for_each_in_range((1, 9)..=(1, 9), |_, _| {
            let (stopped, last) = stopped.take().unwrap();
            drop(stopped);
            last.join().unwrap();
            is_busy(&scene);
            assert_eq!(scene.cache.retired_weight(), 1, "it was put back");
        });
    });
    is_free(&scene);
    scene.end();
}

/// I11: back, retired: what is not put back yet is nobody else's to move out; what is, is moved out by whoever leaves last.
#[test]
fn the_last_one_out_stalled_as_it_puts_back() {
    for when in [When::Before, When::After] {
        let (scene, take) = (with_an_entry(), Stop::new("page.take", When::After));
        let put_back = take.then("page.put_back", when);
        scene.put((1, 9), 1);
        thread::scope(|scope| {
            let last = scope.spawn(|| take.run(|| remove_inside(&scene)));
            take.wait_until_stopped();
            let mut stopped = None;
            scene.cache.for_each_in_range((1, 9)..=(1, 9), |_, _| {
                take.release();
                stopped = Some(put_back.stopped());
                is_busy(&scene);
                assert_eq!(scene.cache.retired_weight(), 1);
            });
            others_go_on(&scene, Inside::No);
            match when {
                When::Before => {
                    is_busy(&scene);
                    assert_eq!(scene.cache.retired_weight(), 1, "who stands has it");
                }
                When::After => {
                    is_free(&scene);
                    assert_eq!(scene.cache.retired_weight(), 0, "the other one has moved it out as it left");
                }
            }
            assert!(!last.is_finished(), "it stands {when:?} page.put_back");
            drop(stopped);
            last.join().unwrap();
        });
        is_free(&scene);
        scene.end();
    }
}

/// I11, I13: a reader that has not come in is in nobody's way; inside, it keeps what it may be looking at, and no more than its page.
#[test]
fn a_reader_stalled_as_it_comes_in() {
    stalled("page.enter", When::Before, Inside::No, with_an_entry(), read, |scene| {
        remove(scene);
        is_free(scene);
    });
    stalled("page.enter", When::After, Inside::Yes, with_an_entry(), read, keeps_its_page);
}

/// Removes what a reader is inside of: it stays where it is, and counts.
#[track_caller]
fn keeps_its_page(scene: &Scene) {
    assert_eq!(removed(scene.cache.remove_range(PLACE..=PLACE)), (1, 1));
    is_busy(scene);
    let retired = scene.cache.retired_weight();
    assert!((1..=64).contains(&retired), "{retired} is more than a page");
    assert_eq!(scene.queue.charged_weight(), retired + scene.cache.weight());
}

/// I11, I13: the same around its one load.
#[test]
fn a_reader_stalled_at_its_load() {
    stalled("page.read", When::Before, Inside::Yes, with_an_entry(), read, keeps_its_page);
    stalled("page.read", When::After, Inside::Yes, with_an_entry(), read, keeps_its_page);
}

/// I11: a reader that leaves is inside until its count is gone.
#[test]
fn a_reader_stalled_as_it_leaves() {
    stalled("page.leave", When::Before, Inside::Yes, with_an_entry(), read, keeps_its_page);
    stalled("page.leave", When::After, Inside::No, with_an_entry(), read, |scene| {
        remove(scene);
        is_free(scene);
    });
}

/// I14, I15: a page that somebody has reserved room in stays, though it is empty.
#[test]
fn an_inserter_stalled_at_its_reservation() {
    stalled("page.reserve", When::Before, Inside::No, with_an_entry(), insert, |scene| {
        scene.cache.clear();
        assert_eq!(scene.cache.pages(), 0);
        is_free(scene);
    });
    stalled("page.reserve", When::After, Inside::No, with_an_entry(), insert, |scene| {
        scene.cache.clear();
        assert_eq!((scene.cache.len(), scene.cache.pages()), (0, 1));
        is_free(scene);
    });
}

/// I20: weight is charged before the entry is there, and counts towards the budget.
#[test]
fn an_inserter_stalled_at_its_charge() {
    stalled("inserter.charge", When::Before, Inside::No, scene(), insert, is_free);
    stalled("inserter.charge", When::After, Inside::No, scene(), insert, |scene| {
        assert!(scene.queue.charged_weight() >= 1);
        is_free(scene);
    });
}

/// I18: a newcomer at an occupied place is inside the page as it leaves its count; the entry can go meanwhile, and takes the count along.
#[test]
fn a_newcomer_stalled_as_it_leaves_its_count() {
    for (when, count) in [(When::Before, 0), (When::After, 7)] {
        let add = |scene: &Scene| {
            let given_back = scene.cache.insert(PLACE, scene.value(PLACE, 1), 7, at(1));
            assert_eq!(outcome(given_back), Some(Reason::Occupied));
        };
        stalled("inserter.adopt", when, Inside::Yes, with_an_entry(), add, |scene| {
            assert_eq!(scene.cache.expected_reads(PLACE), Some(count));
            keeps_its_page(scene);
        });
    }
}
