//! Steps that panic: what is left to do is published, and the panic told once.
#![cfg(not(any(loom, shuttle)))]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests of the standard build use the standard library's own types, and unwrap also in their helpers"
)]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use folio_sync::RejectReason;
use folio_sync::test_util::ManualExecutor;
use folio_sync::unwind::{catch, message};
use folio_turn::{Demand, Joined, Next, Recovery, Scheduled, Turn, Why};
use support::{GO, MEND, OTHER, script};

/// D3, O13: a panic goes to whoever joined, when what it leaves to do is published and nobody owns the turn any more.
#[test]
fn a_panic_publishes_what_is_left_and_propagates() {
    let executor = ManualExecutor::new();
    let panics = Arc::new(AtomicUsize::new(1));
    let left = Arc::clone(&panics);
    let (mut work, shared) = script(move |_, _| {
        if left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok() {
            std::panic::resume_unwind(Box::new("planted"));
        }
        Next::Idle
    });
    work.on_panic = Box::new(|turn, demand| {
        assert_eq!(demand, GO);
        assert_eq!(turn.join().unwrap(), Joined::Elsewhere, "it is owned while the state is mended");
        Recovery::Propagate(MEND)
    });
    let turn = Turn::builder(work).yield_to(executor.clone());
    let _ = turn.record(GO);
    let payload = catch(|| turn.join()).unwrap_err();
    assert_eq!(message(&*payload), "planted");
    assert_eq!(shared.given(), [GO]);
    assert_eq!(turn.join().unwrap(), Joined::Ran, "what is left was recorded");
    assert_eq!(shared.given(), [MEND]);

    // The same in a queued turn: the executor gets the panic.
    panics.store(1, Ordering::Relaxed);
    let _ = turn.record(GO);
    let _ = turn.schedule(&executor).unwrap();
    let payload = catch(|| executor.run_next()).unwrap_err();
    assert_eq!(message(&*payload), "planted");
    assert_eq!(turn.schedule(&executor).unwrap(), Scheduled::Queued);
    assert_eq!((executor.run_all(), shared.given()), (1, vec![GO, MEND]));
}

/// O12, O13: demand that came before or during the mending keeps the owner; a contained panic ends there.
#[test]
fn demand_beside_a_panic_keeps_the_owner() {
    let panics = AtomicUsize::new(1);
    let (mut work, shared) = script(move |turn, _| {
        if panics.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok() {
            let _ = turn.record(OTHER);
            std::panic::resume_unwind(Box::new("planted"));
        }
        Next::Idle
    });
    work.on_panic = Box::new(|_, _| Recovery::Contain(MEND));
    let turn = Turn::builder(work).yield_to(ManualExecutor::new());
    let _ = turn.record(GO);
    assert_eq!(turn.join().unwrap(), Joined::Ran);
    assert_eq!(shared.given(), [GO, OTHER | MEND]);
}

/// O13: a panic while mending lets go all the same, with the demand of the step kept and the first panic told.
#[test]
fn a_panic_while_mending_lets_go_too() {
    let panics = AtomicUsize::new(1);
    let (mut work, shared) = script(move |_, _| {
        if panics.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok() {
            std::panic::resume_unwind(Box::new("first"));
        }
        Next::Idle
    });
    work.on_panic = Box::new(|_, _| std::panic::resume_unwind(Box::new("second")));
    let turn = Turn::builder(work).yield_to(ManualExecutor::new());
    let _ = turn.record(GO);
    assert_eq!(message(&*catch(|| turn.join()).unwrap_err()), "first");
    assert_eq!(turn.join().unwrap(), Joined::Ran);
    assert_eq!(shared.given(), [GO, GO]);
}

/// O15: a step that panics each time, with demand each time, yields at the budget like any other; the panic is told once.
#[test]
fn panicking_steps_are_held_to_the_budget() {
    let executor = ManualExecutor::new();
    let (mut work, shared) = script(|turn, _| {
        let _ = turn.record(GO);
        std::panic::resume_unwind(Box::new("each time"))
    });
    work.on_panic = Box::new(|_, _| Recovery::Propagate(Demand::NONE));
    let turn = Turn::builder(work).budget(4).yield_to(executor.clone());
    let _ = turn.record(GO);
    assert_eq!(message(&*catch(|| turn.join()).unwrap_err()), "each time");
    assert_eq!((shared.given().len(), executor.queued()), (4, 1), "the rest is queued with its ownership");
    executor.refuse_next(1);
    assert_eq!(message(&*catch(|| executor.run_next()).unwrap_err()), "each time");
    assert_eq!(shared.stranded(), [Why::Refused(RejectReason::Refused)]);
    // Where a join both panics and is refused, its caller gets the panic and the handler the ownership.
    executor.refuse_next(1);
    assert_eq!(message(&*catch(|| turn.join()).unwrap_err()), "each time");
    assert_eq!(shared.stranded(), [Why::Refused(RejectReason::Refused)]);
}
