//! Delegates that refuse or drop a batch: who gets which task back.
#![cfg(not(any(loom, shuttle)))]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests run on the standard library only, and their helpers unwrap as they do"
)]

mod support;

use folio_sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::thread;

use folio_executor::BatchingExecutor;
use folio_sync::test_util::ManualExecutor;
use folio_sync::{Job, RejectReason, Rejected};
use support::{Gate, Log, batches, by, refusing};

type Shared = Arc<OnceLock<BatchingExecutor<u32>>>;

fn refused(task: u32) -> Result<(), Rejected<u32>> {
    Err(Rejected::new(task, RejectReason::Refused))
}

/// 4.1, I1, I7: the submitter whose hand-over is refused gets its task back, which never runs; a later task schedules again.
#[test]
fn a_refused_submitter_gets_its_task_back_and_a_later_task_schedules_again() {
    let (delegate, ran, handed) = (ManualExecutor::new(), Log::new(), Log::new());
    let (noted, back) = (ran.clone(), handed.clone());
    let executor = BatchingExecutor::builder(move |task: u32| noted.push(task))
        .on_rejected(move |rejected| back.push(rejected.value))
        .build(delegate.clone())
        .unwrap();
    delegate.refuse_next(1);
    assert_eq!(executor.submit(1), refused(1));
    assert_eq!((executor.queued(), delegate.queued()), (0, 0));
    executor.submit(2).unwrap();
    assert_eq!(batches(&delegate, &ran), [vec![2]]);
    assert_eq!(handed.take(), [], "what its submitter has back is not handed to anybody else");
}

#[test]
fn the_delegates_reason_is_told() {
    let executor = BatchingExecutor::builder(drop::<u32>).build(ManualExecutor::bounded(0)).unwrap();
    assert_eq!(executor.submit(1), Err(Rejected::new(1, RejectReason::Full)));
    let closed = ManualExecutor::new();
    closed.close();
    let executor = BatchingExecutor::builder(drop::<u32>).build(closed).unwrap();
    assert_eq!(executor.submit(1), Err(Rejected::new(1, RejectReason::Closed)));
    assert!(!executor.is_closed(), "the delegate is closed, not the executor");
}

/// 4.1, I1, I7: what other threads queued while the delegate refused goes to the handler, on the refused thread.
#[test]
fn tasks_that_others_queued_during_a_refusal_go_to_the_handler() {
    let executor = Shared::default();
    let (handed, thread) = (Log::new(), thread::current().id());
    let (inner, back) = (Arc::downgrade(&executor), handed.clone());
    let delegate = by(move |job| {
        let slot = inner.upgrade().unwrap();
        let executor = slot.get().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| [2, 3].map(|task| executor.submit(task).unwrap()));
        });
        Err(Rejected::new(job, RejectReason::Refused))
    });
    let built = BatchingExecutor::builder(|_| unreachable!("nothing runs"))
        .on_rejected(move |rejected: Rejected<u32>| {
            back.push((rejected.value, rejected.reason, thread::current().id()));
        })
        .build(delegate)
        .unwrap();
    let executor = executor.get_or_init(|| built);
    assert_eq!(executor.submit(1), refused(1));
    assert_eq!(handed.take(), [2, 3].map(|task| (task, RejectReason::Refused, thread)));
    assert_eq!(executor.queued(), 0);
}

/// 4.1, I1, I4: what another thread queues while the handler runs is not left behind: it is handed over, or handed back.
#[test]
fn a_task_queued_while_the_handler_runs_is_not_left_behind() {
    for recovers in [false, true] {
        let executor = Shared::default();
        let delegate = ManualExecutor::new();
        let (ran, handed) = (Log::new(), Log::new());
        let (inner, noted, back) = (Arc::downgrade(&executor), ran.clone(), handed.clone());
        let built = BatchingExecutor::builder(move |task: u32| noted.push(task))
            .max_items(1)
            .on_rejected(move |rejected| {
                back.push(rejected.value);
                if rejected.value == 2 {
                    let slot = inner.upgrade().unwrap();
                    let executor = slot.get().unwrap();
                    thread::scope(|scope| {
                        scope.spawn(|| executor.submit(3).unwrap());
                    });
                }
            })
            .build(delegate.clone())
            .unwrap();
        let executor = executor.get_or_init(|| built);
        executor.submit(1).unwrap();
        executor.submit(2).unwrap();
        // The follow-up batch is refused, and so is what is tried for task 3, unless the delegate recovers.
        delegate.refuse_next(if recovers { 1 } else { 2 });
        delegate.run_all();
        let (expected_ran, expected_handed) =
            if recovers { (vec![1, 3], vec![2]) } else { (vec![1], vec![2, 3]) };
        assert_eq!((ran.take(), handed.take()), (expected_ran, expected_handed));
        assert_eq!(executor.queued(), 0);
    }
}

