//! Appends: their order, their batches, the order of what is done for them, and the failures of storage and worker.
#![cfg(not(any(loom, shuttle)))]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests run on the standard library only, and a failed unwrap fails the test"
)]

mod support;

use std::time::Duration;

use bytes::Bytes;
use folio_executor::OrderedExecutor;
use folio_ledger::{
    AppendError, AppendSink, Callbacks, ConfigError, Cursor, Done, Handover, Ledger, LedgerOptions, Limits,
    LogStorage, MemoryStorage, Position, StorageError, Wait,
};
use folio_sync::test_util::{ManualClock, ManualExecutor};
use folio_sync::time::{Clock, Instant};
use folio_sync::{Arc, Mutex, RejectReason};

use support::{
    Asked, Calls, Heard, ID, Mood, Scene, appended, at, broken, entries, failed, go_off, manager, payload,
    read, read_all, until,
};

/// I40: entries have the order of their appends, without gaps, and are told in this order.
#[test]
fn appends_are_told_in_the_order_of_their_positions() {
    let scene = Scene::new();
    for batch in [0..1, 1..100, 100..3_000] {
        scene.give(batch);
        scene.worker.run_all();
    }
    assert_eq!(scene.heard.take(), appended(0..3_000));
    assert_eq!((scene.ledger.confirmed(), scene.ledger.queued(), scene.ledger.id()), (3_000, 0, ID));
    assert_eq!(read_all(&scene.cursor(0).0), entries(0..3_000));
}

#[test]
fn a_thousand_appends_are_one_submission_to_the_worker_and_one_append_to_storage() {
    let scene = Scene::new();
    scene.give(0..1_000);
    assert_eq!((scene.worker.submissions(), scene.ledger.queued()), (1, 1_000));
    scene.worker.run_all();
    assert_eq!((scene.worker.submissions(), scene.worker.handovers()), (1, 1));
    assert_eq!(scene.storage.asked(), [Asked::Append(0, 1_000)]);
}

#[test]
fn a_batch_ends_at_its_limit_and_the_rest_follows() {
    let scene = Scene::with(|options| options.handover = Handover::Batched(4));
    scene.give(0..10);
    scene.worker.run_all();
    assert_eq!(
        (scene.worker.submissions(), scene.worker.handovers()),
        (3, 1),
        "continuations do not change threads"
    );
    assert_eq!(scene.storage.asked(), [Asked::Append(0, 4), Asked::Append(4, 4), Asked::Append(8, 2)]);
    assert_eq!(scene.heard.take(), appended(0..10));
}

#[test]
fn without_batches_each_append_is_a_submission_of_its_own() {
    let scene = Scene::with(|options| options.handover = Handover::Batched(1));
    for n in 0..100 {
        scene.give(n..n + 1);
        assert_eq!(scene.worker.run_all(), 1);
    }
    assert_eq!(scene.worker.handovers(), 100);
    scene.give(100..110);
    scene.worker.run_all();
    assert_eq!((scene.worker.submissions(), scene.storage.asked().len()), (110, 110));
    assert_eq!(scene.heard.take(), appended(0..110));
}

/// Looks at the ledger when it is told.
#[derive(Clone, Default)]
struct Looks {
    seen: Arc<Mutex<Vec<String>>>,
    ledger: Arc<Mutex<Option<Arc<Ledger<i64>>>>>,
    cursor: Arc<Mutex<Option<Cursor>>>,
}

impl Looks {
    fn note(&self, what: impl Into<String>) {
        self.seen.lock().push(what.into());
    }

    /// What can be seen of the entries now.
    fn look(&self, who: &str) {
        let ledger = self.ledger.lock().clone().unwrap();
        let cached = (0..3).filter(|n| ledger.cache().range_cache().contains((ID, *n))).count();
        let cursor = self.cursor.lock();
        let cursor = cursor.as_ref().unwrap();
        cursor.seek(0);
        let read = read(cursor, 10).unwrap().len();
        self.note(format!("{who}: {cached} cached, {} confirmed, {read} read", ledger.confirmed()));
    }
}

