//! Cursors: where they begin, how they wait, what they delete, and what is trimmed behind them.
#![cfg(not(any(loom, shuttle)))]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests run on the standard library only, and a failed unwrap fails the test"
)]

mod support;

use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use folio_ledger::{
    CacheManager, CacheOptions, Cursor, Handover, Ledger, LedgerOptions, MemoryStorage, Position, Wait,
};
use folio_sync::test_util::{ManualClock, ManualExecutor, ManualTimers};
use folio_sync::{Arc, Mutex};

use support::{Asked, Calls, Heard, ID, Mood, Scene, at, entries, read, read_all};

fn positions(range: Range<i64>) -> Vec<Position> {
    range.map(at).collect()
}

#[test]
fn a_cursor_begins_where_it_is_told() {
    let scene = Scene::new();
    scene.fill(0..10);
    assert_eq!(read_all(&scene.cursor(0).0), entries(0..10));
    assert_eq!(read_all(&scene.cursor(7).0), entries(7..10));
    assert_eq!(read_all(&scene.cursor(-3).0), entries(0..10), "nothing comes before the first entry");
    let ahead = scene.cursor(12).0;
    let tail = scene.ledger.cursor_at_tail(|| ());
    assert_eq!((ahead.backlog(), tail.backlog()), (0, 0));
    assert_eq!((read_all(&ahead), read_all(&tail)), (Vec::new(), Vec::new()));
    scene.fill(10..15);
    assert_eq!(read_all(&tail), entries(10..15));
    assert_eq!(read_all(&ahead), entries(12..15));
    assert_eq!(ahead.mark_deleted(), 12);
}

#[test]
fn what_the_slowest_cursor_has_not_read_is_unread() {
    let scene = Scene::new();
    scene.fill(0..10);
    assert_eq!(scene.ledger.unread(), 0, "nobody reads");
    let (slow, fast) = (scene.cursor(2).0, scene.cursor(0).0);
    assert_eq!(scene.ledger.unread(), 10);
    read_all(&fast);
    assert_eq!(scene.ledger.unread(), 8, "the other one begins with the third");
    scene.fill(10..15);
    assert_eq!(read(&slow, 4), Ok(entries(2..6)));
    assert_eq!(scene.ledger.unread(), 9);
    drop(slow);
    assert_eq!(scene.ledger.unread(), 5);
}

#[test]
fn a_cursor_at_the_farthest_place_is_one() {
    let scene = Scene::new();
    let cursor = scene.cursor(i64::MAX).0;
    scene.fill(0..10);
    assert_eq!(read(&cursor, 10), Ok(Vec::new()));
    assert_eq!((cursor.backlog(), cursor.delete(positions(0..10))), (0, 0));
}

/// I38: a cursor that waits is told once of what comes, by the batch that has it.
#[test]
fn a_cursor_that_waits_is_told_once() {
    let scene = Scene::new();
    let (cursor, calls) = scene.cursor(0);
    scene.fill(0..1);
    assert_eq!((cursor.wait(), calls.count()), (Wait::More, 0), "who does not wait is not told");
    assert_eq!(read(&cursor, 10), Ok(entries(0..1)));
    assert_eq!((cursor.wait(), cursor.wait()), (Wait::Waiting, Wait::Waiting));
    scene.give(1..20);
    assert_eq!(calls.count(), 0);
    scene.worker.run_all();
    assert_eq!(calls.count(), 1);
    scene.fill(20..30);
    assert_eq!(calls.count(), 1, "it has not waited again");
    assert_eq!(read_all(&cursor), entries(1..30));
    scene.fill(30..31);
    assert_eq!(calls.count(), 2);
}

#[test]
fn each_cursor_waits_for_itself() {
    let scene = Scene::new();
    let (slow, slow_calls) = scene.cursor(0);
    let (fast, fast_calls) = scene.cursor(0);
    assert_eq!((slow.wait(), fast.wait()), (Wait::Waiting, Wait::Waiting));
    scene.fill(0..10);
    assert_eq!(read_all(&fast), entries(0..10));
    scene.fill(10..20);
    assert_eq!((slow_calls.count(), fast_calls.count()), (1, 2));
    assert_eq!((slow.backlog(), fast.backlog()), (20, 10));
}

