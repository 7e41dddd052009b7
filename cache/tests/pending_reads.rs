//! Reads that wait for each other's storage.
#![cfg(not(any(loom, shuttle)))]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests run on the standard library only, and their helpers unwrap as they do"
)]

mod common;
#[path = "common/storage.rs"]
mod storage;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use common::{Random, Tally, Value, threads, until};
use folio_cache::pending::{PendingReads, ReadDone, ReadStorage, StorageFailure, Stored};
use folio_sync::test_util::pause::{Stop, When};
use folio_sync::{Arc, Mutex};
use storage::{Shelf, failure};

/// What readers were told: who, and the entries or how it failed.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<Heard>>>);

/// Who was told what.
type Heard = (&'static str, Result<Vec<i64>, String>);

impl Told {
    /// Whom to tell; what was read is dropped there.
    fn listener(
        &self,
        who: &'static str,
    ) -> impl FnOnce(Result<Vec<Value>, StorageFailure>) + Send + 'static {
        let told = self.clone();
        move |result| {
            let entries = result.map(|values| values.iter().map(|value| value.position.1).collect());
            told.0.lock().push((who, entries.map_err(|failure| failure.to_string())));
        }
    }

    /// What was told since this was asked for last.
    fn take(&self) -> Vec<Heard> {
        std::mem::take(&mut self.0.lock())
    }

    /// Only this reader was told, of these entries.
    #[track_caller]
    fn only(&self, who: &'static str, entries: impl IntoIterator<Item = i64>) {
        assert_eq!(self.take(), [(who, Ok(entries.into_iter().collect()))]);
    }
}

/// Reads, storage that waits, and what was told.
struct Scene {
    reads: PendingReads<Value>,
    shelf: Shelf,
    tally: Tally,
    told: Told,
}

impl Scene {
    fn new() -> Self {
        let tally = Tally::new(4_096);
        let shelf = Shelf::new(&tally);
        Self { reads: PendingReads::new(shelf.clone()), shelf, tally, told: Told::default() }
    }

    /// Reads these entries of ledger 1.
    fn read(&self, who: &'static str, first: i64, last: i64) {
        let count = u32::try_from(last - first + 1).unwrap();
        self.reads.read(1, first, count, self.told.listener(who));
    }

    /// All is told, and every entry gone.
    #[track_caller]
    fn end(self) {
        assert_eq!((self.shelf.waiting(), self.reads.in_flight()), (0, 0));
        assert_eq!(self.told.take(), []);
        self.tally.assert_all_gone();
    }
}

/// 4.5: a read is one read of storage, and its answer is handed over whole.
#[test]
fn a_read_is_one_read_of_storage() {
    let scene = Scene::new();
    scene.read("a", 3, 5);
    assert_eq!(scene.shelf.log(), [(1, 3, 3)]);
    assert_eq!(scene.told.take(), [], "nobody is told before storage answers");
    scene.shelf.next().answer();
    scene.told.only("a", 3..=5);
    scene.end();
}

/// 4.5: the same range is read once for all who want it, and each has entries of his own.
#[test]
fn the_same_range_is_read_once() {
    let scene = Scene::new();
    let (tell, told) = mpsc::channel();
    for _ in 0..3 {
        let tell = tell.clone();
        scene.reads.read(1, 3, 3, move |values| tell.send(values.unwrap()).unwrap());
    }
    assert_eq!(scene.shelf.log(), [(1, 3, 3)]);
    assert_eq!(scene.reads.counts().coalesced, 2);
    scene.shelf.next().answer();
    let results: Vec<_> = (0..3).map(|_| told.recv().unwrap()).collect();
    assert_eq!(scene.tally.with_copies(3), 3, "nothing is copied but for the two others");
    drop(results);
    scene.end();
}

