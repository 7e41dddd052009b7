//! Hand-overs that an executor refuses or drops: ownership comes back as a value, or goes to the handler.
#![cfg(not(any(loom, shuttle)))]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests of the standard build use the standard library's own types, and unwrap also in their helpers"
)]

mod support;

use std::sync::Mutex;

use folio_sync::test_util::ManualExecutor;
use folio_sync::{Executor, Job, RejectReason, Rejected};
use folio_turn::{Joined, Next, Recorded, Turn, Why};
use support::{GO, OTHER, countdown, script};

/// O14, 11.6: race 14: a schedule that is refused comes back to its caller, who acts as the owner that he is.
#[test]
fn a_refused_schedule_comes_back_as_a_value() {
    let executor = ManualExecutor::new();
    let (work, shared) = script(|_, _| Next::Idle);
    let turn = Turn::builder(work).yield_to(executor.clone());
    let _ = turn.record(GO);
    executor.close();
    let stranded = turn.schedule(&executor).unwrap_err();
    assert_eq!(stranded.why, Why::Refused(RejectReason::Closed));
    assert_eq!(stranded.to_string(), "the hand-over of a turn was refused, closed");
    assert!(shared.given().is_empty(), "nothing runs on the thread that schedules");
    // As long as the value is there, nobody else gets the turn.
    assert_eq!(turn.join().unwrap(), Joined::Elsewhere);
    let ownership = stranded.ownership;
    let ownership = ownership.leave().expect_err("there is demand");
    assert_eq!(ownership.run().unwrap(), Joined::Ran);
    assert_eq!(shared.given(), [GO]);
    assert!(shared.stranded().is_empty(), "it came back once");
}

/// O14: ownership that came back can go to another executor, and be let go when nothing is asked.
#[test]
fn ownership_can_be_passed_on_or_let_go() {
    let (full, other) = (ManualExecutor::bounded(0), ManualExecutor::new());
    let (work, shared) = script(|_, _| Next::Idle);
    let turn = Turn::builder(work).yield_to(other.clone());
    let _ = turn.record(GO);
    let stranded = turn.schedule(&full).unwrap_err();
    assert_eq!(stranded.why, Why::Refused(RejectReason::Full));
    let stranded = stranded.ownership.schedule(&full).unwrap_err();
    stranded.ownership.schedule(&other).unwrap();
    assert_eq!(turn.join().unwrap(), Joined::Elsewhere);
    assert_eq!(other.run_all(), 1);
    assert_eq!(shared.given(), [GO]);

    let _ = turn.record(GO);
    let stranded = turn.schedule(&full).unwrap_err();
    drop(stranded);
    assert_eq!(turn.record(OTHER), Recorded::MustRun, "dropping lets go");
    assert_eq!(turn.join().unwrap(), Joined::Ran);
    assert_eq!(shared.given(), [GO | OTHER], "and loses nothing");
}

/// O14: a yield that is refused comes back from the join that ran the turn.
#[test]
fn a_refused_yield_comes_back_from_the_join() {
    let executor = ManualExecutor::new();
    let (work, shared) = script(countdown(3));
    let turn = Turn::builder(work).budget(2).yield_to(executor.clone());
    let _ = turn.record(GO);
    executor.refuse_next(1);
    let stranded = turn.join().unwrap_err();
    assert_eq!(stranded.why, Why::Refused(RejectReason::Refused));
    assert_eq!(shared.given().len(), 2);
    assert_eq!(stranded.ownership.run().unwrap(), Joined::Ran, "with a fresh budget");
    assert_eq!(shared.given().len(), 2);
    assert_eq!(executor.queued(), 0);
}

