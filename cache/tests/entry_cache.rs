//! Reads through the cache of a ledger: hits, misses, gaps, failures.
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

use std::sync::mpsc;

use common::{Value, at};
use entries::{CONFIRMED, Scene, cache_options, request};
use folio_cache::pending::{ReadDone, ReadStorage, StorageFailure};
use folio_cache::{EntryCache, EntryCacheOptions, ReadEntry, ReadError, ReadRequest};
use folio_sync::test_util::pause::{Stop, When};
use storage::{WEIGHT, failure};

/// 4.4: what is cached is read within the call, without storage, into the caller's room.
#[test]
fn a_hit_completes_at_once_and_asks_no_storage() {
    let scene = Scene::new();
    scene.append(0..10);
    scene.read("a", 2, 6);
    let entries = scene.told.one("a").unwrap();
    assert_eq!(
        entries.iter().map(|entry| entry.position).collect::<Vec<_>>(),
        (2..=6).map(|id| (1, id)).collect::<Vec<_>>()
    );
    assert_eq!(scene.tally.with_copies(2), 5, "the reader has a clone of each");
    let (room, capacity) = (entries.as_ptr(), entries.capacity());
    scene.cache.read(request(0, 3), entries, scene.told.listener("again"));
    let entries = scene.told.one("again").unwrap();
    assert_eq!((entries.as_ptr(), entries.capacity(), entries.len()), (room, capacity, 4));
    drop(entries);
    assert_eq!((scene.shelf.log(), scene.counts().hits, scene.counts().entries_hit), (vec![], 2, 9));
    scene.end();
}

/// 4.4: what is not cached is read from storage as a whole, and from the cache then.
#[test]
fn a_miss_is_one_read_of_storage_and_cached() {
    let scene = Scene::new();
    scene.read("a", 3, 7);
    scene.read("b", 3, 7);
    assert_eq!(scene.shelf.log(), [(1, 3, 5)]);
    scene.shelf.next().answer();
    let told = scene.told.take();
    assert!(told.iter().all(|(_, outcome)| outcome.as_ref().unwrap().len() == 5));
    drop(told);
    scene.read("c", 4, 6);
    assert_eq!(scene.told.entries("c"), [4, 5, 6]);
    let counts = scene.counts();
    assert_eq!((counts.hits, counts.misses, counts.coalesced), (1, 2, 1));
    assert_eq!((counts.storage_reads, counts.storage_entries, counts.entries_missed), (1, 5, 10));
    scene.end();
}

/// 4.4: of a read that finds a part, each longest gap is read once, all at the same time: before, after, between, around what is there.
#[test]
fn each_gap_is_read_once() {
    let cases: [(&[i64], &[storage::Wish]); 9] = [
        (&[0], &[(1, 1, 9)]),
        (&[0, 1, 2], &[(1, 3, 7)]),
        (&[9], &[(1, 0, 9)]),
        (&[7, 8, 9], &[(1, 0, 7)]),
        (&[5], &[(1, 0, 5), (1, 6, 4)]),
        (&[4, 5], &[(1, 0, 4), (1, 6, 4)]),
        (&[0, 9], &[(1, 1, 8)]),
        (&[1, 3, 5, 7], &[(1, 0, 1), (1, 2, 1), (1, 4, 1), (1, 6, 1), (1, 8, 2)]),
        (&[0, 1, 3, 4, 6, 7, 9], &[(1, 2, 1), (1, 5, 1), (1, 8, 1)]),
    ];
    for (cached, gaps) in cases {
        let scene = Scene::new();
        scene.append(cached.iter().copied());
        scene.read("a", 0, 9);
        assert_eq!(scene.shelf.log(), gaps, "all of them before any answer");
        assert!(scene.told.take().is_empty());
        assert_eq!(scene.shelf.answer_all(), gaps.len());
        assert_eq!(scene.told.entries("a"), (0..10).collect::<Vec<_>>(), "with {cached:?} cached");
        let counts = scene.counts();
        assert_eq!((counts.partial, counts.entries_hit), (1, cached.len() as u64));
        scene.end();
    }
}