/// 4.5: who wants a part of a larger read has his part of it.
#[test]
fn a_part_of_a_larger_read_is_not_read_again() {
    let scene = Scene::new();
    scene.read("all", 0, 9);
    scene.read("begin", 0, 2);
    scene.read("middle", 4, 5);
    scene.read("end", 9, 9);
    assert_eq!(scene.shelf.log(), [(1, 0, 10)]);
    scene.shelf.next().answer();
    let told = scene.told.take();
    let entries = |range: std::ops::RangeInclusive<i64>| Ok(range.collect::<Vec<_>>());
    assert_eq!(
        told,
        [
            ("all", entries(0..=9)),
            ("begin", entries(0..=2)),
            ("middle", entries(4..=5)),
            ("end", entries(9..=9))
        ],
        "in the order in which they came"
    );
    scene.end();
}

/// 4.5: a read that is exactly what is wanted is waited for rather than a larger one.
#[test]
fn the_same_range_goes_before_a_larger_one() {
    let scene = Scene::new();
    scene.read("small", 4, 5);
    scene.read("large", 3, 9);
    assert_eq!(scene.shelf.log(), [(1, 4, 2), (1, 3, 1), (1, 6, 4)]);
    scene.reads.invalidate(1);
    scene.read("whole", 0, 9);
    scene.read("part", 4, 5);
    assert_eq!(scene.shelf.log().len(), 4, "a part of the larger one");
    scene.reads.invalidate(1);
    scene.read("exact", 4, 5);
    scene.read("larger", 4, 6);
    scene.read("again", 4, 5);
    assert_eq!(scene.shelf.log()[4..], [(1, 4, 2), (1, 6, 1)]);
    scene.shelf.take(4).answer();
    assert_eq!(scene.told.take().iter().map(|(who, _)| *who).collect::<Vec<_>>(), ["exact", "again"]);
    scene.shelf.answer_all();
    assert_eq!(scene.told.take().len(), 5);
    scene.end();
}

/// 4.5: of a range whose begin is under way only the right is read.
#[test]
fn only_the_missing_right_is_read() {
    let scene = Scene::new();
    scene.read("a", 0, 4);
    scene.read("b", 2, 8);
    assert_eq!(scene.shelf.log(), [(1, 0, 5), (1, 5, 4)]);
    scene.shelf.next().answer();
    scene.told.only("a", 0..=4);
    scene.shelf.next().answer();
    scene.told.only("b", 2..=8);
    scene.end();
}

/// 4.5: of a range whose end is under way only the left is read.
#[test]
fn only_the_missing_left_is_read() {
    let scene = Scene::new();
    scene.read("a", 5, 9);
    scene.read("b", 2, 8);
    assert_eq!(scene.shelf.log(), [(1, 5, 5), (1, 2, 3)]);
    scene.shelf.take(1).answer();
    assert_eq!(scene.told.take(), [], "the parts are told together");
    scene.shelf.next().answer();
    assert_eq!(scene.told.take().len(), 2);
    scene.end();
}

/// 4.5: of a range whose middle is under way both sides are read, and the first reader waits for neither.
#[test]
fn only_the_missing_sides_are_read() {
    let scene = Scene::new();
    scene.read("a", 4, 5);
    scene.read("b", 2, 8);
    assert_eq!(scene.shelf.log(), [(1, 4, 2), (1, 2, 2), (1, 6, 3)]);
    scene.shelf.next().answer();
    scene.told.only("a", 4..=5);
    scene.shelf.take(1).answer();
    scene.shelf.next().answer();
    scene.told.only("b", 2..=8);
    scene.end();
}

/// 4.5: a range over several reads waits for all of them, and reads each gap between once; others join those in turn.
#[test]
fn a_range_over_several_reads_fills_the_gaps_between_them() {
    let scene = Scene::new();
    scene.read("a", 2, 3);
    scene.read("b", 6, 7);
    scene.read("all", 0, 9);
    scene.read("again", 0, 9);
    assert_eq!(scene.shelf.log(), [(1, 2, 2), (1, 6, 2), (1, 0, 2), (1, 4, 2), (1, 8, 2)]);
    assert_eq!(scene.shelf.answer_all(), 5);
    let told = scene.told.take();
    assert_eq!(told.len(), 4);
    for who in ["all", "again"] {
        assert!(told.contains(&(who, Ok((0..=9).collect()))));
    }
    assert_eq!(scene.reads.counts().coalesced, 2);
    scene.end();
}

