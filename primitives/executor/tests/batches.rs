//! What a batch takes, and when the next one is scheduled.
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

use folio_executor::{BatchingExecutor, Builder, ConfigError, Handler, Part};
use folio_sync::test_util::ManualExecutor;
use folio_sync::{Executor, Job};
use support::{Log, batches, failures_to};

/// A builder whose handler notes the tasks, weighed by themselves.
fn weighed(ran: &Log<u64>) -> Builder<u64> {
    let ran = ran.clone();
    BatchingExecutor::builder(move |task| ran.push(task)).weigh(|&task| task)
}

/// 4.1, I5: six tasks of weight 4 under a limit of 10 make two batches of three.
#[test]
fn a_batch_stops_taking_tasks_once_their_weights_reach_the_limit() {
    let (delegate, ran) = (ManualExecutor::new(), Log::new());
    let executor = weighed(&ran).max_weight(10).build(delegate.clone()).unwrap();
    for _ in 0..6 {
        executor.submit(4).unwrap();
    }
    assert_eq!(batches(&delegate, &ran), [vec![4; 3], vec![4; 3]]);
}

/// I5: a batch stops as soon as the limit is reached exactly.
#[test]
fn a_batch_that_weighs_exactly_the_limit_is_full() {
    let (delegate, ran) = (ManualExecutor::new(), Log::new());
    let executor = weighed(&ran).max_weight(8).build(delegate.clone()).unwrap();
    for task in [4, 4, 1] {
        executor.submit(task).unwrap();
    }
    assert_eq!(batches(&delegate, &ran), [vec![4, 4], vec![1]]);
}

/// 4.1, I5: a task of 100 under a limit of 10 runs in a batch of its own.
#[test]
fn a_task_heavier_than_the_limit_runs_alone() {
    let (delegate, ran) = (ManualExecutor::new(), Log::new());
    let executor = weighed(&ran).max_weight(10).build(delegate.clone()).unwrap();
    for task in [100, 100, 1, 2] {
        executor.submit(task).unwrap();
    }
    assert_eq!(batches(&delegate, &ran), [vec![100], vec![100], vec![1, 2]]);
}

/// 4.1, I5: without a weigher tasks weigh nothing, so that only their number limits a batch.
#[test]
fn tasks_without_a_weight_are_limited_by_their_number_only() {
    let (delegate, ran) = (ManualExecutor::new(), Log::new());
    let noted = ran.clone();
    let executor = BatchingExecutor::builder(move |task: u64| noted.push(task))
        .max_weight(1)
        .max_items(4)
        .build(delegate.clone())
        .unwrap();
    for task in 0..6 {
        executor.submit(task).unwrap();
    }
    assert_eq!(batches(&delegate, &ran), [vec![0, 1, 2, 3], vec![4, 5]]);
}

#[test]
fn a_weight_limit_of_0_is_none() {
    let (delegate, ran) = (ManualExecutor::new(), Log::new());
    let executor = weighed(&ran).max_weight(0).build(delegate.clone()).unwrap();
    for _ in 0..3 {
        executor.submit(u64::MAX).unwrap();
    }
    assert_eq!(batches(&delegate, &ran).len(), 1);
}

#[test]
fn by_default_a_batch_takes_1024_tasks_or_5_mib() {
    let (delegate, ran) = (ManualExecutor::new(), Log::new());
    let executor = weighed(&ran).build(delegate.clone()).unwrap();
    for _ in 0..1025 {
        executor.submit(1).unwrap();
    }
    let sizes: Vec<_> = batches(&delegate, &ran).iter().map(Vec::len).collect();
    assert_eq!(sizes, [1024, 1]);
    for task in [(5 << 20) - 1, 1, 1] {
        executor.submit(task).unwrap();
    }
    assert_eq!(batches(&delegate, &ran), [vec![(5 << 20) - 1, 1], vec![1]]);
}

/// 4.1: three tasks that are queued before the batch runs share one submission.
#[test]
fn tasks_queued_before_the_batch_runs_share_it() {
    let (delegate, ran) = (ManualExecutor::new(), Log::new());
    let executor = weighed(&ran).build(delegate.clone()).unwrap();
    for task in [1, 2, 3] {
        executor.submit(task).unwrap();
    }
    assert_eq!((delegate.queued(), executor.queued()), (1, 3));
    assert_eq!(batches(&delegate, &ran), [vec![1, 2, 3]]);
    assert_eq!((delegate.submissions(), executor.queued()), (1, 0));
    // The next task schedules again.
    executor.submit(4).unwrap();
    assert_eq!(delegate.submissions(), 2);
    assert_eq!(batches(&delegate, &ran), [vec![4]]);
}

