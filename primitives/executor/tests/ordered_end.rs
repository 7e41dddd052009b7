//! How keyed workers end, and jobs that panic.
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

use folio_executor::{BatchingExecutor, OrderedExecutor, WouldDeadlock};
use folio_sync::{Executor, Job, RejectReason, SharedJob, arc_dyn, unwind};
use support::{Account, Bomb, Gate, Log, go_off, producers, until};

fn pool(threads: usize) -> OrderedExecutor {
    OrderedExecutor::builder().name("ordered").threads(threads).build().unwrap()
}

#[test]
fn a_graceful_close_runs_all_that_is_queued_and_refuses_the_rest() {
    let pool = pool(1);
    let worker = pool.workers()[0].clone();
    let gate = Gate::hold(&worker);
    let ran = Log::new();
    for number in 0..200 {
        let ran = ran.clone();
        worker.submit(Job::new(move || ran.push(number))).unwrap();
    }
    pool.close();
    assert_eq!(worker.submit(Job::new(|| ())).unwrap_err().reason, RejectReason::Closed);
    gate.open();
    assert!(pool.join().unwrap().is_empty());
    assert_eq!(ran.take(), (0..200).collect::<Vec<_>>());
    assert_eq!(worker.depth(), 0);
}

#[test]
fn a_shutdown_hands_back_exactly_the_jobs_that_did_not_run_in_order() {
    let pool = pool(1);
    let worker = pool.workers()[0].clone();
    let gate = Gate::hold(&worker);
    let ran = Log::new();
    for number in 0..200 {
        let ran = ran.clone();
        worker.submit(Job::new(move || ran.push(number))).unwrap();
    }
    pool.shutdown_now();
    assert_eq!(worker.submit(Job::new(|| ())).unwrap_err().reason, RejectReason::Closed);
    gate.open();
    let unrun = pool.join().unwrap();
    assert_eq!((unrun.len(), ran.take()), (200, vec![]), "the job that was running ends, no other begins");
    unrun.into_iter().for_each(Job::run);
    assert_eq!(ran.take(), (0..200).collect::<Vec<_>>());
}

/// Shutting down amid eight submitters: each job runs, is handed back by `join`, or was refused.
#[test]
fn a_shutdown_amid_submitters_loses_no_job() {
    const THREADS: usize = 8;
    const EACH: usize = 500;
    for round in 0..20 {
        let pool = pool(2);
        let account = Account::new(THREADS, EACH);
        let began = AtomicUsize::new(0);
        producers(THREADS + 1, |producer| {
            if producer == THREADS {
                until("some are submitted", || began.load(Ordering::Relaxed) >= round * THREADS * EACH / 20);
                pool.shutdown_now();
                return;
            }
            for number in 0..EACH {
                began.fetch_add(1, Ordering::Relaxed);
                let job = Handed { account: Arc::clone(&account), task: (producer, number), ran: false };
                let job = Job::new(move || job.run());
                if let Err(rejected) = pool.submit(&producer, job) {
                    assert_eq!(rejected.reason, RejectReason::Closed);
                }
            }
        });
        let unrun = pool.join().unwrap();
        let count = unrun.len();
        drop(unrun);
        let settled = account.settle();
        assert_eq!(settled.ran + settled.returned, THREADS * EACH);
        assert!(settled.returned >= count);
    }
}

/// A job that accounts for itself: as run, or as given back when it is dropped unrun.
struct Handed {
    account: Arc<Account>,
    task: support::Task,
    ran: bool,
}

impl Handed {
    fn run(mut self) {
        self.ran = true;
    }
}

impl Drop for Handed {
    fn drop(&mut self) {
        // Workers of two keys run beside one another, so only what became of the job is noted.
        if self.ran { self.account.ran_beside(self.task) } else { self.account.give_back(self.task) }
    }
}

#[test]
fn a_job_that_panics_is_told_of_and_its_worker_goes_on() {
    let told = Log::new();
    let noted = told.clone();
    let pool = OrderedExecutor::builder()
        .name("careful")
        .threads(1)
        .on_panic(move |panic| {
            noted.push((panic.to_string(), thread::current().name().map(str::to_owned)));
            // The sink's own panic goes no further; the other payload's destructor panics as it is dropped here.
            if panic.to_string().ends_with("job 1") {
                go_off(3);
            }
        })
        .build()
        .unwrap();
    let ran = Log::new();
    for number in 0..3 {
        let ran = ran.clone();
        let job = Job::new(move || {
            assert!(number != 1, "job {number}");
            ran.push(number);
        });
        pool.submit(&0, job).unwrap();
    }
    pool.submit(&0, Job::new(|| go_off(3))).unwrap();
    let worker = pool.workers()[0].clone();
    assert!(pool.join().unwrap().is_empty());
    assert_eq!(ran.take(), [0, 2]);
    let told = told.take();
    assert_eq!(told.len(), 2);
    assert_eq!(told[0], ("a job of careful-0 panicked: job 1".to_owned(), Some("careful-0".to_owned())));
    assert_eq!(worker.jobs(), 4, "a job that panics counts as run");
}

