//! Where blocks of the queue begin and end.
#![cfg(not(any(loom, shuttle)))]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests run on the standard library only, and their helpers unwrap as they do"
)]

mod support;

use folio_sync::Arc;
use std::thread;

use folio_executor::{BatchingExecutor, Builder};
use folio_sync::test_util::ManualExecutor;
use folio_sync::test_util::pause::{Stop, When};
use support::{Account, Log, Task, batches, producers, worker};

/// I1, I2: a producer that stops between its claim and its place finds the place, though the queue's tail has gone past its block.
#[test]
fn a_producer_whose_block_the_tail_has_left_finds_its_place() {
    let (delegate, ran) = (ManualExecutor::new(), Log::new());
    let noted = ran.clone();
    let executor = Builder::<u32, 2>::new(move |task| noted.push(task)).build(delegate.clone()).unwrap();
    let stop = Stop::new("queue.claim", When::After);
    thread::scope(|scope| {
        let stopped = scope.spawn(|| stop.run(|| executor.submit(0)));
        stop.wait_until_stopped();
        for task in 1..100 {
            executor.submit(task).unwrap();
        }
        stop.release();
        stopped.join().unwrap().unwrap();
    });
    assert_eq!(batches(&delegate, &ran), [(0..100).collect::<Vec<_>>()]);
}

/// Tasks up to one block's end, and one less and one more; queued all at once or run in pieces.
fn at_the_ends_of_blocks<const N: usize>() {
    for blocks in 1..=3 {
        for tasks in [blocks * N - 1, blocks * N, blocks * N + 1] {
            for piece in [1, N - 1, N, N + 1, tasks] {
                let (delegate, ran, payload) = (ManualExecutor::new(), Log::new(), Arc::new(()));
                let noted = ran.clone();
                let executor = Builder::<(usize, Arc<()>), N>::new(move |(task, _payload)| noted.push(task))
                    .build(delegate.clone())
                    .unwrap();
                for task in 0..tasks {
                    executor.submit((task, Arc::clone(&payload))).unwrap();
                    if (task + 1) % piece == 0 {
                        delegate.run_all();
                        assert_eq!(executor.queued(), 0);
                    }
                }
                let kept = Arc::strong_count(&payload) - 1;
                assert_eq!(kept, tasks % piece, "what has run is dropped, what is queued is not");
                delegate.run_all();
                assert_eq!(ran.take(), (0..tasks).collect::<Vec<_>>());
                assert_eq!(Arc::strong_count(&payload), 1);
            }
        }
    }
}

/// I1, I2: blocks of 2.
#[test]
fn tasks_up_to_the_ends_of_blocks_of_2_run_in_order() {
    at_the_ends_of_blocks::<2>();
}

/// I1, I2: blocks of 4.
#[test]
fn tasks_up_to_the_ends_of_blocks_of_4_run_in_order() {
    at_the_ends_of_blocks::<4>();
}

/// I1, I2: blocks of 128.
#[test]
fn tasks_up_to_the_ends_of_blocks_of_128_run_in_order() {
    at_the_ends_of_blocks::<128>();
}

/// I1, I2: the same with what is queued given back in the end.
#[test]
fn tasks_up_to_the_ends_of_blocks_are_given_back_in_order() {
    for tasks in 0..=9 {
        for run_first in 0..=tasks {
            let (delegate, handed, payload) = (ManualExecutor::new(), Log::new(), Arc::new(()));
            let back = handed.clone();
            let executor = Builder::<(usize, Arc<()>), 4>::new(drop)
                .max_items(1)
                .on_rejected(move |rejected| back.push(rejected.value.0))
                .build(delegate.clone())
                .unwrap();
            for task in 0..tasks {
                executor.submit((task, Arc::clone(&payload))).unwrap();
            }
            for _ in 0..run_first {
                delegate.run_next();
            }
            drop(executor);
            assert_eq!(handed.take(), (run_first..tasks).collect::<Vec<_>>());
            assert_eq!(Arc::strong_count(&payload), 1);
        }
    }
}

/// Four producers that cross blocks of N all the time, beside a worker that frees them.
fn producers_cross_blocks<const N: usize>() {
    const EACH: usize = 10_000;
    let account = Account::new(4, EACH);
    let ran = Arc::clone(&account);
    let pool = worker();
    let executor = Builder::<Task, N>::new(move |task| ran.run(task))
        .max_items(64)
        .build(pool.workers()[0].clone())
        .unwrap();
    producers(4, |producer| {
        for number in 0..EACH {
            executor.submit((producer, number)).unwrap();
        }
    });
    executor.flush().wait().unwrap();
    assert_eq!(account.settle().ran, 4 * EACH);
}

/// I1, I2, I3: blocks of 1: each task has a block of its own.
#[test]
fn producers_that_cross_blocks_of_1_lose_nothing() {
    producers_cross_blocks::<1>();
}

/// I1, I2, I3: blocks of 2.
#[test]
fn producers_that_cross_blocks_of_2_lose_nothing() {
    producers_cross_blocks::<2>();
}

/// I1, I2, I3: blocks of 4.
#[test]
fn producers_that_cross_blocks_of_4_lose_nothing() {
    producers_cross_blocks::<4>();
}

/// I1, I2: a million tasks queued before the first runs.
#[test]
fn a_burst_of_a_million_tasks_runs_in_order() {
    const TASKS: u32 = 1_000_000;
    let delegate = ManualExecutor::new();
    let (next, done) = (Log::new(), std::cell::Cell::new(0));
    let noted = next.clone();
    let executor = BatchingExecutor::builder(move |task: u32| {
        assert_eq!(task, done.get(), "out of order");
        done.set(task + 1);
        if task + 1 == TASKS {
            noted.push(task);
        }
    })
    .build(delegate.clone())
    .unwrap();
    for task in 0..TASKS {
        executor.submit(task).unwrap();
    }
    assert_eq!(delegate.run_all(), 977, "1,024 a batch");
    assert_eq!(next.take(), [TASKS - 1]);
}
