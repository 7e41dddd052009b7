//! The completer: one depth a thread, and one end for every completion.
//!
//! Panics in a completion are contained: each model ends by asserting that there were none.
#![cfg(loom)]
#![allow(clippy::unwrap_used, reason = "models unwrap also in their helpers")]

use folio_completer::{Completed, Completion, InlineCompleter, Policy, current_depth, refusable};
use folio_sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use folio_sync::cell::UnsafeCell;
use folio_sync::test_util::{Tracked, model};
use folio_sync::{Arc, Executor, Job, RejectReason, Rejected, SerialExecutor, thread};

const EMPTY: u32 = 0;
const FULL: u32 = 1;
const TAKEN: u32 = 2;
const CLOSED: u32 = 3;

/// Carries one job from one thread to another by nothing but a release and an acquire; no lock.
#[derive(Clone)]
struct Mailbox(Arc<Letter>);

struct Letter {
    state: AtomicU32,
    /// Written by the one that submits, before the state is full; read by the one that moves it on.
    job: UnsafeCell<Option<Job>>,
}

// SAFETY: `state` says which thread may touch the job; it goes from one to the other by a release and an acquire.
unsafe impl Sync for Letter {}

impl Mailbox {
    fn new() -> Self {
        Self(Arc::new(Letter { state: AtomicU32::new(EMPTY), job: UnsafeCell::new(None) }))
    }

    fn take_job(&self) -> Option<Job> {
        // SAFETY: called by the one thread that moved the state on from full, or by the one that could not fill it.
        self.0.job.with_mut(|job| unsafe { (*job).take() })
    }

    /// The job, if one is there now.
    fn take(&self) -> Option<Job> {
        // Acquire: sees the job; pairs with submit's Release. Relaxed on failure: nothing is read then.
        self.0.state.compare_exchange(FULL, TAKEN, Ordering::Acquire, Ordering::Relaxed).ok()?;
        self.take_job()
    }

    /// Takes nothing any more; drops the job if one is there. Whether one was.
    fn close(&self) -> bool {
        // Acquire: sees the job; pairs with submit's Release.
        let was_full = self.0.state.swap(CLOSED, Ordering::Acquire) == FULL;
        if was_full {
            drop(self.take_job());
        }
        was_full
    }
}

impl Executor for Mailbox {
    fn submit(&self, job: Job) -> Result<(), Rejected<Job>> {
        // SAFETY: one thread submits to a mailbox, once, and nobody reads before the state is full.
        self.0.job.with_mut(|slot| unsafe { *slot = Some(job) });
        // Release: publishes the job; pairs with the Acquire of take and close. Relaxed on failure: nothing is read then.
        match self.0.state.compare_exchange(EMPTY, FULL, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => Ok(()),
            Err(_) => Err(Rejected::new(self.take_job().unwrap(), RejectReason::Closed)),
        }
    }
}

impl SerialExecutor for Mailbox {
    fn is_current(&self) -> bool {
        false
    }
}

/// How the one completion of a model ended, and how often.
#[derive(Clone)]
struct Ends(Arc<(AtomicUsize, AtomicUsize)>);

impl Ends {
    fn new() -> Self {
        Self(Arc::new((AtomicUsize::new(0), AtomicUsize::new(0))))
    }

    /// A completion with a tracked payload, which may run to this depth only.
    fn completion(&self, limit: u32) -> impl Completion + use<> {
        refusable(
            (self.clone(), Tracked::new(7)),
            move |(ends, payload)| {
                assert_eq!(*payload.get(), 7);
                assert!(current_depth() <= limit);
                ends.0.0.fetch_add(1, Ordering::Relaxed);
            },
            |(ends, payload), _| {
                assert_eq!(*payload.get(), 7);
                ends.0.1.fetch_add(1, Ordering::Relaxed);
            },
        )
    }

    fn get(&self) -> (usize, usize) {
        (self.0.0.load(Ordering::Relaxed), self.0.1.load(Ordering::Relaxed))
    }
}

fn no_panics(completer: &InlineCompleter) {
    assert_eq!(completer.counts().panics, 0, "a completion failed");
}

/// Two mailboxes: the first that comes gets one, the second the other.
#[derive(Clone)]
struct Pair(Arc<(AtomicUsize, [Mailbox; 2])>);

impl Executor for Pair {
    fn submit(&self, job: Job) -> Result<(), Rejected<Job>> {
        // Relaxed: who gets which says nothing.
        let turn = self.0.0.fetch_add(1, Ordering::Relaxed);
        self.0.1[turn].submit(job)
    }
}

