//! The hand-stepped executor and the watch for callbacks that block.
#![cfg(not(any(loom, shuttle)))]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests use the standard library directly, and fail where they unwrap"
)]

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use folio_sync::test_util::{Blocked, ManualExecutor, watch_for_blocking};
use folio_sync::{Arc, Executor, Job, RejectReason, SerialExecutor, SharedJob, arc_dyn, thread, unwind};

fn nothing() -> Job {
    Job::new(|| ())
}

fn reason(result: Result<(), folio_sync::Rejected<Job>>) -> Option<RejectReason> {
    result.err().map(|rejected| rejected.reason)
}

#[test]
fn jobs_run_in_the_order_of_their_submission() {
    let executor = ManualExecutor::new();
    let order = Arc::new(Mutex::new(Vec::new()));
    for number in 0..5 {
        let order = Arc::clone(&order);
        executor.submit(Job::new(move || order.lock().unwrap().push(number))).unwrap();
    }
    assert_eq!(executor.run_all(), 5);
    assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3, 4]);
}

#[test]
fn run_all_runs_what_jobs_submit() {
    let executor = ManualExecutor::new();
    let inner = executor.clone();
    executor.submit(Job::new(move || inner.submit(nothing()).unwrap())).unwrap();
    assert_eq!(executor.run_all(), 2);
}

#[test]
fn it_refuses_the_next_ones_or_every_kth_or_all() {
    let executor = ManualExecutor::new();
    executor.refuse_next(2);
    let refused: Vec<_> = (0..3).map(|_| reason(executor.submit(nothing()))).collect();
    assert_eq!(refused, [Some(RejectReason::Refused), Some(RejectReason::Refused), None]);

    executor.refuse_every(3);
    let refused: Vec<_> = (0..7).map(|_| executor.submit(nothing()).is_err()).collect();
    assert_eq!(refused, [false, false, true, false, false, true, false]);

    executor.refuse_every(0);
    executor.close();
    assert_eq!(reason(executor.submit(nothing())), Some(RejectReason::Closed));
    assert_eq!((executor.submissions(), executor.queued()), (6, 6), "only what was taken is counted");
    assert_eq!(executor.run_all(), 6, "a closed executor still runs what it took");
}

#[test]
fn a_full_executor_takes_the_continuation_of_its_running_job_only() {
    let executor = ManualExecutor::bounded(1);
    executor.submit(nothing()).unwrap();
    assert_eq!(reason(executor.submit(nothing())), Some(RejectReason::Full));
    assert_eq!(
        reason(executor.resubmit(nothing())),
        Some(RejectReason::Full),
        "from outside it is a submission"
    );
    executor.run_all();

    let inner = executor.clone();
    let continuation = Job::new(move || {
        inner.submit(nothing()).unwrap();
        assert_eq!(reason(inner.submit(nothing())), Some(RejectReason::Full));
        inner.resubmit(nothing()).unwrap();
        assert_eq!(inner.queued(), 2);
    });
    executor.submit(continuation).unwrap();
    assert_eq!(executor.run_all(), 3);
}

#[test]
fn hand_overs_are_the_jobs_that_came_from_outside() {
    let executor = ManualExecutor::new();
    let inner = executor.clone();
    executor
        .submit(Job::new(move || {
            inner.submit(nothing()).unwrap();
            inner.resubmit(nothing()).unwrap();
        }))
        .unwrap();
    executor.run_all();
    assert_eq!((executor.submissions(), executor.handovers()), (3, 1));
}

#[test]
fn current_means_inside_a_job_also_below_another_executors_job() {
    let outer = ManualExecutor::new();
    let inner = ManualExecutor::new();
    let seen = Arc::new(Mutex::new(Vec::new()));
    {
        let (outer_again, inner_again, seen) = (outer.clone(), inner.clone(), Arc::clone(&seen));
        inner
            .submit(Job::new(move || {
                seen.lock().unwrap().push((outer_again.is_current(), inner_again.is_current()));
            }))
            .unwrap();
    }
    {
        let (outer_again, inner_again, seen) = (outer.clone(), inner.clone(), Arc::clone(&seen));
        outer
            .submit(Job::new(move || {
                inner_again.run_all();
                seen.lock().unwrap().push((outer_again.is_current(), inner_again.is_current()));
                let elsewhere = outer_again.clone();
                assert!(!std::thread::spawn(move || elsewhere.is_current()).join().unwrap());
            }))
            .unwrap();
    }
    assert!(!outer.is_current());
    outer.run_all();
    assert!(!outer.is_current() && !inner.is_current());
    assert_eq!(*seen.lock().unwrap(), [(true, true), (true, false)]);
}