/// 4.5: ledgers have nothing to do with each other, nor do neighbours.
#[test]
fn what_does_not_overlap_is_read_apart() {
    let scene = Scene::new();
    scene.read("a", 0, 4);
    scene.read("b", 5, 9);
    scene.reads.read(2, 0, 5, scene.told.listener("c"));
    assert_eq!(scene.shelf.log(), [(1, 0, 5), (1, 5, 5), (2, 0, 5)]);
    assert_eq!(scene.reads.counts().coalesced, 0);
    assert_eq!(scene.shelf.answer_all(), 3);
    assert_eq!(scene.told.take().len(), 3);
    scene.end();
}

/// I24: each reader of a read that fails is told so, once; the parts of others that it waited for are dropped.
#[test]
fn a_failure_is_told_to_all_readers_once() {
    let scene = Scene::new();
    scene.read("a", 4, 5);
    scene.read("b", 4, 5);
    scene.read("wide", 2, 8);
    scene.shelf.take(1).answer();
    scene.shelf.take(1).answer();
    scene.shelf.next().fail();
    let told = scene.told.take();
    assert_eq!(told.iter().map(|(who, _)| *who).collect::<Vec<_>>(), ["a", "b", "wide"]);
    assert!(told.iter().all(|(_, result)| result == &Err(failure().to_string())));
    assert_eq!(scene.reads.counts().failed, 1);
    scene.read("a", 4, 5);
    scene.shelf.next().answer();
    scene.told.only("a", 4..=5);
    scene.end();
}

/// I24: storage that drops a read without an answer, or panics, has failed it.
#[test]
fn a_read_that_is_dropped_has_failed() {
    struct Bad;
    impl ReadStorage<Value> for Bad {
        fn read(&self, _: i64, first: i64, _: u32, done: ReadDone<Value>) {
            let _held = done;
            assert_ne!(first, 1, "as it is meant to");
        }
    }
    let (reads, told) = (PendingReads::new(Bad), Told::default());
    for first in [0, 1] {
        reads.read(1, first, 3, told.listener("a"));
        assert_eq!(told.take(), [("a", Err(StorageFailure::Abandoned.to_string()))]);
    }
    assert_eq!(reads.in_flight(), 0);
}

/// I24: readers are told also when the reads are dropped before storage, with what it had not answered.
#[test]
fn readers_outlive_the_reads() {
    let Scene { reads, shelf, tally, told } = Scene::new();
    reads.read(1, 0, 3, told.listener("a"));
    reads.read(1, 5, 3, told.listener("b"));
    drop(reads);
    shelf.next().answer();
    told.only("a", 0..3);
    drop(shelf);
    assert_eq!(told.take(), [("b", Err(StorageFailure::Abandoned.to_string()))]);
    tally.assert_all_gone();
}

/// I35: a short, an empty and a long answer give each reader what there is of his part.
#[test]
fn short_and_long_answers_are_shorter_results() {
    for answered in 0..=14 {
        let scene = Scene::new();
        scene.read("all", 0, 9);
        scene.read("begin", 0, 3);
        scene.read("end", 6, 9);
        scene.read("beyond", 8, 11);
        scene.shelf.next().answer_with(answered);
        scene.shelf.next().answer();
        let there = |range: std::ops::Range<i64>| -> Result<Vec<i64>, String> {
            Ok(range.filter(|entry| *entry < i64::from(answered)).collect())
        };
        let beyond: Vec<_> = if answered < 10 { there(8..10).unwrap() } else { (8..12).collect() };
        assert_eq!(
            scene.told.take(),
            [("all", there(0..10)), ("begin", there(0..4)), ("end", there(6..10)), ("beyond", Ok(beyond))],
            "{answered} of 10: nothing is passed over"
        );
        scene.end();
    }
}

