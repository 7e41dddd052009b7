//! The keyed workers: order, bounds, shutdown, panics, and what they tell of themselves.
#![cfg(not(any(loom, shuttle)))]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests run on the standard library only, and their helpers unwrap as they do"
)]

mod support;

use folio_sync::Arc;
use std::thread;
use std::time::Duration;

use folio_executor::OrderedExecutor;
use folio_sync::test_util::ManualClock;
use folio_sync::{Executor, Job, RejectReason, SerialExecutor};
use support::{Account, Gate, Log, producers, until};

fn pool(threads: usize) -> OrderedExecutor {
    OrderedExecutor::builder().name("ordered").threads(threads).build().unwrap()
}

#[test]
fn a_key_always_maps_to_the_same_worker_and_keys_are_spread() {
    let pool = pool(4);
    let mut seen = std::collections::BTreeSet::new();
    for key in 0..100_u32 {
        let first = pool.worker(&key).name().to_owned();
        assert_eq!(pool.worker(&key).name(), first);
        seen.insert(first);
    }
    assert_eq!(seen.len(), 4);
    assert_eq!(pool.worker("topic").name(), pool.worker(&String::from("topic")).name());
    // The job of a key runs on the thread of its worker.
    let names = Log::new();
    for key in 0..20_u32 {
        let names = names.clone();
        let expected = pool.worker(&key).name().to_owned();
        pool.submit(
            &key,
            Job::new(move || names.push((expected, thread::current().name().map(str::to_owned)))),
        )
        .unwrap();
    }
    assert!(pool.join().unwrap().is_empty());
    let names = names.take();
    assert_eq!(names.len(), 20);
    for (expected, ran_on) in names {
        assert_eq!(Some(expected), ran_on);
    }
}

#[test]
fn workers_and_their_threads_are_named_by_number() {
    let pool = pool(3);
    let names: Vec<_> = pool.workers().iter().map(|worker| worker.name().to_owned()).collect();
    assert_eq!(names, ["ordered-0", "ordered-1", "ordered-2"]);
    let unnamed = OrderedExecutor::builder().build().unwrap();
    assert_eq!(unnamed.workers().len(), thread::available_parallelism().unwrap().get());
    assert_eq!(unnamed.workers()[0].name(), "folio-0");
}

#[test]
fn invalid_settings_are_refused() {
    let kind = |builder: folio_executor::OrderedBuilder| builder.build().unwrap_err().kind();
    let builder = OrderedExecutor::builder;
    assert_eq!(kind(builder().threads(0)), std::io::ErrorKind::InvalidInput);
    assert_eq!(kind(builder().name("a\0b")), std::io::ErrorKind::InvalidInput);
    assert_eq!(kind(builder().capacity(0)), std::io::ErrorKind::InvalidInput);
    assert_eq!(kind(builder().capacity(1 << 28)), std::io::ErrorKind::InvalidInput);
    assert_eq!(kind(builder().capacity(usize::MAX)), std::io::ErrorKind::InvalidInput);
    assert!(builder().threads(1).capacity((1 << 28) - 1).build().is_ok());
}

/// 8 threads x 10,000 jobs over four keys each: exactly once, in order by key, none of one worker overlapping.
#[test]
fn jobs_of_one_key_keep_their_order_under_stress() {
    const THREADS: usize = 8;
    const EACH: usize = 10_000;
    let pool = pool(3);
    // One account a worker: by key, which is the producer.
    let accounts: Vec<_> = (0..THREADS).map(|_| Account::new(1, EACH)).collect();
    producers(THREADS, |producer| {
        for number in 0..EACH {
            let account = Arc::clone(&accounts[producer]);
            pool.submit(&producer, Job::new(move || account.run((0, number)))).unwrap();
        }
    });
    let workers = pool.workers().to_vec();
    assert!(pool.join().unwrap().is_empty());
    for account in &accounts {
        assert_eq!(account.settle().ran, EACH);
    }
    let jobs: u64 = workers.iter().map(folio_executor::Worker::jobs).sum();
    assert_eq!(jobs, (THREADS * EACH) as u64);
    assert!(workers.iter().all(|worker| worker.depth() == 0));
}

