//! Everything at once on real threads, ending in exact accounts.
#![cfg(not(any(loom, shuttle)))]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests of the standard build use the standard library's own types, and unwrap also in their helpers"
)]

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use folio_sync::{Executor, Job, Mutex, RejectReason, Rejected};
use folio_turn::{Demand, Next, Panicked, Recovery, Stranded, Turn, Why, Work};

const PRODUCERS: usize = 3;
const ITEMS: usize = if cfg!(debug_assertions) { 20_000 } else { 200_000 };

const GO: Demand = Demand::soft(0);
const URGENT: Demand = Demand::urgent(0);
const MEND: Demand = Demand::urgent(1);

/// Refuses, drops and runs inline some jobs; the others wait for a worker.
#[derive(Clone, Default)]
struct Chaos(Arc<ChaosState>);

#[derive(Default)]
struct ChaosState {
    offered: AtomicUsize,
    refused: AtomicUsize,
    dropped: AtomicUsize,
    inline: AtomicUsize,
    queued: AtomicUsize,
    ran: AtomicUsize,
    calm: AtomicBool,
    queue: Mutex<VecDeque<Job>>,
}

impl Chaos {
    fn run_next(&self) -> bool {
        let job = self.0.queue.lock().pop_front();
        job.is_some_and(|job| {
            self.0.ran.fetch_add(1, Ordering::Relaxed);
            job.run();
            true
        })
    }
}

impl Executor for Chaos {
    fn submit(&self, job: Job) -> Result<(), Rejected<Job>> {
        let state = &*self.0;
        let number = state.offered.fetch_add(1, Ordering::Relaxed);
        match if state.calm.load(Ordering::Relaxed) { 7 } else { number % 8 } {
            0 => {
                state.refused.fetch_add(1, Ordering::Relaxed);
                Err(Rejected::new(job, RejectReason::Full))
            }
            1 => {
                state.dropped.fetch_add(1, Ordering::Relaxed);
                drop(job);
                Ok(())
            }
            2 => {
                state.inline.fetch_add(1, Ordering::Relaxed);
                job.run();
                Ok(())
            }
            _ => {
                state.queued.fetch_add(1, Ordering::Relaxed);
                state.queue.lock().push_back(job);
                Ok(())
            }
        }
    }
}

/// An item of a producer; counted when dropped.
struct Item {
    producer: usize,
    number: usize,
    drops: Arc<AtomicUsize>,
}

impl Drop for Item {
    fn drop(&mut self) {
        self.drops.fetch_add(1, Ordering::Relaxed);
    }
}

#[derive(Default)]
struct Shared {
    mailbox: Mutex<VecDeque<Item>>,
    inside: AtomicBool,
    consumed: AtomicUsize,
    refused: AtomicUsize,
    dropped: AtomicUsize,
    planted: AtomicUsize,
    mended: AtomicUsize,
    waits: AtomicUsize,
}

struct Consumer {
    shared: Arc<Shared>,
    /// The next number of each producer.
    next: [usize; PRODUCERS],
    /// Taken out of the mailbox, not consumed yet.
    taken: VecDeque<Item>,
    broken: bool,
    steps: usize,
}

impl Work for Consumer {
    fn step(&mut self, _turn: &Turn<Self>, demand: Demand) -> Next {
        assert!(!self.shared.inside.swap(true, Ordering::Acquire), "two owners");
        self.steps += 1;
        if self.broken {
            assert!(demand.contains(MEND), "an owner came before the demand to mend");
            self.broken = false;
            self.shared.mended.fetch_add(1, Ordering::Relaxed);
        }
        if self.taken.is_empty() {
            std::mem::swap(&mut self.taken, &mut *self.shared.mailbox.lock());
        }
        self.shared.inside.store(false, Ordering::Release);
        if self.steps.is_multiple_of(97) {
            self.shared.planted.fetch_add(1, Ordering::Relaxed);
            std::panic::resume_unwind(Box::new("planted"));
        }
        if let Some(item) = self.taken.pop_front() {
            assert_eq!(item.number, self.next[item.producer], "in order, each once");
            self.next[item.producer] += 1;
            self.shared.consumed.fetch_add(1, Ordering::Relaxed);
            return Next::Again;
        }
        if self.steps.is_multiple_of(3) {
            self.shared.waits.fetch_add(1, Ordering::Relaxed);
            return Next::Wait;
        }
        Next::Idle
    }

    fn panicked(&mut self, _turn: &Turn<Self>, _panicked: Panicked<'_>) -> Recovery {
        self.broken = true;
        Recovery::Contain(MEND)
    }

