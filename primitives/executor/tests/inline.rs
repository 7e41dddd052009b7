//! Delegates that run a batch at once, on the thread that submits it.
#![cfg(not(any(loom, shuttle)))]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests run on the standard library only, and their helpers unwrap as they do"
)]

mod support;

use folio_sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use folio_executor::BatchingExecutor;
use support::{Account, Log, caller_runs, producers};

/// How far the frames of the callers lie apart on one stack.
#[derive(Clone)]
struct Ruler(Arc<(AtomicUsize, AtomicUsize)>);

impl Ruler {
    fn new() -> Self {
        Self(Arc::new((AtomicUsize::new(usize::MAX), AtomicUsize::new(0))))
    }

    #[inline(never)]
    fn mark(&self) {
        let here = std::hint::black_box(0_u8);
        let address = (&raw const here).addr();
        self.0.0.fetch_min(address, Ordering::Relaxed);
        self.0.1.fetch_max(address, Ordering::Relaxed);
    }

    fn spread(&self) -> usize {
        self.0.1.load(Ordering::Relaxed).saturating_sub(self.0.0.load(Ordering::Relaxed))
    }
}

type Shared = Arc<OnceLock<BatchingExecutor<u32>>>;

/// Runs on a thread with a stack on which recursion would not go far.
fn on_a_small_stack(work: impl FnOnce() + Send + 'static) {
    thread::Builder::new().stack_size(256 << 10).spawn(work).unwrap().join().unwrap();
}

/// 1.2, I1, I5: each task submits the next; batches of one run inline, one after the other and not inside one another.
#[test]
fn a_chain_of_tasks_run_inline_does_not_recurse() {
    on_a_small_stack(|| {
        let (executor, ruler, ran) = (Shared::default(), Ruler::new(), Log::new());
        let (inner, marks, noted) = (Arc::downgrade(&executor), ruler.clone(), ran.clone());
        let built = BatchingExecutor::builder(move |task| {
            marks.mark();
            noted.push(task);
            if task + 1 < 100_000 {
                inner.upgrade().unwrap().get().unwrap().submit(task + 1).unwrap();
            }
        })
        .max_items(1)
        .build(caller_runs())
        .unwrap();
        executor.get_or_init(|| built).submit(0).unwrap();
        assert_eq!(ran.take(), (0..100_000).collect::<Vec<_>>());
        assert!(ruler.spread() < 4 << 10, "{} bytes", ruler.spread());
    });
}

/// 1.2, I1, I2, I5: one task submits 100,000 more; each follow-up batch runs inline.
#[test]
fn follow_up_batches_run_inline_do_not_recurse() {
    on_a_small_stack(|| {
        let (executor, ruler, ran) = (Shared::default(), Ruler::new(), Log::new());
        let (inner, marks, noted) = (Arc::downgrade(&executor), ruler.clone(), ran.clone());
        let built = BatchingExecutor::builder(move |task| {
            marks.mark();
            noted.push(task);
            if task == 0 {
                for more in 1..=100_000 {
                    inner.upgrade().unwrap().get().unwrap().submit(more).unwrap();
                }
            }
        })
        .max_items(1)
        .build(caller_runs())
        .unwrap();
        executor.get_or_init(|| built).submit(0).unwrap();
        assert_eq!(ran.take(), (0..=100_000).collect::<Vec<_>>());
        assert!(ruler.spread() < 4 << 10, "{} bytes", ruler.spread());
    });
}

#[test]
fn the_ruler_sees_a_stack_that_grows() {
    fn recurse(ruler: &Ruler, depth: u32) {
        ruler.mark();
        if depth > 0 {
            recurse(ruler, depth - 1);
        }
        ruler.mark();
    }
    let ruler = Ruler::new();
    recurse(&ruler, 1_000);
    assert!(ruler.spread() > 4 << 10, "{} bytes", ruler.spread());
}

/// I1: two executors that run inline and submit to each other in turn do not recurse either.
#[test]
fn two_inline_executors_that_feed_each_other_do_not_recurse() {
    on_a_small_stack(|| {
        let (first, other) = (Shared::default(), Shared::default());
        let (ruler, count) = (Ruler::new(), Arc::new(AtomicUsize::new(0)));
        let feed = |other: &Shared| {
            let (other, ruler, count) = (Arc::downgrade(other), ruler.clone(), Arc::clone(&count));
            BatchingExecutor::builder(move |task| {
                ruler.mark();
                count.fetch_add(1, Ordering::Relaxed);
                if task > 0 {
                    other.upgrade().unwrap().get().unwrap().submit(task - 1).unwrap();
                }
            })
            .max_items(1)
            .build(caller_runs())
            .unwrap()
        };
        let (begins, answers) = (feed(&other), feed(&first));
        first.get_or_init(|| begins);
        other.get_or_init(|| answers);
        first.get().unwrap().submit(9_999).unwrap();
        assert_eq!(count.load(Ordering::Relaxed), 10_000);
        assert!(ruler.spread() < 8 << 10, "{} bytes", ruler.spread());
    });
}

/// I1: what a completion of a flush submits runs too, inline and without end.
#[test]
fn what_a_completion_of_a_flush_submits_runs_inline() {
    let (executor, ran) = (Shared::default(), Log::new());
    let (inner, noted) = (Arc::downgrade(&executor), ran.clone());
    let built = BatchingExecutor::builder(move |task| {
        noted.push(task);
        if task < 100 {
            let again = inner.upgrade().unwrap();
            inner
                .upgrade()
                .unwrap()
                .get()
                .unwrap()
                .flush_with(move || again.get().unwrap().submit(task + 1).unwrap());
        }
    })
    .build(caller_runs())
    .unwrap();
    let executor = executor.get_or_init(|| built);
    executor.submit(0).unwrap();
    assert_eq!(ran.take(), (0..=100).collect::<Vec<_>>());
    assert_eq!(executor.queued(), 0);
}

/// I1, I2, I3: a delegate that runs batches on whichever thread submits them is kept serial by the turn.
#[test]
fn batches_that_run_inline_on_many_threads_do_not_overlap() {
    const EACH: usize = 5_000;
    let account = Account::new(4, EACH);
    let ran = Arc::clone(&account);
    let executor =
        BatchingExecutor::builder(move |task| ran.run(task)).max_items(3).build(caller_runs()).unwrap();
    producers(4, |producer| {
        for number in 0..EACH {
            executor.submit((producer, number)).unwrap();
        }
    });
    assert_eq!(account.settle().ran, 4 * EACH);
    assert_eq!(executor.queued(), 0);
}
