//! A worker or its waker standing still right before or right after a step.
#![cfg(not(any(loom, shuttle)))]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests run on the standard library only, and their helpers unwrap as they do"
)]

mod support;

use folio_sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use folio_executor::{OrderedExecutor, Worker};
use folio_sync::test_util::ManualClock;
use folio_sync::test_util::pause::{Stop, When};
use folio_sync::time::{Clock, Instant};
use folio_sync::{Executor, Job};
use support::{Account, until};

/// Jobs of each of the two threads that go on.
const EACH: usize = 5_000;
const BOTH: usize = 2 * EACH;

/// Who submits, as the producers of the account: the thread that stops, and the two others.
const STOPPED: usize = 1;
const OTHERS: [usize; 2] = [2, 3];

/// A worker that never spins, and its clock.
fn worker_and_clock() -> (OrderedExecutor, Worker, ManualClock) {
    let clock = ManualClock::new();
    clock.advance(Duration::from_secs(1));
    let pool = OrderedExecutor::builder().threads(1).spins(0).clock(clock.clone()).build().unwrap();
    let worker = pool.workers()[0].clone();
    (pool, worker, clock)
}

/// A clock that stands still and counts how often workers read it.
#[derive(Clone, Default)]
struct CountedByWorkers {
    reads: Arc<AtomicUsize>,
}

impl Clock for CountedByWorkers {
    fn now(&self) -> Instant {
        if thread::current().name().is_some_and(|name| name.starts_with("counted-")) {
            self.reads.fetch_add(1, Ordering::Release);
        }
        Instant::from_nanos(1)
    }

    fn coarse(&self) -> Instant {
        self.now()
    }

    fn wall(&self) -> std::time::SystemTime {
        std::time::SystemTime::UNIX_EPOCH
    }
}

/// Waits until the worker's time is busy no more: it parks, or is about to.
fn until_it_parks(worker: &Worker, clock: &ManualClock) {
    until("the worker parks", || {
        let before = worker.busy();
        clock.advance(Duration::from_secs(1));
        worker.busy() == before
    });
}

fn others_submit_jobs(worker: &Worker, account: &Arc<Account>) {
    support::producers(2, |thread| {
        for number in 0..EACH {
            let (ran, task) = (Arc::clone(account), (OTHERS[thread], number));
            worker.submit(Job::new(move || ran.run(task))).unwrap();
        }
    });
}

fn a_worker_stops(when: When) {
    let (pool, worker, clock) = worker_and_clock();
    let account = Account::new(4, EACH);
    let stop = Arc::new(Stop::new("worker.park", when));
    let armed = Arc::clone(&stop);
    worker.submit(Job::new(move || armed.arm())).unwrap();
    if when == When::Before {
        stop.wait_until_stopped();
    } else {
        until("the job has run", || worker.jobs() == 1);
        until_it_parks(&worker, &clock);
    }
    others_submit_jobs(&worker, &account);
    let stopped = stop.stopped();
    assert_eq!((worker.depth(), account.ran()), (BOTH, 0));
    drop(stopped);
    assert!(pool.join().unwrap().is_empty());
    assert_eq!(account.settle_first(&[0, 0, EACH, EACH]).ran, BOTH);
}

/// I4: jobs that come between a worker's last look and its park wake it.
#[test]
fn a_worker_stalled_before_it_parks() {
    a_worker_stops(When::Before);
}

/// I4: jobs that come after it has woken and before it looks.
#[test]
fn a_worker_stalled_after_it_parked() {
    a_worker_stops(When::After);
}

fn an_unpark_stops(when: When, ran: usize) {
    // The worker reads the clock as it starts and as it goes to park; nobody has unparked it by then, so it stays there.
    let clock = CountedByWorkers::default();
    let pool =
        OrderedExecutor::builder().name("counted").threads(1).spins(0).clock(clock.clone()).build().unwrap();
    let worker = pool.workers()[0].clone();
    until("the worker goes to park", || clock.reads.load(Ordering::Acquire) == 2);
    let account = Account::new(4, EACH);
    let stop = Stop::new("worker.unpark", when);
    thread::scope(|scope| {
        let (own, counted) = (worker.clone(), Arc::clone(&account));
        let submitter =
            scope.spawn(|| stop.run(move || own.submit(Job::new(move || counted.run((STOPPED, 0))))));
        let stopped = stop.stopped();
        others_submit_jobs(&worker, &account);
        until("it comes to rest", || account.ran() == ran as u64 && worker.depth() == 1 + BOTH - ran);
        assert!(!submitter.is_finished());
        drop(stopped);
        submitter.join().unwrap().unwrap();
    });
    assert!(pool.join().unwrap().is_empty());
    assert_eq!(account.settle_first(&[0, 1, EACH, EACH]).ran, 1 + BOTH);
}

/// I4: a submitter that has queued and not yet woken the worker: others queue behind it, and it wakes the worker in the end.
#[test]
fn a_submitter_stalled_before_it_unparks_the_worker() {
    an_unpark_stops(When::Before, 0);
}

/// I4: a submitter that has woken the worker holds up nobody.
#[test]
fn a_submitter_stalled_after_it_unparked_the_worker() {
    an_unpark_stops(When::After, 1 + BOTH);
}
