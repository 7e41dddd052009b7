//! Readers that wait at the tail, on real threads: nobody waits for ever, and everything is read.
#![cfg(not(any(loom, shuttle)))]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests run on the standard library only, and a failed unwrap fails the test"
)]

mod support;

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::thread;

use folio_executor::OrderedExecutor;
use folio_ledger::{Handover, Ledger, LedgerOptions, MemoryStorage, Policy, Position, Wait};
use folio_sync::Arc;
use folio_sync::test_util::ManualClock;

use support::{Answer, Heard, ID, manager, payload, until};

/// Reads to the end of a ledger, waiting where there is nothing; how many entries, and how often it waited.
fn follow(ledger: &Ledger<i64>, waiting: &Arc<AtomicI64>) -> (i64, u64) {
    let reader = thread::current();
    let told = Arc::new(AtomicU64::new(0));
    let (tells, one_less) = (Arc::clone(&told), Arc::clone(waiting));
    let cursor = ledger.cursor(0, move || {
        one_less.fetch_sub(1, Ordering::Relaxed);
        tells.fetch_add(1, Ordering::Release);
        reader.unpark();
    });
    let (mut next, mut waits) = (0, 0);
    loop {
        match cursor.wait() {
            Wait::More => {
                let answer = Answer::of(&cursor, 16);
                until("the read is told", || answer.is_there());
                let entries = answer.once().unwrap();
                let positions: Vec<Position> = entries.iter().map(|entry| entry.position).collect();
                for entry in entries {
                    assert_eq!((entry.position.entry, entry.payload), (next, payload(next)));
                    next += 1;
                }
                assert_eq!(cursor.delete(&positions), positions.len());
            }
            Wait::Waiting => {
                waits += 1;
                waiting.fetch_add(1, Ordering::Relaxed);
                until("it is told", || {
                    thread::park_timeout(std::time::Duration::from_millis(10));
                    told.load(Ordering::Acquire) == waits
                });
            }
            Wait::Closed => {
                assert_eq!(
                    (cursor.mark_deleted(), told.load(Ordering::Acquire)),
                    (next, waits),
                    "told once a wait"
                );
                return (next, waits);
            }
        }
    }
}

/// I24, I25, I38: two readers follow a producer, which closes at the end: each is told once a wait, and has read every entry in order.
#[test]
fn readers_that_follow_a_producer_read_everything() {
    const ENTRIES: i64 = 20_000;
    for completion in [Policy::Inline, Policy::Affine] {
        let pool = OrderedExecutor::builder().threads(1).build().unwrap();
        let heard = Heard::default();
        let ledger = Ledger::open(
            LedgerOptions { id: ID, completion, handover: Handover::Batched(16), ..LedgerOptions::default() },
            MemoryStorage::new(),
            &manager(&ManualClock::new(), 1 << 30),
            pool.workers()[0].clone(),
            heard.clone(),
        )
        .unwrap();
        let (mut waited, waiting) = (0, Arc::new(AtomicI64::new(0)));
        thread::scope(|scope| {
            let readers =
                [scope.spawn(|| follow(&ledger, &waiting)), scope.spawn(|| follow(&ledger, &waiting))];
            until("both readers wait", || waiting.load(Ordering::Relaxed) == 2);
            for n in 0..ENTRIES {
                if n % 1_000 == 0 {
                    // One of them has caught up, waits, and is told of this one.
                    until("all are told", || i64::try_from(heard.len()) == Ok(n));
                    until("a reader waits", || waiting.load(Ordering::Relaxed) > 0);
                }
                ledger.append(payload(n), n);
            }
            ledger.close();
            for reader in readers {
                let (read, waits) = reader.join().unwrap();
                assert_eq!(read, ENTRIES);
                waited += waits;
            }
        });
        assert!(waited >= 10, "they waited {waited} times");
        assert_eq!(heard.len(), usize::try_from(ENTRIES).unwrap());
        drop(ledger);
        assert!(pool.join().unwrap().is_empty());
    }
}