/// O14: a yield that is refused to a queued turn goes to the work's handler, which owns the turn.
#[test]
fn a_refused_yield_of_a_queued_turn_goes_to_the_handler() {
    let executor = ManualExecutor::new();
    let (work, shared) = script(countdown(5));
    let turn = Turn::builder(work).budget(2).yield_to(executor.clone());
    let _ = turn.record(GO);
    let _ = turn.schedule(&executor).unwrap();
    let refusing = executor.clone();
    shared.when_stranded(move |stranded| {
        refusing.refuse_next(1);
        let again = stranded.ownership.run().unwrap_err();
        refusing.refuse_next(0);
        again.ownership.schedule(&refusing).unwrap();
    });
    executor.refuse_next(1);
    assert!(executor.run_next());
    assert_eq!(shared.stranded(), [Why::Refused(RejectReason::Refused)], "the second came back as a value");
    assert_eq!(shared.given().len(), 4);
    assert_eq!(executor.run_all(), 1);
    assert_eq!(shared.given().len(), 2);
    assert_eq!(turn.join().unwrap(), Joined::Nothing);
}

/// O14, O16: a queued turn that is dropped unrun gives its ownership to the handler, also when the handler panics.
#[test]
fn a_dropped_turn_goes_to_the_handler() {
    let executor = ManualExecutor::new();
    let (work, shared) = script(|_, _| Next::Idle);
    let turn = Turn::builder(work).yield_to(executor.clone());
    let _ = turn.record(GO);
    let _ = turn.schedule(&executor).unwrap();
    shared.when_stranded(|stranded| {
        let turn = stranded.ownership.turn().clone();
        assert_eq!(turn.join().unwrap(), Joined::Elsewhere);
        assert_eq!(stranded.ownership.run().unwrap(), Joined::Ran);
    });
    drop(executor.take_next());
    assert_eq!((shared.stranded(), shared.given()), (vec![Why::Dropped], vec![GO]));

    let _ = turn.record(GO);
    let _ = turn.schedule(&executor).unwrap();
    shared.when_stranded(|_stranded| std::panic::resume_unwind(Box::new("in the handler")));
    drop(executor.take_next());
    assert_eq!(shared.stranded(), [Why::Dropped]);
    assert_eq!(turn.join().unwrap(), Joined::Ran, "the panic let go, with the demand kept");
    assert_eq!(shared.given(), [GO]);
}

/// Keeps a job and reports it refused.
struct Lying(Mutex<Vec<Job>>);

impl Executor for Lying {
    fn submit(&self, job: Job) -> Result<(), Rejected<Job>> {
        self.0.lock().unwrap().push(job);
        Err(Rejected::new(Job::new(|| ()), RejectReason::Refused))
    }
}

/// O1: a job that was reported refused and comes to run later finds no turn of its own; nor does it strand one when dropped.
#[test]
fn a_job_that_was_given_back_has_no_ownership() {
    for runs in [true, false] {
        let lying = Lying(Mutex::new(Vec::new()));
        let (work, shared) = script(|_, _| Next::Idle);
        let turn = Turn::builder(work).yield_to(ManualExecutor::new());
        let _ = turn.record(GO);
        let stranded = turn.schedule(&lying).unwrap_err();
        let job = lying.0.lock().unwrap().pop().unwrap();
        if runs {
            job.run();
        } else {
            drop(job);
        }
        assert!(shared.given().is_empty() && shared.stranded().is_empty());
        assert_eq!(stranded.ownership.run().unwrap(), Joined::Ran);
        assert_eq!(shared.given(), [GO]);
    }
}

/// O15: on a serial executor the yield takes the running job's place, so that a full one takes it, too.
#[test]
fn a_yield_continues_the_job_of_a_full_serial_executor() {
    for serial in [true, false] {
        let executor = ManualExecutor::bounded(1);
        let filled = executor.clone();
        let mut steps = countdown(3);
        let (work, shared) = script(move |turn, demand| {
            filled.submit(Job::new(|| ())).expect("the queue is empty while the only job runs");
            steps(turn, demand)
        });
        let builder = Turn::builder(work).budget(1);
        let turn = if serial {
            builder.yield_to_serial(executor.clone())
        } else {
            builder.yield_to(executor.clone())
        };
        let _ = turn.record(GO);
        let _ = turn.schedule(&executor).unwrap();
        while executor.run_next() {
            // The filler is ahead of the continuation.
            assert!(executor.run_next());
        }
        if serial {
            assert_eq!((shared.given().len(), shared.stranded()), (4, vec![]));
        } else {
            assert_eq!(
                shared.stranded(),
                [Why::Refused(RejectReason::Full)],
                "merely submitted it is refused"
            );
        }
    }
}