impl AppendSink<i64> for Looks {
    fn appended(&self, token: i64, result: Result<Position, AppendError>, _at: Instant) {
        assert_eq!(result, Ok(at(token)));
        self.look("sink");
    }
}

/// 1.12, I26, I41: an entry is stored, cached, confirmed, told to its publisher, told to cursors that wait, in this order.
#[test]
fn a_batch_is_stored_cached_confirmed_told_and_then_wakes_cursors() {
    let looks = Looks::default();
    let (worker, storage) = (ManualExecutor::new(), support::Shelf::default());
    let options = LedgerOptions { id: ID, ..LedgerOptions::default() };
    let cache = manager(&ManualClock::new(), 1 << 20);
    let ledger = Ledger::open(options, storage.clone(), &cache, worker.clone(), looks.clone()).unwrap();
    let ledger = Arc::new(ledger);
    *looks.ledger.lock() = Some(Arc::clone(&ledger));
    *looks.cursor.lock() = Some(ledger.cursor(0, || ()));
    let stored = looks.clone();
    storage.on_append(move || stored.look("storage"));
    let listens = looks.clone();
    let waits = ledger.cursor(0, move || listens.look("listener"));
    assert_eq!(waits.wait(), Wait::Waiting);
    (0..3).for_each(|n| ledger.append(payload(n), n));
    worker.run_all();
    let after = "3 cached, 3 confirmed, 3 read";
    assert_eq!(
        *looks.seen.lock(),
        [
            "storage: 0 cached, 0 confirmed, 0 read",
            &format!("sink: {after}"),
            &format!("sink: {after}"),
            &format!("sink: {after}"),
            &format!("listener: {after}"),
        ]
    );
    // The ledger is in its own sink.
    looks.cursor.lock().take();
    looks.ledger.lock().take();
}

/// 1.12, I42: after a failure of storage nothing is appended any more, so that no entry overtakes one that failed; each append is told so once.
#[test]
fn a_failure_of_storage_fences_the_ledger() {
    let scene = Scene::with(|options| options.handover = Handover::Batched(3));
    scene.fill(0..2);
    let (cursor, calls) = scene.cursor(2);
    assert_eq!(cursor.wait(), Wait::Waiting);
    scene.storage.set(Mood::Fails);
    scene.give(2..6);
    scene.worker.run_all();
    scene.storage.set(Mood::Good);
    scene.give(6..8);
    scene.worker.run_all();
    assert_eq!(scene.heard.take(), failed(2..8, &AppendError::Storage(broken())));
    assert_eq!(scene.storage.asked(), [Asked::Append(2, 3)], "storage is asked no more");
    assert_eq!((scene.ledger.confirmed(), calls.count()), (2, 0));
    assert!(!scene.ledger.cache().range_cache().contains((ID, 2)), "what failed is not cached");
    assert_eq!(read_all(&scene.cursor(0).0), entries(0..2), "what was appended can be read");
}

/// 1.12, I40: what storage answers late, and out of order, is confirmed and told in order, on the worker.
#[test]
fn answers_of_storage_that_come_late_and_out_of_order_are_told_in_order() {
    let scene = Scene::new();
    let (cursor, calls) = scene.cursor(0);
    assert_eq!(cursor.wait(), Wait::Waiting);
    scene.storage.hold();
    for range in [0..2, 2..3, 3..6] {
        scene.give(range);
        scene.worker.run_all();
    }
    let asked = [Asked::Append(0, 2), Asked::Append(2, 1), Asked::Append(3, 3)];
    assert_eq!(
        scene.storage.asked(),
        asked,
        "storage has the next batch before it has answered for the last"
    );
    let mut answers = scene.storage.held();
    answers.pop().unwrap().tell(Ok(()));
    scene.worker.run_all();
    assert_eq!((scene.heard.len(), scene.ledger.confirmed(), calls.count()), (0, 0, 0));
    assert_eq!(scene.ledger.queued(), 6, "all are on their way");
    assert_eq!(read(&cursor, 10), Ok(Vec::new()), "nothing is read before it is confirmed");
    answers.remove(0).tell(Ok(()));
    assert_eq!((scene.heard.len(), scene.worker.queued()), (0, 1), "the worker tells, not storage");
    scene.worker.run_all();
    assert_eq!((scene.heard.take(), scene.ledger.confirmed(), calls.count()), (appended(0..2), 2, 1));
    answers.remove(0).tell(Ok(()));
    scene.worker.run_all();
    assert_eq!((scene.heard.take(), scene.ledger.confirmed()), (appended(2..6), 6));
    assert_eq!(scene.ledger.queued(), 0);
    assert_eq!(read_all(&cursor), entries(0..6));
    assert_eq!(scene.storage.reads(), [], "all of it is cached");
}

