//! A thread that stands still while it acquires or gives back: with room in the budget it holds up nobody.
#![cfg(not(any(loom, shuttle)))]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests run on the standard library only, and their helpers unwrap as they do"
)]

mod common;

use std::thread;

use common::threads;
use folio_cache::{Acquired, Permit, PermitOptions, ReadPermits};
use folio_sync::test_util::pause::{Stop, When};
use folio_sync::test_util::{ManualClock, ManualTimers};
use folio_sync::timers::Timers;
use folio_sync::{Arc, Mutex, arc_dyn};

const ROUNDS: usize = 10_000;

fn permits(budget: u64) -> (ReadPermits, ManualTimers) {
    let timers = ManualTimers::new(&ManualClock::new());
    let mut options = PermitOptions::default();
    options.budget = budget;
    (ReadPermits::new(options, arc_dyn!(timers.clone() => dyn Timers)), timers)
}

#[track_caller]
fn now(permits: &ReadPermits, bytes: u64) -> Permit {
    let Ok(Acquired::Now(permit)) = permits.acquire(bytes, |_| unreachable!()) else {
        panic!("there is room")
    };
    permit
}

/// Runs an operation that stands still at a step, while two others acquire and give back ten thousand times.
#[track_caller]
fn standing_at(step: &'static str, operation: impl Fn(&ReadPermits) + Sync) {
    for when in [When::Before, When::After] {
        let (permits, _timers) = permits(100);
        let pause = Stop::new(step, when);
        thread::scope(|scope| {
            let thread = scope.spawn(|| pause.run(|| operation(&permits)));
            let stopped = pause.stopped();
            threads(2, |_| {
                for _ in 0..ROUNDS {
                    let mut permit = now(&permits, 40);
                    permit.shrink(20);
                }
            });
            assert!(!thread.is_finished(), "it stands {when:?} {step}");
            drop(stopped);
            thread.join().unwrap();
        });
        assert_eq!((permits.in_use(), permits.queued()), (0, 0));
    }
}

/// I33: a thread that stands still as it takes bytes holds up nobody who finds room.
#[test]
fn a_thread_stalled_as_it_takes_holds_up_nobody() {
    standing_at("permits.take", |permits| drop(now(permits, 20)));
}

/// I33: a thread that stands still as it gives bytes back holds up nobody who finds room.
#[test]
fn a_thread_stalled_as_it_gives_back_holds_up_nobody() {
    standing_at("permits.give_back", |permits| drop(now(permits, 20)));
}

/// I33, bug 24: a thread stands still when it has given back and has not granted yet: who waits is granted by the next one who gives back.
#[test]
fn who_waits_for_a_stalled_thread_is_granted_by_the_next() {
    let (permits, timers) = permits(100);
    let (one, other) = (now(&permits, 50), now(&permits, 50));
    let told = Arc::new(Mutex::new(None));
    let tells = Arc::clone(&told);
    let queued = permits.acquire(60, move |granted| *tells.lock() = granted.ok());
    assert!(matches!(queued, Ok(Acquired::Queued)));
    let stop = Stop::new("permits.give_back", When::After);
    thread::scope(|scope| {
        let thread = scope.spawn(|| stop.run(|| drop(one)));
        let stopped = stop.stopped();
        assert_eq!((permits.available(), permits.queued()), (50, 1));
        drop(other);
        let granted = told.lock().take().expect("granted by that");
        assert_eq!((granted.bytes(), permits.available()), (60, 40));
        drop(now(&permits, 40));
        drop(stopped);
        thread.join().unwrap();
        drop(granted);
    });
    assert_eq!((permits.in_use(), permits.queued(), timers.pending()), (0, 0, 0));
}
