//! A ledger whose entries are in a store of files.
#![cfg(not(any(loom, shuttle)))]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests run on the standard library only, and a failed unwrap fails the test"
)]

mod support;

use std::sync::mpsc;

use bytes::Bytes;
use folio_executor::OrderedExecutor;
use folio_ledger::store::layer::SimDirectory;
use folio_ledger::store::{Done, FileOptions, FileStore, StoredLedger};
use folio_ledger::{AppendError, Cursor, Ledger, LedgerOptions, StorageError, Wait};
use folio_sync::Arc;
use folio_sync::test_util::ManualClock;

use support::{Heard, ID, Told, at, failed, manager, until};

/// A ledger in a store on a disk that is not there.
struct Stored {
    disk: SimDirectory,
    pool: OrderedExecutor,
    heard: Heard,
    ledger: Ledger<i64>,
}

impl Stored {
    fn open(segment_bytes: u32, number: i64) -> Self {
        let (disk, heard) = (SimDirectory::new(), Heard::default());
        let options = FileOptions { segment_bytes, ..FileOptions::default() };
        let (store, _) = FileStore::open(disk.clone(), options).unwrap();
        let (tell, told) = mpsc::channel();
        let made = Done::new(move |made| tell.send(made).unwrap());
        StoredLedger::create(&Arc::new(store), "group", ID, 1, made);
        let pool = OrderedExecutor::builder().threads(1).build().unwrap();
        let options = LedgerOptions { id: number, ..LedgerOptions::default() };
        let cache = manager(&ManualClock::new(), 0);
        let storage = told.recv().unwrap().unwrap();
        let ledger =
            Ledger::open(options, storage, &cache, pool.workers()[0].clone(), heard.clone()).unwrap();
        Self { disk, pool, heard, ledger }
    }

    /// Appends these, and waits until each is told what became of it.
    fn append(&self, payloads: impl IntoIterator<Item = (i64, Bytes)>) -> Vec<Told> {
        let mut count = 0;
        for (token, payload) in payloads {
            self.ledger.append(payload, token);
            count += 1;
        }
        until("all are told", || self.heard.len() == count);
        self.heard.take()
    }

    fn end(self) {
        drop(self.ledger);
        assert!(self.pool.join().unwrap().is_empty());
    }
}

fn read_all(cursor: &Cursor) -> Vec<Bytes> {
    let mut all = Vec::new();
    while cursor.wait() == Wait::More {
        let (tell, told) = mpsc::channel();
        cursor.read(1_000, Vec::new(), move |read| tell.send(read).unwrap());
        all.extend(told.recv().unwrap().unwrap().into_iter().map(|entry| entry.payload));
    }
    all
}

fn payload(n: i64) -> Bytes {
    Bytes::from(vec![u8::try_from(n % 251).unwrap(); 128])
}

#[test]
fn a_burst_goes_to_small_segments_and_is_read_back() {
    let stored = Stored::open(1 << 20, ID);
    let told = stored.append((0..20_000).map(|n| (n, payload(n))));
    assert!(told.iter().map(|(token, _)| *token).eq(0..20_000));
    assert!(told.iter().map(|(_, result)| result.clone().unwrap()).eq((0..20_000).map(at)));
    let cursor = stored.ledger.cursor(0, || ());
    assert!(read_all(&cursor).into_iter().eq((0..20_000).map(payload)));
    drop(cursor);
    stored.end();
}

#[test]
fn an_entry_that_is_too_large_harms_no_other() {
    let stored = Stored::open(1 << 20, ID);
    let told = stored.append([(0, payload(0)), (1, Bytes::from(vec![1; 1 << 20])), (2, payload(2))]);
    let mut results: Vec<_> = told.into_iter().map(|(token, result)| (token, result.ok())).collect();
    results.sort_unstable();
    assert_eq!(results, [(0, Some(at(0))), (1, None), (2, Some(at(1)))]);
    stored.end();
}

/// I42: a full disk refuses appends, and keeps none of them; when there is room again the ledger goes on without a gap.
#[test]
fn a_ledger_outlives_a_full_disk() {
    let stored = Stored::open(1 << 20, ID);
    stored.disk.set_room(Some(stored.disk.used() + (3 << 20)));
    let full = AppendError::Storage(StorageError::Full);
    let (mut kept, mut refused, mut n) = (Vec::new(), 0, 0);
    while refused < 100 {
        assert!(n < 200_000, "the disk is full at some time");
        for (token, result) in stored.append((n..n + 100).map(|n| (n, payload(n)))) {
            match result {
                Ok(position) => {
                    assert_eq!(position, at(i64::try_from(kept.len()).unwrap()));
                    kept.push(token);
                }
                Err(error) => {
                    assert_eq!(error, full);
                    refused += 1;
                }
            }
        }
        n += 100;
    }
    let cursor = stored.ledger.cursor(0, || ());
    assert!(read_all(&cursor).into_iter().eq(kept.iter().map(|n| payload(*n))), "reads go on");
    stored.disk.set_room(None);
    for (token, result) in stored.append((n..n + 10_000).map(|n| (n, payload(n)))) {
        assert_eq!(result, Ok(at(i64::try_from(kept.len()).unwrap())));
        kept.push(token);
    }
    let cursor = stored.ledger.cursor(0, || ());
    assert!(read_all(&cursor).into_iter().eq(kept.iter().map(|n| payload(*n))));
    drop(cursor);
    stored.end();
}

#[test]
fn a_ledger_of_another_number_is_refused() {
    let stored = Stored::open(1 << 20, ID + 1);
    let why = format!("this is ledger {ID} of its store, not {}", ID + 1);
    let error = AppendError::Storage(StorageError::Failed(why));
    assert_eq!(stored.append([(0, payload(0))]), failed(0..1, &error));
    stored.end();
}