/// I32, 4.4: when a gap cannot be read, all that was gathered is dropped, and the whole is read once; that fails the read, or does not.
#[test]
fn a_gap_that_fails_is_followed_by_one_read_of_the_whole() {
    for fails_again in [false, true] {
        let scene = Scene::new();
        scene.append([4, 5]);
        scene.read("a", 0, 9);
        scene.shelf.take(1).answer();
        assert_eq!(scene.tally.with_copies(2), 2 + 4, "what was found, and what was read and cached");
        scene.shelf.next().fail();
        assert_eq!(scene.shelf.log()[2..], [(1, 0, 10)], "two gaps and one whole");
        assert_eq!(scene.tally.with_copies(1), scene.tally.copies(), "only the cache has any");
        if fails_again {
            scene.shelf.next().fail();
            assert!(matches!(scene.told.error("a"), ReadError::Storage(StorageFailure::Failed(_))));
        } else {
            scene.shelf.next().answer();
            assert_eq!(scene.told.entries("a"), (0..10).collect::<Vec<_>>());
        }
        assert_eq!((scene.counts().fallbacks, scene.counts().failures), (1, u64::from(fails_again)));
        scene.end();
    }
}

/// I18, I19, bug 11, 4.4: after a gap that failed and a read of the whole, each entry expects what is still to be delivered, and can be evicted.
#[test]
fn what_is_read_again_after_a_failure_can_be_evicted() {
    let scene = Scene::new();
    scene.append([4, 5]);
    scene.read("a", 0, 9);
    scene.shelf.next().fail();
    scene.shelf.next().answer();
    assert_eq!(
        scene.cache.range_cache().expected_reads((1, 4)),
        Some(1),
        "what was dropped was not delivered"
    );
    scene.shelf.next().answer();
    let entries = scene.told.one("a").unwrap();
    assert_eq!(scene.cache.mark_read(&entries), 10);
    drop(entries);
    for entry in 0..10 {
        assert_eq!(scene.cache.range_cache().expected_reads((1, entry)), Some(0));
    }
    assert_eq!(scene.cache.range_cache().expected_weight(), 0);
    scene.timers.advance(std::time::Duration::from_secs(2));
    scene.executor.run_all();
    assert_eq!(scene.cached(), [], "one pass takes all");
    scene.end();
}

/// I19: only what is marked as delivered counts, each entry once, in whatever parts.
#[test]
fn deliveries_are_counted_by_entry() {
    let scene = Scene::with(cache_options(0), EntryCacheOptions::default(), 3);
    scene.read("a", 0, 9);
    scene.shelf.next().answer();
    let mut entries = scene.told.one("a").unwrap();
    assert_eq!(scene.cache.mark_read(&entries[..3]), 3);
    entries.retain(|entry| ![3, 6].contains(&entry.position.1));
    assert_eq!(scene.cache.mark_read(&entries), 8);
    let expected: Vec<_> =
        (0..10).map(|entry| scene.cache.range_cache().expected_reads((1, entry)).unwrap()).collect();
    assert_eq!(expected, [1, 1, 1, 3, 2, 2, 3, 2, 2, 2]);
    assert_eq!(scene.cache.mark_read(&[]), 0);
    drop(entries);
    scene.end();
}

/// 4.4: what goes beyond the last confirmed position is refused, whatever is cached, and storage is not asked.
#[test]
fn nothing_is_read_beyond_what_is_confirmed() {
    let scene = Scene::new();
    scene.append(0..10);
    let read = |first, count, last_confirmed| {
        let request = ReadRequest { ledger: 1, first, count, last_confirmed };
        scene.cache.read(request, Vec::new(), scene.told.listener("a"));
        scene.told.one("a")
    };
    for confirmed in [(1, 8), (1, -1), (0, i64::MAX), (-1, -1)] {
        let refused = read(5, 5, confirmed).err();
        assert!(
            matches!(refused, Some(ReadError::Unconfirmed { last: (1, 9), confirmed: c }) if c == confirmed)
        );
    }
    for confirmed in [(1, 9), (1, 10), (2, -1)] {
        assert_eq!(read(5, 5, confirmed).unwrap().len(), 5);
    }
    assert_eq!(read(50, 0, (0, 0)).unwrap().len(), 0, "none are none");
    assert!(read(5, u32::MAX, (1, 9)).is_err());
    let (tell, told) = mpsc::channel();
    scene.cache.read_one((1, 9), (1, 8), move |one| tell.send(one.is_err()).unwrap());
    assert!(told.recv().unwrap());
    assert_eq!(scene.shelf.log(), []);
    scene.end();
}

