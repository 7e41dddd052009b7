//! What a turn promises, on one thread, step by step.
#![cfg(not(any(loom, shuttle)))]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests of the standard build use the standard library's own types, and unwrap also in their helpers"
)]

mod support;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use folio_sync::test_util::ManualExecutor;
use folio_sync::unwind::catch;
use folio_turn::{Demand, Joined, Next, Ownership, Recorded, Scheduled, Stranded, Turn, Why};
use support::{GO, MEND, OTHER, RESULT, Script, countdown, script};

#[test]
fn joining_without_demand_does_nothing() {
    let (work, shared) = script(|_, _| Next::Idle);
    let turn = Turn::builder(work).yield_to(ManualExecutor::new());
    assert_eq!(turn.join().unwrap(), Joined::Nothing);
    assert_eq!(turn.schedule(&ManualExecutor::new()).unwrap(), Scheduled::Nothing);
    assert_eq!(turn.record(Demand::NONE), Recorded::Waits);
    assert!(shared.given().is_empty());
}

/// O4: recording runs nothing; joining runs it here, once for all that was recorded.
#[test]
fn recorded_demand_is_given_to_one_step() {
    let (work, shared) = script(|_, _| Next::Idle);
    let turn = Turn::builder(work).yield_to(ManualExecutor::new());
    assert_eq!(turn.record(GO), Recorded::MustRun);
    assert_eq!(turn.record(GO), Recorded::MustRun);
    assert_eq!(turn.record(RESULT), Recorded::MustRun);
    assert!(shared.given().is_empty());
    assert_eq!(turn.join().unwrap(), Joined::Ran);
    assert_eq!(shared.given(), [GO | RESULT]);
    assert_eq!(turn.join().unwrap(), Joined::Nothing);
}

/// O4, I65: scheduling takes no step on the calling thread, and queues one turn for any amount of demand.
#[test]
fn scheduling_queues_one_turn_and_runs_nothing() {
    let executor = ManualExecutor::new();
    let (work, shared) = script(|_, _| Next::Idle);
    let turn = Turn::builder(work).yield_to(executor.clone());
    let _ = turn.record(GO);
    assert_eq!(turn.schedule(&executor).unwrap(), Scheduled::Queued);
    assert_eq!(turn.record(OTHER), Recorded::Seen);
    assert_eq!(turn.schedule(&executor).unwrap(), Scheduled::Elsewhere);
    assert_eq!(turn.join().unwrap(), Joined::Elsewhere);
    assert!(shared.given().is_empty());
    assert_eq!((executor.queued(), executor.run_all()), (1, 1));
    assert_eq!(shared.given(), [GO | OTHER]);
}

/// D1, D2, O5: a step may record, join and schedule its own turn; nothing nests, and the owner sees it before it lets go.
#[test]
fn a_step_may_ask_for_more() {
    let executor = ManualExecutor::new();
    let inner = executor.clone();
    let mut left = 3;
    let (work, shared) = script(move |turn, _| {
        if left > 0 {
            left -= 1;
            assert_eq!(turn.record(OTHER), Recorded::Seen);
            assert_eq!(turn.join().unwrap(), Joined::Elsewhere);
            assert_eq!(turn.schedule(&inner).unwrap(), Scheduled::Elsewhere);
        }
        Next::Idle
    });
    let turn = Turn::builder(work).yield_to(executor.clone());
    let _ = turn.record(GO);
    assert_eq!(turn.join().unwrap(), Joined::Ran);
    assert_eq!(shared.given(), [GO, OTHER, OTHER, OTHER]);
    assert_eq!(executor.queued(), 0);
}

/// O15, 11.6: race 3: with every budget the owner yields after exactly that many steps, with one turn queued, in order, never nested.
#[test]
fn turns_end_exactly_at_the_budget() {
    const STEPS: usize = 256;
    for budget in [1, 2, 3, 64, 128] {
        let executor = ManualExecutor::new();
        let order = Arc::new(Mutex::new(Vec::new()));
        let depth = Arc::new(AtomicUsize::new(0));
        let log = Arc::clone(&order);
        let (work, _shared) = script(move |_, _| {
            assert_eq!(depth.fetch_add(1, Ordering::Relaxed), 0, "steps nest");
            let mut log = log.lock().unwrap();
            let next = if log.len() == STEPS {
                Next::Idle
            } else {
                let step = log.len();
                log.push(step);
                Next::Again
            };
            depth.fetch_sub(1, Ordering::Relaxed);
            next
        });
        let turn = Turn::builder(work).budget(u32::try_from(budget).unwrap()).yield_to(executor.clone());
        let _ = turn.record(GO);
        assert_eq!(turn.join().unwrap(), Joined::Yielded);
        let mut boundaries = vec![order.lock().unwrap().len()];
        while executor.queued() > 0 {
            assert_eq!(executor.queued(), 1, "one turn is queued");
            // A request during the yield schedules nothing and runs nothing.
            assert_eq!(turn.record(OTHER), Recorded::Seen);
            assert_eq!(turn.join().unwrap(), Joined::Elsewhere);
            assert_eq!(turn.schedule(&executor).unwrap(), Scheduled::Elsewhere);
            assert!(executor.run_next());
            boundaries.push(order.lock().unwrap().len());
        }
        let expected: Vec<usize> = (1..=STEPS / budget).map(|turns| turns * budget).chain([STEPS]).collect();
        assert_eq!(boundaries, expected, "budget {budget}");
        assert_eq!(*order.lock().unwrap(), (0..STEPS).collect::<Vec<_>>());
        assert_eq!(executor.submissions(), STEPS / budget);
        assert_eq!(turn.join().unwrap(), Joined::Nothing, "nobody owns it any more");
    }
}

