//! Close, shutdown and drop.
#![cfg(not(any(loom, shuttle)))]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests run on the standard library only, and their helpers unwrap as they do"
)]

mod support;

use folio_sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::thread;

use folio_executor::BatchingExecutor;
use folio_sync::test_util::ManualExecutor;
use folio_sync::{RejectReason, Rejected};
use support::{Account, Gate, Log, batches, caller_runs, worker};

type Shared = Arc<OnceLock<BatchingExecutor<u32>>>;

fn closed(task: u32) -> Result<(), Rejected<u32>> {
    Err(Rejected::new(task, RejectReason::Closed))
}

struct Scene {
    delegate: ManualExecutor,
    executor: BatchingExecutor<u32>,
    ran: Log<u32>,
    handed: Log<(u32, RejectReason)>,
}

fn scene() -> Scene {
    let (delegate, ran, handed) = (ManualExecutor::new(), Log::new(), Log::new());
    let (noted, back) = (ran.clone(), handed.clone());
    let executor = BatchingExecutor::builder(move |task: u32| noted.push(task))
        .max_items(2)
        .on_rejected(move |rejected| back.push((rejected.value, rejected.reason)))
        .build(delegate.clone())
        .unwrap();
    Scene { delegate, executor, ran, handed }
}

#[test]
fn a_closed_executor_refuses_new_tasks_and_runs_those_queued() {
    let Scene { delegate, executor, ran, handed } = scene();
    assert!(!executor.is_closed());
    for task in 1..=3 {
        executor.submit(task).unwrap();
    }
    executor.close();
    executor.close();
    assert!(executor.is_closed());
    assert_eq!(executor.submit(4), closed(4));
    assert_eq!(batches(&delegate, &ran), [vec![1, 2], vec![3]]);
    assert_eq!(executor.submit(5), closed(5));
    assert_eq!((handed.take(), delegate.submissions()), (vec![], 2));
}

/// I1, I2: a batch that has not begun loses its turn: its tasks are given back on the thread that shuts down.
#[test]
fn a_shutdown_gives_back_what_is_queued_on_its_thread_and_the_batch_loses_its_turn() {
    let Scene { delegate, executor, ran, handed } = scene();
    for task in 1..=5 {
        executor.submit(task).unwrap();
    }
    delegate.run_next();
    executor.shutdown_now();
    assert_eq!(handed.take(), [3, 4, 5].map(|task| (task, RejectReason::Closed)));
    assert_eq!((executor.queued(), executor.submit(6)), (0, closed(6)));
    assert_eq!(batches(&delegate, &ran), [vec![1, 2]], "the job of the batch finds nothing to do");
    executor.shutdown_now();
    assert_eq!(handed.take(), []);
}

#[test]
fn a_shutdown_after_a_close_gives_back_what_is_still_queued() {
    let Scene { executor, handed, .. } = scene();
    executor.submit(1).unwrap();
    executor.close();
    executor.shutdown_now();
    assert_eq!(handed.take(), [(1, RejectReason::Closed)]);
}

#[test]
fn a_shutdown_of_an_executor_that_was_never_used_does_nothing() {
    let Scene { delegate, executor, handed, .. } = scene();
    executor.shutdown_now();
    assert_eq!(executor.submit(1), closed(1));
    assert_eq!((handed.len(), delegate.submissions()), (0, 0));
}

#[test]
fn dropping_is_a_shutdown() {
    let Scene { delegate, executor, ran, handed } = scene();
    for task in 1..=3 {
        executor.submit(task).unwrap();
    }
    delegate.run_next();
    drop(executor);
    assert_eq!(handed.take(), [(3, RejectReason::Closed)]);
    assert_eq!(batches(&delegate, &ran), [vec![1, 2]]);
}

/// I1, I2: a running batch gives the rest back after its current task, on its thread; the shutdown does not wait.
#[test]
fn a_shutdown_while_a_batch_runs_leaves_the_rest_to_that_batch() {
    let pool = worker();
    let (gate, ran, handed) = (Gate::new(), Log::new(), Log::new());
    let (inside, noted, back) = (gate.clone(), ran.clone(), handed.clone());
    let executor = BatchingExecutor::builder(move |task: u32| {
        noted.push((task, thread::current().id()));
        inside.pass();
    })
    .on_rejected(move |rejected: Rejected<u32>| back.push((rejected.value, thread::current().id())))
    .build(pool.workers()[0].clone())
    .unwrap();
    for task in 1..=4 {
        executor.submit(task).unwrap();
    }
    gate.wait_until_reached();
    let flush = executor.flush();
    executor.shutdown_now();
    assert_eq!((handed.len(), executor.submit(5)), (0, closed(5)), "the current task still runs");
    assert!(!flush.is_done());
    gate.open();
    flush.wait().unwrap();
    let ran = ran.take();
    assert_eq!(ran.len(), 1);
    let (_, worker) = ran[0];
    assert_ne!(worker, thread::current().id());
    assert_eq!(handed.take(), [2, 3, 4].map(|task| (task, worker)));
}

