//! A thread that stops for ever right before or right after any step of the protocol holds up nobody else's calls.
//!
//! One test a row of the protocol's table: while the thread stands there, two others ask ten thousand times each, by all three calls.
//! Then it goes on, and everything that was asked has been done exactly once.
#![cfg(not(any(loom, shuttle)))]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests of the standard build use the standard library's own types, and unwrap also in their helpers"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use folio_sync::test_util::ManualExecutor;
use folio_sync::test_util::pause::{Stop, When};
use folio_turn::{Demand, Joined, Next, Panicked, Recovery, Stranded, Turn, Work};

const ASKS: usize = 10_000;
const GO: Demand = Demand::soft(0);
const URGENT: Demand = Demand::urgent(0);
const PANIC: Demand = Demand::urgent(1);
const MEND: Demand = Demand::urgent(2);

/// What a step says when it has done all there was.
#[derive(Clone, Copy, PartialEq)]
enum Says {
    Idle,
    Wait,
    /// `Again` as long as there was something, with a budget of one.
    Again,
}

#[derive(Default)]
struct Counts {
    /// In the mailbox.
    posted: AtomicUsize,
    /// Ever put into it.
    total: AtomicUsize,
    done: AtomicUsize,
    inside: AtomicBool,
    panicked: AtomicUsize,
}

struct Tally {
    counts: Arc<Counts>,
    says: Says,
}

impl Work for Tally {
    fn step(&mut self, _turn: &Turn<Self>, demand: Demand) -> Next {
        assert!(!self.counts.inside.swap(true, Ordering::Acquire), "two owners");
        let found = self.counts.posted.swap(0, Ordering::Relaxed);
        self.counts.done.fetch_add(found, Ordering::Relaxed);
        self.counts.inside.store(false, Ordering::Release);
        if demand.contains(PANIC) {
            std::panic::resume_unwind(Box::new("planted"));
        }
        match self.says {
            Says::Again if found > 0 => Next::Again,
            Says::Wait => Next::Wait,
            _ => Next::Idle,
        }
    }

    fn panicked(&mut self, _turn: &Turn<Self>, _panicked: Panicked<'_>) -> Recovery {
        self.counts.panicked.fetch_add(1, Ordering::Relaxed);
        Recovery::Contain(MEND)
    }

    fn stranded(stranded: Stranded<Self>) {
        panic!("{stranded}");
    }
}

struct Rig {
    turn: Turn<Tally>,
    counts: Arc<Counts>,
    executor: ManualExecutor,
    /// Refuses everything.
    closed: ManualExecutor,
}

impl Rig {
    fn new(says: Says) -> Self {
        let counts = Arc::new(Counts::default());
        let executor = ManualExecutor::new();
        let closed = ManualExecutor::new();
        closed.close();
        let tally = Tally { counts: Arc::clone(&counts), says };
        let budget = if says == Says::Again { 1 } else { 64 };
        let turn = Turn::builder(tally).budget(budget).yield_to(executor.clone());
        Self { turn, counts, executor, closed }
    }

    fn ask(&self, demand: Demand) -> bool {
        self.counts.total.fetch_add(1, Ordering::Relaxed);
        self.counts.posted.fetch_add(1, Ordering::Relaxed);
        self.turn.record(demand).must_run()
    }

    fn join(&self, demand: Demand) {
        if self.ask(demand) {
            let _joined = self.turn.join().expect("the executor takes all");
        }
    }

    fn schedule(&self, demand: Demand) {
        if self.ask(demand) {
            let _scheduled = self.turn.schedule(&self.executor).expect("the executor takes all");
        }
    }

    fn schedule_refused(&self) -> Stranded<Tally> {
        assert!(self.ask(GO));
        self.turn.schedule(&self.closed).expect_err("it is closed")
    }

    /// What the others do meanwhile.
    fn ask_often(&self) {
        for i in 0..ASKS {
            let demand = if i % 100 == 99 { URGENT } else { GO };
            if i % 2 == 0 {
                self.join(demand);
            } else {
                self.schedule(demand);
                self.executor.run_next();
            }
        }
    }

    fn done(&self) -> usize {
        self.counts.done.load(Ordering::Relaxed)
    }

