//! The store in files: what it keeps, refuses, reports and finds again.
#![cfg(not(any(loom, shuttle)))]
#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "tests run on real threads")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod support_dir;

use std::cell::RefCell;
use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use folio_ledger::Position;
use folio_ledger::store::conformance::{self, ask};
use folio_ledger::store::layer::{Directory, Mode, Op, RealDirectory, SimDirectory, StoreFile};
use folio_ledger::store::{
    Append, Done, Durability, FileOptions, FileStore, LogStore, OpenError, ReadLimits, Seed, Stepper,
    StoreError,
};
use folio_sync::Arc;
use support_dir::TempDir;

const ALL: ReadLimits = ReadLimits { entries: usize::MAX, bytes: usize::MAX };

fn small() -> FileOptions {
    FileOptions { segment_bytes: 32 * 1024, ..FileOptions::default() }
}

fn read_only() -> FileOptions {
    FileOptions { read_only: true, ..small() }
}

fn payload(ledger: i64, entry: i64) -> Bytes {
    let size = usize::try_from((ledger * 13 + entry * 29) % 200).unwrap();
    let mut payload = format!("{ledger}:{entry} ").into_bytes();
    payload.resize(payload.len() + size, b'-');
    payload.into()
}

fn batch(ledger: i64, epoch: u64, first: i64, count: i64) -> Append {
    let entries = (first..first + count).map(|entry| payload(ledger, entry)).collect();
    Append { ledger, epoch, first, entries }
}

fn append<D: Directory>(store: &FileStore<D>, ledger: i64, first: i64, count: i64) {
    ask(|done| store.append(batch(ledger, 1, first, count), done)).wait().unwrap();
}

fn create<D: Directory>(store: &FileStore<D>, ledger: i64) {
    ask(|done| store.create("g", ledger, 1, done)).wait().unwrap();
}

fn delete<D: Directory>(store: &FileStore<D>, ledger: i64) {
    ask(|done| store.delete(ledger, 1, done)).wait().unwrap();
}

fn last<D: Directory>(store: &FileStore<D>, ledger: i64) -> i64 {
    ask(|done| store.last_confirmed(ledger, done)).wait().unwrap()
}

fn read<D: Directory>(store: &FileStore<D>, ledger: i64, first: i64) -> Result<Vec<Bytes>, StoreError> {
    ask(|done| store.read(ledger, first, ALL, done)).wait()
}

#[track_caller]
fn holds<D: Directory>(store: &FileStore<D>, ledger: i64, count: i64) {
    assert_eq!(last(store, ledger), count - 1);
    let expected: Vec<_> = (0..count).map(|entry| payload(ledger, entry)).collect();
    if count > 0 {
        assert_eq!(read(store, ledger, 0).unwrap(), expected);
    }
}

fn open<D: Directory + Clone>(directory: &D, options: FileOptions) -> FileStore<D> {
    let (store, report) = FileStore::open(directory.clone(), options).unwrap();
    assert_eq!((&report.cut, &report.damages[..]), (&None, &[][..]), "it was shut");
    store
}

fn stepped(directory: &SimDirectory) -> (FileStore<SimDirectory>, Stepper<SimDirectory>) {
    let (store, stepper, _) = FileStore::open_stepped(directory.clone(), small()).unwrap();
    (store, stepper)
}

/// 1.15: files do what a store of ledgers does.
#[test]
fn files_conform() {
    let kept = RefCell::new(Vec::new());
    conformance::log_store(&|| {
        let temp = TempDir::new("conform");
        let options = FileOptions { segment_bytes: 256 * 1024, ..FileOptions::default() };
        let store = open(&RealDirectory::new(temp.path()), options);
        kept.borrow_mut().push(temp);
        store
    });
}

#[test]
fn files_in_small_segments_that_are_only_written_conform() {
    conformance::log_store(&|| {
        open(&SimDirectory::new(), FileOptions { durability: Durability::Written, ..small() })
    });
}

#[test]
fn a_store_that_lingers_conforms() {
    conformance::log_store(&|| {
        open(&SimDirectory::new(), FileOptions { linger: Duration::from_micros(50), ..small() })
    });
}

