//! Models of the word that decides who runs passes.

use folio_sync::atomic::{AtomicU32, Ordering};
use folio_sync::cell::UnsafeCell;
use folio_sync::test_util::{Model, Tracked, model};
use folio_sync::{Arc, thread};

use super::word::{PRESSURE, TICK, Word};

/// The word, and what it is about: weight that is charged, and what only one pass at a time may touch.
struct Shared {
    word: Word,
    /// As the budget's: Relaxed.
    charged: AtomicU32,
    /// Only passes touch it, one after the other.
    evicted: UnsafeCell<Tracked<u32>>,
}

// SAFETY: `evicted` is touched by the owner of the word only, which is what the models show.
unsafe impl Sync for Shared {}

impl Shared {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            word: Word::new(),
            charged: AtomicU32::new(0),
            evicted: UnsafeCell::new(Tracked::new(0)),
        })
    }

    /// Charges one and demands a pass; the job runs here if it has to be submitted.
    fn press(&self) {
        // Relaxed: a number, published by the demand.
        self.charged.fetch_add(1, Ordering::Relaxed);
        if self.word.demand(PRESSURE) {
            self.run();
        }
    }

    /// The job.
    fn run(&self) {
        loop {
            let Some(demanded) = self.word.begin() else {
                self.word.abandon();
                return;
            };
            self.evicted.with_mut(|evicted| {
                // SAFETY: the word is this job's.
                let evicted = unsafe { &mut *evicted };
                // Relaxed, both: as above.
                let excess = self.charged.load(Ordering::Relaxed);
                self.charged.fetch_sub(excess, Ordering::Relaxed);
                assert!(excess > 0 || demanded != 0, "nobody demanded it");
                *evicted = Tracked::new(evicted.get() + excess);
            });
            if self.word.end() {
                return;
            }
        }
    }

    /// Nothing is left to be evicted, whoever was told.
    fn ends(&self, charged: u32) {
        assert_eq!(self.charged.load(Ordering::Relaxed), 0, "weight is left, and nobody is told");
        self.evicted.with(|evicted| {
            // SAFETY: all threads are joined.
            assert_eq!(*unsafe { &*evicted }.get(), charged);
        });
        assert!(self.word.demand(TICK), "nobody holds it");
    }
}

/// 1.8: pressure from two threads, as passes run: one pass at a time, and none of the weight is left behind.
#[test]
fn pressure_racing_passes() {
    model("pressure racing passes", || {
        let shared = Shared::new();
        let threads = [(); 2].map(|()| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.press())
        });
        shared.press();
        for thread in threads {
            thread.join().unwrap();
        }
        shared.ends(3);
    });
}

/// 1.8: pressure as a job is dropped unrun: it is seen by that job's end or queues another one.
#[test]
fn pressure_racing_an_abandoned_job() {
    let model = Model::new("pressure racing an abandoned job").few_executions("one word, few operations");
    model.check(|| {
        let shared = Shared::new();
        assert!(shared.word.demand(TICK));
        let other = Arc::clone(&shared);
        let thread = thread::spawn(move || other.word.abandon());
        shared.press();
        thread.join().unwrap();
        // What was demanded of the job that was dropped is lost with it; the next demand is not.
        let charged = shared.charged.load(Ordering::Relaxed);
        if charged > 0 {
            shared.press();
            shared.ends(2);
        } else {
            shared.ends(1);
        }
    });
}

/// 1.8: a close as a job runs and another one presses: the job ends, and no other one begins.
#[test]
fn close_racing_pressure() {
    let model = Model::new("close racing pressure").few_executions("one word, few operations");
    model.check(|| {
        let shared = Shared::new();
        let other = Arc::clone(&shared);
        let thread = thread::spawn(move || other.press());
        shared.word.close();
        assert!(!shared.word.demand(TICK), "nobody submits a job any more");
        thread.join().unwrap();
        assert!(shared.word.is_closed());
        assert!(shared.word.begin().is_none());
        assert!(!shared.word.demand(PRESSURE));
    });
}
