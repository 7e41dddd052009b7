//! Panics wherever user code is called: each task is still run or given back exactly once.
#![cfg(not(any(loom, shuttle)))]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests run on the standard library only, and their helpers unwrap as they do"
)]

mod support;

use folio_sync::Arc;
use std::sync::Mutex;

use folio_executor::{BatchingExecutor, Part};
use folio_sync::test_util::ManualExecutor;
use folio_sync::{Job, RejectReason, Rejected};
use support::{Log, by, failures_to, go_off, refusing};

fn parts(failures: &Log<(Part, String)>) -> Vec<Part> {
    failures.take().into_iter().map(|(part, _)| part).collect()
}

/// I6: a weigher that panics lets its task through, weighing nothing.
#[test]
fn a_task_whose_weigher_panics_weighs_nothing_and_runs() {
    let (delegate, ran, failures) = (ManualExecutor::new(), Log::new(), Log::new());
    let noted = ran.clone();
    let executor = BatchingExecutor::builder(move |task: u32| noted.push(task))
        .weigh(|&task| {
            assert!(task != 2, "weighs too much");
            1
        })
        .max_queued_weight(2)
        .on_failure(failures_to(&failures))
        .build(delegate.clone())
        .unwrap();
    for task in [1, 2, 3] {
        executor.submit(task).unwrap();
    }
    assert_eq!(executor.queued_weight(), 2);
    delegate.run_all();
    assert_eq!((ran.take(), parts(&failures)), (vec![1, 2, 3], vec![Part::Weigher]));
    assert_eq!(executor.queued_weight(), 0);
}

/// I6, trap f: a failure sink that panics leaves nothing behind: batches go on.
#[test]
fn a_failure_sink_that_panics_wedges_nothing() {
    let (delegate, ran) = (ManualExecutor::new(), Log::new());
    let noted = ran.clone();
    let executor = BatchingExecutor::builder(move |task: u32| {
        noted.push(task);
        panic!("the task");
    })
    .on_failure(|_| panic!("the sink"))
    .max_items(2)
    .build(delegate.clone())
    .unwrap();
    for task in 0..5 {
        executor.submit(task).unwrap();
    }
    assert_eq!(delegate.run_all(), 3);
    executor.submit(5).unwrap();
    assert_eq!(delegate.run_all(), 1);
    assert_eq!(ran.take(), (0..6).collect::<Vec<_>>());
}

/// I1, I6, trap f: a reject handler that panics is told to the sink, and the next task is given back all the same.
#[test]
fn a_reject_handler_that_panics_wedges_nothing() {
    let (delegate, handed, failures) = (ManualExecutor::new(), Log::new(), Log::new());
    let back = handed.clone();
    let executor = BatchingExecutor::builder(drop::<u32>)
        .max_items(1)
        .on_rejected(move |rejected| {
            back.push(rejected.value);
            panic!("the handler");
        })
        .on_failure(failures_to(&failures))
        .build(delegate.clone())
        .unwrap();
    for task in 1..=4 {
        executor.submit(task).unwrap();
    }
    delegate.refuse_next(1);
    assert_eq!(delegate.run_all(), 1);
    assert_eq!((handed.take(), parts(&failures)), (vec![2, 3, 4], vec![Part::RejectHandler; 3]));
    executor.submit(5).unwrap();
    assert_eq!(delegate.run_all(), 1);
    assert_eq!(executor.queued(), 0);
}

/// I1, I6, trap f: both panic at once.
#[test]
fn a_handler_and_a_sink_that_panic_wedge_nothing() {
    let executor = BatchingExecutor::builder(drop::<u32>)
        .on_rejected(|_| panic!("the handler"))
        .on_failure(|_| panic!("the sink"))
        .build(ManualExecutor::new())
        .unwrap();
    executor.submit(1).unwrap();
    executor.submit(2).unwrap();
    executor.shutdown_now();
    assert_eq!(executor.queued(), 0);
    executor.flush().wait().unwrap();
}

/// I6: payloads whose destructors panic, and whose destructors' payloads do, go no further.
#[test]
fn payloads_whose_destructors_panic_go_no_further() {
    let delegate = ManualExecutor::new();
    // The sink lets the payload drop inside it; then it is the sink that panics.
    let executor = BatchingExecutor::builder(|depth: u32| go_off(depth))
        .weigh(|&depth| go_off(depth))
        .on_rejected(|rejected: Rejected<u32>| go_off(rejected.value))
        .max_items(2)
        .build(delegate.clone())
        .unwrap();
    for depth in 0..6 {
        executor.submit(depth).unwrap();
    }
    delegate.run_next();
    delegate.run_next();
    assert_eq!(executor.queued(), 2);
    executor.shutdown_now();
    assert_eq!(executor.queued(), 0);
}

/// I1, I6: a delegate that panics before it has taken the batch drops it: its tasks go to the handler, each once.
#[test]
fn a_delegate_that_panics_as_it_is_given_a_batch_loses_nothing() {
    let (handed, failures) = (Log::new(), Log::new());
    let back = handed.clone();
    let executor = BatchingExecutor::builder(|_: u32| unreachable!("nothing runs"))
        .on_rejected(move |rejected| back.push((rejected.value, rejected.reason)))
        .on_failure(failures_to(&failures))
        .build(by(|_| panic!("the delegate")))
        .unwrap();
    assert_eq!((executor.submit(1), executor.submit(2)), (Ok(()), Ok(())));
    assert_eq!(handed.take(), [1, 2].map(|task| (task, RejectReason::Refused)));
    assert_eq!(failures.take(), [(); 2].map(|()| (Part::Delegate, "the delegate".to_owned())));
    assert_eq!(executor.queued(), 0);
}