/// I35: no entries are wanted, or those at the end of all positions.
#[test]
fn the_extremes_are_read() {
    let scene = Scene::new();
    scene.reads.read(1, 7, 0, scene.told.listener("none"));
    scene.told.only("none", []);
    scene.reads.read(1, i64::MAX - 1, u32::MAX, scene.told.listener("end"));
    scene.reads.read(1, i64::MAX, 1, scene.told.listener("last"));
    scene.reads.read(1, i64::MIN, 2, scene.told.listener("begin"));
    assert_eq!(scene.shelf.log(), [(1, i64::MAX - 1, 2), (1, i64::MIN, 2)]);
    let read = scene.shelf.next();
    let values = vec![scene.tally.value((1, i64::MAX - 1), 1), scene.tally.value((1, i64::MAX), 1)];
    read.done.succeed(values);
    assert_eq!(scene.told.take(), [("end", Ok(vec![i64::MAX - 1, i64::MAX])), ("last", Ok(vec![i64::MAX]))]);
    scene.shelf.next().answer();
    scene.told.only("begin", [i64::MIN, i64::MIN + 1]);
    scene.end();
}

/// I34, bug 22, bug 23: a reader that is told may read again, invalidate and be answered within the call.
#[test]
fn readers_are_told_under_no_lock() {
    let Scene { reads, shelf, tally, told } = Scene::new();
    let (again, more, answers) = (reads.clone(), told.clone(), shelf.clone());
    reads.read(1, 0, 3, move |values| {
        drop(values);
        again.read(1, 0, 3, more.listener("joins nothing"));
        again.invalidate(1);
        again.clear();
        assert_eq!(again.in_flight(), 1);
        answers.next().answer();
    });
    reads.read(1, 0, 3, told.listener("second"));
    shelf.next().answer();
    assert_eq!(told.take(), [("joins nothing", Ok(vec![0, 1, 2])), ("second", Ok(vec![0, 1, 2]))]);
    assert_eq!(shelf.log(), [(1, 0, 3), (1, 0, 3)], "a result that is handed out gains no reader");
    drop(reads);
    tally.assert_all_gone();
}

/// bug 23: storage that fails at once, within the read, is no deadlock for who joined.
#[test]
fn storage_that_answers_within_the_call_is_heard() {
    struct Now(AtomicUsize);
    impl ReadStorage<i64> for Now {
        fn read(&self, _: i64, first: i64, count: u32, done: ReadDone<i64>) {
            match self.0.fetch_add(1, Ordering::Relaxed) % 2 {
                0 => done.fail(failure()),
                _ => done.succeed((first..first + i64::from(count)).collect::<Vec<_>>()),
            }
        }
    }
    let reads = PendingReads::new(Now(AtomicUsize::new(0)));
    let (tell, told) = mpsc::channel();
    let again = reads.clone();
    reads.read(1, 0, 3, move |failed| {
        assert!(failed.is_err());
        again.read(1, 0, 3, move |entries| tell.send(entries.unwrap()).unwrap());
    });
    assert_eq!(told.recv().unwrap(), [0, 1, 2]);
}

