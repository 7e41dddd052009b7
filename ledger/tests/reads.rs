//! Reads: from the cache, from storage and from both; on which thread they complete; what goes wrong, and is told once.
#![cfg(not(any(loom, shuttle)))]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests run on the standard library only, and a failed unwrap fails the test"
)]

mod support;

use folio_completer::{DEFAULT_DEPTH_LIMIT, current_depth};
use folio_ledger::{Cursor, Policy, ReadError, StorageError, Wait};
use folio_sync::test_util::ManualExecutor;
use folio_sync::{Arc, Executor, Job, Mutex, RejectReason, arc_dyn};

use support::{Answer, Mood, Scene, broken, entries, go_off, read, read_all};

/// Entries that were found in the cache, and that storage gave.
fn counts(scene: &Scene) -> (u64, u64) {
    let counts = scene.ledger.cache().snapshot();
    (counts.entries_hit, counts.storage_entries)
}

#[test]
fn cached_entries_are_read_without_asking_storage() {
    let scene = Scene::new();
    let (cursor, _) = scene.cursor(0);
    scene.fill(0..100);
    assert_eq!(read(&cursor, 70), Ok(entries(0..70)));
    assert_eq!(read(&cursor, 70), Ok(entries(70..100)));
    assert_eq!(read(&cursor, 70), Ok(Vec::new()), "there is no more");
    assert_eq!(scene.storage.asked(), []);
    assert_eq!(counts(&scene), (100, 0));
}

#[test]
fn without_a_cache_each_read_asks_storage_once() {
    let scene = Scene::uncached();
    scene.fill(0..100);
    let (cursor, _) = scene.cursor(0);
    assert_eq!(read(&cursor, 70), Ok(entries(0..70)));
    assert_eq!(read(&cursor, 70), Ok(entries(70..100)));
    assert_eq!(scene.storage.reads(), [(0, 70), (70, 30)]);
    assert_eq!(counts(&scene), (0, 100));
}

/// I25: a read of which the cache has a part has all entries in order, and asks storage for each gap once.
#[test]
fn each_gap_of_the_cache_is_read_from_storage_once() {
    let scene = Scene::new();
    let (cursor, _) = scene.cursor(0);
    scene.fill(0..200);
    for gap in [0..2, 5..6, 60..130, 199..200] {
        scene.uncache(gap);
    }
    assert_eq!(read(&cursor, 1_000), Ok(entries(0..200)));
    assert_eq!(scene.storage.reads(), [(0, 2), (5, 1), (60, 70), (199, 1)]);
    assert_eq!(counts(&scene), (126, 74));
}

/// A read that storage fails leaves the cursor where it is: it reads the same entries again.
#[test]
fn a_read_that_storage_fails_is_told_once_and_can_be_repeated() {
    let scene = Scene::new();
    let (cursor, _) = scene.cursor(0);
    scene.fill(0..10);
    scene.uncache(3..5);
    assert_eq!(read(&cursor, 2), Ok(entries(0..2)));
    scene.storage.set(Mood::Fails);
    assert_eq!(read(&cursor, 4), Err(ReadError::Storage(broken())));
    assert_eq!(cursor.position(), 2, "the cursor has not moved");
    scene.storage.set(Mood::Good);
    assert_eq!(read_all(&cursor), entries(2..10));
}

/// I24: storage that panics has failed the read, which is told so once.
#[test]
fn a_read_whose_storage_panics_is_told_once() {
    let scene = Scene::new();
    let (cursor, _) = scene.cursor(0);
    scene.fill(0..10);
    scene.uncache(3..5);
    scene.storage.set(Mood::Panics);
    let told = read(&cursor, 10);
    assert_eq!(told, Err(ReadError::Storage(StorageError::Unanswered)));
    scene.storage.set(Mood::Good);
    assert_eq!(read(&cursor, 10), Ok(entries(0..10)));
}

/// I35: storage that has fewer entries than it was asked for makes the read shorter; no entry is passed over.
#[test]
fn storage_that_reads_too_little_makes_the_read_shorter() {
    let scene = Scene::new();
    let (cursor, _) = scene.cursor(0);
    scene.fill(0..10);
    scene.uncache(3..5);
    scene.storage.set(Mood::Short);
    let short = read(&cursor, 10).unwrap();
    assert!(!short.is_empty() && short.len() < 10);
    let end = i64::try_from(short.len()).unwrap();
    assert_eq!((&short, cursor.position()), (&entries(0..end), end));
    scene.storage.set(Mood::Good);
    assert_eq!(read_all(&cursor), entries(end..10));
}