/// I1, I6: a delegate that panics after it has taken the batch runs it.
#[test]
fn a_delegate_that_panics_once_it_has_the_batch_still_runs_it() {
    let (kept, ran, failures) = (ManualExecutor::new(), Log::new(), Log::new());
    let noted = ran.clone();
    let inner = kept.clone();
    let executor = BatchingExecutor::builder(move |task: u32| noted.push(task))
        .max_items(1)
        .on_rejected(|_| unreachable!("nothing is refused"))
        .on_failure(failures_to(&failures))
        .build(by(move |job| {
            folio_sync::Executor::submit(&inner, job)?;
            panic!("the delegate")
        }))
        .unwrap();
    for task in 1..=3 {
        executor.submit(task).unwrap();
    }
    assert_eq!(kept.run_all(), 3);
    assert_eq!((ran.take(), parts(&failures)), (vec![1, 2, 3], vec![Part::Delegate; 3]));
}

/// I1, I6: a delegate that panics over a follow-up batch.
#[test]
fn a_delegate_that_panics_over_a_follow_up_batch_loses_nothing() {
    let (kept, ran, handed, failures) = (ManualExecutor::new(), Log::new(), Log::new(), Log::new());
    let (noted, back, inner) = (ran.clone(), handed.clone(), kept.clone());
    let executor = BatchingExecutor::builder(move |task: u32| noted.push(task))
        .max_items(2)
        .on_rejected(move |rejected| back.push(rejected.value))
        .on_failure(failures_to(&failures))
        .build(by(move |job| {
            assert!(inner.submissions() == 0, "the second time");
            folio_sync::Executor::submit(&inner, job)
        }))
        .unwrap();
    for task in 1..=5 {
        executor.submit(task).unwrap();
    }
    assert_eq!(kept.run_all(), 1);
    assert_eq!((ran.take(), handed.take()), (vec![1, 2], vec![3, 4, 5]));
    assert_eq!(parts(&failures), [Part::Delegate]);
    assert_eq!(executor.queued(), 0);
}

/// I6: a completion of a flush that panics is told to the sink, and the other completions are called.
#[test]
fn a_completion_of_a_flush_that_panics_keeps_no_other_from_its_call() {
    let (delegate, called, failures) = (ManualExecutor::new(), Log::new(), Log::new());
    let executor = BatchingExecutor::builder(drop::<u32>)
        .on_failure(failures_to(&failures))
        .build(delegate.clone())
        .unwrap();
    executor.flush_with(|| panic!("at once"));
    executor.submit(1).unwrap();
    executor.flush_with(|| panic!("later"));
    let noted = called.clone();
    executor.flush_with(move || noted.push(()));
    delegate.run_all();
    assert_eq!(called.len(), 1);
    assert_eq!(parts(&failures), [Part::Flush; 2]);
}

/// I1, I6: tasks whose destructors panic, run and given back.
#[test]
fn tasks_whose_destructors_panic_are_done_with_once() {
    struct Task(Arc<Mutex<u32>>);

    impl Drop for Task {
        fn drop(&mut self) {
            *self.0.lock().unwrap() += 1;
            go_off(1);
        }
    }

    let dropped = Arc::default();
    let (delegate, failures) = (ManualExecutor::new(), Log::new());
    let executor = BatchingExecutor::builder(drop::<Task>)
        .max_items(2)
        .on_failure(failures_to(&failures))
        .build(delegate.clone())
        .unwrap();
    for _ in 0..5 {
        executor.submit(Task(Arc::clone(&dropped))).unwrap();
    }
    delegate.run_next();
    executor.shutdown_now();
    assert_eq!(failures.len(), 5);
    drop(failures.take().into_iter().map(|(part, _)| part));
    assert_eq!(executor.queued(), 0);
    let dropped = dropped.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    assert_eq!(*dropped, 5);
}

/// I1: a refused submitter's task comes back whatever the others' handler does.
#[test]
fn a_refused_submitter_gets_its_task_back_though_the_handler_panics() {
    let executor = BatchingExecutor::builder(drop::<u32>)
        .on_rejected(|_| panic!("the handler"))
        .on_failure(|_| panic!("the sink"))
        .build(refusing())
        .unwrap();
    for task in 0..10 {
        assert_eq!(executor.submit(task), Err(Rejected::new(task, RejectReason::Refused)));
    }
}

/// I6: nothing of this reaches the thread of the delegate.
#[test]
fn no_panic_reaches_the_delegate() {
    let kept: Arc<Mutex<Vec<Job>>> = Arc::default();
    let inner = Arc::clone(&kept);
    let executor = BatchingExecutor::builder(|_: u32| panic!("the task"))
        .on_failure(|_| panic!("the sink"))
        .on_rejected(|_| panic!("the handler"))
        .build(by(move |job| {
            inner.lock().unwrap().push(job);
            Ok(())
        }))
        .unwrap();
    executor.submit(1).unwrap();
    let job = kept.lock().unwrap().pop().unwrap();
    assert!(folio_sync::unwind::catch(|| job.run()).is_ok());
    executor.submit(2).unwrap();
    let job = kept.lock().unwrap().pop().unwrap();
    assert!(folio_sync::unwind::catch(|| drop(job)).is_ok());
    assert_eq!(executor.queued(), 0);
}
