//! Copies, visitors, weights and iterators of users that call back or panic inside the cache.
#![cfg(not(any(loom, shuttle)))]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests run on the standard library only, and their helpers unwrap as they do"
)]

mod common;
#[path = "common/loaded.rs"]
mod loaded;

use common::{EVER, Scene, at, options, outcome, removed};
use folio_cache::{Inserter, Position};
use loaded::{Fault, Loaded, Stage, panics};

/// I11: a copy that panics does so to its reader; the page is as before, and what was copied is dropped.
#[test]
fn a_copy_that_panics_leaves_the_page_as_it_was() {
    let stage = Stage::new();
    for entry in 0..100 {
        stage.put((1, entry), (entry == 70).then_some(Fault::Copy));
    }
    for _ in 0..3 {
        assert_eq!(panics(|| stage.cache.get((1, 70))), "a copy that panics");
        assert_eq!(panics(|| stage.cache.range(..)), "a copy that panics");
    }
    assert_eq!((stage.alive(), stage.cache.len()), (100, 100));
    assert_eq!(removed(stage.cache.remove_range((1, 70)..=(1, 70))), (1, 10));
    assert_eq!((stage.alive(), stage.cache.retired_weight()), (99, 0), "nobody is inside");
    stage.end();
}

/// 4.2, I11: a visitor that panics leaves the page as it was, also when it has cleared it before.
#[test]
fn a_visitor_that_panics_leaves_the_page_as_it_was() {
    for clears in [false, true] {
        let stage = Stage::new();
        (0..100).for_each(|entry| stage.put((1, entry), None));
        let mut visited = 0;
        let message = panics(|| {
            stage.cache.for_each_in_range(.., |_, _| {
                visited += 1;
                if visited == 66 {
                    if clears {
                        assert_eq!(stage.cache.clear().entries, 100);
                    }
                    panic!("a visitor that panics");
                }
            });
        });
        assert_eq!((message.as_str(), visited), ("a visitor that panics", 66));
        assert_eq!(stage.cache.len(), if clears { 0 } else { 100 });
        assert_eq!(stage.cache.retired_weight(), 0, "nobody is inside");
        stage.end();
    }
}

/// I11: a visitor that panics, in a page whose values it has removed, whose destructors panic as it unwinds.
#[test]
fn destructors_that_panic_while_a_visitor_unwinds() {
    let stage = Stage::new();
    (0..10).for_each(|entry| stage.put((1, entry), Some(Fault::Drop)));
    let message = panics(|| {
        stage.cache.for_each_in_range(.., |_, _| {
            assert_eq!(stage.cache.clear().entries, 10);
            panic!("a visitor that panics");
        });
    });
    assert_eq!((message.as_str(), stage.alive()), ("a visitor that panics", 0));
    stage.end();
}

/// 4.2, I11, I17: the value of a visit lives on though it is removed meanwhile, by whatever.
#[test]
fn a_value_outlives_its_removal_inside_a_visit() {
    let removals: [fn(&Scene) -> u64; 5] = [
        |scene| scene.cache.clear().entries,
        |scene| scene.cache.remove_ledger(1).entries,
        |scene| scene.cache.remove_range((1, 0)..(1, 64)).entries,
        |scene| scene.queue.evict_weight(u64::MAX, at(2)).unwrap().entries,
        |scene| scene.queue.evict_before(EVER, at(2)).unwrap().entries,
    ];
    for remove in removals {
        let scene = Scene::with(options(0, false), 200);
        scene.put_all(1, 0..64);
        let mut visited = Vec::new();
        scene.cache.for_each_in_range(.., |position, value| {
            if visited.is_empty() {
                assert_eq!(remove(&scene), 64);
                assert_eq!((scene.cache.len(), scene.cache.retired_weight()), (0, 64));
            }
            assert_eq!((value.position, value.copies()), (position, 1), "it is alive");
            visited.push(position);
        });
        assert!(visited.is_sorted() && visited[0] == (1, 0));
        scene.assert_empty();
    }
}