/// I35, bug 27: an answer that is too short makes the result shorter, up to the first entry that is not there; without any it is an error; too long is cut.
#[test]
fn short_and_empty_answers_are_shorter_results_or_errors() {
    for answered in 0..=12 {
        let scene = Scene::new();
        scene.read("a", 5, 14);
        scene.shelf.next().answer_with(answered);
        let outcome = scene.told.one("a");
        match (answered, outcome) {
            (0, Err(ReadError::Missing((1, 5)))) => {}
            (1.., Ok(entries)) => {
                let there: Vec<_> = (5..15).take(answered as usize).collect();
                assert_eq!(entries.iter().map(|entry| entry.position.1).collect::<Vec<_>>(), there);
                assert_eq!(scene.cached(), there, "nothing is cached beyond what was asked for");
            }
            (_, outcome) => panic!("{answered} of 10: {:?}", outcome.map(|entries| entries.len())),
        }
        scene.end();
    }
}

/// I35, I33, bug 12: a gap that comes back short ends the result there; what was found behind it is dropped, with its permits.
#[test]
fn a_short_gap_ends_the_result() {
    for (first_gap, second_gap, there) in [(4, 3, 9), (4, 0, 6), (2, 4, 2), (0, 4, 0)] {
        let scene = Scene::new();
        scene.append([4, 5]);
        scene.read("a", 0, 9);
        scene.shelf.take(1).answer_with(second_gap);
        scene.shelf.next().answer_with(first_gap);
        match scene.told.one("a") {
            Ok(entries) => {
                assert_eq!(
                    entries.iter().map(|entry| entry.position.1).collect::<Vec<_>>(),
                    (0..there).collect::<Vec<_>>()
                );
                let share = scene.manager.permits().in_use() / there.unsigned_abs();
                assert!(share > 0 && share <= 10 * scene.cache.estimate(), "what is missing takes no share");
            }
            Err(error) => assert!(matches!(error, ReadError::Missing((1, 0))) && there == 0),
        }
        assert_eq!(scene.tally.copies(), scene.cached().len());
        scene.end();
    }
}

/// I24, I35: storage that drops a read, or panics, has failed it; the cache goes on.
#[test]
fn storage_that_drops_and_panics_fails_the_read() {
    struct Bad;
    impl ReadStorage<Value> for Bad {
        fn read(&self, _: i64, first: i64, _: u32, done: ReadDone<Value>) {
            let _held = done;
            assert_ne!(first, 1, "as it is meant to");
        }
    }
    let scene = Scene::new();
    let cache = EntryCache::new(&scene.manager, Bad, |_| 1, EntryCacheOptions::default());
    for first in [0, 1] {
        cache.read(request(first, 4), Vec::new(), scene.told.listener("a"));
        assert!(matches!(scene.told.error("a"), ReadError::Storage(StorageFailure::Abandoned)));
    }
    assert_eq!((cache.snapshot().storage_failures, cache.snapshot().failures), (2, 2));
    scene.end();
}

/// 4.4: a read of what is closed is tried twice, and no more.
#[test]
fn a_read_of_what_was_closed_is_tried_once_more() {
    let scene = Scene::new();
    scene.read("a", 0, 4);
    scene.shelf.next().done.fail(StorageFailure::Closed);
    scene.read("joins", 0, 4);
    assert_eq!(scene.shelf.log(), [(1, 0, 5), (1, 0, 5)]);
    scene.shelf.next().answer();
    assert_eq!(scene.told.take().len(), 2);
    scene.read("b", 5, 9);
    scene.shelf.next().done.fail(StorageFailure::Closed);
    scene.shelf.next().done.fail(StorageFailure::Closed);
    assert!(matches!(scene.told.error("b"), ReadError::Storage(StorageFailure::Closed)));
    assert_eq!(scene.shelf.log().len(), 4, "exactly two attempts");
    scene.end();
}