#[test]
fn what_was_kept_is_there_when_the_store_is_opened_again() {
    let temp = TempDir::new("again");
    let directory = RealDirectory::new(temp.path());
    let mut next = 0;
    for round in 0..6 {
        let store = open(&directory, small());
        if round == 0 {
            (1..4).for_each(|ledger| create(&store, ledger));
        }
        for _ in 0..20 {
            (1..4).for_each(|ledger| append(&store, ledger, next, 7));
            next += 7;
        }
        (1..4).for_each(|ledger| holds(&store, ledger, next));
    }
    let store = open(&directory, small());
    assert_eq!(ask(|done| store.close(1, 1, done)).wait(), Ok(next - 1));
    assert_eq!(ask(|done| store.recover(2, 5, done)).wait(), Ok(next - 1));
    delete_as(&store, 3, 5);
    drop(store);
    let store = open(&directory, small());
    let closed = StoreError::LedgerClosed { last: next - 1 };
    let fenced = StoreError::Fenced { epoch: 5 };
    assert_eq!(ask(|done| store.append(batch(1, 5, next, 1), done)).wait(), Err(closed));
    assert_eq!(ask(|done| store.append(batch(2, 1, next, 1), done)).wait(), Err(fenced));
    assert_eq!(read(&store, 3, 0), Err(StoreError::NoSuchLedger(3)));
    (1..3).for_each(|ledger| holds(&store, ledger, next));
}

fn delete_as<D: Directory>(store: &FileStore<D>, ledger: i64, epoch: u64) {
    ask(|done| store.delete(ledger, epoch, done)).wait().unwrap();
}

#[test]
fn a_directory_has_one_store_at_a_time_and_readers_only_without_one() {
    let temp = TempDir::new("lock");
    let directory = RealDirectory::new(temp.path());
    let refused = |options| FileStore::open(directory.clone(), options).unwrap_err();
    assert!(matches!(refused(read_only()), OpenError::NotAStore));
    let store = open(&directory, small());
    create(&store, 1);
    append(&store, 1, 0, 3);
    assert!(matches!(refused(small()), OpenError::Locked));
    assert!(matches!(refused(read_only()), OpenError::Locked));
    drop(store);
    let files = directory.list().unwrap();
    let readers = [(); 2].map(|()| open(&directory, read_only()));
    assert!(matches!(refused(small()), OpenError::Locked));
    for reader in &readers {
        holds(reader, 1, 3);
        let asked = [
            ask(|done| reader.create("g", 2, 1, done)).wait(),
            ask(|done| reader.append(batch(1, 1, 3, 1), done)).wait().map(|_| ()),
            ask(|done| reader.delete(1, 1, done)).wait(),
            ask(|done| reader.recover(1, 2, done)).wait().map(|_| ()),
        ];
        assert!(asked.into_iter().all(|answer| answer == Err(StoreError::ReadOnly)));
    }
    assert_eq!(directory.list().unwrap(), files, "it changed nothing");
}

#[test]
fn what_is_not_a_store_is_left_alone() {
    let directory = SimDirectory::new();
    directory.put("letters", vec![1]);
    for options in [small(), read_only()] {
        let error = FileStore::open(directory.clone(), options).unwrap_err();
        assert!(matches!(error, OpenError::NotAStore), "{error}");
    }
    assert_eq!(directory.bytes("letters"), [1]);
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let refused = |options| {
        let error = FileStore::open(SimDirectory::new(), options).unwrap_err();
        assert!(matches!(error, OpenError::Options(_)), "{error}");
    };
    refused(FileOptions { durability: Durability::Memory, ..small() });
    refused(FileOptions { durability: Durability::Replicated, ..small() });
    refused(FileOptions { segment_bytes: 4096, ..small() });
    refused(FileOptions { segment_bytes: 40_001, ..small() });
    refused(FileOptions { max_queued: 0, ..small() });
}