#[test]
fn a_buffer_is_used_again_and_what_it_held_is_not_read() {
    let scene = Scene::new();
    scene.fill(0..10);
    let (cursor, _) = scene.cursor(0);
    let (mut buffer, result) = (Vec::with_capacity(16), Arc::new(Mutex::new(None)));
    buffer.extend(entries(20..22));
    let (address, put) = (buffer.as_ptr().addr(), Arc::clone(&result));
    cursor.read(5, buffer, move |read| *put.lock() = Some(read));
    let read = result.lock().take().unwrap().unwrap();
    assert_eq!(read, entries(0..5));
    assert_eq!(read.as_ptr().addr(), address);
}

/// 1.13, R2: inline, a read completes inside the call, on the thread that asks.
#[test]
fn inline_reads_complete_inside_the_call() {
    let scene = Scene::new();
    scene.fill(0..10);
    let handovers = scene.worker.handovers();
    let (cursor, _) = scene.cursor(0);
    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(read(&cursor, 10), Ok(entries(0..10)))).join().unwrap();
    });
    assert_eq!((scene.worker.queued(), scene.worker.handovers()), (0, handovers));
}

/// 1.13, R4: affine, a read completes on the ledger's worker: at once where it asks from there, queued otherwise.
#[test]
fn affine_reads_complete_on_the_worker() {
    let scene = Scene::with(|options| options.completion = Policy::Affine);
    scene.fill(0..10);
    let cursor = Arc::new(scene.cursor(0).0);
    let answer = Answer::of(&cursor, 4);
    assert!(!answer.is_there());
    assert_eq!((cursor.position(), scene.worker.queued()), (4, 1));
    scene.worker.run_all();
    assert_eq!(answer.once(), Ok(entries(0..4)));

    let (asks, answer) = (Arc::clone(&cursor), Arc::new(Mutex::new(None)));
    let put = Arc::clone(&answer);
    scene.worker.submit(Job::new(move || *put.lock() = Some(read(&asks, 10)))).unwrap();
    assert_eq!(scene.worker.run_all(), 1, "nothing further is queued");
    assert_eq!(answer.lock().take(), Some(Ok(entries(4..10))));
}

/// A chain of reads of one entry each, every one asked for in the callback of the last.
struct Chain {
    cursor: Cursor,
    read: Mutex<Vec<i64>>,
    deepest: Mutex<u32>,
}

impl Chain {
    fn begin(cursor: Cursor) -> Arc<Self> {
        let chain = Arc::new(Self { cursor, read: Mutex::default(), deepest: Mutex::default() });
        Self::go_on(&chain);
        chain
    }

    fn go_on(from: &Arc<Self>) {
        let chain = Arc::clone(from);
        from.cursor.read(1, Vec::new(), move |result| {
            {
                let mut deepest = chain.deepest.lock();
                *deepest = current_depth().max(*deepest);
            }
            let entries = result.unwrap();
            chain.read.lock().extend(entries.iter().map(|entry| entry.position.entry));
            if !entries.is_empty() {
                Self::go_on(&chain);
            }
        });
    }
}

/// 1.13, I29: reads asked for in the callbacks of others run inside them to the limit; the one beyond goes to the worker.
#[test]
fn a_chain_of_reads_inside_one_another_leaves_the_thread_at_the_limit() {
    let scene = Scene::new();
    scene.fill(0..1_000);
    let chain = Chain::begin(scene.cursor(0).0);
    let limit = i64::from(DEFAULT_DEPTH_LIMIT);
    assert_eq!(*chain.read.lock(), (0..limit).collect::<Vec<_>>());
    assert_eq!(scene.worker.queued(), 1);
    scene.worker.run_all();
    assert_eq!(*chain.read.lock(), (0..1_000).collect::<Vec<_>>());
    assert_eq!(*chain.deepest.lock(), DEFAULT_DEPTH_LIMIT);
}

/// I30: with an overflow executor what reaches the limit does not wait behind the worker.
#[test]
fn a_chain_of_reads_goes_to_the_overflow_executor_where_there_is_one() {
    let overflow = ManualExecutor::new();
    let given = overflow.clone();
    let scene = Scene::with(|options| options.overflow = Some(arc_dyn!(given => dyn Executor)));
    scene.fill(0..100);
    let submissions = scene.worker.submissions();
    let chain = Chain::begin(scene.cursor(0).0);
    overflow.run_all();
    assert_eq!(*chain.read.lock(), (0..100).collect::<Vec<_>>());
    assert_eq!(scene.worker.submissions(), submissions);
    assert_eq!(overflow.submissions(), 100 / usize::try_from(DEFAULT_DEPTH_LIMIT).unwrap());
}

