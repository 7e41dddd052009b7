//! The hand-stepped timers.
#![cfg(not(any(loom, shuttle)))]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests use the standard library directly, and fail where they unwrap"
)]

use std::sync::Mutex;
use std::time::Duration;

use folio_sync::test_util::{Blocked, ManualClock, ManualTimers};
use folio_sync::time::{Clock, Instant};
use folio_sync::timers::Timers;
use folio_sync::{Arc, Job, RejectReason, thread, unwind};

const SECOND: Duration = Duration::from_secs(1);

fn manual() -> (ManualClock, ManualTimers) {
    let clock = ManualClock::new();
    let timers = ManualTimers::new(&clock);
    (clock, timers)
}

/// A job that notes its number and the moment at which it ran.
fn noting(number: u32, clock: &ManualClock, notes: &Arc<Mutex<Vec<(u32, u64)>>>) -> Job {
    let (clock, notes) = (clock.clone(), Arc::clone(notes));
    Job::new(move || notes.lock().unwrap().push((number, clock.now().as_nanos())))
}

#[test]
fn jobs_fire_in_the_order_of_their_moments_and_each_at_its_own() {
    let (clock, timers) = manual();
    let notes = Arc::default();
    for (number, delay) in [(1, 30), (2, 10), (3, 20), (4, 10), (5, 31)] {
        timers.once(Duration::from_nanos(delay), noting(number, &clock, &notes)).unwrap();
    }
    assert_eq!(timers.next_due(), Some(Instant::from_nanos(10)));
    assert_eq!(timers.advance(Duration::from_nanos(30)), 4);
    assert_eq!(*notes.lock().unwrap(), [(2, 10), (4, 10), (3, 20), (1, 30)]);
    assert_eq!((timers.set(), timers.fired(), timers.pending()), (5, 4, 1));
    assert_eq!(clock.now().as_nanos(), 30);
}

#[test]
fn what_a_job_sets_fires_in_the_same_advance_if_it_is_due() {
    let (clock, timers) = manual();
    let notes: Arc<Mutex<Vec<(u32, u64)>>> = Arc::default();
    let (again, inner_clock, inner_notes) = (timers.clone(), clock.clone(), Arc::clone(&notes));
    timers
        .once(
            SECOND,
            Job::new(move || {
                again.once(SECOND, noting(1, &inner_clock, &inner_notes)).unwrap();
                again.once(Duration::ZERO, noting(2, &inner_clock, &inner_notes)).unwrap();
                again.once(3 * SECOND, noting(3, &inner_clock, &inner_notes)).unwrap();
            }),
        )
        .unwrap();
    assert_eq!(timers.advance(3 * SECOND), 3);
    assert_eq!(*notes.lock().unwrap(), [(2, 1_000_000_000), (1, 2_000_000_000)]);
    assert_eq!(timers.next_due(), Some(Instant::from_nanos(4_000_000_000)));
}

#[test]
fn a_clock_that_was_moved_alone_fires_when_asked() {
    let (clock, timers) = manual();
    timers.once(SECOND, Job::new(|| ())).unwrap();
    clock.advance(2 * SECOND);
    assert_eq!(timers.fired(), 0);
    assert_eq!(timers.fire_due(), 1);
    assert!(!timers.fire_next());
}

#[test]
fn a_cancelled_job_comes_back_once_and_never_fires() {
    let (_clock, timers) = manual();
    let timer = timers.once(SECOND, Job::new(|| unreachable!("cancelled"))).unwrap();
    drop(timers.cancel(timer).unwrap());
    assert!(timers.cancel(timer).is_none());
    assert_eq!(timers.advance(2 * SECOND), 0);
    let fired = timers.once(SECOND, Job::new(|| ())).unwrap();
    timers.advance(SECOND);
    assert!(timers.cancel(fired).is_none(), "it has run");
    assert_eq!((timers.cancelled(), timers.fired(), timers.pending()), (1, 1, 0));
}

#[test]
fn they_refuse_on_demand_and_give_the_job_back() {
    let (clock, timers) = manual();
    let ran = Arc::default();
    timers.refuse_next(1);
    let rejected = timers.once(SECOND, noting(1, &clock, &ran)).unwrap_err();
    assert_eq!(rejected.reason, RejectReason::Refused);
    rejected.into_inner().run();
    assert_eq!(ran.lock().unwrap().len(), 1, "the same job");

    timers.refuse_every(2);
    let refused: Vec<_> = (0..5).map(|_| timers.once(SECOND, Job::new(|| ())).is_err()).collect();
    assert_eq!(refused, [false, true, false, true, false]);

    let bounded = ManualTimers::bounded(&clock, 1);
    let first = bounded.once(SECOND, Job::new(|| ())).unwrap();
    assert_eq!(bounded.once(SECOND, Job::new(|| ())).unwrap_err().reason, RejectReason::Full);
    drop(bounded.cancel(first));
    bounded.once(SECOND, Job::new(|| ())).unwrap();

    assert_eq!(timers.close().len(), 3);
    assert_eq!(timers.once(SECOND, Job::new(|| ())).unwrap_err().reason, RejectReason::Closed);
}

#[test]
fn a_job_that_panics_reaches_the_test_at_its_moment() {
    let (clock, timers) = manual();
    timers.once(SECOND, Job::new(|| panic!("no ink"))).unwrap();
    timers.once(2 * SECOND, Job::new(|| ())).unwrap();
    let payload = unwind::catch(|| timers.advance(5 * SECOND)).unwrap_err();
    assert_eq!(unwind::message(&*payload), "no ink");
    assert_eq!(clock.now().as_nanos(), 1_000_000_000);
    assert_eq!(timers.advance(4 * SECOND), 1, "the timers can be used on");
}

#[test]
fn a_job_that_blocks_is_reported() {
    let (_clock, timers) = manual();
    timers.once(SECOND, Job::new(|| thread::sleep(Duration::ZERO))).unwrap();
    timers.advance(SECOND);
    assert_eq!(timers.take_blocked(), [Blocked { call: "thread::sleep" }]);
}

#[cfg(not(tsan))] // it stands on a channel of the standard library, which ThreadSanitizer does not see
#[test]
fn a_job_that_waits_for_a_channel_is_reported_while_it_is_inside() {
    let (_clock, timers) = manual();
    timers.report_after(Duration::from_millis(2));
    let (release, released) = std::sync::mpsc::channel();
    timers.once(SECOND, Job::new(move || released.recv().unwrap())).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| timers.advance(SECOND));
        loop {
            let blocked = timers.take_blocked();
            if !blocked.is_empty() {
                assert_eq!(blocked, [Blocked { call: Blocked::OVERDUE }]);
                break;
            }
            std::thread::yield_now();
        }
        release.send(()).unwrap();
    });
}