/// I34: a reader that panics keeps no other from being told; a copy that panics fails the reader it is for.
#[test]
fn panics_of_readers_and_copies_end_there() {
    struct Brittle(i64);
    impl Clone for Brittle {
        fn clone(&self) -> Self {
            assert_ne!(self.0, 4, "as it is meant to");
            Self(self.0)
        }
    }
    #[derive(Clone)]
    struct Shelves(Arc<Mutex<Vec<ReadDone<Brittle>>>>);
    impl ReadStorage<Brittle> for Shelves {
        fn read(&self, _: i64, _: i64, _: u32, done: ReadDone<Brittle>) {
            self.0.lock().push(done);
        }
    }
    let shelves = Shelves(Arc::default());
    let reads = PendingReads::new(shelves.clone());
    let (tell, told) = mpsc::channel();
    reads.read(1, 0, 5, |_| panic!("as it is meant to"));
    let part = |first, count| {
        let tell = tell.clone();
        reads.read(1, first, count, move |result| tell.send(result.map(|values| values.len())).unwrap());
    };
    part(0, 3);
    part(2, 3);
    part(1, 4);
    let done = shelves.0.lock().pop().unwrap();
    done.succeed((0..5).map(Brittle).collect::<Vec<_>>());
    assert!(matches!(told.recv().unwrap(), Ok(3)));
    assert!(matches!(told.recv().unwrap(), Err(StorageFailure::Panicked)));
    assert!(matches!(told.recv().unwrap(), Ok(4)), "the last one has what was read itself");
}

/// I34: destructors of what a reader has not asked for may panic: he has his part, all others have gone.
#[test]
fn panics_of_destructors_end_there() {
    struct Heavy(i64, Arc<AtomicUsize>);
    impl Clone for Heavy {
        fn clone(&self) -> Self {
            self.1.fetch_add(1, Ordering::Relaxed);
            Self(self.0, Arc::clone(&self.1))
        }
    }
    impl Drop for Heavy {
        fn drop(&mut self) {
            self.1.fetch_sub(1, Ordering::Relaxed);
            assert!((4..6).contains(&self.0) || std::thread::panicking(), "as it is meant to");
        }
    }
    struct Now(Arc<AtomicUsize>);
    impl ReadStorage<Heavy> for Now {
        fn read(&self, _: i64, first: i64, count: u32, done: ReadDone<Heavy>) {
            // More than was asked for.
            self.0.fetch_add(10, Ordering::Relaxed);
            assert_eq!((first, count), (4, 2));
            done.succeed((4..14).map(|entry| Heavy(entry, Arc::clone(&self.0))).collect::<Vec<_>>());
        }
    }
    let alive = Arc::new(AtomicUsize::new(0));
    let (tell, told) = mpsc::channel();
    PendingReads::new(Now(Arc::clone(&alive)))
        .read(1, 4, 2, move |entries| tell.send(entries.unwrap()).unwrap());
    let entries = told.recv().unwrap();
    assert_eq!(entries.iter().map(|entry| entry.0).collect::<Vec<_>>(), [4, 5]);
    assert_eq!(alive.load(Ordering::Relaxed), 2);
}

/// 1.9: after an invalidation reads start anew, and what waited before is still told.
#[test]
fn an_invalidation_detaches_what_is_under_way() {
    let scene = Scene::new();
    scene.read("old", 0, 4);
    scene.reads.read(2, 0, 5, scene.told.listener("other"));
    scene.reads.invalidate(1);
    scene.read("new", 0, 4);
    scene.read("joined", 1, 3);
    scene.reads.read(2, 1, 2, scene.told.listener("with other"));
    assert_eq!(scene.shelf.log(), [(1, 0, 5), (2, 0, 5), (1, 0, 5)]);
    scene.shelf.next().answer();
    scene.told.only("old", 0..=4);
    scene.read("still joined", 2, 2);
    scene.reads.clear();
    scene.reads.read(2, 0, 5, scene.told.listener("anew"));
    assert_eq!(scene.shelf.log().len(), 4, "the old one's end left the new one open; a clear detached all");
    assert_eq!(scene.shelf.answer_all(), 3);
    let told: Vec<_> = scene.told.take().into_iter().map(|(who, _)| who).collect();
    assert_eq!(told, ["anew", "new", "joined", "still joined", "other", "with other"]);
    scene.end();
}