/// What comes while storage is at work goes with the batches after it, few and large; a flush and the close come after all of it.
#[test]
fn what_comes_while_storage_is_at_work_gathers() {
    let scene = Scene::with(|options| options.handover = Handover::Batched(2));
    let cursor = scene.cursor(0).0;
    scene.storage.hold();
    scene.give(0..20);
    let flushed = Calls::default();
    let told = flushed.clone();
    scene.ledger.flush(move || told.note());
    scene.ledger.close();
    scene.worker.run_all();
    let four = [0, 2, 4, 6].map(|first| Asked::Append(first, 2));
    assert_eq!(scene.storage.asked(), four, "four batches are on their way at most");
    let tell_all = || scene.storage.held().into_iter().for_each(|done| done.tell(Ok(())));
    tell_all();
    scene.worker.run_all();
    assert_eq!((scene.heard.take(), flushed.count()), (appended(0..8), 0));
    assert_eq!((read_all(&cursor), cursor.wait()), (entries(0..8), Wait::Waiting), "the end is not told yet");
    assert_eq!(scene.storage.asked(), [Asked::Append(8, 12)], "the rest goes with one");
    tell_all();
    scene.worker.run_all();
    assert_eq!((scene.heard.take(), flushed.count()), (appended(8..20), 1));
    assert_eq!((read_all(&cursor), cursor.wait()), (entries(8..20), Wait::Closed));
}

/// 1.12, I42: what is behind a batch that fails fails, whatever storage says of it, and is told so in order.
#[test]
fn what_is_behind_a_batch_that_fails_fails() {
    let scene = Scene::with(|options| options.handover = Handover::Batched(2));
    scene.storage.hold();
    scene.give(0..12);
    scene.worker.run_all();
    let mut answers = scene.storage.held().into_iter();
    answers.next().unwrap().tell(Ok(()));
    answers.next().unwrap().tell(Err(broken()));
    answers.next().unwrap().tell(Ok(()));
    // The fourth is dropped unanswered, and what had gathered is not sent.
    drop((answers, scene.storage.asked()));
    scene.worker.run_all();
    let told = [appended(0..2), failed(2..12, &AppendError::Storage(broken()))].concat();
    assert_eq!((scene.heard.take(), scene.ledger.confirmed()), (told, 2));
    assert_eq!(scene.storage.asked(), []);
    assert_eq!(read_all(&scene.cursor(0).0), entries(0..2));
}

/// Storage that keeps nothing, and answers when it is told to.
#[derive(Clone, Default)]
struct Late(Arc<Mutex<Vec<Waits>>>);

/// What was asked, and whom to answer.
type Waits = (Asked, Done<(), StorageError>);

impl LogStorage for Late {
    fn limits(&self) -> Limits {
        Limits { entry_bytes: 1_000, batch_bytes: 1_000 }
    }

    fn append(&self, first: Position, entries: Vec<Bytes>, done: Done<(), StorageError>) {
        self.0.lock().push((Asked::Append(first.entry, entries.len()), done));
    }

    fn read(&self, first: Position, _count: usize, done: Done<Vec<Bytes>, StorageError>) {
        done.tell(Err(StorageError::Missing(first)));
    }

