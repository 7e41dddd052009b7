//! Executors that run, drop or refuse a job inside `submit`: nothing nests, and a late error has no say.
#![cfg(not(any(loom, shuttle)))]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests of the standard build use the standard library's own types, and unwrap also in their helpers"
)]

mod support;

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use folio_sync::unwind::{catch, message};
use folio_sync::{Executor, Job, RejectReason, Rejected};
use folio_turn::{Joined, Next, Scheduled, Turn, Why};
use support::{GO, countdown, script};

std::thread_local! {
    static NESTED: Cell<usize> = const { Cell::new(0) };
}

/// What an executor does with a job inside `submit`.
#[derive(Clone, Copy, PartialEq)]
enum Inline {
    Runs,
    Drops,
    RunsAndPanics,
    DropsAndPanics,
    RunsAndRefuses,
}

#[derive(Clone)]
struct InlineExecutor {
    does: Inline,
    deepest: Arc<AtomicUsize>,
}

impl InlineExecutor {
    fn new(does: Inline) -> Self {
        Self { does, deepest: Arc::new(AtomicUsize::new(0)) }
    }
}

impl Executor for InlineExecutor {
    fn submit(&self, job: Job) -> Result<(), Rejected<Job>> {
        let depth = NESTED.get() + 1;
        NESTED.set(depth);
        self.deepest.fetch_max(depth, Ordering::Relaxed);
        match self.does {
            Inline::Runs | Inline::RunsAndPanics | Inline::RunsAndRefuses => job.run(),
            Inline::Drops | Inline::DropsAndPanics => drop(job),
        }
        NESTED.set(depth - 1);
        match self.does {
            Inline::Runs | Inline::Drops => Ok(()),
            Inline::RunsAndPanics | Inline::DropsAndPanics => std::panic::resume_unwind(Box::new("executor")),
            Inline::RunsAndRefuses => Err(Rejected::new(Job::new(|| ()), RejectReason::Refused)),
        }
    }
}

/// O5: an executor that runs its jobs at once does not nest turns, whether the turn was joined or scheduled.
#[test]
fn an_inline_executor_does_not_recurse() {
    for scheduled in [false, true] {
        let executor = InlineExecutor::new(Inline::Runs);
        let (work, shared) = script(countdown(10_000));
        let turn = Turn::builder(work).budget(1).yield_to(executor.clone());
        let _ = turn.record(GO);
        if scheduled {
            assert_eq!(turn.schedule(&executor).unwrap(), Scheduled::Queued);
        } else {
            assert_eq!(turn.join().unwrap(), Joined::Ran);
        }
        assert_eq!(shared.given().len(), 10_001);
        assert_eq!(executor.deepest.load(Ordering::Relaxed), 1 + usize::from(scheduled));
        assert_eq!(turn.join().unwrap(), Joined::Nothing);
    }
}

/// O5, O14: an executor that drops its jobs at once gives the join its ownership back, again and again, without nesting.
#[test]
fn an_executor_that_drops_inline_gives_ownership_back_to_the_join() {
    let executor = InlineExecutor::new(Inline::Drops);
    let (work, shared) = script(countdown(1_000));
    let turn = Turn::builder(work).budget(1).yield_to(executor.clone());
    let _ = turn.record(GO);
    let mut joined = turn.join();
    let mut returned = 0;
    while let Err(stranded) = joined {
        assert_eq!(stranded.why, Why::Dropped);
        returned += 1;
        joined = stranded.ownership.run();
    }
    assert_eq!(joined.unwrap(), Joined::Ran);
    assert_eq!((returned, executor.deepest.load(Ordering::Relaxed)), (1_000, 1));
    assert!(shared.stranded().is_empty(), "each came back as a value");
}

/// O13: an executor that panics after it ran or dropped the job has nothing to say about ownership any more.
#[test]
fn an_executor_that_panics_loses_nothing() {
    for does in [Inline::RunsAndPanics, Inline::DropsAndPanics] {
        let executor = InlineExecutor::new(does);
        let (work, shared) = script(countdown(3));
        let turn = Turn::builder(work).budget(2).yield_to(executor.clone());
        shared.when_stranded(|stranded| assert_eq!(stranded.ownership.run().unwrap(), Joined::Ran));
        let _ = turn.record(GO);
        assert_eq!(message(&*catch(|| turn.join()).unwrap_err()), "executor");
        assert_eq!(shared.given().len(), 4, "the rest was run once");
        assert_eq!(shared.stranded().len(), usize::from(does == Inline::DropsAndPanics));
        assert_eq!(turn.join().unwrap(), Joined::Nothing);
        let _ = turn.record(GO);
        NESTED.set(0);
        assert!(catch(|| turn.schedule(&executor)).is_err());
        NESTED.set(0);
        let _ = turn.record(GO);
        assert_eq!(turn.join().unwrap(), Joined::Ran, "nobody owns it");
    }
}

/// O13, 11.6: race 11: a refusal of a job that ran all the same is the late error of an old owner, and touches nothing.
#[test]
fn a_refusal_after_the_job_ran_is_ignored() {
    let executor = InlineExecutor::new(Inline::RunsAndRefuses);
    let (work, shared) = script(countdown(4));
    let turn = Turn::builder(work).budget(2).yield_to(executor.clone());
    let _ = turn.record(GO);
    assert_eq!(turn.schedule(&executor).unwrap(), Scheduled::Queued);
    assert_eq!(shared.given().len(), 5, "each step was taken once");
    assert_eq!(turn.join().unwrap(), Joined::Nothing);
}

/// Two turns that run each other inline: each has one owner, and each frame gets its own turn back.
#[test]
fn turns_that_join_each_other_do_not_nest_beyond_one_each() {
    let executor = InlineExecutor::new(Inline::Runs);
    let (second, second_seen) = script(countdown(100));
    let second = Turn::builder(second).budget(1).yield_to(executor.clone());
    let inner = second.clone();
    let mut left = 100;
    let (first, first_seen) = script(move |_, _| {
        if inner.record(GO).must_run() {
            assert_eq!(inner.join().unwrap(), Joined::Ran);
        }
        if left == 0 {
            return Next::Idle;
        }
        left -= 1;
        Next::Again
    });
    let first = Turn::builder(first).budget(1).yield_to(executor.clone());
    let _ = first.record(GO);
    assert_eq!(first.join().unwrap(), Joined::Ran);
    assert_eq!(first_seen.given().len(), 101);
    assert_eq!(second_seen.given().len(), 201, "100 that count, and one at the end of each join");
    assert_eq!(executor.deepest.load(Ordering::Relaxed), 1);
}