/// 1.7, 1.9: when a read has failed, nobody joins another one of its ledger, which may fail alike.
#[test]
fn a_failure_detaches_what_is_under_way_in_its_ledger() {
    let scene = Scene::new();
    scene.read("a", 0, 4);
    scene.read("b", 5, 9);
    scene.reads.read(2, 5, 5, scene.told.listener("other"));
    scene.shelf.next().fail();
    scene.read("c", 5, 9);
    scene.reads.read(2, 5, 5, scene.told.listener("joins"));
    assert_eq!(scene.shelf.log(), [(1, 0, 5), (1, 5, 5), (2, 5, 5), (1, 5, 5)]);
    assert_eq!(scene.shelf.answer_all(), 3);
    assert_eq!(scene.told.take().len(), 5);
    scene.end();
}

/// I34: a thread that stands before it takes a read out, or right after, holds up no other read.
#[test]
fn a_completion_stalled_at_its_read_holds_up_nobody() {
    for (when, joins) in [(When::Before, true), (When::After, false)] {
        let scene = Scene::new();
        scene.read("a", 0, 4);
        let (read, stop) = (scene.shelf.next(), Stop::new("pending.take", when));
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| stop.run(|| read.answer()));
            let stopped = stop.stopped();
            scene.read("b", 0, 4);
            assert_eq!(scene.shelf.waiting(), usize::from(!joins));
            scene.shelf.answer_all();
            scene.reads.read(2, 0, 5, scene.told.listener("c"));
            scene.shelf.answer_all();
            drop(stopped);
            thread.join().unwrap();
        });
        assert_eq!(scene.told.take().len(), 3);
        scene.end();
    }
}

/// I24, I35: on many threads, with answers of every kind, late and out of order, each read is told once, what it asked for, and every entry is gone.
#[test]
fn reads_and_answers_on_many_threads() {
    const READS: usize = 400;
    let tally = Tally::new(READS * 4 * 64);
    let shelf = Shelf::new(&tally);
    let reads = PendingReads::new(shelf.clone());
    let (told, asked) = (Arc::new(AtomicUsize::new(0)), AtomicUsize::new(0));
    threads(6, |thread| {
        let mut random = Random::new(thread);
        if thread < 4 {
            for _ in 0..READS {
                let (first, count) = (random.entry(40), u32::try_from(random.below(24)).unwrap());
                let told = Arc::clone(&told);
                reads.read(1, first, count, move |result| {
                    told.fetch_add(1, Ordering::Relaxed);
                    let Ok(values) = result else { return };
                    assert!(values.len() <= count as usize);
                    let positions = values.iter().map(|value| value.position.1);
                    assert!(positions.eq((first..).take(values.len())), "in order, without gaps");
                });
                if random.below(50) == 0 {
                    reads.invalidate(1);
                }
            }
            asked.fetch_add(1, Ordering::Release);
            return;
        }
        while asked.load(Ordering::Acquire) < 4 || reads.in_flight() > 0 {
            let waiting = shelf.waiting();
            if waiting < 4 && asked.load(Ordering::Acquire) < 4 {
                std::thread::yield_now();
                continue;
            }
            let read = shelf.try_take(usize::try_from(random.below(waiting.max(1) as u64)).unwrap());
            let Some(read) = read else { continue };
            let (wanted, kind) = (read.wish.2, random.below(6));
            match kind {
                0 => read.fail(),
                1 => drop(read),
                2 => read.answer_with(wanted + 3),
                3 => read.answer_with(u32::try_from(random.below(wanted.into())).unwrap()),
                _ => read.answer(),
            }
        }
    });
    until("all are told", || told.load(Ordering::Relaxed) == 4 * READS);
    let counts = reads.counts();
    assert_eq!(counts.begun, counts.answered);
    assert!(counts.coalesced > 0 && counts.failed > 0);
    tally.assert_all_gone();
}

/// 1.9: slices are handed out like others; whether they are is for who puts them into a cache.
#[test]
fn slices_are_entries() {
    let scene = Scene::new();
    scene.read("a", 0, 2);
    scene.shelf.next().answer_sliced();
    scene.told.only("a", 0..=2);
    assert!(Stored::sliced(vec![1]).sliced && !Stored::from(vec![1]).sliced);
    scene.end();
}
