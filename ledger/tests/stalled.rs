//! Threads that stand still right before or right after a step of the ledger, while others go on.
#![cfg(not(any(loom, shuttle)))]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests run on the standard library only, and a failed unwrap fails the test"
)]

mod support;

use std::thread;

use folio_ledger::{AppendError, Cursor, Wait};
use folio_sync::test_util::pause::{Stop, When};

use support::{Answer, Calls, ID, Scene, appended, entries, failed, read};

/// What each of the two that go on does so often.
const ROUNDS: i64 = 10_000;

/// Entries that are confirmed before.
const BEFORE: i64 = 100;

/// Entries that the worker is at as it stops.
const THEN: i64 = 110;

/// Entries after those of whoever goes on.
const END: i64 = THEN + ROUNDS;

/// What of the ledger is locked while the thread stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Locked {
    Nothing,
    /// The list of cursors: none can be opened or dropped.
    Cursors,
}

/// A ledger with entries, a cursor at its tail that waits, and how often that was told.
struct Stage {
    scene: Scene,
    cursor: Cursor,
    told: Calls,
    /// Reads from the beginning.
    reader: Cursor,
}

impl Stage {
    fn new() -> Self {
        let scene = Scene::new();
        scene.fill(0..BEFORE);
        let (cursor, told) = scene.cursor(BEFORE);
        assert_eq!(cursor.wait(), Wait::Waiting);
        let (reader, _) = scene.cursor(0);
        Self { scene, cursor, told, reader }
    }

    /// With a batch that the worker is to run.
    fn with_a_batch() -> Self {
        let stage = Self::new();
        stage.scene.give(BEFORE..THEN);
        stage
    }

    /// Opens a cursor at the tail: it begins there, and waits.
    #[track_caller]
    fn ends_at(&self, end: i64) {
        let cursor = self.scene.ledger.cursor_at_tail(|| ());
        assert_eq!((cursor.position(), cursor.wait()), (end, Wait::Waiting));
        assert_eq!(self.scene.ledger.confirmed(), end);
    }
}

/// Runs an operation that stops at a step; while it stands one other thread appends and one reads ten thousand times, then `meanwhile` runs.
#[track_caller]
fn stalled<R: Send>(
    at: &'static str,
    when: When,
    locked: Locked,
    stage: &Stage,
    operation: impl FnOnce(&Stage) -> R + Send,
    meanwhile: impl FnOnce(&Stage),
) -> R {
    let stop = Stop::new(at, when);
    thread::scope(|scope| {
        let thread = scope.spawn(|| stop.run(|| operation(stage)));
        let stopped = stop.stopped();
        thread::scope(|scope| {
            scope.spawn(|| stage.scene.give(THEN..END));
            scope.spawn(|| read_and_wait(stage, locked));
        });
        meanwhile(stage);
        assert!(!thread.is_finished(), "it stands {when:?} {at}");
        drop(stopped);
        thread.join().unwrap()
    })
}

/// Reads what was confirmed before, again and again, and opens and drops cursors.
fn read_and_wait(stage: &Stage, locked: Locked) {
    let first = entries(0..4);
    for round in 0..ROUNDS {
        stage.reader.seek(0);
        assert_eq!(Answer::of(&stage.reader, 4).once().unwrap(), first);
        assert_eq!(stage.reader.wait(), Wait::More);
        stage.reader.delete([]);
        if locked == Locked::Nothing && round % 8 == 0 {
            let (cursor, _) = stage.scene.cursor(round % BEFORE);
            assert_eq!(cursor.position(), round % BEFORE);
            assert_eq!(cursor.wait(), Wait::More);
        }
    }
}

fn run_worker(stage: &Stage) {
    stage.scene.worker.run_all();
}

/// All that was appended is told once, in order, and can be read.
#[track_caller]
fn ends_well(stage: &Stage) {
    stage.scene.worker.run_all();
    assert_eq!(stage.scene.heard.take(), appended(BEFORE..END));
    assert_eq!((stage.scene.ledger.confirmed(), stage.told.count()), (END, 1));
    stage.reader.seek(0);
    assert_eq!(read(&stage.reader, usize::MAX).unwrap(), entries(0..END));
}

