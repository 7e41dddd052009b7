//! Reads and the bytes that they have in flight.
#![cfg(not(any(loom, shuttle)))]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests run on the standard library only, and their helpers unwrap as they do"
)]

mod common;
#[path = "common/entries.rs"]
mod entries;
#[path = "common/storage.rs"]
mod storage;

use std::time::Duration;

use entries::{Scene, cache_options, request};
use folio_cache::{CacheOptions, EntryCacheOptions, PermitError, PermitsFor, ReadError};
use folio_sync::test_util::ManualExecutor;
use folio_sync::{Executor, arc_dyn};
use storage::WEIGHT;

/// What an entry counts in flight, once the average is known.
const EACH: u64 = WEIGHT + 64;

/// Room in flight for so many entries, once the average is known from entries far away.
fn room_for(entries: u64) -> Scene {
    room_with(cache_options(EACH * entries), EntryCacheOptions::default())
}

fn room_with(options: CacheOptions, entry_options: EntryCacheOptions) -> Scene {
    let scene = Scene::with(options, entry_options, 1);
    scene.append(1_000..1_001);
    assert_eq!(scene.cache.estimate(), EACH);
    scene
}

/// 4.4, I33: the permit of a read goes back with the last of its entries, clones included, once.
#[test]
fn a_permit_goes_back_with_the_last_entry() {
    let scene = room_for(100);
    scene.append(0..4);
    scene.read("cached", 0, 3);
    scene.read("stored", 10, 13);
    assert_eq!(scene.manager.permits().in_use(), 8 * EACH);
    scene.shelf.next().answer();
    scene.read("partial", 2, 5);
    scene.shelf.next().answer();
    let told = scene.told.take();
    assert_eq!(told.len(), 3);
    assert_eq!(scene.manager.permits().in_use(), 12 * EACH);
    for (left, (_, outcome)) in [8, 4, 0].into_iter().zip(told) {
        let mut entries = outcome.unwrap();
        let kept = entries[1].clone();
        let value = entries.pop().unwrap().into_value();
        drop(entries);
        assert_eq!(scene.manager.permits().in_use(), (left + 4) * EACH, "a clone keeps it");
        drop(kept);
        assert_eq!(scene.manager.permits().in_use(), left * EACH, "a value by itself does not");
        drop(value);
    }
    scene.read("one", 0, 0);
    let one = scene.told.one("one").unwrap();
    assert_eq!(scene.manager.permits().in_use(), EACH);
    drop(one);
    scene.end();
}

/// I33: a read that fails, or finds nothing, gives its permit back before it is told; one that is short the share of what there is not.
#[test]
fn failures_and_short_results_give_their_permits_back() {
    let scene = room_for(100);
    let permits = scene.manager.permits().clone();
    let told = scene.told.clone();
    scene.cache.read(request(0, 9), Vec::new(), move |outcome| {
        assert_eq!(permits.in_use(), 0);
        told.listener("failed")(outcome);
    });
    assert_eq!(scene.manager.permits().in_use(), 10 * EACH);
    scene.shelf.next().fail();
    assert!(matches!(scene.told.error("failed"), ReadError::Storage(_)));
    scene.read("empty", 0, 9);
    scene.shelf.next().answer_with(0);
    assert!(matches!(scene.told.error("empty"), ReadError::Missing((1, 0))));
    assert_eq!(scene.manager.permits().in_use(), 0);
    scene.read("short", 0, 9);
    scene.shelf.next().answer_with(3);
    let entries = scene.told.one("short").unwrap();
    assert_eq!((entries.len(), scene.manager.permits().in_use()), (3, 3 * EACH));
    drop(entries);
    scene.cache.clear();
    scene.append([4, 5]);
    scene.read("partial", 0, 9);
    scene.shelf.take(1).answer();
    scene.shelf.next().fail();
    assert_eq!(scene.manager.permits().in_use(), 10 * EACH, "it goes on with the same permit");
    scene.shelf.next().fail();
    assert!(scene.told.one("partial").is_err());
    scene.end();
}