    fn trim(&self, _before: Position) {}
}

impl Late {
    /// Answers what was asked first; tells what that was.
    fn answer<const N: usize>(&self, answers: [Result<(), StorageError>; N]) -> Vec<Asked> {
        let asked: Vec<_> = self.0.lock().drain(..N).collect();
        let answered = asked.into_iter().zip(answers);
        answered.map(|((asked, done), answer)| (done.tell(answer), asked).1).collect()
    }

    /// How much waits for its answer.
    fn waits(&self) -> usize {
        self.0.lock().len()
    }
}

/// A ledger over it.
fn late() -> (Late, ManualExecutor, Heard, Ledger<i64>) {
    let (storage, worker, heard) = (Late::default(), ManualExecutor::new(), Heard::default());
    let options = LedgerOptions { id: ID, handover: Handover::Batched(2), ..LedgerOptions::default() };
    let cache = manager(&ManualClock::new(), 0);
    let ledger = Ledger::open(options, storage.clone(), &cache, worker.clone(), heard.clone()).unwrap();
    (storage, worker, heard, ledger)
}

/// I42: storage without room refuses what was on its way, each told once; what comes later is appended in its places, without a gap.
#[test]
fn after_storage_was_full_the_ledger_goes_on() {
    let (storage, worker, heard, ledger) = late();
    (0..10).for_each(|n| ledger.append(payload(n), n));
    worker.run_all();
    let behind = || Err(StorageError::OutOfOrder { expected: 2 });
    assert_eq!(
        storage.answer([Ok(()), Err(StorageError::Full)]),
        [0, 2].map(|first| Asked::Append(first, 2))
    );
    worker.run_all();
    assert_eq!(storage.waits(), 2, "nothing is sent behind what was refused");
    assert_eq!(storage.answer([behind(), behind()]), [4, 6].map(|first| Asked::Append(first, 2)));
    worker.run_all();
    let full = AppendError::Storage(StorageError::Full);
    assert_eq!(heard.take(), [appended(0..2), failed(2..8, &full)].concat());
    assert_eq!(storage.answer([Ok(())]), [Asked::Append(2, 2)], "what had gathered is next");
    worker.run_all();
    assert_eq!(heard.take(), [(8, Ok(at(2))), (9, Ok(at(3)))]);
    ledger.append(payload(10), 10);
    worker.run_all();
    assert_eq!(storage.answer([Err(StorageError::Full)]), [Asked::Append(4, 1)]);
    worker.run_all();
    assert_eq!(heard.take(), failed(10..11, &full));
    ledger.append(payload(11), 11);
    worker.run_all();
    assert_eq!(storage.answer([Ok(())]), [Asked::Append(4, 1)], "as often as it takes");
    worker.run_all();
    assert_eq!((heard.take(), ledger.confirmed()), (vec![(11, Ok(at(4)))], 5));
}

/// 1.12: storage that keeps what is behind an entry that it refused, or fails behind it, has failed.
#[test]
fn what_is_behind_an_entry_that_was_refused_may_not_be_kept() {
    for answer in [Ok(()), Err(broken())] {
        let (storage, worker, heard, ledger) = late();
        (0..4).for_each(|n| ledger.append(payload(n), n));
        worker.run_all();
        storage.answer([Err(StorageError::Full), answer]);
        ledger.append(payload(4), 4);
        worker.run_all();
        let told = heard.take();
        assert_eq!(told[..2], failed(0..2, &AppendError::Storage(StorageError::Full)));
        for (_, result) in &told[2..] {
            assert!(matches!(result, Err(AppendError::Storage(StorageError::Failed(_)))), "{result:?}");
        }
        assert_eq!((told.len(), ledger.confirmed(), storage.waits()), (5, 0, 0));
    }
}

