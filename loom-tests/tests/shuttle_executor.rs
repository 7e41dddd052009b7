//! The batching executor on the ordered executor under shuttle: eight producers, blocks of two, exact accounts.
#![cfg(shuttle)]

use std::sync::Mutex as Unseen;

use folio_executor::{BatchingExecutor, Builder, OrderedExecutor, Worker};
use folio_sync::atomic::{AtomicUsize, Ordering};
use folio_sync::test_util::{Tracked, shuttle_check, spurious_every};
use folio_sync::{Arc, Executor, Job, RejectReason, Rejected, SerialExecutor, thread};

const PRODUCERS: usize = 8;
const EACH: usize = 3;
const SCHEDULES: usize = 300;

/// Who submitted it, and as which of his.
type Task = Tracked<(usize, usize)>;

/// What became of tasks, in order. A standard mutex: no thread is switched while it is held.
#[derive(Default)]
struct Account {
    /// Run or handed to the reject handler.
    done: Unseen<Vec<(usize, usize)>>,
    returned: Unseen<Vec<(usize, usize)>>,
    inside: AtomicUsize,
}

impl Account {
    fn note(&self, task: &Task) {
        assert_eq!(self.inside.fetch_add(1, Ordering::Relaxed), 0, "two tasks overlap");
        self.done.lock().unwrap().push(*task.get());
        self.inside.fetch_sub(1, Ordering::Relaxed);
    }

    /// Each task exactly once in all, and those of each producer that were not returned in order.
    fn settle(&self) {
        let done = self.done.lock().unwrap();
        let mut all = [&done[..], &self.returned.lock().unwrap()[..]].concat();
        all.sort_unstable();
        let expected: Vec<_> =
            (0..PRODUCERS).flat_map(|producer| (0..EACH).map(move |number| (producer, number))).collect();
        assert_eq!(all, expected, "each task is run, handed over or returned once");
        for producer in 0..PRODUCERS {
            let numbers: Vec<_> = done.iter().filter(|task| task.0 == producer).map(|task| task.1).collect();
            assert!(numbers.is_sorted(), "the tasks of producer {producer} changed places: {numbers:?}");
        }
    }
}

/// A worker that refuses every `k`-th job and drops every `k`-th after it; 0 takes all.
struct Moody {
    worker: Worker,
    every: usize,
    offered: AtomicUsize,
}

impl Executor for Moody {
    fn submit(&self, job: Job) -> Result<(), Rejected<Job>> {
        let offered = self.offered.fetch_add(1, Ordering::Relaxed);
        match offered.checked_rem(self.every) {
            Some(1) => Err(Rejected::new(job, RejectReason::Refused)),
            Some(2) => {
                drop(job);
                Ok(())
            }
            _ => self.worker.submit(job),
        }
    }
}

impl SerialExecutor for Moody {
    fn is_current(&self) -> bool {
        self.worker.is_current()
    }
}

/// Eight producers, and `last` as the ninth thread; everything is settled in the end.
fn eight_producers(every: usize, last: impl FnOnce(&BatchingExecutor<Task, 2>)) {
    let _spurious = spurious_every(5);
    let pool = OrderedExecutor::builder().threads(1).spins(1).build().unwrap();
    let account = Arc::new(Account::default());
    let (ran, handed) = (Arc::clone(&account), Arc::clone(&account));
    let delegate = Moody { worker: pool.workers()[0].clone(), every, offered: AtomicUsize::new(0) };
    let executor = Builder::<Task, 2>::new(move |task| ran.note(&task))
        .max_items(3)
        .on_rejected(move |rejected| handed.note(&rejected.value))
        .build(delegate)
        .unwrap();
    let executor = Arc::new(executor);
    let producers: Vec<_> = (0..PRODUCERS)
        .map(|producer| {
            let (executor, account) = (Arc::clone(&executor), Arc::clone(&account));
            thread::spawn(move || {
                for number in 0..EACH {
                    if let Err(rejected) = executor.submit(Tracked::new((producer, number))) {
                        account.returned.lock().unwrap().push(*rejected.value.get());
                    }
                }
            })
        })
        .collect();
    last(&executor);
    for producer in producers {
        producer.join().unwrap();
    }
    executor.flush().wait().unwrap();
    account.settle();
    drop(executor);
    assert!(pool.join().unwrap().is_empty());
}

/// I1, I2, I3, I4: eight producers and a worker: each task runs once, in its producer's order.
#[test]
fn eight_producers_on_a_worker() {
    shuttle_check("eight producers", SCHEDULES, || eight_producers(0, |_| ()));
}

/// I1, I2, I3, I4, I7: of three batches one is refused and one is dropped: each task is still run, handed over or returned once.
#[test]
fn eight_producers_on_a_moody_worker() {
    shuttle_check("eight producers, refusals", SCHEDULES, || eight_producers(3, |_| ()));
}

/// I1, I2, I3: a shutdown amid the producers.
#[test]
fn eight_producers_and_a_shutdown() {
    shuttle_check("eight producers, shutdown", SCHEDULES, || {
        eight_producers(0, |executor| {
            thread::yield_now();
            executor.shutdown_now();
        });
    });
}