#[test]
fn one_sync_serves_all_that_waits() {
    let directory = SimDirectory::new();
    let (store, mut stepper) = stepped(&directory);
    let made: Vec<_> = (0..20).map(|ledger| ask(|done| store.create("g", ledger, 1, done))).collect();
    let asked: Vec<_> =
        (0..20).map(|ledger| ask(|done| store.append(batch(ledger, 1, 0, 3), done))).collect();
    let (syncs, writes) = (directory.count(Op::Sync), directory.count(Op::Write));
    stepper.step();
    assert_eq!(directory.count(Op::Sync) - syncs, 1);
    assert_eq!(directory.count(Op::Write) - writes, 1);
    for made in made {
        made.wait().unwrap();
    }
    for answer in asked {
        assert_eq!(answer.wait().unwrap().durability, Durability::Synced);
    }
}

#[test]
fn what_is_only_written_costs_no_sync() {
    let directory = SimDirectory::new();
    let options = FileOptions { durability: Durability::Written, ..small() };
    let (store, mut stepper, _) = FileStore::open_stepped(directory.clone(), options).unwrap();
    let made = ask(|done| store.create("g", 1, 1, done));
    stepper.step();
    made.wait().unwrap();
    let syncs = directory.count(Op::Sync);
    let asked = ask(|done| store.append(batch(1, 1, 0, 3), done));
    stepper.step();
    assert_eq!(asked.wait().unwrap().durability, Durability::Written);
    assert_eq!(directory.count(Op::Sync), syncs);
}

#[test]
fn writes_keep_to_their_limits() {
    let directory = SimDirectory::new();
    for (max_write_entries, max_write_bytes, writes) in [(6, usize::MAX, 5), (usize::MAX, 64, 10), (1, 1, 10)]
    {
        let options = FileOptions { max_write_entries, max_write_bytes, ..small() };
        let (store, mut stepper, _) = FileStore::open_stepped(directory.clone(), options).unwrap();
        let made = ask(|done| store.create("g", 1, 1, done));
        stepper.step();
        made.wait().unwrap();
        let asked: Vec<_> = (0..10).map(|n| ask(|done| store.append(batch(1, 1, n * 3, 3), done))).collect();
        let before = directory.count(Op::Write);
        stepper.step();
        assert_eq!(directory.count(Op::Write) - before, writes);
        for answer in asked {
            answer.wait().unwrap();
        }
        let deleted = ask(|done| store.delete(1, 1, done));
        stepper.step();
        deleted.wait().unwrap();
        stepper.finish();
    }
}

#[test]
fn more_than_may_wait_is_refused_at_once_and_nothing_is_lost() {
    let directory = SimDirectory::new();
    let options = FileOptions { max_queued: 4, max_queued_bytes: 1000, ..small() };
    let (store, mut stepper, _) = FileStore::open_stepped(directory, options).unwrap();
    let made = ask(|done| store.create("g", 1, 1, done));
    stepper.step();
    made.wait().unwrap();
    let one = |first, bytes: usize| Append { entries: vec![vec![0; bytes].into()], ..batch(1, 1, first, 0) };
    stepper.step();
    let heavy = ask(|done| store.append(one(0, 900), done));
    assert_eq!(ask(|done| store.append(one(1, 100), done)).wait(), Err(StoreError::Busy));
    let light: Vec<_> = (1..4).map(|n| ask(|done| store.close(n, 1, done))).collect();
    assert_eq!(ask(|done| store.delete(1, 1, done)).wait(), Err(StoreError::Busy));
    stepper.step();
    heavy.wait().unwrap();
    drop(light);
    assert_eq!(last(&store, 1), 0);
    stepper.step();
    drop(store);
    stepper.finish();
}

#[test]
fn who_asks_after_the_end_is_told_so() {
    let directory = SimDirectory::new();
    let (store, stepper) = stepped(&directory);
    let store = Arc::new(store);
    let asked = ask(|done| store.create("g", 1, 1, done));
    stepper.finish();
    asked.wait().unwrap();
    let left = ask(|done| store.create("g", 2, 1, done));
    drop(store);
    assert_eq!(left.wait(), Err(StoreError::Dropped), "nobody steps it");
}

