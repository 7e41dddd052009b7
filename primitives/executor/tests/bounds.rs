//! Bounds on what is queued, and delegates that are full.
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

use folio_executor::{BatchingExecutor, OrderedExecutor};
use folio_sync::test_util::ManualExecutor;
use folio_sync::{Executor, Job, RejectReason, Rejected};
use support::{Account, Gate, Log, batches, producers};

fn full<T>(task: T) -> Result<(), Rejected<T>> {
    Err(Rejected::new(task, RejectReason::Full))
}

#[test]
fn a_bound_on_queued_tasks_is_kept_exactly() {
    let (delegate, ran) = (ManualExecutor::new(), Log::new());
    let noted = ran.clone();
    let executor = BatchingExecutor::builder(move |task: u32| noted.push(task))
        .max_queued(3)
        .max_items(2)
        .build(delegate.clone())
        .unwrap();
    for task in 0..3 {
        executor.submit(task).unwrap();
    }
    assert_eq!(executor.submit(3), full(3));
    assert_eq!(executor.queued(), 3);
    delegate.run_next();
    assert_eq!((executor.submit(4), executor.submit(5), executor.submit(6)), (Ok(()), Ok(()), full(6)));
    assert_eq!(batches(&delegate, &ran).concat(), [0, 1, 2, 4, 5]);
    assert_eq!(delegate.submissions(), 3, "a task that is refused as full schedules nothing");
}

#[test]
fn the_tasks_of_a_running_batch_count_as_queued() {
    let (delegate, answers) = (ManualExecutor::new(), Log::new());
    let executor: Arc<OnceLock<BatchingExecutor<u32>>> = Arc::default();
    let (inner, noted) = (Arc::downgrade(&executor), answers.clone());
    let built = BatchingExecutor::builder(move |task| {
        if task < 2 {
            noted.push(inner.upgrade().unwrap().get().unwrap().submit(task + 10));
        }
    })
    .max_queued(3)
    .build(delegate.clone())
    .unwrap();
    let executor = executor.get_or_init(|| built);
    executor.submit(0).unwrap();
    executor.submit(1).unwrap();
    delegate.run_all();
    assert_eq!(answers.take(), [Ok(()), full(11)]);
}

#[test]
fn a_bound_on_queued_weight_is_kept_exactly() {
    let (delegate, ran) = (ManualExecutor::new(), Log::new());
    let noted = ran.clone();
    let executor = BatchingExecutor::builder(move |task: u64| noted.push(task))
        .weigh(|&task| task)
        .max_queued_weight(10)
        .build(delegate.clone())
        .unwrap();
    assert_eq!((executor.submit(4), executor.submit(6), executor.submit(1)), (Ok(()), Ok(()), full(1)));
    assert_eq!(executor.submit(0), Ok(()), "what weighs nothing is not kept out by weight");
    assert_eq!(executor.queued_weight(), 10);
    assert_eq!(batches(&delegate, &ran), [vec![4, 6, 0]]);
    assert_eq!(executor.queued_weight(), 0);
    // When nothing is queued even the heaviest is taken, and then nothing else.
    assert_eq!((executor.submit(11), executor.submit(1)), (Ok(()), full(1)));
    assert_eq!(batches(&delegate, &ran), [vec![11]]);
    assert_eq!((executor.submit(1), executor.queued_weight()), (Ok(()), 1));
    assert_eq!(batches(&delegate, &ran), [vec![1]]);
}

#[test]
fn a_task_of_the_greatest_weight_leaves_no_weight_behind() {
    let (delegate, ran) = (ManualExecutor::new(), Log::new());
    let noted = ran.clone();
    let executor = BatchingExecutor::builder(move |task: u64| noted.push(task))
        .weigh(|&task| task)
        .max_queued_weight(10)
        .build(delegate.clone())
        .unwrap();
    executor.submit(u64::MAX).unwrap();
    assert_eq!(batches(&delegate, &ran), [vec![u64::MAX]]);
    assert_eq!(executor.queued_weight(), 0);
    assert_eq!((executor.submit(1), executor.submit(2)), (Ok(()), Ok(())));
}

#[test]
fn the_sum_of_queued_weights_does_not_wrap() {
    let (delegate, ran) = (ManualExecutor::new(), Log::new());
    let noted = ran.clone();
    let executor = BatchingExecutor::builder(move |task: u64| noted.push(task))
        .weigh(|&task| task)
        .max_queued_weight(u64::MAX)
        .build(delegate.clone())
        .unwrap();
    let taken = (0..8).filter(|_| executor.submit(u64::MAX).is_ok()).count();
    assert_eq!(taken, 4, "a weight counts as at most 2^62 - 1");
    delegate.run_all();
    assert_eq!((ran.len(), executor.queued_weight()), (4, 0));
}