/// I42: an entry that is larger than storage takes is refused by itself; batches have what storage takes at once.
#[test]
fn storage_has_its_limits() {
    let (storage, worker, heard, ledger) = late();
    ledger.append(Bytes::from(vec![0; 937]), 0);
    assert_eq!(heard.take(), failed(0..1, &AppendError::TooLarge { bytes: 937, most: 936 }));
    ledger.append(Bytes::from(vec![0; 936]), 1);
    ledger.append(Bytes::from(vec![0; 436]), 2);
    ledger.append(Bytes::from(vec![0; 436]), 3);
    ledger.append(Bytes::new(), 4);
    worker.run_all();
    let asked = storage.answer([Ok(()), Ok(()), Ok(())]);
    assert_eq!(asked, [Asked::Append(0, 1), Asked::Append(1, 1), Asked::Append(2, 2)]);
    worker.run_all();
    assert_eq!(heard.take(), (1..5).map(|n| (n, Ok(at(n - 1)))).collect::<Vec<_>>());
    // What is gathered where those were is as small as it is.
    for first in (4..40).step_by(2) {
        (0..2).for_each(|n| ledger.append(Bytes::new(), n));
        worker.run_all();
        assert_eq!(storage.answer([Ok(())]), [Asked::Append(first, 2)]);
        worker.run_all();
    }
}

/// I42: what storage answers when the worker takes nothing any more is told once all the same, in order.
#[test]
fn answers_that_the_worker_does_not_take_are_told_where_they_come() {
    let scene = Scene::new();
    scene.storage.hold();
    scene.give(0..3);
    scene.worker.run_all();
    scene.give(3..5);
    scene.worker.run_all();
    let mut answers = scene.storage.held().into_iter();
    scene.worker.refuse_next(1);
    answers.next().unwrap().tell(Ok(()));
    assert_eq!(scene.heard.take(), appended(0..3));
    answers.next().unwrap().tell(Ok(()));
    drop(scene.worker.take_next().unwrap());
    assert_eq!(scene.heard.take(), appended(3..5), "and what it drops unrun");
}

/// I42: however storage answers what comes after, few batches are sent and not settled: what it does not answer holds up all, and is bounded.
#[test]
fn answers_out_of_order_let_no_more_be_sent() {
    let scene = Scene::with(|options| (options.handover, options.max_queued) = (Handover::Batched(1), 10));
    scene.storage.hold();
    let mut first = Vec::new();
    for n in 0..50 {
        scene.give(n..n + 1);
        scene.worker.run_all();
        let mut answers = scene.storage.held().into_iter();
        if first.is_empty() {
            first.extend(answers.next());
        }
        answers.for_each(|done| done.tell(Ok(())));
        scene.worker.run_all();
    }
    let full = AppendError::Rejected(RejectReason::Full);
    assert_eq!((scene.heard.take(), scene.ledger.queued()), (failed(14..50, &full), 14));
    for done in first {
        done.tell(Ok(()));
    }
    scene.worker.run_all();
    scene.storage.held().into_iter().for_each(|done| done.tell(Ok(())));
    scene.worker.run_all();
    assert_eq!((scene.heard.take(), scene.ledger.confirmed()), (appended(0..14), 14));
}

/// I42: appends that find as much gathered as may be queued are told that it is full.
#[test]
fn as_much_gathers_as_may_be_queued() {
    let scene = Scene::with(|options| (options.handover, options.max_queued) = (Handover::Batched(1), 2));
    scene.storage.hold();
    for n in 0..7 {
        scene.give(n..n + 1);
        scene.worker.run_all();
    }
    assert_eq!(scene.heard.take(), failed(6..7, &AppendError::Rejected(RejectReason::Full)));
    scene.storage.held().into_iter().for_each(|done| done.tell(Ok(())));
    scene.worker.run_all();
    scene.storage.held().into_iter().for_each(|done| done.tell(Ok(())));
    scene.worker.run_all();
    assert_eq!((scene.heard.take(), scene.ledger.confirmed()), (appended(0..6), 6));
}

fn single(options: &mut LedgerOptions) {
    options.handover = Handover::Single;
}