/// 1.12: closing takes no more appends, and those that were taken are appended; cursors read to the end and are told once that there is one.
#[test]
fn a_closed_ledger_is_read_to_its_end_which_is_told_once() {
    let scene = Scene::new();
    let (waits, told) = scene.cursor(0);
    let (idles, untold) = scene.cursor(0);
    assert_eq!(waits.wait(), Wait::Waiting);
    scene.give(0..5);
    scene.ledger.close();
    scene.give(5..6);
    assert_eq!(waits.wait(), Wait::Waiting, "what was taken comes first");
    scene.worker.run_all();
    assert_eq!(told.count(), 1);
    assert_eq!(read_all(&waits), entries(0..5));
    assert_eq!(waits.wait(), Wait::Closed);
    assert_eq!((read_all(&idles), idles.wait(), untold.count()), (entries(0..5), Wait::Closed, 0));
    scene.ledger.close();
    scene.worker.run_all();
    assert_eq!((told.count(), waits.wait()), (1, Wait::Closed));
}

#[test]
fn a_cursor_that_has_read_all_is_told_of_the_end() {
    let scene = Scene::new();
    let (cursor, calls) = scene.cursor(0);
    scene.fill(0..5);
    assert_eq!(read_all(&cursor), entries(0..5));
    scene.ledger.close();
    assert_eq!((calls.count(), cursor.wait()), (1, Wait::Closed));
}

/// 1.12: a cursor that is opened while the last appends are under way reads them before it sees the end.
#[test]
fn a_cursor_that_is_opened_during_the_close_reads_what_was_taken() {
    let scene = Scene::new();
    scene.give(0..5);
    scene.ledger.close();
    let (cursor, calls) = scene.cursor(0);
    assert_eq!(cursor.wait(), Wait::Waiting, "five entries are on their way");
    scene.worker.run_all();
    assert_eq!(calls.count(), 1);
    assert_eq!((read_all(&cursor), cursor.wait()), (entries(0..5), Wait::Closed));
    let (late, _) = scene.cursor(0);
    assert_eq!((read_all(&late), late.wait()), (entries(0..5), Wait::Closed));
}

#[test]
fn a_ledger_that_is_dropped_has_ended() {
    let scene = Scene::new();
    let (cursor, calls) = scene.cursor(0);
    scene.fill(0..5);
    assert_eq!(read_all(&cursor), entries(0..5));
    scene.give(5..7);
    let Scene { ledger, heard, .. } = scene;
    drop(ledger);
    assert_eq!((heard.len(), calls.count(), cursor.wait()), (2, 1, Wait::Closed));
    cursor.seek(0);
    assert_eq!(read_all(&cursor), entries(0..5), "what was appended can still be read");
}

/// I53: entries are deleted in any order, once each, and the mark follows the first that is left.
#[test]
fn entries_are_deleted_in_any_order_and_the_mark_follows() {
    let scene = Scene::new();
    scene.fill(0..300);
    let (cursor, _) = scene.cursor(0);
    for n in (1..300).rev() {
        assert_eq!(cursor.delete([at(n)]), 1);
        assert_eq!(cursor.delete([at(n)]), 0, "once");
        assert_eq!(cursor.mark_deleted(), 0);
        assert!(cursor.is_deleted(n) && !cursor.is_deleted(0));
    }
    assert_eq!(cursor.delete(positions(0..300)), 1);
    assert_eq!(cursor.mark_deleted(), 300);
    cursor.mark_delete(10);
    assert_eq!(cursor.mark_deleted(), 300, "never back");
    scene.fill(300..310);
    cursor.delete([at(305)]);
    cursor.mark_delete(305);
    assert_eq!(cursor.mark_deleted(), 306, "what was deleted beyond counts");
}

#[test]
fn only_entries_of_the_ledger_that_are_there_can_be_deleted() {
    let scene = Scene::new();
    scene.fill(0..10);
    let (cursor, _) = scene.cursor(0);
    let none = [Position { ledger: ID + 1, entry: 3 }, at(10), at(-1), at(i64::MAX), at(i64::MIN)];
    assert_eq!(cursor.delete(none), 0);
    assert!(!cursor.is_deleted(3));
    cursor.mark_delete(i64::MAX);
    assert_eq!(cursor.mark_deleted(), 10, "what comes later is not deleted");
    scene.fill(10..12);
    assert_eq!(read_all(&cursor), entries(10..12));
}