/// 4.1, I1: a task that is submitted from inside the reject handler is refused, and not handed to it.
#[test]
fn a_task_that_the_handler_submits_is_refused() {
    let executor = Shared::default();
    let delegate = ManualExecutor::new();
    let answers = Log::new();
    let (inner, noted) = (Arc::downgrade(&executor), answers.clone());
    let built = BatchingExecutor::builder(drop)
        .max_items(1)
        .on_rejected(move |rejected: Rejected<u32>| {
            let answer = inner.upgrade().unwrap().get().unwrap().submit(rejected.value + 10);
            noted.push((rejected.value, answer));
        })
        .build(delegate.clone())
        .unwrap();
    let executor = executor.get_or_init(|| built);
    for task in 1..=3 {
        executor.submit(task).unwrap();
    }
    delegate.refuse_next(1);
    delegate.run_all();
    assert_eq!(answers.take(), [(2, refused(12)), (3, refused(13))]);
    assert_eq!(executor.queued(), 0);
    executor.submit(4).unwrap();
    assert_eq!(delegate.run_all(), 1);
}

/// 4.1, I1, I2: a follow-up batch that is refused has no submitter: all the rest goes to the handler, in order.
#[test]
fn a_refused_follow_up_batch_passes_the_rest_to_the_handler() {
    let (delegate, ran, handed) = (ManualExecutor::new(), Log::new(), Log::new());
    let (noted, back) = (ran.clone(), handed.clone());
    let executor = BatchingExecutor::builder(move |task: u32| noted.push(task))
        .max_items(2)
        .on_rejected(move |rejected| back.push((rejected.value, rejected.reason)))
        .build(delegate.clone())
        .unwrap();
    for task in 1..=5 {
        executor.submit(task).unwrap();
    }
    delegate.refuse_next(1);
    assert_eq!(batches(&delegate, &ran), [vec![1, 2]]);
    assert_eq!(handed.take(), [3, 4, 5].map(|task| (task, RejectReason::Refused)));
    executor.submit(6).unwrap();
    assert_eq!(batches(&delegate, &ran), [vec![6]]);
}

/// I7: a submitter whose task ran all the same is told of no error.
#[test]
fn a_delegate_that_runs_the_batch_and_then_refuses_fails_nobody() {
    let (ran, handed) = (Log::new(), Log::new());
    let (noted, back) = (ran.clone(), handed.clone());
    let executor = BatchingExecutor::builder(move |task: u32| noted.push(task))
        .on_rejected(move |rejected| back.push(rejected.value))
        .build(by(|job| {
            job.run();
            Err(Rejected::new(Job::new(|| ()), RejectReason::Refused))
        }))
        .unwrap();
    assert_eq!((executor.submit(1), executor.submit(2)), (Ok(()), Ok(())));
    assert_eq!((ran.take(), handed.take()), (vec![1, 2], vec![]));
}

/// I1: a batch that is dropped unrun counts as a refusal without a submitter.
#[test]
fn a_batch_that_is_dropped_passes_its_tasks_to_the_handler() {
    let (delegate, ran, handed) = (ManualExecutor::new(), Log::new(), Log::new());
    let (noted, back) = (ran.clone(), handed.clone());
    let executor = BatchingExecutor::builder(move |task: u32| noted.push(task))
        .max_items(2)
        .on_rejected(move |rejected| back.push((rejected.value, rejected.reason)))
        .build(delegate.clone())
        .unwrap();
    for task in 1..=5 {
        executor.submit(task).unwrap();
    }
    delegate.run_next();
    drop(delegate.take_next());
    assert_eq!(ran.take(), [1, 2]);
    assert_eq!(handed.take(), [3, 4, 5].map(|task| (task, RejectReason::Refused)));
    executor.submit(6).unwrap();
    assert_eq!(batches(&delegate, &ran), [vec![6]]);
}