/// O15: a step that always finds new demand as it lets go does not hold the thread either.
#[test]
fn demand_without_end_is_held_to_the_budget() {
    let executor = ManualExecutor::new();
    let (work, shared) = script(|turn, _| {
        let _ = turn.record(GO);
        Next::Idle
    });
    let turn = Turn::builder(work).budget(10).yield_to(executor.clone());
    let _ = turn.record(GO);
    assert_eq!(turn.join().unwrap(), Joined::Yielded);
    assert_eq!(shared.given().len(), 10);
    assert!(executor.run_next());
    assert_eq!((shared.given().len(), executor.queued()), (10, 1));
    drop(executor.take_next());
    assert_eq!(shared.stranded(), [Why::Dropped]);
}

/// O15, I31: fixed when the turn is made, a budget of nothing is a budget of one step.
#[test]
fn the_least_budget_is_one_step() {
    let executor = ManualExecutor::new();
    let (work, shared) = script(countdown(2));
    let turn = Turn::builder(work).budget(0).yield_to(executor.clone());
    let _ = turn.record(GO);
    assert_eq!(turn.join().unwrap(), Joined::Yielded);
    assert_eq!((shared.given().len(), executor.run_all()), (1, 2));
}

/// O12, I65: in the wait soft demand neither runs nor queues; urgent demand does at once and brings the soft demand with it.
#[test]
fn the_wait_keeps_soft_demand_for_the_urgent() {
    let executor = ManualExecutor::new();
    let (work, shared) = script(|_, demand| if demand.contains(RESULT) { Next::Idle } else { Next::Wait });
    let turn = Turn::builder(work).yield_to(executor.clone());
    let _ = turn.record(GO);
    assert_eq!(turn.join().unwrap(), Joined::Ran);
    assert_eq!(turn.record(OTHER), Recorded::Waits);
    assert_eq!(turn.join().unwrap(), Joined::Nothing);
    assert_eq!(turn.schedule(&executor).unwrap(), Scheduled::Nothing);
    assert_eq!(turn.record(RESULT), Recorded::MustRun);
    // What somebody else recorded is his to run for.
    assert_eq!(turn.record(OTHER), Recorded::Waits);
    assert_eq!(turn.join().unwrap(), Joined::Ran);
    assert_eq!(shared.given(), [GO, OTHER | RESULT]);
    assert_eq!(turn.record(OTHER), Recorded::MustRun, "the wait is over");
}

/// O12: a result that comes inside the step that asked for it is seen before the owner waits.
#[test]
fn urgent_demand_of_the_waiting_step_itself_is_seen() {
    let mut asked = false;
    let (work, shared) = script(move |turn, _| {
        if asked {
            return Next::Idle;
        }
        asked = true;
        assert_eq!(turn.record(RESULT), Recorded::Seen);
        assert_eq!(turn.record(OTHER), Recorded::Seen);
        assert_eq!(turn.join().unwrap(), Joined::Elsewhere);
        Next::Wait
    });
    let turn = Turn::builder(work).yield_to(ManualExecutor::new());
    let _ = turn.record(GO);
    assert_eq!(turn.join().unwrap(), Joined::Ran);
    assert_eq!(shared.given(), [GO, RESULT | OTHER]);
}

/// The state goes when the last handle does, a queued turn's among them.
#[test]
fn the_state_is_dropped_with_the_last_handle() {
    let executor = ManualExecutor::new();
    let witness = Arc::new(());
    let inside = Arc::clone(&witness);
    let (work, _shared) = script(move |_, _| {
        assert_eq!(Arc::strong_count(&inside), 2);
        Next::Idle
    });
    let turn = Turn::builder(work).yield_to(ManualExecutor::new());
    let _ = turn.record(GO);
    let _ = turn.schedule(&executor).unwrap();
    drop(turn);
    assert_eq!(Arc::strong_count(&witness), 2);
    assert_eq!(executor.run_all(), 1);
    assert_eq!(Arc::strong_count(&witness), 1);
}

#[test]
fn the_values_say_what_they_are() {
    fn is_send_and_sync<T: Send + Sync>() {}
    fn is_send<T: Send>() {}
    is_send_and_sync::<Turn<Script>>();
    is_send::<Ownership<Script>>();
    is_send::<Stranded<Script>>();

    assert_eq!(format!("{:?}", GO | MEND), "{soft 0, urgent 1}");
    assert_eq!((GO | MEND) - GO, MEND);
    assert!(MEND.is_urgent() && !GO.is_urgent() && Demand::default().is_empty());
    let mut both = GO;
    both |= OTHER;
    assert!(both.contains(GO) && !both.contains(RESULT));
    assert!(catch(|| Demand::soft(15)).is_err() && catch(|| Demand::urgent(15)).is_err());
    let all = (0..15).fold(Demand::NONE, |all, kind| all | Demand::soft(kind) | Demand::urgent(kind));

    let (work, shared) = script(|_, _| Next::Idle);
    let turn = Turn::builder(work).yield_to(ManualExecutor::new());
    let _ = turn.record(all);
    let text = format!("{turn:?}");
    assert!(
        text.contains("\"idle\"") && text.contains("urgent 14") && text.contains("generation: 0"),
        "{text}"
    );
    assert_eq!(turn.join().unwrap(), Joined::Ran);
    assert_eq!(shared.given(), [all], "every kind of demand reaches the step");
    assert!(format!("{turn:?}").contains("generation: 1"));
}
