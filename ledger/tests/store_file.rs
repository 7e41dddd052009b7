//! The store in files: what it keeps, refuses and finds again.
#![cfg(not(any(loom, shuttle)))]
#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "tests run on real threads")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod support_dir;
mod support_store;

use std::cell::RefCell;
use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use folio_ledger::store::conformance::{self, ask};
use folio_ledger::store::layer::{Directory, Op, RealDirectory, SimDirectory};
use folio_ledger::store::{
    Append, Done, Durability, FileOptions, FileStore, LogStore, OpenError, Seed, StoreError,
};
use folio_sync::Arc;
use support_dir::TempDir;
use support_store::{
    append, batch, create, delete, holds, last, open, payload, read, read_only, small, stepped,
};

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
                thread::yield_now();
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

#[test]
fn entries_far_apart_are_found_without_reading_what_is_between() {
    let directory = SimDirectory::new();
    let store = open(&directory, FileOptions { segment_bytes: 1 << 20, ..FileOptions::default() });
    let (ledgers, entries) = (100, 15);
    (0..ledgers).for_each(|ledger| create(&store, ledger));
    let text = |ledger: i64, entry: i64| Bytes::from(format!("{ledger}:{entry} ").repeat(150));
    for entry in 0..entries {
        let asked = (0..ledgers).map(|ledger| {
            let append = Append { entries: vec![text(ledger, entry)], ..batch(ledger, 1, entry, 0) };
            ask(|done| store.append(append, done))
        });
        for answer in asked.collect::<Vec<_>>() {
            answer.wait().unwrap();
        }
    }
    let (before, mut count) = (directory.bytes_read(), 0);
    for ledger in 0..ledgers {
        for first in [0, 1, 7] {
            let expected: Vec<_> = (first..entries).map(|entry| text(ledger, entry)).collect();
            assert_eq!(read(&store, ledger, first).unwrap(), expected);
            count += expected.len() as u64;
        }
    }
    let bytes = directory.bytes_read() - before;
    assert!(bytes <= count * 10_000, "{bytes} bytes for {count} entries");
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

/// A segment that found no room when it was made ahead is made when it is needed.
#[test]
fn a_segment_that_could_not_be_made_ahead_is_made_when_there_is_room() {
    let directory = SimDirectory::new();
    let store = open(&directory, small());
    create(&store, 1);
    let before = directory.count(Op::Preallocate);
    directory.set_room(Some(directory.used()));
    // Past the half of the segment, where the next one is asked for, and not to its end.
    (0..80).for_each(|n| append(&store, 1, n, 1));
    while directory.count(Op::Preallocate) == before {
        thread::yield_now();
    }
    directory.set_room(None);
    (80..650).for_each(|n| append(&store, 1, n, 1));
    assert!(directory.count(Op::Preallocate) > before + 1);
    holds(&store, 1, 650);
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

/// Asks for something that a step answers.
fn asked<T: Send + 'static>(ask: impl FnOnce(Done<T>)) -> mpsc::Receiver<Result<T, StoreError>> {
    let (tell, told) = mpsc::channel();
    ask(Done::new(move |answer| tell.send(answer).unwrap_or_default()));
    told
}

/// A write that finds no room refuses all that was staged with it; what is asked behind it, and was checked against that, is refused as well.
#[test]
fn what_was_checked_against_what_is_refused_is_refused() {
    let long = "n".repeat(500);
    let mut refused = 0;
    for others in 0..12 {
        for pad in (0..600).step_by(24) {
            let directory = SimDirectory::new();
            let (store, mut stepper) = stepped(&directory);
            let mut step = |told: Vec<mpsc::Receiver<Result<(), StoreError>>>| {
                stepper.step();
                told.into_iter().map(|told| told.recv().unwrap()).collect::<Vec<_>>()
            };
            let made = step(vec![asked(|done| store.create("g", 5, 1, done))]);
            assert_eq!(made, [Ok(())]);
            let made = step(vec![asked(|done| store.create("h", 6, 1, done))]);
            assert_eq!(made, [Ok(())]);
            let entry = |first, bytes| Append {
                ledger: 6,
                epoch: 1,
                first,
                entries: vec![Bytes::from(vec![1; bytes])],
            };
            for first in 0..5 {
                let kept = asked(|done| store.append(entry(first, 3500), done));
                step(Vec::new());
                assert!(kept.recv().unwrap().is_ok());
            }
            directory.fail(Op::Write, 0, ErrorKind::StorageFull);
            let deleted = asked(|done| store.delete(5, 1, done));
            let appended = asked(|done| store.append(entry(5, pad), done));
            let between: Vec<_> = (0..others)
                .map(|n| asked(|done| store.create(&format!("{n}{long}"), 100 + n, 1, done)))
                .collect();
            let again = asked(|done| store.create(&long, 5, 1, done));
            let closed = asked(|done| store.close(6, 1, done));
            step(between);
            let (deleted, again) = (deleted.recv().unwrap(), again.recv().unwrap());
            assert!(deleted.is_ok() || again.is_err(), "{others}, {pad}: a ledger is made that is there");
            let last = ask(|done| store.last_confirmed(6, done)).wait();
            if let Ok(closed) = closed.recv().unwrap() {
                assert_eq!(Ok(closed), last, "{others}, {pad}");
            }
            refused += u32::from(appended.recv().unwrap().is_err());
            stepper.finish();
        }
    }
    assert!(refused > 100, "{refused} were refused");
}
