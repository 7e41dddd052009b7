//! Models of the tail's word: confirming and closing against waiting.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the model")]

use folio_sync::atomic::{AtomicU64, Ordering};
use folio_sync::test_util::{Model, model, spurious_every};
use folio_sync::{Arc, thread};

use super::{Tail, Wait};

/// A ledger's worker and one reader; what they tell each other besides is in words that order nothing.
struct Scene {
    tail: Tail,
    /// What the worker stored; one more than the entry's number.
    stored: [AtomicU64; 2],
    /// What the reader did before it waited.
    prepared: AtomicU64,
}

impl Scene {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            tail: Tail::new(0),
            stored: [AtomicU64::new(0), AtomicU64::new(0)],
            prepared: AtomicU64::new(0),
        })
    }

    /// Stores an entry and confirms it; how often the reader was told.
    fn append(&self, entry: usize) -> u64 {
        // Relaxed: the confirmation publishes it.
        self.stored[entry].store(entry as u64 + 1, Ordering::Relaxed);
        let tells = self.tail.confirm(i64::try_from(entry).unwrap() + 1);
        if tells {
            self.is_prepared();
        }
        tells.into()
    }

    /// Closes; how often the reader was told.
    fn close(&self) -> u64 {
        let tells = self.tail.close();
        if tells {
            self.is_prepared();
        }
        tells.into()
    }

    fn is_prepared(&self) {
        // Relaxed: the reader's wish published it.
        assert_eq!(self.prepared.load(Ordering::Relaxed), 1, "who is told has prepared for it");
    }

    /// Reads what there is, until it waits or nothing comes any more; how many entries, and which it was.
    fn read(&self) -> (usize, Wait) {
        // Relaxed: the wish publishes it.
        self.prepared.store(1, Ordering::Relaxed);
        let mut read = 0;
        loop {
            let wait = self.tail.wait(i64::try_from(read).unwrap());
            if wait != Wait::More {
                return (read, wait);
            }
            // Relaxed: that there is more publishes it.
            assert_eq!(
                self.stored[read].load(Ordering::Relaxed),
                read as u64 + 1,
                "what is confirmed is stored"
            );
            read += 1;
        }
    }
}

fn confirms_against_a_reader(scene: &Arc<Scene>) {
    let reads = Arc::clone(scene);
    let reader = thread::spawn(move || reads.read());
    let told = scene.append(0) + scene.append(1);
    let (read, wait) = reader.join().unwrap();
    assert_eq!(wait, Wait::Waiting);
    assert_eq!(told, u64::from(read < 2), "told once if there is more, and not at all otherwise");
    assert_eq!(scene.tail.confirmed(), 2);
}

/// I38: a reader that waits with less than all has been told, once.
#[test]
fn confirm_racing_wait() {
    model("confirm racing wait", || confirms_against_a_reader(&Scene::new()));
}

/// I38: the same where exchanges fail for no reason.
#[test]
fn confirm_racing_wait_with_spurious_failures() {
    model("confirm racing wait, spurious failures", || {
        let _spurious = spurious_every(2);
        confirms_against_a_reader(&Scene::new());
    });
}

/// A reader that knows the count from elsewhere sees what was stored.
#[test]
fn confirmed_entries_are_stored() {
    Model::new("confirmed entries").few_executions("one word, written twice and read once").check(|| {
        let scene = Scene::new();
        let reads = Arc::clone(&scene);
        let reader = thread::spawn(move || {
            for entry in 0..usize::try_from(reads.tail.confirmed()).unwrap() {
                // Relaxed: the count publishes it.
                assert_eq!(reads.stored[entry].load(Ordering::Relaxed), entry as u64 + 1);
            }
        });
        assert_eq!(scene.append(0) + scene.append(1), 0, "nobody waits");
        reader.join().unwrap();
    });
}

/// 1.12: two that close and one reader: who waited is told once, by the last entry or by one of the closers; who comes later sees the end.
#[test]
fn closes_racing_wait() {
    model("closes racing wait", || {
        let scene = Scene::new();
        let (reads, ends) = (Arc::clone(&scene), Arc::clone(&scene));
        let reader = thread::spawn(move || reads.read());
        let mut told = scene.append(0);
        let closer = thread::spawn(move || ends.close());
        told += scene.close();
        told += closer.join().unwrap();
        let (read, wait) = reader.join().unwrap();
        match wait {
            Wait::Waiting => assert_eq!(told, 1, "it waited with {read}"),
            Wait::Closed => assert_eq!((told, read), (0, 1), "the end comes after the last entry"),
            Wait::More => unreachable!("it read on"),
        }
        assert_eq!(scene.tail.wait(1), Wait::Closed);
        assert_eq!(scene.close(), 0, "nobody is told again");
    });
}