    /// Everything is done, and nobody owns the turn.
    fn finish(&self) {
        self.executor.run_all();
        self.join(URGENT);
        self.executor.run_all();
        assert_eq!(self.done(), self.counts.total.load(Ordering::Relaxed), "everything once");
        assert_eq!((self.counts.posted.load(Ordering::Relaxed), self.executor.queued()), (0, 0));
        let _recorded = self.turn.record(URGENT);
        assert_ne!(self.turn.join().expect("taken"), Joined::Elsewhere, "ownership was lost");
        self.executor.run_all();
    }
}

/// Stops `operation` on both sides of the step; `owned` says on which of them the stopped thread, or its job, owns the turn.
fn stall(step: &'static str, says: Says, owned: [bool; 2], operation: fn(&Rig)) {
    for (when, owned) in [When::Before, When::After].into_iter().zip(owned) {
        let rig = Rig::new(says);
        let halt = Stop::new(step, when);
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| halt.run(|| operation(&rig)));
            halt.wait_until_stopped();
            let before = rig.done();
            let others = [scope.spawn(|| rig.ask_often()), scope.spawn(|| rig.ask_often())];
            for other in others {
                other.join().unwrap();
            }
            let during = rig.done() - before;
            assert_eq!(during == 0, owned, "{step} {when:?}: {during} done while the thread stood");
            halt.release();
            thread.join().unwrap();
        });
        rig.finish();
    }
}

/// O1, O12: stopped as it records.
#[test]
fn a_thread_stalled_at_record_holds_up_nobody() {
    stall("turn.record", Says::Idle, [false, false], |rig| rig.join(GO));
}

/// O1: stopped as it takes ownership.
#[test]
fn a_thread_stalled_at_own_holds_up_no_calls() {
    stall("turn.own", Says::Idle, [false, true], |rig| rig.join(GO));
}

/// O4, O15: stopped as it gives ownership to a job that it has not submitted yet.
#[test]
fn a_thread_stalled_at_schedule_holds_up_no_calls() {
    stall("turn.schedule", Says::Idle, [false, true], |rig| rig.schedule(GO));
}

/// O1: stopped as a queued job takes its ownership up.
#[test]
fn a_thread_stalled_at_claim_holds_up_no_calls() {
    stall("turn.claim", Says::Idle, [true, true], |rig| {
        rig.schedule(GO);
        assert!(rig.executor.run_next());
    });
}

/// O12: stopped as it takes the demand.
#[test]
fn a_thread_stalled_at_take_holds_up_no_calls() {
    stall("turn.take", Says::Idle, [true, true], |rig| rig.join(GO));
}

/// O1, O12: stopped as it lets go.
#[test]
fn a_thread_stalled_at_leave_holds_up_no_calls() {
    stall("turn.leave", Says::Idle, [true, false], |rig| rig.join(GO));
}

/// O12: stopped as it begins to wait.
#[test]
fn a_thread_stalled_at_the_wait_holds_up_no_calls() {
    stall("turn.leave", Says::Wait, [true, false], |rig| rig.join(GO));
}

/// O15: stopped as it yields, before the job is submitted.
#[test]
fn a_thread_stalled_at_yield_holds_up_no_calls() {
    stall("turn.yield", Says::Again, [true, true], |rig| rig.join(GO));
}

/// O13: stopped as it takes a refused turn back.
#[test]
fn a_thread_stalled_at_take_back_holds_up_no_calls() {
    stall("turn.take_back", Says::Idle, [true, true], |rig| {
        let stranded = rig.schedule_refused();
        assert_eq!(stranded.ownership.run().unwrap(), Joined::Ran);
    });
}

/// O13: stopped as it publishes what a panic left to do.
#[test]
fn a_thread_stalled_at_recover_holds_up_no_calls() {
    stall("turn.recover", Says::Idle, [true, false], |rig| {
        rig.join(PANIC);
        assert_eq!(rig.counts.panicked.load(Ordering::Relaxed), 1);
    });
}

/// O1: stopped as it drops its ownership.
#[test]
fn a_thread_stalled_at_give_up_holds_up_no_calls() {
    stall("turn.give_up", Says::Idle, [true, false], |rig| drop(rig.schedule_refused()));
}