/// I1: a task that shuts its own executor down is the last one to run.
#[test]
fn a_shutdown_from_inside_a_task_lets_that_task_end_and_gives_back_the_rest() {
    for inline in [false, true] {
        let (delegate, executor) = (ManualExecutor::new(), Shared::default());
        let (ran, handed) = (Log::new(), Log::new());
        let (inner, noted, back) = (Arc::downgrade(&executor), ran.clone(), handed.clone());
        let builder = BatchingExecutor::builder(move |task: u32| {
            let slot = inner.upgrade().unwrap();
            let executor = slot.get().unwrap();
            if task == 1 {
                executor.submit(2).unwrap();
                executor.submit(3).unwrap();
                executor.shutdown_now();
                assert_eq!(executor.submit(4), closed(4));
            }
            noted.push(task);
        })
        .on_rejected(move |rejected| back.push((rejected.value, rejected.reason)));
        let built =
            if inline { builder.build(caller_runs()) } else { builder.build(delegate.clone()) }.unwrap();
        executor.get_or_init(|| built).submit(1).unwrap();
        delegate.run_all();
        assert_eq!(
            (ran.take(), handed.take()),
            (vec![1], [2, 3].map(|task| (task, RejectReason::Closed)).to_vec())
        );
        assert_eq!(executor.get().unwrap().queued(), 0);
    }
}

/// I1: a task that drops the last handle of its executor.
#[test]
fn the_last_handle_can_be_dropped_inside_a_task() {
    let delegate = ManualExecutor::new();
    let slot: Arc<Mutex<Option<BatchingExecutor<u32>>>> = Arc::default();
    let (ran, handed) = (Log::new(), Log::new());
    let (inner, noted, back) = (Arc::clone(&slot), ran.clone(), handed.clone());
    let executor = BatchingExecutor::builder(move |task: u32| {
        let own = inner.lock().unwrap().take();
        drop(own);
        noted.push(task);
    })
    .on_rejected(move |rejected| back.push(rejected.value))
    .build(delegate.clone())
    .unwrap();
    for task in 1..=3 {
        executor.submit(task).unwrap();
    }
    *slot.lock().unwrap() = Some(executor);
    assert_eq!(delegate.run_all(), 1);
    assert_eq!((ran.take(), handed.take()), (vec![1], vec![2, 3]));
    assert_eq!(Arc::strong_count(&slot), 1, "the handler is gone with its executor");
}

/// I1: the handler may submit again, and is refused; shutting down from inside it changes nothing.
#[test]
fn a_handler_that_submits_during_a_shutdown_is_refused() {
    let (delegate, executor) = (ManualExecutor::new(), Shared::default());
    let answers = Log::new();
    let (inner, noted) = (Arc::downgrade(&executor), answers.clone());
    let built = BatchingExecutor::builder(drop)
        .on_rejected(move |rejected: Rejected<u32>| {
            let slot = inner.upgrade().unwrap();
            let executor = slot.get().unwrap();
            let answer = executor.submit(rejected.value + 10).unwrap_err();
            noted.push((rejected.value, answer.value));
            executor.shutdown_now();
        })
        .build(delegate.clone())
        .unwrap();
    let executor = executor.get_or_init(|| built);
    for task in 1..=3 {
        executor.submit(task).unwrap();
    }
    executor.shutdown_now();
    assert_eq!(answers.take(), [(1, 11), (2, 12), (3, 13)]);
    assert_eq!(executor.queued(), 0);
}

/// I1, I2, I3: shutting down while eight threads submit: each task runs, is handed over or is returned, once.
#[test]
fn a_shutdown_amid_submitters_loses_no_task() {
    const THREADS: usize = 8;
    const EACH: usize = 500;
    for round in 0..20 {
        let account = Account::new(THREADS, EACH);
        let (ran, handed) = (Arc::clone(&account), Arc::clone(&account));
        let pool = worker();
        let executor = BatchingExecutor::<_>::builder(move |task| ran.run(task))
            .max_items(16)
            .on_rejected(move |rejected: Rejected<support::Task>| handed.hand(rejected.value))
            .build(pool.workers()[0].clone())
            .unwrap();
        let submitted = AtomicUsize::new(0);
        support::producers(THREADS + 1, |producer| {
            if producer == THREADS {
                support::until("some are submitted", || {
                    submitted.load(Ordering::Relaxed) >= round * THREADS * EACH / 20
                });
                executor.shutdown_now();
                return;
            }
            for number in 0..EACH {
                submitted.fetch_add(1, Ordering::Relaxed);
                if let Err(rejected) = executor.submit((producer, number)) {
                    assert_eq!(rejected.reason, RejectReason::Closed);
                    account.give_back(rejected.value);
                }
            }
        });
        executor.flush().wait().unwrap();
        let settled = account.settle();
        assert_eq!(settled.ran + settled.handed + settled.returned, THREADS * EACH);
        drop(executor);
        assert!(pool.join().unwrap().is_empty());
    }
}

/// I1: the drop of the executor's last handle races the worker.
#[test]
fn a_drop_beside_a_running_batch_loses_no_task() {
    let pool = worker();
    for tasks in 0..300 {
        let account = Account::new(1, tasks);
        let (ran, handed) = (Arc::clone(&account), Arc::clone(&account));
        let executor = BatchingExecutor::<support::Task>::builder(move |task| ran.run(task))
            .max_items(7)
            .on_rejected(move |rejected| handed.hand(rejected.value))
            .build(pool.workers()[0].clone())
            .unwrap();
        for number in 0..tasks {
            executor.submit((0, number)).unwrap();
        }
        let flush = executor.flush();
        drop(executor);
        flush.wait().unwrap();
        let settled = account.settle();
        assert_eq!((settled.ran + settled.handed, settled.returned), (tasks, 0));
    }
}