/// 1.7: a single read finds what is cached, and caches nothing.
#[test]
fn single_reads_do_not_populate() {
    let scene = Scene::new();
    scene.append([3]);
    let (tell, told) = mpsc::channel();
    let one = |entry| {
        let tell = tell.clone();
        scene.cache.read_one((1, entry), CONFIRMED, move |one| {
            tell.send(one.map(|entry: ReadEntry<Value>| entry.position.1)).unwrap();
        });
    };
    one(3);
    assert_eq!(told.recv().unwrap().unwrap(), 3);
    one(4);
    one(4);
    assert_eq!(scene.shelf.log(), [(1, 4, 1), (1, 4, 1)], "they wait for nobody");
    scene.shelf.next().answer_with(3);
    assert_eq!(told.recv().unwrap().unwrap(), 4);
    scene.shelf.next().done.fail(StorageFailure::Closed);
    scene.shelf.next().answer_with(0);
    assert!(matches!(told.recv().unwrap(), Err(ReadError::Missing((1, 4)))));
    one(5);
    scene.shelf.next().fail();
    assert!(matches!(told.recv().unwrap(), Err(ReadError::Storage(_))));
    assert_eq!(scene.cached(), [3]);
    assert_eq!(scene.counts().storage_reads, 3);
    scene.end();
}

/// 1.7, 1.11: what nobody has to read any more when storage has read it is not cached.
#[test]
fn what_nobody_expects_is_not_cached() {
    let scene = Scene::new();
    let cache = EntryCache::new(
        &scene.manager,
        scene.shelf.clone(),
        |(_, entry): (i64, i64)| u32::from(entry % 3 == 0),
        EntryCacheOptions::default(),
    );
    cache.read(request(0, 9), Vec::new(), scene.told.listener("a"));
    scene.shelf.next().answer();
    assert_eq!(scene.told.entries("a").len(), 10);
    let cached: Vec<_> = cache.range_cache().range(..).into_iter().map(|(position, _)| position.1).collect();
    assert_eq!(cached, [0, 3, 6, 9]);
    drop(cache);
    scene.end();
}

/// 1.7: the function that tells who expects an entry, and a copy, may panic: nothing is cached, and everybody is told.
#[test]
fn panics_of_expectations_end_there() {
    let scene = Scene::new();
    let expected = |(_, entry): (i64, i64)| if entry == 7 { panic!("as it is meant to") } else { 1 };
    let cache = EntryCache::new(&scene.manager, scene.shelf.clone(), expected, EntryCacheOptions::default());
    cache.read(request(5, 9), Vec::new(), scene.told.listener("a"));
    scene.shelf.next().answer();
    assert_eq!(scene.told.entries("a"), [5, 6, 7, 8, 9]);
    cache.read(request(0, 3), Vec::new(), |_| panic!("as it is meant to"));
    scene.shelf.next().answer();
    cache.read(request(0, 3), Vec::new(), |_| panic!("as it is meant to"));
    drop(cache);
    scene.end();
}

/// I24, I34: a reader may read, invalidate and be answered within the call in which it is told.
#[test]
fn readers_of_the_cache_are_told_under_no_lock() {
    let scene = Scene::new();
    let (cache, shelf, told) = (scene.cache.clone(), scene.shelf.clone(), scene.told.clone());
    scene.cache.read(request(0, 4), Vec::new(), move |outcome| {
        assert_eq!(outcome.unwrap().len(), 5);
        cache.read(request(2, 9), Vec::new(), told.listener("partial"));
        shelf.next().answer();
        cache.invalidate_all(1);
        cache.read(request(2, 3), Vec::new(), told.listener("anew"));
        shelf.next().answer();
        cache.clear();
    });
    scene.shelf.next().answer();
    assert_eq!(scene.shelf.log(), [(1, 0, 5), (1, 5, 5), (1, 2, 2)]);
    let told: Vec<_> =
        scene.told.take().into_iter().map(|(who, outcome)| (who, outcome.unwrap().len())).collect();
    assert_eq!(told, [("partial", 8), ("anew", 2)]);
    scene.end();
}

