//! Sinks, listeners, callbacks and destructors that panic keep nobody else from being told.
#![cfg(not(any(loom, shuttle)))]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests run on the standard library only, and a failed unwrap fails the test"
)]

mod support;

use bytes::Bytes;
use folio_ledger::{
    AppendError, Callbacks, Done, Ledger, LedgerOptions, LogStorage, MemoryStorage, Position, StorageError,
    Wait,
};
use folio_sync::test_util::{ManualClock, ManualExecutor};
use folio_sync::time::Instant;
use folio_sync::{Arc, Mutex};

use support::{Bomb, Scene, entries, go_off, manager, read_all};

type Callback = Box<dyn FnOnce(Result<Position, AppendError>, Instant) + Send>;

/// A ledger whose tokens are functions.
fn ledger(worker: &ManualExecutor, storage: impl LogStorage, budget: u64) -> Ledger<Callback> {
    let cache = manager(&ManualClock::new(), budget);
    Ledger::open(LedgerOptions::default(), storage, &cache, worker.clone(), Callbacks).unwrap()
}

/// I42: a sink that panics is told of the others of the batch, each once.
#[test]
fn a_sink_that_panics_keeps_no_other_from_being_told() {
    let worker = ManualExecutor::new();
    let ledger = ledger(&worker, MemoryStorage::new(), 1 << 20);
    let told = Arc::new(Mutex::new(Vec::new()));
    for n in 0..6 {
        let tell = Arc::clone(&told);
        ledger.append(
            Bytes::new(),
            Box::new(move |result, _| {
                tell.lock().push((n, result.unwrap().entry));
                if n % 2 == 0 {
                    go_off();
                }
            }),
        );
    }
    worker.run_all();
    assert_eq!(*told.lock(), (0..6).map(|n| (n, n)).collect::<Vec<_>>());
    assert_eq!(ledger.confirmed(), 6);
    worker.close();
    let tell = Arc::clone(&told);
    ledger.append(
        Bytes::new(),
        Box::new(move |result, _| {
            assert_eq!(result, Err(AppendError::Closed));
            tell.lock().push((6, -1));
            go_off();
        }),
    );
    assert_eq!(told.lock().len(), 7, "the panic did not reach who appends");
}

#[test]
fn listeners_that_panic_as_they_are_called_or_dropped_keep_no_other_from_being_told() {
    let scene = Scene::new();
    let mut cursors = Vec::new();
    let (bomb, dropped) = (Bomb, scene.cursor(0));
    let own = Arc::new(Mutex::new(None));
    let drops = Arc::clone(&own);
    let cursor = scene.ledger.cursor(0, move || {
        let _held_to_its_end = &bomb;
        // The worker has its last handle then.
        drop(drops.lock().take());
    });
    assert_eq!(cursor.wait(), Wait::Waiting);
    *own.lock() = Some(cursor);
    let panics = scene.ledger.cursor(0, || go_off());
    assert_eq!(panics.wait(), Wait::Waiting);
    cursors.push(panics);
    assert_eq!(dropped.0.wait(), Wait::Waiting);
    let (last, calls) = scene.cursor(0);
    assert_eq!(last.wait(), Wait::Waiting);
    scene.fill(0..3);
    assert_eq!((calls.count(), dropped.1.count()), (1, 1));
    assert_eq!(read_all(&last), entries(0..3));
    assert_eq!(last.wait(), Wait::Waiting);
    assert_eq!(read_all(&cursors[0]), entries(0..3));
    assert_eq!(cursors[0].wait(), Wait::Waiting);
    scene.ledger.close();
    assert_eq!((calls.count(), last.wait()), (2, Wait::Closed));
}

/// Storage that keeps nothing, or fails.
struct Nowhere(bool);

impl LogStorage for Nowhere {
    fn append(&self, _first: Position, _entries: Vec<Bytes>, done: Done<(), StorageError>) {
        done.tell(if self.0 { Ok(()) } else { Err(StorageError::Failed("planted".to_owned())) });
    }

    fn read(&self, first: Position, _count: usize, done: Done<Vec<Bytes>, StorageError>) {
        done.tell(Err(StorageError::Missing(first)));
    }

    fn trim(&self, _before: Position) {}
}

/// Bytes whose owner panics when it is dropped.
struct Owner {
    bytes: [u8; 5],
    _goes_off: Bomb,
}

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// I42: payloads whose destructors panic do not mix up who is told what.
#[test]
fn payloads_that_panic_as_they_are_dropped_mix_nobody_up() {
    for (keeps, cached) in [(true, false), (false, true)] {
        let worker = ManualExecutor::new();
        let ledger = ledger(&worker, Nowhere(keeps), if cached { 1 << 20 } else { 0 });
        let told = Arc::new(Mutex::new(Vec::new()));
        for n in 0..4_i64 {
            let payload = if n == 1 {
                Bytes::from_owner(Owner { bytes: *b"bytes", _goes_off: Bomb })
            } else {
                Bytes::new()
            };
            let tell = Arc::clone(&told);
            ledger.append(
                payload,
                Box::new(move |result, _| tell.lock().push((n, result.ok().map(|position| position.entry)))),
            );
            if n % 2 == 1 {
                worker.run_all();
            }
        }
        assert_eq!(*told.lock(), (0..4).map(|n| (n, keeps.then_some(n))).collect::<Vec<_>>());
    }
}
