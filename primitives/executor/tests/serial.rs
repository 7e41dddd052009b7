//! Executors that are not serial, made so.
#![cfg(not(any(loom, shuttle)))]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests run on the standard library only, and their helpers unwrap as they do"
)]

mod support;

use folio_sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use folio_executor::{Part, Serial};
use folio_sync::{Executor, Job, SerialExecutor, SharedJob};
use support::{Account, Log, caller_runs, failures_to, producers, until};

/// A job that is submitted again and again, and counts what became of it.
#[derive(Default)]
#[allow(dead_code, reason = "used by the adapters' tests, which are behind features")]
struct Counted {
    ran: AtomicUsize,
    abandoned: AtomicUsize,
    inside: AtomicBool,
    overlapped: AtomicBool,
}

#[allow(dead_code, reason = "used by the adapters' tests, which are behind features")]
struct Handle(Arc<Counted>);

impl SharedJob for Handle {
    fn run(&self, _this: &Arc<dyn SharedJob>) {
        if self.0.inside.swap(true, Ordering::Relaxed) {
            self.0.overlapped.store(true, Ordering::Relaxed);
        }
        self.0.ran.fetch_add(1, Ordering::Relaxed);
        self.0.inside.store(false, Ordering::Relaxed);
    }

    fn abandoned(&self, _this: &Arc<dyn SharedJob>) {
        self.0.abandoned.fetch_add(1, Ordering::Relaxed);
    }
}

/// Four threads submit 5,000 jobs each: they run once, in order, one at a time, on a thread that says so.
#[allow(dead_code, reason = "used by the adapters' tests, which are behind features")]
fn jobs_run_once_in_order_and_alone(serial: Serial) {
    const EACH: usize = 5_000;
    let account = Account::new(4, EACH);
    let serial = Arc::new(serial);
    let elsewhere = Arc::new(AtomicBool::new(false));
    producers(4, |producer| {
        for number in 0..EACH {
            let (ran, own, elsewhere) = (Arc::clone(&account), Arc::clone(&serial), Arc::clone(&elsewhere));
            let job = Job::new(move || {
                if !own.is_current() {
                    elsewhere.store(true, Ordering::Relaxed);
                }
                ran.run((producer, number));
            });
            serial.submit(job).unwrap();
        }
    });
    assert!(!serial.is_current());
    until("all have run", || account.ran() == 4 * EACH as u64);
    assert_eq!(account.settle().ran, 4 * EACH);
    assert!(!elsewhere.load(Ordering::Relaxed), "inside a job the executor is the current one");
}

#[test]
fn a_job_that_submits_to_its_own_serial_executor_ends_before_the_next_begins() {
    let seen = Log::new();
    let serial: Arc<OnceLock<Serial>> = Arc::default();
    let built = Serial::new(caller_runs(), |_| ());
    let serial_ref = serial.get_or_init(|| built);
    let (inner, noted) = (Arc::clone(&serial), seen.clone());
    let job = Job::new(move || {
        let serial = inner.get().unwrap();
        noted.push(("first begins", serial.is_current()));
        let next = noted.clone();
        serial.submit(Job::new(move || next.push(("second", true)))).unwrap();
        noted.push(("first ends", true));
    });
    serial_ref.submit(job).unwrap();
    assert_eq!(seen.take(), [("first begins", true), ("first ends", true), ("second", true)]);
}

#[test]
fn a_job_that_panics_is_told_of_and_the_next_one_runs() {
    let (failures, seen) = (Log::new(), Log::new());
    let serial = Serial::new(caller_runs(), failures_to(&failures));
    serial.submit(Job::new(|| panic!("the job"))).unwrap();
    let noted = seen.clone();
    serial.submit(Job::new(move || noted.push(()))).unwrap();
    assert_eq!((failures.take(), seen.len()), (vec![(Part::Task, "the job".to_owned())], 1));
}

#[test]
fn a_refusal_of_the_executor_below_gives_the_job_back() {
    let serial = Serial::new(support::refusing(), |_| ());
    let ran = Log::new();
    let noted = ran.clone();
    let rejected = serial.submit(Job::new(move || noted.push(()))).unwrap_err();
    assert_eq!(ran.len(), 0);
    rejected.value.run();
    assert_eq!(ran.len(), 1);
}

#[cfg(feature = "rayon")]
mod rayon_pool {
    use folio_executor::RayonExecutor;

    use super::*;

    fn pool() -> Arc<rayon::ThreadPool> {
        Arc::new(rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap())
    }

    #[test]
    fn jobs_on_a_rayon_pool_run_once_in_order_and_alone() {
        jobs_run_once_in_order_and_alone(Serial::new(RayonExecutor::new(pool()), |_| ()));
        jobs_run_once_in_order_and_alone(Serial::new(RayonExecutor::global(), |_| ()));
    }