#[test]
fn an_answer_may_be_the_last_to_hold_the_store() {
    let temp = TempDir::new("last");
    let store = Arc::new(open(&RealDirectory::new(temp.path()), small()));
    let (mine, gone) = (Arc::new(AtomicBool::new(false)), Arc::clone(&store));
    let theirs = Arc::clone(&mine);
    let told = ask(|told| {
        let done = Done::new(move |made: Result<(), _>| {
            // Acquire: the other holder is gone; pairs with the Release of the test.
            while !theirs.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            drop(gone);
            told.tell(made);
        });
        store.create("g", 1, 1, done);
    });
    drop(store);
    // Release: pairs with the Acquire of the answer.
    mine.store(true, Ordering::Release);
    told.wait().unwrap();
}

/// Every segment is used again and again, and never shows what was deleted.
#[test]
fn a_segment_that_is_used_again_brings_nothing_back() {
    let directory = SimDirectory::new();
    let mut store = open(&directory, small());
    for ledger in 0..60 {
        create(&store, ledger);
        for n in 0..10 {
            append(&store, ledger, n * 10, 10);
        }
        holds(&store, ledger, 100);
        if ledger >= 2 {
            delete(&store, ledger - 2);
        }
        if ledger % 7 == 6 {
            drop(store);
            store = open(&directory, small());
            let list = ask(|done| store.list("g", done)).wait().unwrap();
            assert_eq!(list.iter().map(|info| info.ledger).collect::<Vec<_>>(), [ledger - 1, ledger]);
            holds(&store, ledger, 100);
        }
    }
    let segments = directory.list().unwrap().iter().filter(|name| name.starts_with("segment-")).count();
    assert!(segments <= 6, "{segments} segments for two ledgers");
}

/// A ledger's number may be used again; the segment of the first one may still be there.
#[test]
fn a_ledger_made_again_has_nothing_of_the_one_before() {
    let directory = SimDirectory::new();
    let store = open(&directory, small());
    create(&store, 9);
    append(&store, 9, 0, 1);
    for round in 1..20 {
        create(&store, 1);
        append(&store, 1, 0, round * 2);
        append(&store, 9, round, 1);
        delete(&store, 1);
    }
    create(&store, 1);
    drop(store);
    let store = open(&directory, small());
    holds(&store, 1, 0);
    append(&store, 1, 0, 2);
    drop(store);
    let store = open(&directory, small());
    holds(&store, 1, 2);
    holds(&store, 9, 20);
}

