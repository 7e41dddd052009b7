//! A thread that stops at a step of the protocol holds up nobody.
#![cfg(not(any(loom, shuttle)))]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests run on the standard library only, and unwrap also in their helpers"
)]

mod support;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use folio_completer::{Completion, InlineCompleter, refusable};
use folio_sync::test_util::ManualExecutor;
use folio_sync::test_util::pause::{Stop, When};
use folio_sync::{Arc, Rejected};
use support::count;

const OPERATIONS: usize = 10_000;

/// How completions ended.
#[derive(Clone, Default)]
struct Ends {
    ran: Arc<AtomicUsize>,
    refused: Arc<AtomicUsize>,
}

impl Ends {
    fn completion(&self) -> impl Completion {
        refusable(self.clone(), |ends| count(&ends.ran), |ends, _| count(&ends.refused))
    }

    fn get(&self) -> (usize, usize) {
        (self.ran.load(Ordering::Relaxed), self.refused.load(Ordering::Relaxed))
    }
}

/// Asks once, and runs one job of whoever asked.
fn operate(completer: &InlineCompleter, executor: &ManualExecutor, ends: &Ends) {
    if let Err(Rejected { value, reason }) = completer.complete(ends.completion()) {
        value.refused(reason);
    }
    executor.run_next();
}

/// Two threads operate while a third stands at the step; afterwards every completion has ended once.
fn stop_at(name: &'static str, when: When, all_come_back: bool) {
    let executor = ManualExecutor::new();
    executor.refuse_every(usize::from(all_come_back));
    let completer = InlineCompleter::affine(executor.clone());
    let (ends, stop) = (Ends::default(), Stop::new(name, when));
    thread::scope(|scope| {
        // Joined by hand, as the others: ThreadSanitizer does not see how a scope waits.
        let stopped = scope.spawn(|| stop.run(|| operate(&completer, &executor, &ends)));
        stop.wait_until_stopped();
        let others: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    for _ in 0..OPERATIONS {
                        operate(&completer, &executor, &ends);
                    }
                })
            })
            .collect();
        for other in others {
            other.join().unwrap();
        }
        let (ran, refused) = ends.get();
        assert!(ran + refused >= 2 * OPERATIONS - 1, "{name} {when:?}: {ran} and {refused}");
        stop.release();
        stopped.join().unwrap();
    });
    executor.run_all();
    let all = 2 * OPERATIONS + 1;
    assert_eq!(ends.get(), if all_come_back { (0, all) } else { (all, 0) }, "{name} {when:?}");
    assert_eq!(completer.counts().refused, 0);
}

#[test]
fn a_thread_that_stops_around_the_submission_holds_up_nobody() {
    stop_at("completer.submit", When::Before, false);
    stop_at("completer.submit", When::After, false);
}

#[test]
fn a_thread_that_stops_around_the_start_of_a_queued_completion_holds_up_nobody() {
    stop_at("completer.take", When::Before, false);
    stop_at("completer.take", When::After, false);
}

#[test]
fn a_thread_that_stops_around_taking_back_holds_up_nobody() {
    stop_at("completer.take_back", When::Before, true);
    stop_at("completer.take_back", When::After, true);
}
