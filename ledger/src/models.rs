//! Models of the ledger: cursors that open while it appends, trims and ends.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the model")]

use bytes::Bytes;
use folio_cache::{CacheManager, CacheOptions};
use folio_executor::Handler;
use folio_sync::atomic::{AtomicI64, AtomicU64, Ordering};
use folio_sync::test_util::{ManualClock, ManualExecutor, ManualTimers, Model, Tracked, model};
use folio_sync::time::Instant;
use folio_sync::{Arc, Mutex, thread};

use crate::append::{Add, AppendSink, Appender};
use crate::cursor::Cursor;
use crate::done::Done;
use crate::error::AppendError;
use crate::ledger::{Ledger, LedgerOptions};
use crate::position::Position;
use crate::storage::{LogStorage, StorageError};
use crate::tail::Wait;

/// Storage that knows only what it may have forgotten.
#[derive(Clone)]
struct Numbers {
    trimmed: Arc<AtomicI64>,
}

impl LogStorage for Numbers {
    fn append(&self, _first: Position, _entries: Vec<Bytes>, done: Done<(), StorageError>) {
        done.tell(Ok(()));
    }

    fn read(&self, first: Position, count: usize, done: Done<Vec<Bytes>, StorageError>) {
        // Relaxed: what it says is to be ordered by the ledger.
        let is_there = first.entry >= self.trimmed.load(Ordering::Relaxed);
        done.tell(if is_there { Ok(vec![Bytes::new(); count]) } else { Err(StorageError::Missing(first)) });
    }

    fn trim(&self, before: Position) {
        // Relaxed: as above.
        self.trimmed.fetch_max(before.entry, Ordering::Relaxed);
    }
}

/// A publisher that hears nothing.
struct Deaf;

impl AppendSink<Tracked<()>> for Deaf {
    fn appended(&self, token: Tracked<()>, result: Result<Position, AppendError>, _at: Instant) {
        token.get();
        assert!(result.is_ok());
    }
}

/// Caches nothing.
fn uncached() -> CacheManager<Bytes> {
    let (clock, mut options) = (ManualClock::new(), CacheOptions::default());
    options.budget = 0;
    CacheManager::new(options, ManualExecutor::new(), ManualTimers::new(&clock), clock).unwrap()
}

/// A ledger without a cache, whose worker is whoever has its appender.
fn ledger() -> (Ledger<Tracked<()>>, Appender<Tracked<()>>) {
    let options = LedgerOptions::default();
    let storage = Numbers { trimmed: Arc::new(AtomicI64::new(0)) };
    let ledger = Ledger::open(options, storage, &uncached(), ManualExecutor::new(), Deaf).unwrap();
    let appender = ledger.appender();
    (ledger, appender)
}

fn append(appender: &mut Appender<Tracked<()>>) {
    appender.run(Add { payload: Bytes::new(), token: Tracked::new(()) });
    appender.batch_ended();
}

/// A cursor at the tail, and how often it was told.
fn at_tail(ledger: &Ledger<Tracked<()>>) -> (Cursor, Arc<AtomicU64>) {
    let told = Arc::new(AtomicU64::new(0));
    let tells = Arc::clone(&told);
    let cursor = ledger.cursor_at_tail(move || {
        // Relaxed: read when all threads are joined.
        tells.fetch_add(1, Ordering::Relaxed);
    });
    (cursor, told)
}

/// I38: a cursor that opens at the tail while an entry is appended begins after it, or reads it, or waits and is told of it.
#[test]
fn open_racing_append() {
    model("open racing append", || {
        let (ledger, mut appender) = ledger();
        let worker = thread::spawn(move || append(&mut appender));
        let (cursor, told) = at_tail(&ledger);
        let begins = cursor.position();
        let wait = cursor.wait();
        worker.join().unwrap();
        let told = told.load(Ordering::Relaxed);
        match (begins, wait) {
            (0, Wait::More) | (1, Wait::Waiting) => assert_eq!(told, 0),
            (0, Wait::Waiting) => assert_eq!(told, 1),
            other => panic!("{other:?}"),
        }
        assert_eq!(cursor.backlog(), u64::try_from(1 - begins).unwrap());
    });
}