/// I55: a cursor reads nothing before its mark.
#[test]
fn a_cursor_is_never_behind_its_mark() {
    let scene = Scene::new();
    scene.fill(0..100);
    let (cursor, _) = scene.cursor(0);
    assert_eq!(read(&cursor, 10), Ok(entries(0..10)));
    cursor.mark_delete(20);
    assert_eq!((cursor.position(), cursor.backlog()), (20, 80));
    assert_eq!(read(&cursor, 10), Ok(entries(20..30)));
    cursor.seek(0);
    assert_eq!(read(&cursor, 10), Ok(entries(20..30)), "not before the mark");
    cursor.mark_delete(100);
    assert_eq!((cursor.wait(), cursor.backlog()), (Wait::Waiting, 0));
}

/// How many entries the cache has, and storage.
fn kept(scene: &Scene) -> (usize, usize) {
    (scene.ledger.cache().range_cache().len(), scene.storage.len())
}

/// I49: cache and storage lose a prefix of the entries, and none that some cursor has not deleted.
#[test]
fn only_what_the_slowest_cursor_has_deleted_is_trimmed() {
    let scene = Scene::new();
    let (fast, _) = scene.cursor(0);
    let (slow, _) = scene.cursor(0);
    scene.fill(0..20_000);
    fast.mark_delete(20_000);
    assert_eq!(kept(&scene), (20_000, 20_000));
    slow.delete(positions(1..10_000));
    assert_eq!(kept(&scene), (20_000, 20_000), "the first entry is left");
    slow.delete([at(0)]);
    assert_eq!(kept(&scene), (10_000, 20_000 - 8_192), "storage frees whole segments");
    assert_eq!(read_all(&slow), entries(10_000..20_000));
    assert_eq!(scene.storage.asked().last(), Some(&Asked::Trim(10_000)));
}

#[test]
fn a_cursor_that_is_dropped_keeps_nothing() {
    let scene = Scene::new();
    let (fast, _) = scene.cursor(0);
    let (slow, calls) = scene.cursor(0);
    scene.fill(0..10_000);
    fast.mark_delete(9_000);
    assert_eq!(kept(&scene), (10_000, 10_000));
    assert_eq!(slow.wait(), Wait::More);
    drop(slow);
    assert_eq!(kept(&scene), (1_000, 10_000 - 8_192));
    drop(fast);
    scene.fill(10_000..10_001);
    assert_eq!(kept(&scene), (1_001, 10_001 - 8_192), "without a cursor nothing is trimmed");
    scene.clock.advance(Duration::from_secs(3));
    scene.fill(10_001..10_002);
    assert_eq!(kept(&scene), (1_001, 10_002 - 8_192), "and nothing cached, after a while");
    assert_eq!(calls.count(), 0);
}

/// I51: a cursor that begins before what was trimmed begins with the first entry that is still there.
#[test]
fn the_earliest_entry_is_the_first_that_is_still_there() {
    let scene = Scene::new();
    scene.fill(0..10_000);
    let (first, _) = scene.cursor(0);
    first.mark_delete(9_500);
    scene.uncache(0..10_000);
    let (second, _) = scene.cursor(0);
    let begins = second.position();
    assert!((8_192..=9_500).contains(&begins), "{begins}");
    assert_eq!(read_all(&second), entries(begins..10_000));
}

/// I51: cursors that open while others trim can read from where they begin.
#[test]
fn cursors_that_open_during_trims_can_read_from_where_they_begin() {
    const ENTRIES: i64 = 40_000;
    let scene = Scene::with(|options| options.handover = Handover::Batched(1_000));
    scene.fill(0..ENTRIES);
    let deleter = scene.cursor(0).0;
    std::thread::scope(|scope| {
        let deleting = scope.spawn(|| {
            for end in (0..=ENTRIES).step_by(500) {
                deleter.mark_delete(end);
                std::thread::yield_now();
            }
        });
        let mut opened = 0;
        while !deleting.is_finished() || opened < 10 {
            let (cursor, _) = scene.cursor(0);
            let begins = cursor.position();
            if begins < ENTRIES {
                assert_eq!(read(&cursor, 3), Ok(entries(begins..(begins + 3).min(ENTRIES))));
            }
            opened += 1;
        }
        deleting.join().unwrap();
    });
}