/// I1: also when the delegate drops it while it is being submitted.
#[test]
fn a_delegate_that_drops_each_batch_hands_each_task_back_once() {
    let handed = Log::new();
    let back = handed.clone();
    let executor = BatchingExecutor::builder(|_: u32| unreachable!("nothing runs"))
        .on_rejected(move |rejected| back.push(rejected.value))
        .build(by(|job| {
            drop(job);
            Ok(())
        }))
        .unwrap();
    for task in 0..300 {
        executor.submit(task).unwrap();
    }
    assert_eq!(handed.take(), (0..300).collect::<Vec<_>>());
    assert_eq!(executor.queued(), 0);
}

/// I1: a batch that is dropped while a batch runs takes nothing from it.
#[test]
fn a_job_that_stands_for_nothing_any_more_is_harmless() {
    // A delegate that keeps the jobs and says that it panicked, so that the executor does not know.
    let kept: Arc<Mutex<Vec<Job>>> = Arc::default();
    let keeping = Arc::clone(&kept);
    let (ran, handed) = (Log::new(), Log::new());
    let (noted, back) = (ran.clone(), handed.clone());
    let executor = BatchingExecutor::builder(move |task: u32| noted.push(task))
        .max_items(1)
        .on_rejected(move |rejected| back.push(rejected.value))
        .build(by(move |job| {
            keeping.lock().unwrap().push(job);
            panic!("after it was taken")
        }))
        .unwrap();
    executor.submit(1).unwrap();
    executor.submit(2).unwrap();
    let job = kept.lock().unwrap().pop().unwrap();
    job.run();
    assert_eq!(ran.take(), [1]);
    let job = kept.lock().unwrap().pop().unwrap();
    assert!(kept.lock().unwrap().is_empty());
    executor.shutdown_now();
    assert_eq!(handed.take(), [2]);
    job.run();
    assert_eq!((ran.len(), handed.len()), (0, 0));
}

/// I2, I4: refusals on one thread while another submits leave nothing queued, whoever sees to it.
#[test]
fn nothing_is_left_queued_after_refusals_race() {
    let inside = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&inside);
    let executor = BatchingExecutor::builder(|_: u32| unreachable!("nothing runs"))
        .on_rejected(move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
        })
        .build(refusing())
        .unwrap();
    let returned: usize = thread::scope(|scope| {
        let threads = [(); 2]
            .map(|()| scope.spawn(|| (0..5_000).filter(|&task| executor.submit(task).is_err()).count()));
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(returned + inside.load(Ordering::Relaxed), 10_000);
    assert_eq!(executor.queued(), 0);
}

/// I3: a batch that begins on another thread while tasks are given back finds nothing to do.
#[test]
fn a_stray_batch_does_not_run_beside_a_refusal() {
    let executor = Shared::default();
    let (delegate, overlap) = (ManualExecutor::new(), Arc::new(AtomicBool::new(false)));
    let gate = Gate::new();
    let (inside, overlapped) = (gate.clone(), Arc::clone(&overlap));
    let built = BatchingExecutor::builder(move |_: u32| overlapped.store(true, Ordering::Relaxed))
        .on_rejected(move |_| inside.pass())
        .build(delegate.clone())
        .unwrap();
    let executor = executor.get_or_init(|| built);
    executor.submit(1).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| drop(delegate.take_next()));
        gate.wait_until_reached();
        executor.submit(2).unwrap();
        assert!(!delegate.run_next(), "the thread that gives back sees to it");
        gate.open();
    });
    assert!(!overlap.load(Ordering::Relaxed));
    assert_eq!(executor.queued(), 0);
    // Dropped batches count as a refusal: what came during the giving back was handed over anew, or handed back as well.
    delegate.run_all();
}