/// I51: a cursor that opens while another one goes, and what it kept with it, reads from where it begins.
#[test]
fn open_racing_trim() {
    Model::new("open racing trim").few_executions("one lock decides").check(|| {
        let (ledger, mut appender) = ledger();
        append(&mut appender);
        let slow = ledger.cursor(0, || ());
        let fast = ledger.cursor(1, || ());
        let goes = thread::spawn(move || drop(slow));
        let cursor = ledger.cursor(0, || ());
        let begins = cursor.position();
        let read = Arc::new(AtomicI64::new(-1));
        let count = Arc::clone(&read);
        cursor.read(10, Vec::new(), move |result| {
            // Relaxed: told inside the call.
            count.store(i64::try_from(result.unwrap().len()).unwrap(), Ordering::Relaxed);
        });
        assert_eq!(read.load(Ordering::Relaxed), 1 - begins);
        goes.join().unwrap();
        assert_eq!(ledger.cursor(0, || ()).position(), begins, "what it reads is kept, and nothing else");
        drop(fast);
    });
}

/// Storage that answers when it is told to.
#[derive(Clone, Default)]
struct Late(Arc<Mutex<Vec<Done<(), StorageError>>>>);

impl LogStorage for Late {
    fn append(&self, _first: Position, _entries: Vec<Bytes>, done: Done<(), StorageError>) {
        self.0.lock().push(done);
    }

    fn read(&self, first: Position, _count: usize, done: Done<Vec<Bytes>, StorageError>) {
        done.tell(Err(StorageError::Missing(first)));
    }

    fn trim(&self, _before: Position) {}
}

impl Late {
    fn answer(&self) {
        let held = std::mem::take(&mut *self.0.lock());
        for done in held {
            done.tell(Ok(()));
        }
    }
}

/// Notes the entries that it is told of, in order.
struct Notes(Arc<Mutex<Vec<i64>>>);

impl AppendSink<Tracked<()>> for Notes {
    fn appended(&self, token: Tracked<()>, result: Result<Position, AppendError>, _at: Instant) {
        token.get();
        self.0.lock().push(result.unwrap().entry);
    }
}

/// 1.12, I40: an answer of storage that comes while the worker hands in more, or lets go of the line, is told once, in order.
#[test]
fn answer_racing_append() {
    model("answer racing append", || {
        let (storage, worker, notes) = (Late::default(), ManualExecutor::new(), Arc::new(Mutex::default()));
        let options = LedgerOptions::default();
        let sink = Notes(Arc::clone(&notes));
        let ledger = Ledger::open(options, storage.clone(), &uncached(), worker.clone(), sink).unwrap();
        let mut appender = ledger.appender();
        append(&mut appender);
        let appends = thread::spawn(move || append(&mut appender));
        storage.answer();
        appends.join().unwrap();
        // The second one is sent by the worker, if the first one's answer came before it was handed in.
        worker.run_all();
        storage.answer();
        worker.run_all();
        assert_eq!(*notes.lock(), [0, 1]);
        assert_eq!(ledger.confirmed(), 2);
    });
}

/// 1.12: a cursor that opens while the ledger ends sees the end, or waits and is told of it.
#[test]
fn open_racing_end() {
    Model::new("open racing end").few_executions("one lock decides, and then one word").check(|| {
        let (ledger, appender) = ledger();
        drop(appender);
        let ledger = Arc::new(ledger);
        let ends = Arc::clone(&ledger);
        let closer = thread::spawn(move || ends.close());
        let (cursor, told) = at_tail(&ledger);
        let wait = cursor.wait();
        closer.join().unwrap();
        match wait {
            Wait::Closed => assert_eq!(told.load(Ordering::Relaxed), 0),
            Wait::Waiting => assert_eq!(told.load(Ordering::Relaxed), 1),
            Wait::More => panic!("there is nothing"),
        }
        assert_eq!(cursor.wait(), Wait::Closed);
    });
}