/// I40, I42: each append a job of its own, told once, in order; those behind the close are told so, as those that the worker does not take.
#[test]
fn a_single_append_is_a_job_of_its_own() {
    let scene = Scene::with(single);
    let (cursor, calls) = scene.cursor(3);
    assert_eq!(cursor.wait(), Wait::Waiting);
    scene.give(0..3);
    assert_eq!((scene.worker.queued(), scene.ledger.queued()), (3, 3));
    let flushed = Calls::default();
    let told = flushed.clone();
    scene.ledger.flush(move || told.note());
    scene.worker.run_next();
    assert_eq!((scene.heard.take(), scene.ledger.queued()), (appended(0..1), 2));
    scene.worker.run_all();
    assert_eq!((scene.heard.take(), flushed.count()), (appended(1..3), 1));
    scene.worker.refuse_next(1);
    scene.give(3..4);
    assert_eq!(scene.heard.take(), failed(3..4, &AppendError::Rejected(RejectReason::Refused)));
    scene.ledger.append(payload(3), 3);
    scene.ledger.close();
    scene.ledger.append(payload(4), 4);
    scene.worker.run_all();
    let told = [appended(3..4), failed(4..5, &AppendError::Closed)].concat();
    assert_eq!((scene.heard.take(), scene.ledger.queued(), calls.count()), (told, 0, 1));
    assert_eq!((read_all(&cursor), cursor.wait()), (entries(3..4), Wait::Closed));
}

/// I42: single appends beyond a limit are told that it is full.
#[test]
fn single_appends_beyond_a_limit_are_told_that_it_is_full() {
    let scene = Scene::with(|options| (options.handover, options.max_queued) = (Handover::Single, 2));
    scene.give(0..3);
    assert_eq!(scene.heard.take(), failed(2..3, &AppendError::Rejected(RejectReason::Full)));
    scene.worker.run_all();
    assert_eq!((scene.heard.take(), scene.ledger.queued()), (appended(0..2), 0));
}

/// 1.12: a panic of storage is a failure of storage.
#[test]
fn storage_that_panics_has_failed() {
    let scene = Scene::new();
    scene.fill(0..2);
    scene.storage.set(Mood::Panics);
    scene.give(2..4);
    scene.worker.run_all();
    scene.storage.set(Mood::Good);
    scene.give(4..5);
    scene.worker.run_all();
    let told = scene.heard.take();
    assert_eq!(told.iter().map(|(token, _)| *token).collect::<Vec<_>>(), [2, 3, 4]);
    for (_, result) in told {
        assert_eq!(result, Err(AppendError::Storage(StorageError::Unanswered)));
    }
    assert_eq!(scene.ledger.confirmed(), 2);
}

/// I42: an append that the worker refuses is told so once, and later ones are appended.
#[test]
fn an_append_that_the_worker_refuses_is_told_so_once() {
    let scene = Scene::new();
    scene.worker.refuse_next(1);
    scene.give(0..1);
    assert_eq!(scene.heard.take(), failed(0..1, &AppendError::Rejected(RejectReason::Refused)));
    scene.ledger.append(payload(0), 0);
    scene.worker.run_all();
    assert_eq!(scene.heard.take(), appended(0..1));
}

/// I42: appends whose follow-up batch the worker refuses are told so once.
#[test]
fn appends_left_by_a_batch_that_the_worker_does_not_continue_are_told_so_once() {
    let scene = Scene::with(|options| options.handover = Handover::Batched(2));
    scene.give(0..5);
    scene.worker.refuse_next(1);
    scene.worker.run_all();
    let mut told = appended(0..2);
    told.extend(failed(2..5, &AppendError::Rejected(RejectReason::Refused)));
    assert_eq!(scene.heard.take(), told);
    assert_eq!(scene.ledger.queued(), 0);
}