    #[test]
    fn a_panic_does_not_reach_the_rayon_pool() {
        let (bare, failures) = (RayonExecutor::new(pool()), Log::new());
        // Without a serial executor around it nobody hears of the panic, and the pool lives.
        bare.submit(Job::new(|| panic!("bare"))).unwrap();
        let serial = Serial::new(bare, failures_to(&failures));
        serial.submit(Job::new(|| panic!("the job"))).unwrap();
        let done = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&done);
        serial.submit(Job::new(move || told.store(true, Ordering::Release))).unwrap();
        until("the next job has run", || done.load(Ordering::Acquire));
        assert_eq!(failures.take(), [(Part::Task, "the job".to_owned())]);
    }

    /// I3: a job that steals work while it waits comes upon its own executor's next batch, and leaves it alone.
    #[test]
    fn a_job_that_waits_inside_the_pool_is_not_run_beside() {
        let pool = pool();
        let serial = Arc::new(Serial::new(RayonExecutor::new(Arc::clone(&pool)), |_| ()));
        let counted = Arc::new(Counted::default());
        let handle = folio_sync::arc_dyn!(Handle(Arc::clone(&counted)) => dyn SharedJob);
        let nested = Arc::new(AtomicUsize::new(0));
        for _ in 0..200 {
            let (inner, counted, handle, nested) =
                (Arc::clone(&serial), Arc::clone(&counted), Arc::clone(&handle), Arc::clone(&nested));
            let job = Job::new(move || {
                if counted.inside.swap(true, Ordering::Relaxed) {
                    counted.overlapped.store(true, Ordering::Relaxed);
                }
                inner.submit(Job::shared(Arc::clone(&handle))).unwrap();
                rayon::join(std::thread::yield_now, std::thread::yield_now);
                counted.inside.store(false, Ordering::Relaxed);
                nested.fetch_add(1, Ordering::Relaxed);
            });
            serial.submit(job).unwrap();
        }
        until("all have run", || {
            counted.ran.load(Ordering::Relaxed) == 200 && nested.load(Ordering::Relaxed) == 200
        });
        assert!(!counted.overlapped.load(Ordering::Relaxed));
        assert_eq!(counted.abandoned.load(Ordering::Relaxed), 0);
    }
}

#[cfg(feature = "tokio")]
mod tokio_runtime {
    use folio_executor::{BatchingExecutor, TokioExecutor};
    use folio_sync::Rejected;

    use super::*;

    #[test]
    fn jobs_on_a_tokio_runtime_run_once_in_order_and_alone() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
        jobs_run_once_in_order_and_alone(Serial::new(TokioExecutor::new(runtime.handle().clone()), |_| ()));
    }

    #[test]
    fn a_panic_does_not_stop_a_tokio_runtime() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (failures, seen) = (Log::new(), Log::new());
        let serial = Serial::new(TokioExecutor::new(runtime.handle().clone()), failures_to(&failures));
        serial.submit(Job::new(|| panic!("the job"))).unwrap();
        let noted = seen.clone();
        serial.submit(Job::new(move || noted.push(()))).unwrap();
        runtime.block_on(async {
            while seen.len() == 0 {
                tokio::task::yield_now().await;
            }
        });
        assert_eq!(failures.take(), [(Part::Task, "the job".to_owned())]);
    }

    /// I1: a runtime that shuts down with jobs queued drops the batch: each job is abandoned once, and each task handed back once.
    #[test]
    fn a_tokio_runtime_that_shuts_down_gives_back_what_is_queued() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let executor = TokioExecutor::new(runtime.handle().clone());
        let counted = Arc::new(Counted::default());
        let handle = folio_sync::arc_dyn!(Handle(Arc::clone(&counted)) => dyn SharedJob);
        let serial = Serial::new(executor.clone(), |_| ());
        let handed = Log::new();
        let back = handed.clone();
        let batching = BatchingExecutor::builder(|_: u32| unreachable!("nothing runs"))
            .on_rejected(move |rejected: Rejected<u32>| back.push(rejected.value))
            .build(Serial::new(executor, |_| ()))
            .unwrap();
        for task in 0..5 {
            serial.submit(Job::shared(Arc::clone(&handle))).unwrap();
            batching.submit(task).unwrap();
        }
        drop(runtime);
        assert_eq!(counted.abandoned.load(Ordering::Relaxed), 5);
        assert_eq!((handed.take(), batching.queued()), (vec![0, 1, 2, 3, 4], 0));
        // From now on every batch is dropped as it is submitted.
        for task in 5..8 {
            drop(serial.submit(Job::shared(Arc::clone(&handle))));
            if let Err(rejected) = batching.submit(task) {
                handed.push(rejected.value);
            }
        }
        assert_eq!(counted.abandoned.load(Ordering::Relaxed), 8);
        assert_eq!((handed.take(), batching.queued()), (vec![5, 6, 7], 0));
        assert_eq!(counted.ran.load(Ordering::Relaxed), 0);
        assert!(!counted.overlapped.load(Ordering::Relaxed));
    }
}