/// I12: invalidations remove what they are meant to, and tell how much.
#[test]
fn invalidations_remove_their_entries() {
    let scene = Scene::new();
    scene.append(0..10);
    scene.cache.inserter().insert((2, 0), scene.tally.value((2, 0), WEIGHT), 1, at(1));
    let removed = scene.cache.invalidate_before((1, 4));
    assert_eq!((removed.entries, removed.weight), (4, 40));
    assert_eq!(scene.cached(), [4, 5, 6, 7, 8, 9]);
    assert_eq!(scene.cache.invalidate_all(1).entries, 6);
    assert_eq!(scene.cache.invalidate_all(1).entries, 0);
    assert_eq!(scene.cache.clear().entries, 1);
    scene.end();
}

/// 1.7, 1.9: what was being read when its ledger was invalidated is told and not cached; a read after that waits for a read of its own.
#[test]
fn what_was_read_before_an_invalidation_is_not_cached() {
    for clears in [false, true] {
        let scene = Scene::new();
        scene.read("old", 0, 4);
        if clears {
            scene.cache.clear();
        } else {
            scene.cache.invalidate_all(1);
        }
        scene.read("new", 0, 4);
        assert_eq!(scene.shelf.log().len(), 2);
        scene.shelf.next().answer();
        assert_eq!(scene.told.entries("old").len(), 5);
        assert_eq!(scene.cached(), []);
        scene.shelf.next().answer();
        assert_eq!(scene.told.entries("new").len(), 5);
        assert_eq!(scene.cached(), [0, 1, 2, 3, 4]);
        scene.end();
    }
}

/// 1.7, I12: an answer that stands as it looks for invalidations leaves nothing in the cache that was read before one.
#[test]
fn an_answer_stalled_as_it_fills_the_cache_leaves_nothing_behind() {
    let scene = Scene::new();
    scene.read("a", 0, 4);
    let (read, stop) = (scene.shelf.next(), Stop::new("entry_cache.current", When::Before));
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| stop.run(|| read.answer()));
        let stopped = stop.stopped();
        assert_eq!(scene.cached(), [0, 1, 2, 3, 4]);
        scene.cache.invalidate_all(1);
        scene.append([2]);
        assert!(scene.told.take().is_empty());
        drop(stopped);
        thread.join().unwrap();
    });
    assert_eq!(scene.told.entries("a").len(), 5);
    assert_eq!(scene.cached(), []);
    scene.end();
}

/// 1.7, I12: an invalidation that stands before it removes is followed by its removal, whatever came in meanwhile.
#[test]
fn an_invalidation_stalled_before_it_removes_leaves_nothing_behind() {
    for when in [When::Before, When::After] {
        let scene = Scene::new();
        scene.read("a", 0, 4);
        let stop = Stop::new("entry_cache.invalidate", when);
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| stop.run(|| scene.cache.invalidate_all(1)));
            let stopped = stop.stopped();
            scene.shelf.next().answer();
            assert_eq!(scene.told.entries("a").len(), 5);
            drop(stopped);
            thread.join().unwrap();
        });
        assert_eq!(scene.cached(), []);
        scene.end();
    }
}