/// I42: what is more than may be queued, or more than the worker takes, is told so once.
#[test]
fn appends_beyond_a_limit_are_told_that_it_is_full() {
    let scene = Scene::with(|options| options.max_queued = 3);
    scene.give(0..5);
    assert_eq!(scene.heard.take(), failed(3..5, &AppendError::Rejected(RejectReason::Full)));
    scene.worker.run_all();
    assert_eq!(scene.heard.take(), appended(0..3));

    let scene = Scene::on(ManualExecutor::bounded(0), |_| ());
    scene.give(0..1);
    assert_eq!(scene.heard.take(), failed(0..1, &AppendError::Rejected(RejectReason::Full)));
}

/// I42: a worker that is closed takes no appends, and those it has are appended.
#[test]
fn appends_after_the_worker_is_closed_are_told_so_once() {
    let scene = Scene::new();
    scene.give(0..2);
    scene.worker.close();
    scene.worker.run_all();
    scene.give(2..4);
    let mut told = appended(0..2);
    told.extend(failed(2..4, &AppendError::Closed));
    assert_eq!(scene.heard.take(), told);
}

/// I42: appends that are queued as the ledger is dropped, or whose worker drops its jobs, are told that they are not appended.
#[test]
fn appends_that_are_dropped_unrun_are_told_so_once() {
    let scene = Scene::new();
    scene.give(0..3);
    let Scene { ledger, heard, worker, .. } = scene;
    drop(ledger);
    assert_eq!(heard.take(), failed(0..3, &AppendError::Closed));
    worker.run_all();
    assert_eq!(heard.len(), 0);

    let scene = Scene::new();
    scene.give(0..3);
    drop(scene.worker.take_next());
    assert_eq!(scene.heard.take(), failed(0..3, &AppendError::Rejected(RejectReason::Refused)));
}

#[test]
fn settings_that_cannot_be_are_refused() {
    let open = |change: fn(&mut LedgerOptions)| {
        let mut options = LedgerOptions::default();
        change(&mut options);
        let worker = ManualExecutor::new();
        let cache = manager(&ManualClock::new(), 1 << 20);
        Ledger::open(options, MemoryStorage::new(), &cache, worker, Heard::default()).err()
    };
    assert_eq!(open(|options| options.handover = Handover::Batched(0)), Some(ConfigError::BatchItems));
    assert_eq!(open(|options| options.max_queued = 0), Some(ConfigError::MaxQueued(0)));
    assert_eq!(open(|options| options.max_queued = 268_435_456), Some(ConfigError::MaxQueued(268_435_456)));
    assert_eq!(open(|options| options.max_queued = 268_435_455), None);
    for error in [ConfigError::BatchItems, ConfigError::MaxQueued(0)] {
        assert!(!error.to_string().is_empty());
    }
}

/// I42: a flush is told once, when everything that was appended before is confirmed or failed, and told so.
#[test]
fn a_flush_is_told_after_what_was_appended_before() {
    let scene = Scene::new();
    let flush = || {
        let (flushed, heard) = (Calls::default(), scene.heard.clone());
        let (tells, counts) = (flushed.clone(), Calls::default());
        let seen = counts.clone();
        scene.ledger.flush(move || {
            tells.note();
            (0..heard.len()).for_each(|_| seen.note());
        });
        (flushed, counts)
    };
    let (nothing, _) = flush();
    assert_eq!(nothing.count(), 1, "there is nothing to wait for");
    scene.give(0..10);
    let (before, heard_then) = flush();
    scene.give(10..20);
    assert_eq!(before.count(), 0);
    scene.worker.run_all();
    assert_eq!(before.count(), 1);
    assert!((10..=20).contains(&heard_then.count()), "{} were told", heard_then.count());
    assert_eq!((scene.ledger.confirmed(), scene.heard.take()), (20, appended(0..20)));

    scene.storage.set(Mood::Fails);
    scene.give(20..22);
    let (failing, heard_then) = flush();
    scene.worker.run_all();
    assert_eq!((failing.count(), heard_then.count()), (1, 2), "what failed is not waited for");
    scene.ledger.flush(|| go_off());
    scene.give(22..23);
    scene.ledger.flush(|| go_off());
    let (after, _) = flush();
    scene.worker.run_all();
    assert_eq!(after.count(), 1, "a panic of another one harms nobody");

    scene.give(23..25);
    let (unrun, _) = flush();
    drop(scene.worker.take_next());
    assert_eq!(unrun.count(), 1, "what the worker dropped has failed");
}