/// 4.1, I5, I8: five tasks under a limit of two go by 2, 2 and 1, and the delegate's other jobs come between.
#[test]
fn a_batch_takes_its_limit_and_schedules_the_rest_behind_the_delegates_other_jobs() {
    let (delegate, ran) = (ManualExecutor::new(), Log::new());
    let executor = weighed(&ran).max_items(2).build(delegate.clone()).unwrap();
    for task in 1..=5 {
        executor.submit(task).unwrap();
    }
    let foreign = ran.clone();
    delegate.submit(Job::new(move || foreign.push(1_000))).unwrap();
    assert_eq!(batches(&delegate, &ran), [vec![1, 2], vec![1_000], vec![3, 4], vec![5]]);
    assert_eq!(delegate.submissions(), 4);
    assert_eq!(delegate.handovers(), 2, "follow-up batches are no hand-over to another thread");
}

/// 4.1, I4: what a running task submits is not left behind.
#[test]
fn a_task_queued_while_a_batch_runs_is_not_left_behind() {
    let (delegate, ran) = (ManualExecutor::new(), Log::new());
    let executor: Arc<OnceLock<BatchingExecutor<u64>>> = Arc::default();
    let (again, noted) = (Arc::downgrade(&executor), ran.clone());
    let built = BatchingExecutor::builder(move |task| {
        noted.push(task);
        if task < 5 {
            again.upgrade().unwrap().get().unwrap().submit(task + 1).unwrap();
        }
    })
    .build(delegate.clone())
    .unwrap();
    let executor = executor.get_or_init(|| built);
    executor.submit(1).unwrap();
    assert_eq!(delegate.queued(), 1);
    assert_eq!(batches(&delegate, &ran), [vec![1], vec![2], vec![3], vec![4], vec![5]]);
    assert_eq!(executor.queued(), 0);
}

/// 4.1, I6: a task that panics goes to the failure sink, and the batch goes on with the next.
#[test]
fn a_task_that_fails_is_told_to_the_sink_and_its_batch_continues() {
    let (delegate, ran, failures) = (ManualExecutor::new(), Log::new(), Log::new());
    let noted = ran.clone();
    let executor = BatchingExecutor::builder(move |task: u32| {
        assert!(task != 2, "task 2");
        noted.push(task);
    })
    .on_failure(failures_to(&failures))
    .build(delegate.clone())
    .unwrap();
    for task in [1, 2, 3] {
        executor.submit(task).unwrap();
    }
    assert_eq!(batches(&delegate, &ran), [vec![1, 3]]);
    let failed = failures.take();
    assert_eq!(failed.len(), 1);
    assert_eq!(failed[0].0, Part::Task);
    assert!(failed[0].1.contains("task 2"), "{failed:?}");
    // A failure counts as a task run: the limit holds.
    assert_eq!(executor.queued(), 0);
}

/// I5, I6: tasks that panic count towards the limits.
#[test]
fn tasks_that_fail_count_towards_the_limits_of_their_batch() {
    let (delegate, failures) = (ManualExecutor::new(), Log::new());
    let executor = BatchingExecutor::builder(|_: u32| panic!("fails"))
        .max_items(2)
        .on_failure(failures_to(&failures))
        .build(delegate.clone())
        .unwrap();
    for task in 0..3 {
        executor.submit(task).unwrap();
    }
    assert!(delegate.run_next());
    assert_eq!(failures.len(), 2);
    assert_eq!(delegate.run_all(), 1);
    assert_eq!(failures.len(), 3);
}

/// 4.1: a limit of 0 or 1 task hands each over by itself.
#[test]
fn a_limit_of_0_or_1_hands_each_task_over_by_itself() {
    for limit in [0, 1] {
        let (delegate, ran) = (ManualExecutor::new(), Log::new());
        let executor = weighed(&ran).max_items(limit).build(delegate.clone()).unwrap();
        for task in [1, 2, 3] {
            executor.submit(task).unwrap();
        }
        assert_eq!(batches(&delegate, &ran), [vec![1], vec![2], vec![3]]);
        assert_eq!(delegate.submissions(), 3);
    }
}

/// 4.1: settings are checked when an executor is built.
#[test]
fn settings_that_no_executor_can_have_are_refused() {
    fn plain() -> Builder<u64> {
        BatchingExecutor::builder(drop)
    }
    let build = |builder: Builder<u64>| builder.build(ManualExecutor::new()).map(drop);
    assert_eq!(build(plain().max_queued(0)), Err(ConfigError::MaxQueued(0)));
    assert_eq!(build(plain().max_queued(1 << 28)), Err(ConfigError::MaxQueued(1 << 28)));
    assert_eq!(build(plain().max_queued_weight(1)), Err(ConfigError::NoWeigher));
    assert_eq!(build(plain().max_queued((1 << 28) - 1).max_items(usize::MAX)), Ok(()));
    assert_eq!(build(plain().max_queued(1).max_queued_weight(1).weigh(|_| 1)), Ok(()));
    assert!(ConfigError::MaxQueued(0).to_string().contains("not 0"));
    assert!(ConfigError::NoWeigher.to_string().contains("weigher"));
}

