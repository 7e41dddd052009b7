//! A batch that found little waits a moment, after its tasks have run and before it looks for more.
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

use folio_executor::{BatchingExecutor, Linger};
use folio_sync::test_util::{Idled, ManualExecutor, idled};
use support::Log;

/// Unlike each other and unlike the defaults.
const LINGER: Linger = Linger { below: 3, spins: 7, yields: 2 };

/// What this thread does while `work` runs: spin hints and yields.
fn waits(work: impl FnOnce()) -> (u64, u64) {
    let before = idled();
    work();
    since(before)
}

fn since(before: Idled) -> (u64, u64) {
    let now = idled();
    (now.spins - before.spins, now.yields - before.yields)
}

/// Runs a batch of this many tasks on this thread; how it waited.
fn a_batch_of(tasks: u32, linger: Option<Linger>) -> (u64, u64) {
    let (delegate, ran) = (ManualExecutor::new(), Log::new());
    let noted = ran.clone();
    let mut builder = BatchingExecutor::builder(move |task| noted.push(task));
    if let Some(linger) = linger {
        builder = builder.linger(linger);
    }
    let executor = builder.build(delegate.clone()).unwrap();
    for task in 0..tasks {
        executor.submit(task).unwrap();
    }
    let waited = waits(|| assert!(delegate.run_next()));
    assert_eq!(ran.take(), (0..tasks).collect::<Vec<_>>());
    assert_eq!((delegate.queued(), executor.queued()), (0, 0));
    waited
}

#[test]
fn a_small_batch_lingers_once() {
    assert_eq!(a_batch_of(1, Some(LINGER)), (7, 2));
    assert_eq!(a_batch_of(2, Some(LINGER)), (7, 2));
}

#[test]
fn a_batch_of_as_many_tasks_as_named_or_more_does_not_linger() {
    assert_eq!(a_batch_of(3, Some(LINGER)), (0, 0));
    assert_eq!(a_batch_of(4, Some(LINGER)), (0, 0));
}

#[test]
fn a_batch_that_ends_at_a_limit_does_not_linger() {
    let (delegate, ran) = (ManualExecutor::new(), Log::new());
    let noted = ran.clone();
    let builder = BatchingExecutor::builder(move |task| noted.push(task)).linger(LINGER).weigh(|&task| task);
    let executor = builder.max_items(2).max_weight(5).build(delegate.clone()).unwrap();
    // Two by their number, one by its weight, and the last one that was there.
    for task in [1, 1, 9, 1] {
        executor.submit(task).unwrap();
    }
    let waited: Vec<_> = (0..3).map(|_| waits(|| assert!(delegate.run_next()))).collect();
    assert_eq!((waited, ran.take()), (vec![(0, 0), (0, 0), (7, 2)], vec![1, 1, 9, 1]));
}

#[test]
fn no_batch_lingers_when_that_is_off() {
    assert_eq!(a_batch_of(1, Some(Linger::OFF)), (0, 0));
    assert_eq!(a_batch_of(1, Some(Linger { below: 0, ..LINGER })), (0, 0));
}

#[test]
fn by_default_a_batch_below_256_tasks_gives_30_hints_and_yields_once() {
    assert_eq!(a_batch_of(1, None), (30, 1));
    assert_eq!(a_batch_of(255, None), (30, 1));
    assert_eq!(a_batch_of(256, None), (0, 0));
}

/// The first batch has run all its tasks before it waits, waits once, and leaves what came meanwhile to the next one.
#[test]
fn a_batch_lingers_after_its_tasks_and_before_the_next_batch() {
    let (delegate, seen) = (ManualExecutor::new(), Log::new());
    let began = idled();
    let executor: Arc<OnceLock<BatchingExecutor<u32>>> = Arc::default();
    let (again, noted) = (Arc::downgrade(&executor), seen.clone());
    let built = BatchingExecutor::builder(move |task| {
        noted.push((task, since(began)));
        if task == 2 {
            // The batch has what was there as it began: this one is not taken by it.
            again.upgrade().unwrap().get().unwrap().submit(3).unwrap();
        }
    })
    .linger(LINGER)
    .build(delegate.clone())
    .unwrap();
    let executor = executor.get_or_init(|| built);
    executor.submit(1).unwrap();
    executor.submit(2).unwrap();
    assert!(delegate.run_next());
    assert_eq!(seen.take(), [(1, (0, 0)), (2, (0, 0))], "tasks do not wait for the batch to linger");
    assert_eq!((since(began), delegate.queued()), ((7, 2), 1), "the next batch is submitted");
    assert!(delegate.run_next());
    assert_eq!(seen.take(), [(3, (7, 2))]);
    assert_eq!(since(began), (14, 4));
    assert_eq!(delegate.queued(), 0);
}

#[test]
fn a_batch_that_is_shut_down_does_not_linger() {
    let (delegate, given_back) = (ManualExecutor::new(), Log::new());
    let executor: Arc<OnceLock<BatchingExecutor<u32>>> = Arc::default();
    let (inner, noted) = (Arc::downgrade(&executor), given_back.clone());
    let built = BatchingExecutor::builder(move |_| inner.upgrade().unwrap().get().unwrap().shutdown_now())
        .linger(LINGER)
        .on_rejected(move |rejected| noted.push(rejected.value))
        .build(delegate.clone())
        .unwrap();
    let executor = executor.get_or_init(|| built);
    executor.submit(1).unwrap();
    executor.submit(2).unwrap();
    assert_eq!(waits(|| assert!(delegate.run_next())), (0, 0));
    assert_eq!(given_back.take(), [2]);
}
