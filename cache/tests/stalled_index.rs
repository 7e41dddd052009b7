//! Threads that stand still right before or right after a step in the index or the eviction queue, while others go on.
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

use common::{Scene, at, evicted};
use folio_cache::{EvictError, Reason};
use folio_sync::test_util::pause::When;
use folio_sync::time::Instant;
use stall::{Inside, PLACE, insert_there, scene, stalled};

/// Inserts and removes an entry: its page, and the nodes above, come and go.
fn come_and_go(scene: &Scene) {
    drop(scene.cache.insert(PLACE, scene.value(PLACE, 1), 0, at(1)));
    scene.cache.remove_range(PLACE..=PLACE);
}

/// A cache whose pool of nodes is not empty.
fn with_nodes() -> Scene {
    let scene = scene();
    scene.put((77, 0), 1);
    scene.cache.remove_ledger(77);
    scene
}

/// Stops on both sides of a step of an entry's coming and going; its place can be used meanwhile, and ranges are whole.
fn both_sides(step: &'static str, scene: impl Fn() -> Scene, operation: fn(&Scene)) {
    for when in [When::Before, When::After] {
        stalled(step, when, Inside::No, scene(), operation, |scene| {
            assert!(matches!(insert_there(scene), None | Some(Reason::Busy | Reason::Occupied)));
            scene.put_all(3, 0..130);
            assert_eq!(scene.found((3, 0)..(4, 0)).len(), 130);
            assert_eq!(scene.cache.remove_ledger(3).entries, 130);
        });
    }
}

/// In the pool, linked: a node that is taken and not linked is nobody else's.
#[test]
fn a_maker_of_a_node_stalled_as_it_takes_one() {
    both_sides("index.take_node", with_nodes, come_and_go);
}

/// In the pool, linked: others link theirs before, or use this one.
#[test]
fn a_maker_of_a_node_stalled_as_it_links_it() {
    both_sides("index.link_node", with_nodes, come_and_go);
}

/// I15: a node that is entered stays, though nothing is below it.
#[test]
fn a_maker_of_a_page_stalled_as_it_enters_a_node() {
    let with_a_neighbour = || {
        let scene = scene();
        scene.put((1, 100), 1);
        scene
    };
    both_sides("index.enter", with_a_neighbour, come_and_go);
}

/// Linked, sealed: a node that has lost its last child is given up by others, or has new ones.
#[test]
fn a_remover_stalled_as_it_leaves_a_node() {
    both_sides("index.leave", with_nodes, come_and_go);
}

/// Linked, sealed: nobody waits for who seals a node.
#[test]
fn a_remover_stalled_as_it_seals_a_node() {
    both_sides("index.seal", with_nodes, come_and_go);
}

/// Sealed, in the pool: whoever meets a sealed node takes it out.
#[test]
fn a_remover_stalled_as_it_takes_a_node_out() {
    both_sides("index.unlink_node", with_nodes, come_and_go);
}

/// Sealed, in the pool: one that was taken out and not put back is missed by nobody.
#[test]
fn a_remover_stalled_as_it_puts_a_node_back() {
    both_sides("index.put_node", with_nodes, come_and_go);
}

/// I14: a page is linked by one of those who made it.
#[test]
fn a_maker_of_a_page_stalled_as_it_links_it() {
    both_sides("index.link_page", scene, come_and_go);
}

/// I14, I15: whoever meets a sealed page takes it out.
#[test]
fn a_remover_stalled_as_it_takes_a_page_out() {
    both_sides("index.unlink_page", scene, come_and_go);
}

/// I9: a reader that has counted itself in keeps one page from being freed, and nothing else; nobody waits for it.
#[test]
fn a_reader_stalled_as_it_counts_itself_in_or_out() {
    let with_an_entry = || {
        let scene = scene();
        scene.put(PLACE, 1);
        scene
    };
    let read = |scene: &Scene| drop(scene.cache.get(PLACE));
    for step in ["index.count_in", "index.count_out"] {
        both_sides(step, with_an_entry, read);
        for when in [When::Before, When::After] {
            stalled(step, when, Inside::No, with_an_entry(), read, |scene| {
                assert_eq!(scene.cache.clear().entries, 1);
                assert_eq!((scene.cache.pages(), scene.cache.retired_weight()), (0, 0));
                assert_eq!(
                    scene.tally.copies(),
                    usize::from(step == "index.count_out"),
                    "but for its own copy"
                );
            });
        }
    }
}

