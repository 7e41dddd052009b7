//! Turn under shuttle: producers by every call, an executor that refuses and drops, a worker, panics, random and PCT schedules.
#![cfg(shuttle)]
#![allow(clippy::unwrap_used, reason = "a checked body fails where it unwraps")]

use folio_sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use folio_sync::test_util::{ManualExecutor, Tracked, shuttle_check, spurious_every};
use folio_sync::{Arc, Executor, Job, Mutex, RejectReason, Rejected, thread};
use folio_turn::{Demand, Next, Panicked, Recovery, Stranded, Turn, Work};

const PRODUCERS: usize = 3;
const ITEMS: usize = 6;

const GO: Demand = Demand::soft(0);
const URGENT: Demand = Demand::urgent(0);
const MEND: Demand = Demand::urgent(1);

struct Item {
    producer: usize,
    number: usize,
    _tracked: Tracked<()>,
}

#[derive(Default)]
struct Shared {
    mailbox: Mutex<Vec<Item>>,
    inside: AtomicBool,
    consumed: AtomicUsize,
    stranded: AtomicUsize,
}

/// Passes on what it neither refuses nor drops.
#[derive(Clone)]
struct Unreliable {
    inner: ManualExecutor,
    failed: Arc<AtomicUsize>,
    offered: Arc<AtomicUsize>,
}

impl Executor for Unreliable {
    fn submit(&self, job: Job) -> Result<(), Rejected<Job>> {
        match self.offered.fetch_add(1, Ordering::Relaxed) % 5 {
            1 => {
                self.failed.fetch_add(1, Ordering::Relaxed);
                Err(Rejected::new(job, RejectReason::Refused))
            }
            3 => {
                self.failed.fetch_add(1, Ordering::Relaxed);
                drop(job);
                Ok(())
            }
            _ => self.inner.submit(job),
        }
    }
}

struct Consumer {
    shared: Arc<Shared>,
    next: [usize; PRODUCERS],
    taken: Vec<Item>,
    broken: bool,
    steps: usize,
}

impl Work for Consumer {
    fn step(&mut self, _turn: &Turn<Self>, demand: Demand) -> Next {
        assert!(!self.shared.inside.swap(true, Ordering::Relaxed), "two owners");
        self.steps += 1;
        assert!(!self.broken || demand.contains(MEND), "an owner came before the demand to mend");
        self.broken = false;
        self.taken.append(&mut self.shared.mailbox.lock());
        self.shared.inside.store(false, Ordering::Relaxed);
        if self.steps.is_multiple_of(7) {
            std::panic::resume_unwind(Box::new("planted"));
        }
        if self.taken.is_empty() {
            return if self.steps.is_multiple_of(2) { Next::Wait } else { Next::Idle };
        }
        let item = self.taken.remove(0);
        assert_eq!(item.number, self.next[item.producer], "in order, each once");
        self.next[item.producer] += 1;
        self.shared.consumed.fetch_add(1, Ordering::Relaxed);
        Next::Again
    }

    fn panicked(&mut self, _turn: &Turn<Self>, _panicked: Panicked<'_>) -> Recovery {
        self.broken = true;
        Recovery::Contain(MEND)
    }

    fn stranded(mut stranded: Stranded<Self>) {
        loop {
            stranded.ownership.with(|consumer| consumer.shared.stranded.fetch_add(1, Ordering::Relaxed));
            match stranded.ownership.run() {
                Ok(_) => return,
                Err(again) => stranded = again,
            }
        }
    }
}

/// O1, O12, O14: whatever the schedule, each item is consumed once and in order, and each failed hand-over comes back once.
#[test]
fn nothing_is_lost_under_random_schedules() {
    shuttle_check("turn", 1_000, || {
        let _spurious = spurious_every(5);
        let shared = Arc::new(Shared::default());
        let executor = Unreliable {
            inner: ManualExecutor::new(),
            failed: Arc::new(AtomicUsize::new(0)),
            offered: Arc::new(AtomicUsize::new(0)),
        };
        let consumer = Consumer {
            shared: Arc::clone(&shared),
            next: [0; PRODUCERS],
            taken: Vec::new(),
            broken: false,
            steps: 0,
        };
        let turn = Turn::builder(consumer).budget(2).yield_to(executor.clone());
        let mut threads: Vec<_> = (0..PRODUCERS)
            .map(|producer| {
                let (turn, shared, executor) = (turn.clone(), Arc::clone(&shared), executor.clone());
                thread::spawn(move || {
                    for number in 0..ITEMS {
                        let item = Item { producer, number, _tracked: Tracked::new(()) };
                        shared.mailbox.lock().push(item);
                        if !turn.record(if number % 3 == 0 { URGENT } else { GO }).must_run() {
                            continue;
                        }
                        let stranded =
                            if number % 2 == 0 { turn.join().err() } else { turn.schedule(&executor).err() };
                        if let Some(stranded) = stranded {
                            stranded.settle();
                        }
                    }
                })
            })
            .collect();
        let worker = executor.inner.clone();
        threads.push(thread::spawn(move || {
            for _ in 0..4 {
                worker.run_next();
                thread::yield_now();
            }
        }));
        for thread in threads {
            thread.join().unwrap();
        }
        let mut rounds = 0;
        while shared.consumed.load(Ordering::Relaxed) < PRODUCERS * ITEMS {
            executor.inner.run_all();
            if turn.record(URGENT).must_run()
                && let Err(stranded) = turn.join()
            {
                stranded.settle();
            }
            rounds += 1;
            assert!(rounds <= 2 * PRODUCERS * ITEMS, "items are left in the mailbox");
        }
        executor.inner.run_all();
        let _recorded = turn.record(URGENT);
        if let Err(stranded) = turn.join() {
            stranded.settle();
        }
        executor.inner.run_all();
        assert!(shared.mailbox.lock().is_empty());
        assert_eq!(
            shared.stranded.load(Ordering::Relaxed),
            executor.failed.load(Ordering::Relaxed),
            "each failed hand-over came back once"
        );
    });
}