/// 4.6, I24, I33: without room a read waits its turn, and goes on where room is given back.
#[test]
fn a_read_waits_for_room() {
    let scene = room_for(10);
    scene.append(0..10);
    scene.read("first", 0, 5);
    let first = scene.told.one("first").unwrap();
    scene.read("cached", 0, 4);
    scene.read("small", 0, 0);
    scene.read("stored", 20, 23);
    assert_eq!(scene.manager.permits().queued(), 3);
    assert_eq!((scene.shelf.log(), scene.told.take().len()), (vec![], 0), "nothing is touched before");
    drop(first);
    assert_eq!(scene.shelf.log(), [(1, 20, 4)], "all of them fit");
    let told = scene.told.take();
    assert_eq!(told.iter().map(|(who, _)| *who).collect::<Vec<_>>(), ["cached", "small"]);
    drop(told);
    scene.shelf.next().answer();
    assert_eq!(scene.told.entries("stored").len(), 4);
    scene.end();
}

/// bug 25, I33: a read of more than the whole budget is read when it is alone, with all of it: from storage as much as that has room for.
#[test]
fn a_read_above_the_budget_has_all_of_it() {
    let scene = room_for(4);
    scene.append(0..20);
    scene.read("large", 0, 19);
    assert_eq!(scene.manager.permits().available(), 0);
    scene.read("waits", 0, 0);
    assert_eq!(scene.told.entries("large").len(), 20);
    assert_eq!(scene.told.entries("waits"), [0]);
    scene.read("short", 100, 119);
    assert_eq!(scene.shelf.log().last(), Some(&(1, 100, 4)));
    scene.shelf.next().answer();
    assert_eq!(scene.told.entries("short").len(), 4);
    scene.append(200..203);
    scene.read("partial", 200, 219);
    assert_eq!(scene.shelf.log().last(), Some(&(1, 203, 1)));
    scene.shelf.next().answer();
    assert_eq!(scene.told.entries("partial"), (200..204).collect::<Vec<_>>());
    scene.append(300..309);
    scene.read("all that has room", 300, 319);
    assert_eq!(scene.told.entries("all that has room"), (300..304).collect::<Vec<_>>());
    scene.end();
}

/// bug 24, I24, I33: a read that waits in vain, or cannot wait, is told so once; storage is not asked.
#[test]
fn reads_that_cannot_have_a_permit_fail() {
    let mut options = cache_options(EACH);
    options.reads.max_queued = 1;
    options.reads.timeout = Some(Duration::from_secs(60));
    let scene = room_with(options, EntryCacheOptions::default());
    scene.append([0]);
    scene.read("first", 0, 0);
    let first = scene.told.one("first").unwrap();
    scene.read("late", 0, 0);
    scene.read("no room to wait", 0, 0);
    assert!(matches!(scene.told.error("no room to wait"), ReadError::TooManyReads(PermitError::QueueFull)));
    scene.timers.advance(Duration::from_secs(61));
    assert!(matches!(scene.told.error("late"), ReadError::TooManyReads(PermitError::TimedOut)));
    scene.timers.refuse_next(1);
    scene.read("no timer", 0, 0);
    assert!(matches!(scene.told.error("no timer"), ReadError::TooManyReads(PermitError::NoTimer)));
    scene.read("closed", 0, 0);
    scene.manager.close();
    assert!(matches!(scene.told.error("closed"), ReadError::TooManyReads(PermitError::Closed)));
    scene.read("after", 0, 0);
    drop(first);
    assert!(scene.told.one("after").is_err(), "the end of the manager is that of its permits");
    assert_eq!((scene.shelf.log(), scene.counts().failures), (vec![], 5));
    scene.end();
}

/// bug 26: permits hold also when nothing is cached, and not at all when they are switched off.
#[test]
fn permits_do_not_depend_on_the_cache() {
    let mut options = cache_options(4 * (10 * 1024 + 64));
    options.budget = 0;
    let scene = Scene::with(options, EntryCacheOptions::default(), 1);
    scene.read("a", 0, 3);
    scene.read("b", 0, 3);
    assert_eq!((scene.shelf.log().len(), scene.manager.permits().queued()), (1, 1));
    scene.shelf.next().answer();
    assert_eq!(scene.cached(), [], "the budget is 0");
    assert_eq!(scene.told.entries("a").len(), 4);
    assert_eq!(scene.shelf.log().len(), 2, "the next one has read for itself");
    scene.shelf.next().answer();
    assert_eq!(scene.told.entries("b").len(), 4);
    scene.end();
    let mut entry_options = EntryCacheOptions::default();
    entry_options.permits = PermitsFor::NoRead;
    let scene = room_with(cache_options(1), entry_options);
    scene.read("a", 0, 9);
    scene.read("b", 20, 29);
    assert_eq!((scene.shelf.log().len(), scene.manager.permits().in_use()), (2, 0));
    assert_eq!(scene.shelf.answer_all(), 2);
    assert_eq!(scene.told.take().len(), 2);
    scene.end();
}