/// I9: a reader in a node that is put back and used again misses; a reader of a node holds nothing.
#[test]
fn a_reader_stalled_at_a_node() {
    let read = |scene: &Scene| drop(scene.cache.get(PLACE));
    let with_an_entry = || {
        let scene = scene();
        scene.put(PLACE, 1);
        scene
    };
    for when in [When::Before, When::After] {
        stalled("index.read_node", when, Inside::No, with_an_entry(), read, |scene| {
            assert_eq!(scene.cache.clear().entries, 1);
            assert_eq!(scene.cache.pages(), 0);
            // The node has another place now.
            scene.put_all(-8, 0..10);
        });
    }
}

/// I9: the page is freed by who gives up the last reference, and nobody waits for it.
#[test]
fn a_remover_stalled_as_it_gives_up_a_page() {
    both_sides("index.release", scene, come_and_go);
}

/// I15, I23: linked, left: whoever comes into a page that is not announced leaves its key too, so that it can be evicted.
#[test]
fn a_maker_stalled_before_it_has_announced_its_page() {
    for (step, when) in [
        ("eviction.leave_key", When::Before),
        ("eviction.push", When::Before),
        ("eviction.push", When::After),
        ("eviction.leave_key", When::After),
        ("eviction.announce", When::Before),
        ("eviction.announce", When::After),
    ] {
        stalled(step, when, Inside::No, scene(), come_and_go, |scene| {
            scene.put((1, 7), 1);
            assert_eq!(evicted(scene.queue.evict_before(at(2), at(2)).unwrap()), (1, 1), "{when:?} {step}");
            assert_eq!((scene.cache.len(), scene.cache.pages()), (0, 1), "its maker holds it");
            let on_its_way = usize::from((step, when) == ("eviction.push", When::Before));
            assert_eq!(scene.queue.keys(), 1 + on_its_way, "one of its keys is adopted, others are dropped");
            scene.put((1, 7), 1);
            assert_eq!(evicted(scene.queue.evict_weight(1, at(2)).unwrap()), (1, 1));
        });
    }
}

/// I15: left, adopted, judged: while the evictor stands others insert, read and remove, and are told at once that they cannot evict.
#[test]
fn an_evictor_stalled_in_its_pass() {
    for step in ["eviction.take", "eviction.judge"] {
        for when in [When::Before, When::After] {
            let scene = scene();
            scene.put_all(4, 0..10);
            let pass = |scene: &Scene| {
                let evicted = scene.queue.evict_before(at(2), at(3)).unwrap();
                assert_eq!(evicted.entries, 0, "what it was to evict has gone meanwhile");
            };
            stalled(step, when, Inside::No, scene, pass, |scene| {
                let pass = scene.queue.evict_weight(1, at(2));
                assert_eq!(pass, Err(EvictError::Busy));
                assert_eq!(scene.queue.evict_before(Instant::ORIGIN, at(2)), Err(EvictError::Busy));
                assert_eq!(scene.cache.remove_ledger(4).entries, 10);
            });
        }
    }
}

/// I11, I12: the evictor has decided on an entry, and another one has removed it and put its own there: that one may go early.
#[test]
fn an_evictor_stalled_before_it_removes() {
    let scene = scene();
    scene.put(PLACE, 1);
    // So that the page stays.
    scene.put_at((1, 9), 1, 0, 100);
    let pass = |scene: &Scene| assert_eq!(scene.evict_before(2, 3), (1, 1));
    stalled("page.remove", When::Before, Inside::No, scene, pass, |scene| {
        assert_eq!(scene.cache.remove_range(PLACE..=PLACE).entries, 1);
        scene.put_at(PLACE, 1, 0, 100);
    });
}