/// The same with a small bound: what is full comes back with its job, and nothing is lost.
#[test]
fn a_bounded_worker_gives_the_job_back_when_it_is_full() {
    const THREADS: usize = 8;
    const EACH: usize = 2_000;
    let pool = OrderedExecutor::builder().threads(1).capacity(4).build().unwrap();
    let worker = pool.workers()[0].clone();
    let account = Account::new(THREADS, EACH);
    producers(THREADS, |producer| {
        for number in 0..EACH {
            let ran = Arc::clone(&account);
            let job = Job::new(move || ran.run((producer, number)));
            if let Err(rejected) = worker.submit(job) {
                assert_eq!(rejected.reason, RejectReason::Full);
                account.give_back((producer, number));
            }
            assert!(worker.depth() <= 4);
        }
    });
    assert!(pool.join().unwrap().is_empty());
    let settled = account.settle();
    assert_eq!((settled.ran + settled.returned, settled.handed), (THREADS * EACH, 0));
}

#[test]
fn a_bound_counts_the_running_job_and_is_kept_exactly() {
    let pool = OrderedExecutor::builder().threads(1).capacity(3).build().unwrap();
    let worker = &pool.workers()[0];
    let gate = Gate::hold(worker);
    assert_eq!(worker.depth(), 1);
    let ran = Log::new();
    let noting = |number: u32| {
        let ran = ran.clone();
        Job::new(move || ran.push(number))
    };
    worker.submit(noting(1)).unwrap();
    worker.submit(noting(2)).unwrap();
    let rejected = worker.submit(noting(3)).unwrap_err();
    assert_eq!((rejected.reason, worker.depth()), (RejectReason::Full, 3));
    // From elsewhere a continuation is a job like any other.
    assert_eq!(worker.resubmit(noting(4)).unwrap_err().reason, RejectReason::Full);
    // The job that came back can still be run.
    rejected.value.run();
    gate.open();
    until("there is room", || worker.depth() == 0);
    worker.submit(noting(5)).unwrap();
    assert!(pool.join().unwrap().is_empty());
    assert_eq!(ran.take(), [3, 1, 2, 5]);
}

#[test]
fn a_continuation_has_its_place_in_a_full_worker() {
    let pool = OrderedExecutor::builder().threads(1).capacity(1).build().unwrap();
    let worker = pool.workers()[0].clone();
    let results = Log::new();
    let (own, noted) = (worker.clone(), results.clone());
    let job = Job::new(move || {
        assert!(own.is_current());
        noted.push(own.submit(Job::new(|| ())).map_err(|rejected| rejected.reason));
        let again = noted.clone();
        let next = Job::new(move || again.push(Ok(())));
        noted.push(own.resubmit(next).map_err(|rejected| rejected.reason));
    });
    worker.submit(job).unwrap();
    assert!(!worker.is_current());
    until("all have run", || results.len() == 3);
    assert_eq!(results.take(), [Err(RejectReason::Full), Ok(()), Ok(())]);
    assert!(pool.join().unwrap().is_empty());
}

#[test]
fn a_worker_tells_its_depth_jobs_and_batches() {
    let pool = pool(1);
    let worker = pool.workers()[0].clone();
    assert_eq!((worker.depth(), worker.jobs(), worker.batches()), (0, 0, 0));
    let gate = Gate::hold(&worker);
    for _ in 0..130 {
        worker.submit(Job::new(|| ())).unwrap();
    }
    assert_eq!(worker.depth(), 131);
    gate.open();
    until("all is done", || worker.depth() == 0);
    // Read after the depth, which is published last.
    assert_eq!((worker.jobs(), worker.batches()), (131, 4), "the held one, then 64, 64 and 2");
    assert!(format!("{pool:?} {worker:?}").contains("ordered-0"));
}

#[test]
fn busy_time_is_the_time_in_which_the_worker_is_not_parked() {
    let clock = ManualClock::new();
    clock.advance(Duration::from_secs(1));
    let pool = OrderedExecutor::builder().threads(1).spins(0).clock(clock.clone()).build().unwrap();
    let worker = pool.workers()[0].clone();
    // Once its first job is done and it has parked, the worker is busy no more.
    let gate = Gate::hold(&worker);
    let before = worker.busy();
    clock.advance(Duration::from_secs(10));
    assert_eq!(worker.busy(), before + Duration::from_secs(10), "also while it is busy");
    gate.open();
    until("the worker parks", || {
        let before = worker.busy();
        clock.advance(Duration::from_secs(1));
        worker.busy() == before
    });
    let parked = worker.busy();
    clock.advance(Duration::from_secs(100));
    assert_eq!(worker.busy(), parked);
    let gate = Gate::hold(&worker);
    let resumed = worker.busy();
    assert_eq!(resumed, parked, "the clock stood still meanwhile");
    clock.advance(Duration::from_secs(5));
    gate.open();
    pool.join().unwrap();
    assert_eq!(worker.busy(), parked + Duration::from_secs(5));
}