/// I29: reads that follow one another do not add up to a depth: all complete inside the call, though the worker does not run.
#[test]
fn reads_after_one_another_stay_inline() {
    let scene = Scene::new();
    scene.fill(0..40);
    let (cursor, _) = scene.cursor(0);
    for n in 0..40 {
        assert_eq!(read(&cursor, 1), Ok(entries(n..n + 1)));
    }
    assert_eq!(scene.worker.queued(), 0);
}

/// R5, I24, I27: a read whose completion the worker does not take is told so once, and has moved the cursor.
#[test]
fn a_read_that_the_worker_refuses_is_told_once() {
    let scene = Scene::with(|options| options.completion = Policy::Affine);
    scene.fill(0..10);
    let (cursor, _) = scene.cursor(0);
    scene.worker.refuse_next(1);
    assert_eq!(read(&cursor, 4), Err(ReadError::Rejected(RejectReason::Refused)));
    assert_eq!(cursor.position(), 4);
    cursor.seek(0);
    let answer = Answer::of(&cursor, 4);
    scene.worker.run_all();
    assert_eq!(answer.once(), Ok(entries(0..4)));
    scene.worker.close();
    assert_eq!(read(&cursor, 4), Err(ReadError::Rejected(RejectReason::Closed)));
}

/// I24: a read whose completion was queued and is dropped unrun is told so once.
#[test]
fn a_read_that_the_worker_drops_is_told_once() {
    let scene = Scene::with(|options| options.completion = Policy::Affine);
    scene.fill(0..10);
    let (cursor, _) = scene.cursor(0);
    let answer = Answer::of(&cursor, 4);
    drop(scene.worker.take_next());
    assert_eq!(answer.once(), Err(ReadError::Rejected(RejectReason::Closed)));
}

/// Reads until it fails, each time in the callback of the last.
fn read_on(cursor: &Arc<Cursor>, told: &Arc<Mutex<Vec<Result<usize, ReadError>>>>) {
    let (next, put) = (Arc::clone(cursor), Arc::clone(told));
    cursor.read(1, Vec::new(), move |result| {
        let ok = result.is_ok();
        put.lock().push(result.map(|entries| entries.len()));
        if ok {
            read_on(&next, &put);
        }
    });
}

/// R5: a chain of reads whose worker is closed at the limit ends with one error.
#[test]
fn a_chain_whose_worker_is_closed_at_the_limit_is_told_once() {
    let scene = Scene::new();
    scene.fill(0..100);
    scene.worker.close();
    let (cursor, _) = scene.cursor(0);
    let (cursor, told) = (Arc::new(cursor), Arc::new(Mutex::new(Vec::new())));

    read_on(&cursor, &told);
    let mut expected = vec![Ok(1); usize::try_from(DEFAULT_DEPTH_LIMIT).unwrap()];
    expected.push(Err(ReadError::Rejected(RejectReason::Closed)));
    assert_eq!(*told.lock(), expected);
}

/// I24: a callback that panics has had its result: the panic ends there, and the next read comes inline.
#[test]
fn a_callback_that_panics_has_had_its_entries() {
    let scene = Scene::new();
    scene.fill(0..10);
    let (cursor, _) = scene.cursor(0);
    cursor.read(4, Vec::new(), |_| go_off());
    assert_eq!(read(&cursor, 4), Ok(entries(4..8)));

    let scene = Scene::with(|options| options.completion = Policy::Affine);
    scene.fill(0..10);
    let (cursor, _) = scene.cursor(0);
    scene.worker.close();
    cursor.read(4, Vec::new(), |result| {
        assert_eq!(result, Err(ReadError::Rejected(RejectReason::Closed)));
        go_off();
    });
    assert_eq!(cursor.position(), 4);
}

/// I25, I26: a read ends where the ledger is confirmed, also one that comes while entries are in storage and not yet confirmed.
#[test]
fn nothing_is_read_before_it_is_confirmed() {
    let scene = Scene::new();
    scene.fill(0..3);
    let cursor = Arc::new(scene.cursor(0).0);
    let (reads, seen) = (Arc::clone(&cursor), Arc::new(Mutex::new(Vec::new())));
    let put = Arc::clone(&seen);
    scene.storage.on_append(move || put.lock().push((read(&reads, 100), reads.wait())));
    scene.give(3..5);
    scene.worker.run_all();
    assert_eq!(*seen.lock(), [(Ok(entries(0..3)), Wait::Waiting)]);
    assert_eq!(read(&cursor, 100), Ok(entries(3..5)));
    scene.storage.on_append(|| ());
}