/// I29, R3: two threads and one completer: each nests to the limit by itself, and is at the surface again afterwards.
#[test]
fn each_thread_nests_to_the_limit_by_itself() {
    model("each_thread_nests_to_the_limit_by_itself", || {
        let overflow = Pair(Arc::new((AtomicUsize::new(0), [Mailbox::new(), Mailbox::new()])));
        let ends = Ends::new();
        let completer = InlineCompleter::builder(Policy::Inline, Mailbox::new())
            .depth_limit(1)
            .overflow(overflow.clone())
            .build();
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let (completer, ends) = (completer.clone(), ends.clone());
                thread::spawn(move || {
                    let (inner, nested) = (completer.clone(), ends.completion(1));
                    let outcome = completer.complete(move || {
                        assert_eq!(current_depth(), 1);
                        assert_eq!(inner.complete(nested).unwrap(), Completed::Queued);
                    });
                    assert_eq!((outcome.unwrap(), current_depth()), (Completed::Ran, 0));
                    assert_eq!(completer.complete(|| ()).unwrap(), Completed::Ran, "an independent one");
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        for mailbox in &overflow.0.1 {
            mailbox.take().unwrap().run();
        }
        assert_eq!((ends.get(), completer.counts().queued), ((2, 0), 2));
        no_panics(&completer);
    });
}

/// I24, R5: a completion is queued while its executor closes and its worker looks for work: it ends once, given back if it was
/// not taken.
#[test]
fn a_completion_ends_once_when_its_executor_closes() {
    model("a_completion_ends_once_when_its_executor_closes", || {
        let worker = Mailbox::new();
        let completer = InlineCompleter::builder(Policy::Affine, worker.clone()).depth_limit(1).build();
        let ends = Ends::new();
        let asker = {
            let (completer, completion) = (completer.clone(), ends.completion(1));
            thread::spawn(move || match completer.complete(completion) {
                Ok(outcome) => {
                    assert_eq!(outcome, Completed::Queued);
                    false
                }
                Err(Rejected { value, reason }) => {
                    value.refused(reason);
                    true
                }
            })
        };
        let closer = {
            let worker = worker.clone();
            thread::spawn(move || worker.close())
        };
        let ran = worker.take().map(Job::run).is_some();
        let (given_back, dropped) = (asker.join().unwrap(), closer.join().unwrap());
        assert_eq!(usize::from(ran) + usize::from(given_back) + usize::from(dropped), 1);
        assert_eq!(ends.get(), (usize::from(ran), usize::from(given_back || dropped)));
        assert_eq!(completer.counts().refused, u64::from(dropped));
        no_panics(&completer);
    });
}

/// I24, I30, R3, R5: what lands inside a completion at the limit goes to the serial executor, which closes meanwhile: it never runs
/// above the limit, and ends once.
#[test]
fn what_lands_at_the_limit_runs_on_the_serial_executor_or_is_refused() {
    model("what_lands_at_the_limit_runs_on_the_serial_executor_or_is_refused", || {
        let (serial, overflow) = (Mailbox::new(), Mailbox::new());
        let completer = InlineCompleter::builder(Policy::Inline, serial.clone())
            .depth_limit(1)
            .overflow(overflow.clone())
            .build();
        let ends = Ends::new();
        let pool = {
            let (completer, overflow) = (completer.clone(), overflow.clone());
            thread::spawn(move || {
                let outcome = completer.complete(move || overflow.take().map_or((), Job::run));
                assert_eq!(outcome.unwrap(), Completed::Ran);
            })
        };
        let closer = {
            let serial = serial.clone();
            thread::spawn(move || serial.close())
        };
        let (inner, nested) = (completer.clone(), ends.completion(1));
        let outcome =
            completer.complete(move || assert_eq!(inner.complete(nested).unwrap(), Completed::Queued));
        assert_eq!(outcome.unwrap(), Completed::Ran);
        let ran = serial.take().map(Job::run).is_some();
        pool.join().unwrap();
        closer.join().unwrap();

        // If the pool came too early the continuation still waits there.
        let left = overflow.take().map(Job::run).is_some();
        let counts = completer.counts();
        assert_eq!((counts.queued, counts.landed_at_limit), (1, u64::from(!left)));
        let refused = !ran && !left;
        assert_eq!(ends.get(), (usize::from(ran || left), usize::from(refused)));
        assert_eq!(counts.refused, u64::from(refused));
        no_panics(&completer);
    });
}