#[test]
fn a_job_that_panics_reaches_the_test_and_leaves_the_executor_usable() {
    let executor = ManualExecutor::new();
    executor.submit(Job::new(|| panic!("no paper"))).unwrap();
    executor.submit(nothing()).unwrap();
    let payload = unwind::catch(|| executor.run_next()).unwrap_err();
    assert_eq!(unwind::message(&*payload), "no paper");
    assert!(!executor.is_current());
    assert!(executor.run_next());
}

#[test]
fn dropping_the_last_clone_drops_its_jobs_and_tells_their_owners() {
    struct Owner(Arc<AtomicUsize>);

    impl SharedJob for Owner {
        fn run(&self, _this: &Arc<dyn SharedJob>) {
            unreachable!("never stepped");
        }

        fn abandoned(&self, _this: &Arc<dyn SharedJob>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    let abandoned = Arc::new(AtomicUsize::new(0));
    let shared = arc_dyn!(Owner(Arc::clone(&abandoned)) => dyn SharedJob);
    let executor = ManualExecutor::new();
    executor.submit(Job::shared(Arc::clone(&shared))).unwrap();
    let clone = executor.clone();
    drop(executor);
    assert_eq!(abandoned.load(Ordering::Relaxed), 0);
    drop(clone);
    assert_eq!(abandoned.load(Ordering::Relaxed), 1);
}

#[test]
fn a_job_may_drop_the_last_reference_to_what_it_came_from() {
    let executor = ManualExecutor::new();
    let tail: Arc<dyn Fn() + Send + Sync> = arc_dyn!(|| () => dyn Fn() + Send + Sync);
    executor.submit(Job::new(move || tail())).unwrap();
    let job = executor.take_next().unwrap();
    drop(executor);
    job.run();
}

#[test]
fn blocking_calls_inside_a_job_are_reported_and_others_are_not() {
    let executor = ManualExecutor::new();
    thread::sleep(Duration::ZERO);
    executor
        .submit(Job::new(|| {
            thread::current().unpark();
            thread::park();
            thread::park_timeout(Duration::ZERO);
            thread::sleep(Duration::ZERO);
            thread::spawn(|| ()).join().unwrap();
            thread::yield_now();
        }))
        .unwrap();
    executor.submit(nothing()).unwrap();
    executor.run_all();
    let calls: Vec<_> = executor.take_blocked().into_iter().map(|blocked| blocked.call).collect();
    assert_eq!(calls, ["thread::park", "thread::park_timeout", "thread::sleep", "thread::join"]);
    assert!(executor.take_blocked().is_empty(), "taken once");
}

#[test]
fn a_job_that_blocks_and_panics_is_reported_too() {
    let executor = ManualExecutor::new();
    executor
        .submit(Job::new(|| {
            thread::sleep(Duration::ZERO);
            panic!("afterwards");
        }))
        .unwrap();
    assert!(unwind::catch(|| executor.run_next()).is_err());
    assert_eq!(executor.take_blocked(), [Blocked { call: "thread::sleep" }]);
}

#[test]
fn watches_nest_and_end_with_a_panic() {
    let (inner, outer) = watch_for_blocking(|| {
        thread::sleep(Duration::ZERO);
        let ((), inner) = watch_for_blocking(|| thread::park_timeout(Duration::ZERO));
        let panicked = unwind::catch(|| {
            watch_for_blocking(|| {
                thread::park_timeout(Duration::ZERO);
                panic!("inside");
            })
        });
        assert!(panicked.is_err());
        thread::sleep(Duration::ZERO);
        inner
    });
    assert_eq!(inner, [Blocked { call: "thread::park_timeout" }]);
    assert_eq!(outer, [Blocked { call: "thread::sleep" }, Blocked { call: "thread::sleep" }]);
}

#[cfg(not(tsan))] // it stands on a channel of the standard library, which ThreadSanitizer does not see
#[test]
fn a_job_that_waits_for_a_channel_is_reported_while_it_is_inside() {
    let executor = ManualExecutor::new();
    executor.report_after(Duration::from_millis(2));
    let (release, released) = std::sync::mpsc::channel();
    executor.submit(Job::new(move || released.recv().unwrap())).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| executor.run_next());
        assert_eq!(executor.wait_for_blocked(), [Blocked { call: Blocked::OVERDUE }]);
        release.send(()).unwrap();
    });
    assert!(executor.take_blocked().is_empty(), "one report a job");
}

#[test]
fn a_job_that_returns_in_time_is_never_reported() {
    let executor = ManualExecutor::new();
    executor.report_after(Duration::from_secs(3600));
    for _ in 0..100 {
        executor.submit(nothing()).unwrap();
    }
    assert_eq!(executor.run_all(), 100);
    assert!(executor.take_blocked().is_empty());
}