/// What is cached goes by age and by weight though nobody deletes, and comes from storage then.
#[test]
fn cached_entries_go_by_age_and_by_weight_though_nobody_deletes() {
    let (clock, passes) = (ManualClock::new(), ManualExecutor::new());
    let timers = ManualTimers::new(&clock);
    let mut options = CacheOptions::default();
    options.budget = 1_000_000;
    let cache = CacheManager::new(options, passes.clone(), timers.clone(), clock).unwrap();
    let (worker, storage) = (ManualExecutor::new(), MemoryStorage::new());
    let options = LedgerOptions { id: ID, ..LedgerOptions::default() };
    let ledger = Ledger::open(options, storage, &cache, worker.clone(), Heard::default()).unwrap();
    let cursor = ledger.cursor(0, || ());
    let cached = || ledger.cache().range_cache().len();
    let fill = |range: Range<i64>| {
        range.for_each(|n| ledger.append(Bytes::from(vec![0; 100]), n));
        worker.run_all();
        passes.run_all();
    };
    fill(0..40_000);
    let weight = ledger.cache().range_cache().weight();
    assert!((500_000..1_250_000).contains(&weight), "{weight} bytes are cached");
    // Each entry is kept for some rounds more, since the cursor still has to read it.
    for _ in 0..10 {
        timers.advance(Duration::from_secs(2));
        passes.run_all();
    }
    assert_eq!(cached(), 0, "all are too old");
    fill(40_000..41_000);
    assert_eq!(cached(), 1_000);
    let all = read_all(&cursor);
    assert!(all.iter().map(|entry| entry.position).eq((0..41_000).map(at)));
    drop((cursor, ledger, cache));
    while let Some(pass) = passes.take_next() {
        drop(pass);
    }
}

/// Deletes of many threads count each entry once, and end with all deleted.
#[test]
fn deletes_of_many_threads_count_each_entry_once() {
    const ENTRIES: i64 = 20_000;
    let scene = Scene::new();
    scene.fill(0..ENTRIES);
    let (cursor, _) = scene.cursor(0);
    let deleted: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|thread: i64| {
                let cursor = &cursor;
                scope.spawn(move || {
                    let mut mark = 0;
                    let mine = (0..ENTRIES).map(|n| (n * 7_919 + thread * 4_111) % ENTRIES);
                    let deleted = mine.filter(|n| {
                        let fresh = cursor.delete([at(*n)]) == 1;
                        let now = cursor.mark_deleted();
                        assert!(now >= mark, "the mark went back");
                        mark = now;
                        assert!(cursor.is_deleted(*n));
                        fresh
                    });
                    deleted.count()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!((deleted, cursor.mark_deleted()), (20_000, ENTRIES));
    assert_eq!(cursor.backlog(), 0);
}

/// I34: a listener may open, read, wait by and drop cursors, its own among them.
#[test]
fn a_listener_may_open_and_drop_cursors() {
    let scene = Scene::new();
    let scene = Arc::new(scene);
    let kept: Arc<Mutex<Vec<Cursor>>> = Arc::default();
    let (calls, opened) = (Calls::default(), Calls::default());
    let (inside, keeps, notes, opens) =
        (Arc::clone(&scene), Arc::clone(&kept), calls.clone(), opened.clone());
    let cursor = scene.ledger.cursor(0, move || {
        notes.note();
        let own = std::mem::take(&mut *keeps.lock());
        let confirmed = usize::try_from(inside.ledger.confirmed()).unwrap();
        let notes = opens.clone();
        let fresh = inside.ledger.cursor(0, move || notes.note());
        assert_eq!(read(&fresh, 100).unwrap().len(), confirmed);
        assert_eq!(fresh.wait(), Wait::Waiting);
        drop(inside.cursor(0));
        drop(own);
        keeps.lock().push(fresh);
    });
    assert_eq!(cursor.wait(), Wait::Waiting);
    kept.lock().push(cursor);
    scene.fill(0..3);
    assert_eq!((calls.count(), opened.count(), kept.lock().len()), (1, 0, 1));
    scene.fill(3..4);
    assert_eq!((calls.count(), opened.count()), (1, 1), "the first one is gone, its successor is told");
    kept.lock().clear();
    scene.fill(4..5);
    assert_eq!(opened.count(), 1);
}

#[test]
fn storage_that_panics_as_it_trims_harms_nobody() {
    let scene = Scene::new();
    let (cursor, _) = scene.cursor(0);
    scene.fill(0..10_000);
    scene.storage.set(Mood::Panics);
    cursor.mark_delete(8_500);
    scene.storage.set(Mood::Good);
    assert_eq!((cursor.mark_deleted(), kept(&scene)), (8_500, (1_500, 10_000)));
    assert_eq!(read_all(&cursor), entries(8_500..10_000));
    cursor.mark_delete(10_000);
    assert_eq!(kept(&scene), (0, 10_000 - 8_192));
}