/// 1.7: a read that comes as others have just filled the cache finds what they have read there, though it looked before; only the rest is read.
#[test]
fn a_read_that_looked_too_early_looks_again() {
    for (fails, gaps) in [(false, 0), (false, 2), (true, 2)] {
        let scene = Scene::new();
        scene.append([0]);
        let stop = Stop::new("entry_cache.gap", When::Before);
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| stop.run(|| scene.read("late", 0, 8)));
            let stopped = stop.stopped();
            let parts: &[(i64, i64)] = if gaps == 0 { &[(1, 8)] } else { &[(1, 2), (5, 6)] };
            for (first, last) in parts {
                scene.read("early", *first, *last);
                scene.shelf.next().answer();
                assert_eq!(scene.told.entries("early").len(), usize::try_from(last - first + 1).unwrap());
            }
            drop(stopped);
            thread.join().unwrap();
        });
        if gaps > 0 {
            assert_eq!(
                scene.shelf.log(),
                [(1, 1, 2), (1, 5, 2), (1, 3, 2), (1, 7, 2)],
                "nothing is read twice"
            );
            scene.shelf.take(1).answer_with(5);
            let left = scene.shelf.next();
            if fails {
                left.fail();
                assert_eq!(scene.shelf.log()[4..], [(1, 0, 9)], "a gap has failed");
            } else {
                left.answer_with(3);
            }
            scene.shelf.answer_all();
        }
        assert_eq!(scene.told.entries("late"), (0..=8).collect::<Vec<_>>());
        scene.end();
    }
}

/// 1.7: the weight of an entry is taken to be the average of what was added and read; 10 KiB as long as nothing was; 64 bytes more in any case.
#[test]
fn the_estimate_is_an_average() {
    let scene = Scene::with(cache_options(0), EntryCacheOptions::default(), 0);
    assert_eq!(scene.cache.estimate(), 10 * 1024 + 64);
    scene.append([0, 1]);
    assert_eq!(scene.cache.estimate(), WEIGHT + 64);
    scene.cache.inserter().insert((1, 2), scene.tally.value((1, 2), 70), 1, at(1));
    assert_eq!(scene.cache.estimate(), 30 + 64);
    scene.read("a", 10, 12);
    let read = scene.shelf.next();
    read.done.succeed(vec![
        scene.tally.value((1, 10), 150),
        scene.tally.value((1, 11), 210),
        scene.tally.value((1, 12), 90),
    ]);
    assert_eq!(scene.told.entries("a").len(), 3);
    assert_eq!(scene.cache.estimate(), 90 + 64, "also what was not cached");
    scene.end();
}

/// 4.4, I35: the extremes of positions.
#[test]
fn the_extremes_of_positions_are_read() {
    let scene = Scene::with(cache_options(0), EntryCacheOptions::default(), 1);
    let confirmed = (i64::MAX, i64::MAX);
    let read = |ledger, first, count| {
        let request = ReadRequest { ledger, first, count, last_confirmed: confirmed };
        scene.cache.read(request, Vec::new(), scene.told.listener("a"));
    };
    read(i64::MAX, i64::MAX - 2, u32::MAX);
    scene.shelf.next().answer_with(2);
    assert_eq!(scene.told.entries("a"), [i64::MAX - 2, i64::MAX - 1]);
    read(i64::MAX, i64::MAX - 2, 3);
    let last = scene.shelf.next();
    assert_eq!(last.wish, (i64::MAX, i64::MAX, 1));
    last.done.succeed(vec![scene.tally.value((i64::MAX, i64::MAX), 1)]);
    assert_eq!(scene.told.entries("a").len(), 3);
    read(i64::MAX, i64::MAX - 2, 4);
    assert_eq!(scene.told.entries("a").len(), 3, "there is none beyond the largest");
    read(i64::MIN, i64::MIN, u32::MAX);
    scene.shelf.next().answer_with(1);
    assert_eq!(scene.told.entries("a"), [i64::MIN]);
    scene.end();
}

/// Every failure says what it is, and has its cause.
#[test]
fn errors_tell_what_happened() {
    use std::error::Error;
    let storage = ReadError::Storage(failure());
    assert_eq!(storage.to_string(), "storage failed: out of order");
    let cause = storage.source().unwrap().source().unwrap();
    assert_eq!(cause.downcast_ref::<std::io::Error>().unwrap().to_string(), "out of order");
    let beyond = ReadError::Unconfirmed { last: (1, 9), confirmed: (1, 8) };
    assert_eq!(beyond.to_string(), "entry 1:9 is beyond the last confirmed one, 1:8");
}