#[test]
fn tasks_that_are_given_back_leave_no_weight_behind() {
    let (delegate, handed) = (ManualExecutor::new(), Log::new());
    let noted = handed.clone();
    let executor = BatchingExecutor::builder(drop::<u64>)
        .weigh(|&task| task)
        .max_queued_weight(10)
        .max_items(1)
        .on_rejected(move |rejected: Rejected<u64>| noted.push(rejected.value))
        .build(delegate.clone())
        .unwrap();
    // The submitter's own.
    delegate.refuse_next(1);
    assert_eq!(executor.submit(3), Err(Rejected::new(3, RejectReason::Refused)));
    assert_eq!(executor.queued_weight(), 0);
    // Those behind it.
    for task in [1, 2, 3] {
        executor.submit(task).unwrap();
    }
    delegate.refuse_next(1);
    assert_eq!(delegate.run_all(), 1);
    assert_eq!((handed.take(), executor.queued_weight()), (vec![2, 3], 0));
    // Those that were refused by the other bound or because it is closed.
    executor.submit(4).unwrap();
    executor.close();
    assert!(executor.submit(5).is_err());
    assert_eq!(executor.queued_weight(), 4);
    executor.shutdown_now();
    assert_eq!((handed.take(), executor.queued_weight()), (vec![4], 0));
}

#[test]
fn a_closed_executor_says_so_even_when_it_is_full() {
    let executor = BatchingExecutor::builder(drop::<u64>)
        .weigh(|&task| task)
        .max_queued(1)
        .max_queued_weight(1)
        .build(ManualExecutor::new())
        .unwrap();
    executor.submit(1).unwrap();
    assert_eq!(executor.submit(1), full(1));
    executor.close();
    assert_eq!(executor.submit(1), Err(Rejected::new(1, RejectReason::Closed)));
}

/// I1: bounds hold under contention, and what is full is given back to its submitter.
#[test]
fn bounds_hold_under_contention() {
    const EACH: usize = 5_000;
    let account = Account::new(4, EACH);
    let ran = Arc::clone(&account);
    let pool = support::worker();
    let executor = BatchingExecutor::builder(move |task| ran.run(task))
        .max_queued(8)
        .weigh(|_| 1)
        .max_queued_weight(6)
        .build(pool.workers()[0].clone())
        .unwrap();
    producers(4, |producer| {
        for number in 0..EACH {
            if let Err(rejected) = executor.submit((producer, number)) {
                assert_eq!(rejected.reason, RejectReason::Full);
                account.give_back(rejected.value);
            }
            assert!(executor.queued_weight() <= 6 && executor.queued() <= 8);
        }
    });
    executor.flush().wait().unwrap();
    let settled = account.settle();
    assert_eq!(settled.ran + settled.returned, 4 * EACH);
    assert!(settled.ran > 0);
    assert_eq!((executor.queued(), executor.queued_weight()), (0, 0));
}

/// I8: in a bounded delegate that is full a follow-up batch has the place of the batch before it.
#[test]
fn a_follow_up_batch_has_its_place_in_a_delegate_that_is_full() {
    let (delegate, ran, handed) = (ManualExecutor::bounded(1), Log::new(), Log::new());
    let (noted, back) = (ran.clone(), handed.clone());
    let other = delegate.clone();
    let foreign = ran.clone();
    let executor = BatchingExecutor::builder(move |task: u32| {
        noted.push(task);
        if task == 1 {
            // Somebody else takes the only place while the batch runs.
            let foreign = foreign.clone();
            other.submit(Job::new(move || foreign.push(1_000))).unwrap();
        }
    })
    .max_items(2)
    .on_rejected(move |rejected| back.push(rejected.value))
    .build(delegate.clone())
    .unwrap();
    for task in 1..=5 {
        executor.submit(task).unwrap();
    }
    assert!(delegate.submit(Job::new(|| ())).is_err(), "the delegate is full");
    assert_eq!(batches(&delegate, &ran), [vec![1, 2], vec![1_000], vec![3, 4], vec![5]]);
    assert_eq!(handed.take(), []);
}

/// I8: the same in a worker that takes one job.
#[test]
fn a_follow_up_batch_has_its_place_in_a_worker_of_one() {
    let pool = OrderedExecutor::builder().threads(1).capacity(1).build().unwrap();
    let worker = pool.workers()[0].clone();
    let (ran, handed) = (Log::new(), Log::new());
    let (noted, back) = (ran.clone(), handed.clone());
    let inside = Gate::new();
    let gate = inside.clone();
    let executor = BatchingExecutor::builder(move |task: u32| {
        if task == 0 {
            gate.pass();
        }
        noted.push(task);
    })
    .max_items(2)
    .on_rejected(move |rejected| back.push(rejected.value))
    .build(worker.clone())
    .unwrap();
    executor.submit(0).unwrap();
    inside.wait_until_reached();
    for task in 1..9 {
        executor.submit(task).unwrap();
    }
    let refused = worker.submit(Job::new(|| ())).unwrap_err();
    assert_eq!(refused.reason, RejectReason::Full);
    refused.value.forget();
    inside.open();
    executor.flush().wait().unwrap();
    assert_eq!((ran.take(), handed.take()), ((0..9).collect(), vec![]));
    assert!(pool.join().unwrap().is_empty());
}
