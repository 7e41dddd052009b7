//! Stopping a thread at a named step.
#![cfg(not(any(loom, shuttle)))]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests use the standard library directly, and fail where they unwrap"
)]

// Each thread is joined by hand: ThreadSanitizer does not see how a scope waits for the others.
use std::sync::atomic::{AtomicUsize, Ordering};

use folio_sync::test_util::pause::{Stop, When};
use folio_sync::{step, unwind};

/// Two steps around a counter that says how far the thread is.
fn two_steps(progress: &AtomicUsize) -> usize {
    step!("test.first", progress.fetch_add(1, Ordering::SeqCst));
    step!("test.second", progress.fetch_add(1, Ordering::SeqCst))
}

fn progress_while_stopped(name: &'static str, when: When) -> usize {
    let progress = AtomicUsize::new(0);
    let stop = Stop::new(name, when);
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| stop.run(|| two_steps(&progress)));
        stop.wait_until_stopped();
        let seen = progress.load(Ordering::SeqCst);
        stop.release();
        assert_eq!(thread.join().unwrap(), 1, "a step gives back what its expression gave");
        assert_eq!(progress.load(Ordering::SeqCst), 2);
        seen
    })
}

#[test]
fn a_thread_stops_right_before_and_right_after_its_step() {
    assert_eq!(progress_while_stopped("test.first", When::Before), 0);
    assert_eq!(progress_while_stopped("test.first", When::After), 1);
    assert_eq!(progress_while_stopped("test.second", When::Before), 1);
    assert_eq!(progress_while_stopped("test.second", When::After), 2);
}

#[test]
fn other_threads_pass_the_step() {
    let progress = AtomicUsize::new(0);
    let stop = Stop::new("test.first", When::Before);
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| stop.run(|| two_steps(&progress)));
        stop.wait_until_stopped();
        for _ in 0..100 {
            two_steps(&progress);
        }
        assert_eq!(progress.load(Ordering::SeqCst), 200);
        stop.release();
        thread.join().unwrap();
    });
    assert_eq!(progress.load(Ordering::SeqCst), 202);
}

#[test]
fn a_thread_stops_once_and_only_inside_the_run() {
    let progress = AtomicUsize::new(0);
    let stop = Stop::new("test.first", When::Before);
    two_steps(&progress);
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            stop.run(|| {
                two_steps(&progress);
                two_steps(&progress);
            });
            two_steps(&progress);
        });
        stop.wait_until_stopped();
        stop.release();
        thread.join().unwrap();
    });
    assert_eq!(progress.load(Ordering::SeqCst), 8);
}

#[test]
fn a_test_that_fails_meanwhile_lets_the_thread_go() {
    let progress = AtomicUsize::new(0);
    let stop = Stop::new("test.second", When::Before);
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| stop.run(|| two_steps(&progress)));
        let failed = unwind::catch(|| {
            let _stopped = stop.stopped();
            assert_eq!(progress.load(Ordering::SeqCst), 7, "not what the test expects");
        });
        assert!(failed.is_err());
        thread.join().unwrap();
    });
    assert_eq!(progress.load(Ordering::SeqCst), 2);
}

#[test]
fn a_stop_that_is_released_early_stops_nobody() {
    let progress = AtomicUsize::new(0);
    let stop = Stop::new("test.first", When::Before);
    stop.release();
    assert_eq!(stop.run(|| two_steps(&progress)), 1);
    stop.wait_until_stopped();
}

#[test]
fn a_step_that_is_never_reached_fails_the_run_and_whoever_waits() {
    let stop = Stop::new("test.elsewhere", When::Before);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| unwind::catch(|| stop.wait_until_stopped()));
        let run = unwind::catch(|| stop.run(|| ())).unwrap_err();
        assert_eq!(unwind::message(&*run), "step \"test.elsewhere\" was never reached");
        let waited = waiting.join().unwrap().unwrap_err();
        assert_eq!(unwind::message(&*waited), "step \"test.elsewhere\" was never reached");
    });
}

#[test]
fn a_thread_stops_at_one_step_after_the_other() {
    let progress = AtomicUsize::new(0);
    let first = Stop::new("test.first", When::After);
    let second = first.then("test.second", When::Before);
    let third = second.then("test.second", When::After);
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| first.run(|| two_steps(&progress)));
        for (stop, seen) in [(&first, 1), (&second, 1), (&third, 2)] {
            let stopped = stop.stopped();
            assert_eq!(progress.load(Ordering::SeqCst), seen);
            drop(stopped);
        }
        assert_eq!(thread.join().unwrap(), 1);
    });
}

#[test]
fn a_next_step_that_is_never_reached_fails_the_run_and_whoever_waits() {
    let first = Stop::new("test.second", When::Before);
    let next = first.then("test.first", When::Before);
    let progress = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| unwind::catch(|| next.wait_until_stopped()));
        let run = scope.spawn(|| unwind::catch(|| first.run(|| two_steps(&progress))));
        drop(first.stopped());
        for failed in [waiting.join().unwrap().unwrap_err(), run.join().unwrap().unwrap_err()] {
            assert_eq!(unwind::message(&*failed), "step \"test.first\" was never reached");
        }
    });
}

#[test]
fn an_operation_that_panics_before_the_step_fails_whoever_waits() {
    let stop = Stop::new("test.first", When::Before);
    let run = unwind::catch(|| stop.run(|| panic!("too early"))).unwrap_err();
    assert_eq!(unwind::message(&*run), "too early");
    assert!(unwind::catch(|| stop.wait_until_stopped()).is_err());
    two_steps(&AtomicUsize::new(0));
}

#[test]
fn an_outer_stop_holds_again_after_an_inner_run() {
    let progress = AtomicUsize::new(0);
    let outer = Stop::new("test.second", When::After);
    let inner = Stop::new("test.first", When::After);
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            outer.run(|| {
                inner.run(|| two_steps(&progress));
                two_steps(&progress);
            });
        });
        inner.wait_until_stopped();
        assert_eq!(progress.load(Ordering::SeqCst), 1);
        inner.release();
        outer.wait_until_stopped();
        assert_eq!(progress.load(Ordering::SeqCst), 4);
        outer.release();
        thread.join().unwrap();
    });
}