/// I26, I41, 1.12: before storage has a batch, and after, nobody sees it, and nobody waits for it but its publishers.
#[test]
fn a_worker_stalled_as_it_appends() {
    for (when, stored) in [(When::Before, BEFORE), (When::After, THEN)] {
        let stage = Stage::with_a_batch();
        stalled("ledger.append", when, Locked::Nothing, &stage, run_worker, |stage| {
            assert_eq!(stage.scene.storage.len(), usize::try_from(stored).unwrap(), "{when:?}");
            assert_eq!((stage.scene.heard.len(), stage.told.count()), (0, 0));
            stage.ends_at(BEFORE);
        });
        ends_well(&stage);
    }
}

/// I25, I26, I41: before the count is raised nobody sees the batch; after, whoever comes does, though nobody was told yet.
#[test]
fn a_worker_stalled_as_it_confirms() {
    for (when, confirmed) in [(When::Before, BEFORE), (When::After, THEN)] {
        let stage = Stage::with_a_batch();
        stalled("ledger.confirm", when, Locked::Nothing, &stage, run_worker, |stage| {
            assert!(stage.scene.ledger.cache().range_cache().contains((ID, THEN - 1)), "it is cached before");
            assert_eq!((stage.scene.heard.len(), stage.told.count()), (0, 0));
            stage.ends_at(confirmed);
            let (cursor, _) = stage.scene.cursor(BEFORE);
            assert_eq!(read(&cursor, usize::MAX).unwrap(), entries(BEFORE..confirmed));
            assert_eq!(stage.cursor.backlog(), 0, "those that are there are told later");
        });
        ends_well(&stage);
    }
}

/// I25, I38: before a cursor's count is raised it has nothing to read; after, it has, though its listener was not called yet.
#[test]
fn a_worker_stalled_as_it_confirms_to_a_cursor() {
    for (when, confirmed) in [(When::Before, BEFORE), (When::After, THEN)] {
        let stage = Stage::with_a_batch();
        stalled("tail.confirm", when, Locked::Cursors, &stage, run_worker, |stage| {
            assert_eq!((stage.scene.heard.len(), stage.told.count()), (0, 0));
            assert_eq!(stage.scene.ledger.confirmed(), THEN);
            assert_eq!(i64::try_from(stage.cursor.backlog()).unwrap(), confirmed - BEFORE);
            assert_eq!(read(&stage.cursor, usize::MAX).unwrap(), entries(BEFORE..confirmed));
        });
        ends_well(&stage);
    }
}

/// I38: a reader that has not left its wish finds what came meanwhile; one that has left it is told, once.
#[test]
fn a_reader_stalled_as_it_waits() {
    for (when, wait, told) in [(When::Before, Wait::More, 0), (When::After, Wait::Waiting, 1)] {
        let stage = Stage::new();
        let (cursor, calls) = stage.scene.cursor(BEFORE);
        stage.scene.give(BEFORE..THEN);
        let found = stalled(
            "tail.wait",
            when,
            Locked::Nothing,
            &stage,
            |_| cursor.wait(),
            |stage| {
                run_worker(stage);
                assert_eq!((calls.count(), stage.told.count()), (told, 1), "{when:?}");
            },
        );
        assert_eq!((found, calls.count()), (wait, told));
        assert_eq!(read(&cursor, usize::MAX).unwrap(), entries(BEFORE..END));
        ends_well(&stage);
    }
}

/// 1.12, I42: who appends while a ledger is being closed is told so; a cursor waits for the end until it is there, and is told of it once.
#[test]
fn a_thread_stalled_as_it_closes() {
    for (when, wait) in [(When::Before, Wait::Waiting), (When::After, Wait::Closed)] {
        let stage = Stage::new();
        stalled(
            "tail.close",
            when,
            Locked::Cursors,
            &stage,
            |stage| stage.scene.ledger.close(),
            |stage| {
                assert_eq!(stage.scene.heard.take(), failed(THEN..END, &AppendError::Closed));
                assert_eq!((stage.cursor.wait(), stage.told.count()), (wait, 0));
            },
        );
        stage.scene.worker.run_all();
        assert_eq!((stage.cursor.wait(), stage.told.count()), (Wait::Closed, 1));
        assert_eq!(stage.scene.ledger.confirmed(), BEFORE);
    }
}