#[test]
fn as_many_ledgers_as_fit_into_the_list_may_be() {
    let directory = SimDirectory::new();
    let store = open(&directory, small());
    let mut made = 0;
    let error = loop {
        match ask(|done| store.create("g", made, 1, done)).wait() {
            Ok(()) => made += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error, StoreError::TooManyLedgers);
    assert!(made > 100, "{made}");
    for ledger in 0..made {
        append(&store, ledger, 0, 1);
    }
    delete(&store, 0);
    create(&store, 0);
    drop(store);
    let store = open(&directory, FileOptions { segment_bytes: 64 * 1024, ..small() });
    (made..2 * made).for_each(|ledger| create(&store, ledger));
    drop(store);
    let error = FileStore::open(directory.clone(), small()).unwrap_err();
    assert!(matches!(error, OpenError::Options(_)), "{error}");
    let store = open(&directory, FileOptions { segment_bytes: 64 * 1024, ..small() });
    (1..made).for_each(|ledger| holds(&store, ledger, 1));
}

/// A disk without room refuses, reads on, lets delete, and resumes.
#[test]
fn a_full_disk_refuses_appends_reads_on_and_resumes() {
    let directory = SimDirectory::new();
    let store = open(&directory, small());
    directory.set_room(Some(directory.used() + 2 * 32 * 1024));
    let (mut next, mut ledger) = (0, 1);
    create(&store, ledger);
    let full = loop {
        match ask(|done| store.append(batch(ledger, 1, next, 5), done)).wait() {
            Ok(_) => next += 5,
            Err(error) => break error,
        }
    };
    assert_eq!(full, StoreError::Full);
    assert!(next > 200, "{next}");
    holds(&store, 1, next);
    for _ in 0..5 {
        let again = ask(|done| store.append(batch(1, 1, next, 5), done)).wait();
        assert_eq!(again, Err(StoreError::Full));
    }
    delete(&store, 1);
    for _ in 0..5 {
        ledger += 1;
        create(&store, ledger);
        (0..8).for_each(|n| append(&store, ledger, n * 5, 5));
        holds(&store, ledger, 40);
        delete(&store, ledger);
    }
    create(&store, 1);
    next = 0;
    while ask(|done| store.append(batch(1, 1, next, 5), done)).wait().is_ok() {
        next += 5;
    }
    directory.set_room(None);
    append(&store, 1, next, 5);
    drop(store);
    let store = open(&directory, small());
    holds(&store, 1, next + 5);
}

/// A write that finds no room leaves nothing of what is refused, not even after a crash.
#[test]
fn a_write_without_room_leaves_nothing_behind() {
    for seed in 0..50 {
        let directory = SimDirectory::new();
        let (store, mut stepper) = stepped(&directory);
        let mut ask_now = |append| {
            let asked = ask(|done| store.append(append, done));
            stepper.step();
            asked.wait()
        };
        let made = ask(|done| store.create("g", 1, 1, done));
        ask_now(batch(1, 1, 7, 1)).unwrap_err();
        made.wait().unwrap();
        ask_now(batch(1, 1, 0, 3)).unwrap();
        directory.fail(Op::Write, 0, ErrorKind::StorageFull);
        assert_eq!(ask_now(batch(1, 1, 3, 4)), Err(StoreError::Full));
        if seed % 2 == 0 {
            let other = Append { entries: vec![payload(1, 3)], ..batch(1, 1, 3, 0) };
            ask_now(other).unwrap();
        }
        directory.crash(&mut Seed::new(seed));
        drop(store);
        let store = FileStore::open(directory, small()).unwrap().0;
        holds(&store, 1, if seed % 2 == 0 { 4 } else { 3 });
    }
}

/// A sync that failed is not tried again: what was on its way is never answered well.
#[test]
fn a_failed_sync_is_final() {
    let directory = SimDirectory::new();
    let store = open(&directory, small());
    create(&store, 1);
    append(&store, 1, 0, 3);
    directory.fail(Op::Sync, 0, ErrorKind::Other);
    let failed = ask(|done| store.append(batch(1, 1, 3, 1), done)).wait().unwrap_err();
    assert!(matches!(failed, StoreError::Failed(_)), "{failed}");
    let syncs = directory.count(Op::Sync);
    for _ in 0..3 {
        assert_eq!(ask(|done| store.append(batch(1, 1, 3, 1), done)).wait(), Err(failed.clone()));
        assert_eq!(ask(|done| store.create("g", 2, 1, done)).wait(), Err(failed.clone()));
        assert_eq!(ask(|done| store.recover(1, 2, done)).wait(), Err(failed.clone()));
    }
    assert_eq!(directory.count(Op::Sync), syncs, "no retry");
    holds(&store, 1, 3);
    drop(store);
    directory.crash(&mut Seed::new(3));
    let (store, _) = FileStore::open(directory, small()).unwrap();
    assert!(last(&store, 1) >= 2);
}

#[test]
fn a_failed_write_is_final_too() {
    let directory = SimDirectory::new();
    let store = open(&directory, small());
    create(&store, 1);
    directory.fail(Op::Write, 0, ErrorKind::Other);
    let failed = ask(|done| store.append(batch(1, 1, 0, 1), done)).wait().unwrap_err();
    assert!(matches!(failed, StoreError::Failed(_)), "{failed}");
    assert_eq!(ask(|done| store.append(batch(1, 1, 0, 1), done)).wait(), Err(failed));
}

#[test]
fn a_read_that_fails_may_be_asked_again() {
    let directory = SimDirectory::new();
    let store = open(&directory, small());
    create(&store, 1);
    append(&store, 1, 0, 3);
    directory.fail(Op::Read, 0, ErrorKind::Other);
    assert!(matches!(read(&store, 1, 0), Err(StoreError::ReadFailed(_))));
    holds(&store, 1, 3);
}

#[test]
fn a_newer_format_is_refused_with_both_versions() {
    let directory = SimDirectory::new();
    drop(open(&directory, small()));
    let mut bytes = directory.bytes("segment-00000000");
    for copy in [0, 4096] {
        bytes[copy + 8] = 9;
        let crc = crc32c::crc32c(&bytes[copy..copy + 28]);
        bytes[copy + 28..copy + 32].copy_from_slice(&crc.to_le_bytes());
    }
    directory.put("segment-00000000", bytes);
    for options in [small(), read_only()] {
        let error = FileStore::open(directory.clone(), options).unwrap_err();
        assert!(matches!(error, OpenError::Format { found: 9, supported: 1 }), "{error}");
    }
}

/// A store with entries of two ledgers in several segments, shut; how many entries each has.
fn filled(directory: &SimDirectory) -> i64 {
    let store = open(directory, small());
    (1..3).for_each(|ledger| create(&store, ledger));
    for n in 0..60 {
        (1..3).for_each(|ledger| append(&store, ledger, n * 5, 5));
    }
    300
}

fn segments(directory: &SimDirectory) -> Vec<String> {
    let mut names = directory.list().unwrap();
    names.retain(|name| name.starts_with("segment-"));
    names
}

/// How many segments have an index beside them.
fn sealed(directory: &SimDirectory) -> usize {
    directory.list().unwrap().iter().filter(|name| name.starts_with("index-")).count()
}

/// A flipped bit anywhere in a segment, its header or its index is told or harmless; nothing wrong is ever read.
#[test]
fn a_flipped_bit_is_told_or_harmless() {
    let whole = SimDirectory::new();
    let count = filled(&whole);
    let mut seed = Seed::new(11);
    let (mut told, mut harmless, mut at_open) = (0, 0, 0);
    let mut names = whole.list().unwrap();
    names.retain(|name| name != "LOCK");
    assert!(names.len() > 5, "{names:?}");
    // A sanitizer takes its time.
    let rounds = if cfg!(tsan) { 60 } else { 600 };
    for round in 0..rounds {
        let directory = SimDirectory::new();
        for name in whole.list().unwrap() {
            directory.put(&name, whole.bytes(&name));
        }
        let name = &names[usize::try_from(seed.below(names.len() as u64)).unwrap()];
        let mut bytes = directory.bytes(name);
        let end = if round % 4 == 0 { 300.min(bytes.len()) } else { bytes.len() };
        let at = usize::try_from(seed.below(end as u64)).unwrap();
        bytes[at] ^= 1 << seed.below(8);
        directory.put(name, bytes);
        match FileStore::open(directory.clone(), small()) {
            Ok((store, report)) => {
                assert!(report.damages.is_empty());
                let (mut bad, mut cut) = (0, 0);
                for ledger in 1..3 {
                    let (good, damaged) = verify(&store, ledger, count);
                    bad += damaged;
                    cut += count - good - damaged;
                }
                assert_eq!(cut, 0, "{name} {at}: what was on disk is not cut off");
                told += i32::from(bad > 0);
                harmless += i32::from(bad == 0);
            }
            Err(OpenError::Damaged(damages)) => {
                assert!(!damages.is_empty());
                at_open += 1;
                let (store, report) = FileStore::open(directory, read_only()).unwrap();
                assert!(!report.damages.is_empty());
                assert!(report.damages.iter().any(|damage| *damage.file == **name), "{damages:?}");
                for ledger in 1..3 {
                    if ask(|done| store.last_confirmed(ledger, done)).wait().is_ok() {
                        verify(&store, ledger, count);
                    }
                }
            }
            Err(other) => panic!("{name} {at}: {other}"),
        }
    }
    assert!(cfg!(tsan) || told > 50 && harmless > 50 && at_open > 5, "{told} {harmless} {at_open}");
}

/// Reads all entries; how many are right, and how many are told to be damaged.
fn verify<D: Directory>(store: &FileStore<D>, ledger: i64, count: i64) -> (i64, i64) {
    let (mut good, mut damaged, mut next) = (0, 0, 0);
    while next < count {
        match read(store, ledger, next) {
            Ok(some) => {
                for one in some {
                    assert_eq!(one, payload(ledger, next));
                    next += 1;
                    good += 1;
                }
            }
            Err(StoreError::Damaged(damage)) => {
                assert_eq!(damage.position, Some(Position { ledger, entry: next }));
                damaged += 1;
                next += 1;
            }
            Err(StoreError::NoSuchEntry(_)) => break,
            Err(other) => panic!("{other}"),
        }
    }
    (good, damaged)
}

#[test]
fn damage_in_the_middle_is_told_with_ledger_entry_file_and_offset() {
    let directory = SimDirectory::new();
    filled(&directory);
    // The payload of an entry is in one place only.
    let entry = |entry| payload(1, entry);
    for number in [3, 100, 200] {
        let name =
            segments(&directory).into_iter().find(|name| offset(&directory, name, &entry(number)).is_some());
        let name = name.unwrap();
        let at = offset(&directory, &name, &entry(number)).unwrap();
        let whole = directory.bytes(&name);
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        directory.put(&name, bytes);
        let (store, damage) = match FileStore::open(directory.clone(), small()) {
            Ok((store, _)) => {
                assert_eq!(read(&store, 1, number - 2).unwrap().len(), 2, "up to it all is well");
                let Err(StoreError::Damaged(damage)) = read(&store, 1, number) else { panic!("not told") };
                (store, damage)
            }
            Err(OpenError::Damaged(damages)) => {
                let store = FileStore::open(directory.clone(), read_only()).unwrap().0;
                (store, damages[0].clone())
            }
            Err(other) => panic!("{other}"),
        };
        assert_eq!(damage.position, Some(Position { ledger: 1, entry: number }));
        assert_eq!((&*damage.file, damage.offset), (&*name, at as u64 - 48));
        holds(&store, 2, 300);
        drop(store);
        directory.put(&name, whole);
    }
}

fn offset(directory: &SimDirectory, name: &str, payload: &[u8]) -> Option<usize> {
    directory.bytes(name).windows(payload.len()).position(|window| window == payload)
}

#[test]
fn a_segment_that_is_gone_is_told() {
    let directory = SimDirectory::new();
    filled(&directory);
    let names = segments(&directory);
    for name in &names[..names.len() - 1] {
        let bytes = directory.bytes(name);
        directory.remove(name).unwrap();
        let error = FileStore::open(directory.clone(), small()).unwrap_err();
        let OpenError::Damaged(damages) = error else { panic!("{error}") };
        assert!(damages.iter().any(|damage| damage.position.is_some()), "{damages:?}");
        directory.put(name, bytes);
    }
    drop(open(&directory, small()));
}

#[test]
fn a_lost_index_is_made_up_for_by_its_segment() {
    let directory = SimDirectory::new();
    let count = filled(&directory);
    let indexes: Vec<_> =
        directory.list().unwrap().into_iter().filter(|name| name.starts_with("index-")).collect();
    assert!(indexes.len() > 2);
    let (store, report) = FileStore::open(directory.clone(), small()).unwrap();
    assert_eq!(report.scanned, 1, "of the others the index is read");
    drop(store);
    directory.remove(&indexes[0]).unwrap();
    directory.put(&indexes[1], vec![1, 2, 3]);
    let (store, report) = FileStore::open(directory, small()).unwrap();
    assert_eq!(report.scanned, 3);
    (1..3).for_each(|ledger| holds(&store, ledger, count));
}

/// A tail that was being written is cut off and told; what is written after it is found again.
#[test]
fn a_torn_tail_is_cut_and_told() {
    let mut cuts = 0;
    for seed in 0..100 {
        let directory = SimDirectory::new();
        let (store, mut stepper) = stepped(&directory);
        let made = ask(|done| store.create("g", 1, 1, done));
        let first = ask(|done| store.append(batch(1, 1, 0, 5), done));
        stepper.step();
        made.wait().unwrap();
        first.wait().unwrap();
        directory.power_off_after(1);
        let second = ask(|done| store.append(batch(1, 1, 5, 20), done));
        stepper.step();
        assert!(second.wait().is_err());
        directory.crash(&mut Seed::new(seed));
        drop(store);
        let (store, report) = FileStore::open(directory.clone(), small()).unwrap();
        let next = last(&store, 1) + 1;
        assert!((5..=25).contains(&next));
        cuts += i32::from(report.cut.is_some());
        holds(&store, 1, next);
        append(&store, 1, next, 3);
        drop(store);
        let store = open(&directory, small());
        holds(&store, 1, next + 3);
    }
    assert!(cuts > 30, "{cuts}");
}

/// What lies behind a tail that was cut off fits exactly behind what is written there next, and yet does not come back.
#[test]
fn what_was_behind_a_cut_does_not_come_back() {
    let directory = SimDirectory::new();
    let (store, mut stepper) = stepped(&directory);
    let made = ask(|done| store.create("g", 1, 1, done));
    stepper.step();
    made.wait().unwrap();
    let three =
        |text: [&'static str; 3]| Append { entries: text.map(Bytes::from).into(), ..batch(1, 1, 0, 0) };
    directory.power_off_after(1);
    let asked = ask(|done| store.append(three(["lost a", "lost b", "lost c"]), done));
    stepper.step();
    assert!(asked.wait().is_err());
    directory.kill();
    drop(store);
    // The first of the three did not get to the disk.
    let name = "segment-00000000";
    let at = offset(&directory, name, b"lost a").unwrap();
    let mut bytes = directory.bytes(name);
    bytes[at - 48..at].fill(0);
    directory.put(name, bytes);
    let (store, mut stepper, report) = FileStore::open_stepped(directory.clone(), small()).unwrap();
    assert_eq!(report.cut.unwrap().offset, at as u64 - 48);
    let one = Append { entries: vec!["sure a".into()], ..batch(1, 1, 0, 0) };
    let asked = ask(|done| store.append(one, done));
    stepper.step();
    asked.wait().unwrap();
    directory.kill();
    drop(store);
    let store = FileStore::open(directory, small()).unwrap().0;
    assert_eq!(last(&store, 1), 0);
    assert_eq!(read(&store, 1, 0).unwrap(), ["sure a"]);
}

/// Only the newest segment may lose anything, even if appends are only written.
#[test]
fn a_sealed_segment_is_on_disk_whatever_the_durability() {
    for seed in 0..20 {
        let directory = SimDirectory::new();
        let options = FileOptions { durability: Durability::Written, ..small() };
        let store = FileStore::open(directory.clone(), options).unwrap().0;
        create(&store, 1);
        let mut next = 0;
        while sealed(&directory) < 2 {
            append(&store, 1, next, 5);
            next += 5;
        }
        directory.crash(&mut Seed::new(seed));
        drop(store);
        let store = FileStore::open(directory, small()).unwrap().0;
        let there = last(&store, 1) + 1;
        assert!(there >= next - 5, "{there} of {next}");
        holds(&store, 1, there);
    }
}

/// A segment may be taken up again after its index was written: the next one may not have come to be.
#[test]
fn an_index_that_is_older_than_its_segment_is_not_taken() {
    let directory = SimDirectory::new();
    let store = open(&directory, small());
    create(&store, 1);
    let mut next = 0;
    while sealed(&directory) < 1 {
        append(&store, 1, next, 1);
        next += 1;
    }
    let early = directory.bytes("index-00000000");
    drop(store);
    // As if the power had gone as the second segment began.
    let mut bytes = directory.bytes("segment-00000001");
    bytes[8192..].fill(0);
    directory.put("segment-00000001", bytes);
    let store = FileStore::open(directory.clone(), small()).unwrap().0;
    next = last(&store, 1) + 1;
    ask(|done| store.create("other", 2, 1, done)).wait().unwrap();
    ask(|done| store.append(batch(2, 1, 0, 1), done)).wait().unwrap();
    append(&store, 1, next, 4);
    next += 4;
    directory.remove("index-00000000").unwrap();
    while sealed(&directory) < 1 {
        append(&store, 1, next, 1);
        next += 1;
    }
    drop(store);
    directory.put("index-00000000", early);
    let store = open(&directory, small());
    holds(&store, 1, next);
    holds(&store, 2, 1);
}

#[test]
fn a_file_of_the_real_system_is_as_long_as_its_segment() {
    let temp = TempDir::new("size");
    let directory = RealDirectory::new(temp.path());
    drop(open(&directory, small()));
    let file = directory.open("segment-00000000", Mode::Read).unwrap();
    assert_eq!(file.size().unwrap(), 32 * 1024);
}