/// I5: the weight is read when the task is submitted, before it runs.
#[test]
fn a_task_is_weighed_on_its_submitters_thread_before_it_runs() {
    let (delegate, ran, weighed) = (ManualExecutor::new(), Log::new(), Log::new());
    let (noted, seen) = (ran.clone(), weighed.clone());
    let executor = BatchingExecutor::builder(move |task: u64| noted.push(task))
        .weigh(move |&task| {
            seen.push((task, std::thread::current().id()));
            task
        })
        .build(delegate.clone())
        .unwrap();
    executor.submit(1).unwrap();
    assert_eq!(weighed.take(), [(1, std::thread::current().id())]);
    std::thread::scope(|scope| scope.spawn(|| delegate.run_all()).join().unwrap());
    assert_eq!((ran.take(), weighed.len()), (vec![1], 0));
}

#[test]
fn is_inside_is_said_inside_a_task_and_a_job_of_the_delegate_only() {
    let delegate = ManualExecutor::new();
    let said = Log::new();
    let executor: Arc<OnceLock<BatchingExecutor<()>>> = Arc::default();
    let (inner, noted) = (Arc::downgrade(&executor), said.clone());
    let built =
        BatchingExecutor::builder(move |()| noted.push(inner.upgrade().unwrap().get().unwrap().is_inside()))
            .build(delegate.clone())
            .unwrap();
    executor.get_or_init(|| built).submit(()).unwrap();
    let (inner, noted) = (Arc::clone(&executor), said.clone());
    delegate.submit(Job::new(move || noted.push(inner.get().unwrap().is_inside()))).unwrap();
    assert!(!executor.get().unwrap().is_inside());
    delegate.run_all();
    assert_eq!(said.take(), [true, true]);
    assert!(!executor.get().unwrap().is_inside());
}

/// Notes tasks, and where batches end.
#[derive(Default)]
struct Ends {
    seen: Log<Option<u64>>,
    panics: bool,
    /// What the second task calls.
    second: Arc<OnceLock<Box<dyn Fn() + Send + Sync>>>,
}

impl Handler<u64> for Ends {
    fn run(&mut self, task: u64) {
        self.seen.push(Some(task));
        assert!(!self.panics || task != 2, "the second task");
        if let Some(call) = self.second.get().filter(|_| task == 2) {
            call();
        }
    }

    fn batch_ended(&mut self) {
        self.seen.push(None);
        assert!(!self.panics, "the end");
    }
}

#[test]
fn the_handler_hears_of_the_end_of_each_batch_once() {
    let (delegate, seen) = (ManualExecutor::new(), Log::new());
    let handler = Ends { seen: seen.clone(), ..Ends::default() };
    let executor = BatchingExecutor::handled_by(handler).max_items(2).build(delegate.clone()).unwrap();
    (1..=3).for_each(|task| executor.submit(task).unwrap());
    let told = seen.clone();
    executor.flush_with(move || told.push(Some(0)));
    delegate.run_all();
    assert_eq!(seen.take(), [Some(1), Some(2), None, Some(3), None, Some(0)]);
}

#[test]
fn the_end_of_a_batch_is_told_though_a_task_panics_and_its_own_panic_stops_nothing() {
    let (delegate, seen) = (ManualExecutor::new(), Log::new());
    let failures = Log::new();
    let handler = Ends { seen: seen.clone(), panics: true, ..Ends::default() };
    let executor = BatchingExecutor::handled_by(handler)
        .max_items(2)
        .on_failure(failures_to(&failures))
        .build(delegate.clone())
        .unwrap();
    (1..=3).for_each(|task| executor.submit(task).unwrap());
    delegate.run_all();
    assert_eq!(seen.take(), [Some(1), Some(2), None, Some(3), None]);
    let parts: Vec<_> = failures.take().into_iter().map(|(part, _)| part).collect();
    assert_eq!(parts, [Part::Task, Part::BatchEnd, Part::BatchEnd]);
}

#[test]
fn the_end_of_a_batch_is_told_when_the_executor_is_shut_while_it_runs() {
    let (delegate, seen) = (ManualExecutor::new(), Log::new());
    let handler = Ends { seen: seen.clone(), ..Ends::default() };
    let second = Arc::clone(&handler.second);
    let executor = Arc::new(BatchingExecutor::handled_by(handler).build(delegate.clone()).unwrap());
    let itself = Arc::downgrade(&executor);
    assert!(second.set(Box::new(move || itself.upgrade().unwrap().shutdown_now())).is_ok());
    (1..=3).for_each(|task| executor.submit(task).unwrap());
    delegate.run_all();
    assert_eq!(seen.take(), [Some(1), Some(2), None], "the third is given back");
}