/// I33: where only storage takes permits, a read that finds all takes none and never waits; one that misses waits, and looks again when it has one.
#[test]
fn what_is_cached_may_need_no_permit() {
    let mut entry_options = EntryCacheOptions::default();
    entry_options.permits = PermitsFor::StorageReads;
    let scene = room_with(cache_options(EACH * 10), entry_options);
    scene.append(0..20);
    scene.read("cached", 0, 19);
    assert_eq!((scene.told.entries("cached").len(), scene.manager.permits().in_use()), (20, 0));
    scene.read("stored", 30, 36);
    assert_eq!((scene.shelf.log().len(), scene.manager.permits().in_use()), (1, 7 * EACH));
    scene.read("partial", 18, 21);
    assert_eq!((scene.shelf.log().len(), scene.manager.permits().queued()), (1, 1));
    scene.read("also cached", 0, 9);
    assert_eq!(scene.told.entries("also cached").len(), 10);
    scene.append(20..22);
    scene.shelf.next().answer();
    assert_eq!(scene.told.entries("stored").len(), 7);
    assert_eq!(scene.told.entries("partial").len(), 4, "it found all when it looked again");
    assert_eq!(scene.shelf.log().len(), 1);
    scene.end();
}

/// I24, I34: with an executor, a read that has waited goes on there, and not where room was given back; one that is refused there is told.
#[test]
fn a_read_that_has_waited_goes_on_on_its_executor() {
    let executor = ManualExecutor::new();
    let mut entry_options = EntryCacheOptions::default();
    entry_options.executor = Some(arc_dyn!(executor.clone() => dyn Executor));
    let scene = room_with(cache_options(EACH), entry_options);
    scene.append([0]);
    scene.read("first", 0, 0);
    let first = scene.told.one("first").unwrap();
    scene.read("second", 0, 0);
    scene.read("refused", 0, 0);
    scene.read("dropped", 0, 0);
    drop(first);
    assert!(scene.told.take().is_empty() && executor.queued() == 1);
    assert_eq!(scene.manager.permits().in_use(), EACH);
    executor.run_all();
    executor.refuse_next(1);
    assert_eq!(scene.told.entries("second"), [0]);
    let told = scene.told.take();
    assert!(matches!(told[..], [("refused", Err(ReadError::Abandoned))]));
    assert_eq!(executor.queued(), 1, "the next one is granted all the same");
    drop(executor.take_next());
    assert!(matches!(scene.told.error("dropped"), ReadError::Abandoned));
    scene.end();
}

/// bug 24, I34: many reads that wait for each other do not nest: each gives its room back within the call in which it is told.
#[test]
fn a_chain_of_reads_that_wait_does_not_nest() {
    let scene = room_for(1);
    scene.append([0]);
    scene.read("first", 0, 0);
    let first = scene.told.one("first").unwrap();
    for _ in 0..10_000 {
        scene.cache.read(request(0, 0), Vec::new(), |outcome| drop(outcome.unwrap()));
    }
    drop(first);
    assert_eq!(scene.counts().hits, 10_001);
    scene.end();
}

/// I33: a reader that panics as it is told has its entries dropped, and their permit given back.
#[test]
fn a_reader_that_panics_keeps_no_permit() {
    let scene = room_for(100);
    scene.append(0..4);
    scene.cache.read(request(0, 3), Vec::new(), |_entries| panic!("as it is meant to"));
    scene.cache.read(request(10, 13), Vec::new(), |_entries| panic!("as it is meant to"));
    scene.shelf.next().answer();
    scene.end();
}