#[test]
fn joining_on_a_workers_own_thread_is_refused() {
    let executor = pool(2);
    let (tell, told) = (Log::new(), Log::new());
    let worker = executor.workers()[1].clone();
    let noted = told.clone();
    let slot: Arc<std::sync::Mutex<Option<OrderedExecutor>>> =
        Arc::new(std::sync::Mutex::new(Some(executor)));
    let job = Job::new(move || {
        let executor = slot.lock().unwrap().take().unwrap();
        noted.push(executor.join().map(|jobs| jobs.len()));
    });
    let after = tell.clone();
    // Held until both are queued: joining closes the executor.
    let gate = Gate::hold(&worker);
    worker.submit(job).unwrap();
    worker.submit(Job::new(move || after.push(()))).unwrap();
    gate.open();
    until("what is queued has run", || tell.len() == 1);
    assert_eq!(told.take(), [Err(WouldDeadlock)]);
    assert_eq!(worker.submit(Job::new(|| ())).unwrap_err().reason, RejectReason::Closed);
}

#[test]
fn a_worker_outlives_its_executor_and_refuses() {
    let pool = pool(1);
    let worker = pool.workers()[0].clone();
    let gate = Gate::hold(&worker);
    let ran = Log::new();
    let noted = ran.clone();
    worker.submit(Job::new(move || noted.push(()))).unwrap();
    drop(pool);
    let rejected = worker.submit(Job::new(|| ())).unwrap_err();
    assert_eq!(rejected.reason, RejectReason::Closed);
    gate.open();
    until("what was queued has run", || ran.len() == 1);
}

/// I1: more tasks than one batch takes are queued when the workers are told to end: every batch of them runs.
#[test]
fn a_graceful_end_runs_every_batch_that_is_still_to_come() {
    const TASKS: usize = 5_000;
    let pool = pool(1);
    let ran = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&ran);
    let executor = BatchingExecutor::builder(move |_: usize| {
        count.fetch_add(1, Ordering::Relaxed);
    })
    .max_items(100)
    .on_rejected(|rejected| panic!("given back: {rejected}"))
    .build(pool.workers()[0].clone())
    .unwrap();
    let gate = Gate::hold(&pool.workers()[0]);
    for task in 0..TASKS {
        executor.submit(task).unwrap();
    }
    gate.open();
    assert!(pool.join().unwrap().is_empty());
    assert_eq!(ran.load(Ordering::Relaxed), TASKS);
    assert_eq!(executor.submit(0).unwrap_err().reason, RejectReason::Closed);
}

#[test]
fn a_shared_job_that_a_shutdown_leaves_unrun_tells_its_owner() {
    /// How often it ran, and how often it was dropped unrun.
    struct Shared(Arc<(AtomicUsize, AtomicUsize)>);

    impl SharedJob for Shared {
        fn run(&self, _this: &Arc<dyn SharedJob>) {
            self.0.0.fetch_add(1, Ordering::Relaxed);
        }

        fn abandoned(&self, _this: &Arc<dyn SharedJob>) {
            self.0.1.fetch_add(1, Ordering::Relaxed);
        }
    }

    let counts = Arc::new((AtomicUsize::new(0), AtomicUsize::new(0)));
    let handle = arc_dyn!(Shared(Arc::clone(&counts)) => dyn SharedJob);
    let pool = pool(1);
    let worker = pool.workers()[0].clone();
    let gate = Gate::hold(&worker);
    for _ in 0..3 {
        worker.submit(Job::shared(Arc::clone(&handle))).unwrap();
    }
    pool.shutdown_now();
    gate.open();
    let mut unrun = pool.join().unwrap();
    assert_eq!(unrun.len(), 3);
    unrun.pop().unwrap().run();
    unwind::catch(|| drop(unrun)).unwrap();
    assert_eq!((counts.0.load(Ordering::Relaxed), counts.1.load(Ordering::Relaxed)), (1, 2));
}

/// Jobs that nobody can have back are dropped, so that their owners hear of it: an executor that is shut down and never joined.
#[test]
fn jobs_that_a_shutdown_left_unrun_are_dropped_with_their_executor() {
    for ends_first in [false, true] {
        let pool = pool(1);
        let worker = pool.workers()[0].clone();
        let (handed, kept) = (Log::new(), Arc::new(()));
        let (back, inside) = (handed.clone(), Arc::clone(&kept));
        let batching = BatchingExecutor::builder(|_: u32| unreachable!("nothing runs"))
            .on_rejected(move |rejected| {
                assert!(Arc::strong_count(&inside) > 1);
                back.push((rejected.value, rejected.reason));
            })
            .build(worker.clone())
            .unwrap();
        let gate = Gate::hold(&worker);
        for task in 0..3 {
            batching.submit(task).unwrap();
        }
        worker.submit(Job::new(|| unreachable!("nothing runs"))).unwrap();
        worker.submit(dropping_panics()).unwrap();
        let flush = batching.flush();
        pool.shutdown_now();
        if ends_first {
            gate.open();
            until("the worker has ended", || worker.depth() == 0);
            assert_eq!(handed.len(), 0, "as long as somebody may join them, the jobs are kept");
            drop(pool);
        } else {
            drop(pool);
            gate.open();
        }
        flush.wait().unwrap();
        assert_eq!(handed.take(), [0, 1, 2].map(|task| (task, RejectReason::Refused)));
        drop((batching, worker));
        until("nothing keeps itself alive", || Arc::strong_count(&kept) == 1);
    }
}

/// A job whose closure panics as it is dropped.
fn dropping_panics() -> Job {
    let bomb = Bomb::<1>;
    Job::new(move || drop(bomb))
}