    fn stranded(mut stranded: Stranded<Self>) {
        loop {
            let why = stranded.why;
            stranded.ownership.with(|consumer| {
                let count = match why {
                    Why::Dropped => &consumer.shared.dropped,
                    _ => &consumer.shared.refused,
                };
                count.fetch_add(1, Ordering::Relaxed)
            });
            match stranded.ownership.run() {
                Ok(_) => return,
                Err(again) => stranded = again,
            }
        }
    }
}

/// One run, with exact accounting; which kinds of event it had.
fn one_run() -> [(&'static str, bool); 6] {
    let chaos = Chaos::default();
    let shared = Arc::new(Shared::default());
    let drops = Arc::new(AtomicUsize::new(0));
    let consumer = Consumer {
        shared: Arc::clone(&shared),
        next: [0; PRODUCERS],
        taken: VecDeque::new(),
        broken: false,
        steps: 0,
    };
    let turn = Turn::builder(consumer).budget(5).yield_to(chaos.clone());
    let producing = AtomicUsize::new(PRODUCERS);
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for producer in 0..PRODUCERS {
            let (turn, shared, chaos, drops, producing) = (&turn, &shared, &chaos, &drops, &producing);
            threads.push(scope.spawn(move || {
                for number in 0..ITEMS {
                    let item = Item { producer, number, drops: Arc::clone(drops) };
                    shared.mailbox.lock().push_back(item);
                    let demand = if number % 4 == 0 { URGENT } else { GO };
                    if !turn.record(demand).must_run() {
                        continue;
                    }
                    if number % 2 == 0 {
                        if let Err(stranded) = turn.join() {
                            stranded.settle();
                        }
                    } else if let Err(stranded) = turn.schedule(chaos) {
                        stranded.settle();
                    }
                }
                producing.fetch_sub(1, Ordering::Relaxed);
            }));
        }
        threads.push(scope.spawn(|| {
            while producing.load(Ordering::Relaxed) > 0 {
                if !chaos.run_next() {
                    std::thread::yield_now();
                }
            }
        }));
        for thread in threads {
            thread.join().unwrap();
        }
    });
    // What a panic or a wait left behind runs for the last urgent demand.
    chaos.0.calm.store(true, Ordering::Relaxed);
    let mut rounds = 0;
    while shared.consumed.load(Ordering::Relaxed) < PRODUCERS * ITEMS || turn.record(Demand::NONE).must_run()
    {
        while chaos.run_next() {}
        if turn.record(URGENT).must_run()
            && let Err(stranded) = turn.join()
        {
            stranded.settle();
        }
        rounds += 1;
        assert!(rounds < PRODUCERS * ITEMS, "items are left in the mailbox");
    }
    while chaos.run_next() {}
    let _recorded = turn.record(MEND);
    if let Err(stranded) = turn.join() {
        stranded.settle();
    }
    while chaos.run_next() {}

    let state = &chaos.0;
    let count = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
    assert_eq!(count(&shared.consumed), PRODUCERS * ITEMS);
    assert_eq!(count(&drops), PRODUCERS * ITEMS);
    assert!(shared.mailbox.lock().is_empty());
    assert_eq!(
        count(&state.offered),
        count(&state.refused) + count(&state.dropped) + count(&state.inline) + count(&state.queued)
    );
    assert_eq!(count(&state.queued), count(&state.ran));
    // Each hand-over that failed came back once.
    assert_eq!(count(&shared.refused), count(&state.refused));
    assert_eq!(count(&shared.dropped), count(&state.dropped));
    // The very last step may have been a planted one.
    assert!(count(&shared.planted) - count(&shared.mended) <= 1);
    let kinds = [
        ("refused", &state.refused),
        ("dropped", &state.dropped),
        ("inline", &state.inline),
        ("queued", &state.queued),
        ("planted", &shared.planted),
        ("waits", &shared.waits),
    ]
    .map(|(name, counter)| (name, count(counter) > 0));
    let refs = Arc::strong_count(&shared);
    drop(turn);
    assert_eq!(Arc::strong_count(&shared), refs - 1, "the state went with the last handle");
    kinds
}

/// I1, O1, O3, O7, O12, O14: by every call, against refusals, drops, inline runs, panics and waits: each item once and in order, each
/// stranded owner told once, each panic mended once.
#[test]
fn nothing_is_lost_or_done_twice() {
    let mut missing = Vec::new();
    // How the threads meet is the system's choice: every run is exact, and together they have had every kind of event.
    for run in 0..100 {
        let kinds = one_run();
        if run == 0 {
            missing = kinds.map(|(name, _)| name).to_vec();
        }
        missing.retain(|name| kinds.contains(&(*name, false)));
        if missing.is_empty() {
            return;
        }
    }
    panic!("{missing:?}: never happened");
}