/// Times are exact: nobody needs to keep the coarse time up.
#[test]
fn times_are_exact_though_the_coarse_time_stands_still() {
    let (worker, clock) = (ManualExecutor::new(), ManualClock::new());
    clock.hold_coarse();
    let options = LedgerOptions { max_queued: 1, ..LedgerOptions::default() };
    let ledger =
        Ledger::open(options, MemoryStorage::new(), &manager(&clock, 0), worker.clone(), Callbacks).unwrap();
    clock.advance(Duration::from_secs(1));
    let times = Arc::new(Mutex::new(Vec::new()));
    for _ in 0..2 {
        let times = Arc::clone(&times);
        ledger.append(Bytes::new(), move |result, at| times.lock().push((result.is_ok(), at)));
    }
    let at_refusal = clock.now();
    clock.advance(Duration::from_secs(1));
    worker.run_all();
    assert_eq!(*times.lock(), [(false, at_refusal), (true, clock.now())]);
}

#[test]
fn callbacks_are_told_the_position_and_the_time() {
    let (worker, clock) = (ManualExecutor::new(), ManualClock::new());
    let ledger = Ledger::open(
        LedgerOptions::default(),
        MemoryStorage::new(),
        &manager(&clock, 0),
        worker.clone(),
        Callbacks,
    )
    .unwrap();
    clock.advance(Duration::from_nanos(5));
    let told = Arc::new(Mutex::new(None));
    let tell = Arc::clone(&told);
    ledger.append(Bytes::new(), move |result, at| *tell.lock() = Some((result, at)));
    worker.run_all();
    assert_eq!(*told.lock(), Some((Ok(Position { ledger: 0, entry: 0 }), clock.now())));
}

/// I40, I42: many threads append; each entry is told once, each thread's in order, and together they fill the ledger without gaps.
#[test]
fn appends_of_many_threads_are_each_told_once_and_keep_each_threads_order() {
    const THREADS: i64 = 4;
    const EACH: i64 = 5_000;
    let pool = OrderedExecutor::builder().threads(1).build().unwrap();
    let heard = Heard::default();
    let ledger = Ledger::open(
        LedgerOptions { id: ID, handover: Handover::Batched(64), ..LedgerOptions::default() },
        MemoryStorage::new(),
        &manager(&ManualClock::new(), 1 << 30),
        pool.workers()[0].clone(),
        heard.clone(),
    )
    .unwrap();
    std::thread::scope(|scope| {
        let appenders: Vec<_> = (0..THREADS)
            .map(|thread| {
                let ledger = &ledger;
                scope.spawn(move || {
                    (0..EACH).for_each(|n| ledger.append(payload(thread * EACH + n), thread * EACH + n));
                })
            })
            .collect();
        for appender in appenders {
            appender.join().unwrap();
        }
    });
    until("all are told", || heard.len() == usize::try_from(THREADS * EACH).unwrap());
    let told = heard.take();
    let cursor = ledger.cursor(0, || ());
    let all = read_all(&cursor);
    let mut last = [-1; 4];
    for (entry, ((token, result), read)) in (0..).zip(told.iter().zip(&all)) {
        assert_eq!(*result, Ok(at(entry)), "told in the order of positions");
        assert_eq!((read.position, &read.payload), (at(entry), &payload(*token)));
        let (thread, n) = (usize::try_from(token / EACH).unwrap(), token % EACH);
        assert_eq!(n, last[thread] + 1, "the entries of a thread changed places");
        last[thread] = n;
    }
    assert_eq!(last, [EACH - 1; 4]);
    drop((cursor, ledger));
    assert!(pool.join().unwrap().is_empty());
}