/// I17: a visitor may remove and insert in the page it is in; it meets each place once at most, in order.
#[test]
fn a_visitor_may_change_the_page_it_is_in() {
    let scene = Scene::new();
    scene.put_all(1, (0..128).step_by(2));
    let mut visited = Vec::new();
    scene.cache.for_each_in_range((1, 0)..(1, 128), |position, value| {
        let (ledger, entry) = position;
        assert_eq!((value.position, value.copies()), (position, 1));
        // What is behind, here, next, and in between.
        drop(scene.cache.insert((ledger, entry - 1), scene.value((ledger, entry - 1), 1), 0, at(1)));
        scene.cache.remove_range(position..=position);
        drop(scene.cache.insert(position, scene.value(position, 1), 0, at(1)));
        drop(scene.cache.insert((ledger, entry + 1), scene.value((ledger, entry + 1), 1), 0, at(1)));
        let mut inner = Vec::new();
        scene
            .cache
            .for_each_in_range((ledger, entry - 5)..(ledger, entry), |position, _| inner.push(position));
        assert!(inner.is_sorted());
        visited.push(position);
    });
    assert!(visited.windows(2).all(|pair| pair[0] < pair[1]), "{visited:?}");
    let even = visited.iter().filter(|(_, entry)| entry % 2 == 0).count();
    assert_eq!(even, 64, "what was there all the while is met");
    assert_eq!(scene.cache.retired_weight(), 0);
    scene.end();
}

/// 4.2, I10, bug 6: a weight that panics does so before anything has changed: the value is dropped, and its place is free.
#[test]
fn a_weight_that_panics_changes_nothing() {
    let stage = Stage::new();
    let mut inserter = stage.cache.inserter();
    for round in 0..3_u32 {
        let loaded = stage.loaded(Some(Fault::Weight), None);
        assert_eq!(panics(|| inserter.insert((1, 0), loaded, 0, at(1))), "a weight that panics");
        assert_eq!((stage.cache.len(), stage.alive()), (round as usize, round.into()));
        assert_eq!(
            outcome(inserter.insert((1, i64::from(round) + 1), stage.loaded(None, None), 0, at(1))),
            None
        );
    }
    assert_eq!(outcome(inserter.insert((1, 0), stage.loaded(None, None), 0, at(1))), None);
    drop(inserter);
    assert_eq!((stage.cache.len(), stage.cache.weight()), (4, 40));
    stage.end();
}

/// Runs a batch that panics somewhere; afterwards each value is in the cache or gone, and inserter and cache work on.
fn batch_panics(message: &str, batch: impl Fn(&Stage, i64) -> (Position, Loaded, u32)) {
    for panics_at in [0, 1, 63, 64, 65, 100] {
        let stage = Stage::new();
        stage.put((1, 2), None);
        let mut inserter: Inserter<Loaded> = stage.cache.inserter();
        let items = (0..130).map(|entry| {
            if entry == panics_at { batch(&stage, entry) } else { ((1, entry), stage.loaded(None, None), 0) }
        });
        assert_eq!(panics(|| inserter.insert_batch(items, at(1))), message);
        let cached = stage.cache.len();
        assert_eq!(stage.alive(), i64::try_from(cached).unwrap(), "each is cached or gone");
        assert!(!stage.cache.contains((1, panics_at)) || panics_at == 2);
        let refused =
            inserter.insert_batch((0..130).map(|entry| ((1, entry), stage.loaded(None, None), 0)), at(1));
        assert_eq!(refused.len(), cached);
        drop((refused, inserter));
        assert_eq!((stage.cache.len(), stage.cache.weight()), (130, 1_300));
        stage.end();
    }
}

/// I10, I11: an iterator of a batch that panics takes nothing along that was not dropped.
#[test]
fn an_iterator_of_a_batch_that_panics_loses_nothing() {
    batch_panics("an iterator that panics", |_, _| panic!("an iterator that panics"));
}

/// I10, I11, bug 6: nor does a weight of a batch that panics.
#[test]
fn a_weight_of_a_batch_that_panics_loses_nothing() {
    batch_panics("a weight that panics", |stage, entry| {
        ((1, entry), stage.loaded(Some(Fault::Weight), None), 0)
    });
}

/// I11: an iterator of a batch may call the cache that it is inserted into.
#[test]
fn an_iterator_of_a_batch_may_call_the_cache() {
    let scene = Scene::new();
    let batch = (0..130).map(|entry| {
        scene.cache.clear();
        drop(scene.cache.insert((1, 129 - entry), scene.value((1, 129 - entry), 1), 0, at(1)));
        drop(scene.cache.get((1, entry)));
        ((1, entry), scene.value((1, entry), 1), 0)
    });
    drop(scene.cache.inserter().insert_batch(batch, at(1)));
    scene.end();
}
