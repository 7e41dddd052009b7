//! What a turn promises, on one thread, step by step.
#![cfg(not(any(loom, shuttle)))]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests of the standard build use the standard library's own types, and unwrap also in their helpers"
)]

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use folio_sync::test_util::ManualExecutor;
use folio_sync::unwind::{catch, message};
use folio_sync::{Executor, Job, RejectReason, Rejected};
use folio_turn::{
    Demand, Joined, Next, Ownership, Panicked, Recorded, Recovery, Scheduled, Stranded, Turn, Why, Work,
};

const GO: Demand = Demand::soft(0);
const OTHER: Demand = Demand::soft(1);
const RESULT: Demand = Demand::urgent(0);
const MEND: Demand = Demand::urgent(1);

type Step = Box<dyn FnMut(&Turn<Script>, Demand) -> Next + Send>;
type OnPanic = Box<dyn FnMut(&Turn<Script>, Demand) -> Recovery + Send>;
type OnStranded = Box<dyn FnMut(Stranded<Script>) + Send>;

/// A work whose steps are a closure, and which logs what it is given.
struct Script {
    step: Step,
    on_panic: OnPanic,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    given: Mutex<Vec<Demand>>,
    on_stranded: Mutex<Option<OnStranded>>,
    stranded: Mutex<Vec<Why>>,
}

impl Work for Script {
    fn step(&mut self, turn: &Turn<Self>, demand: Demand) -> Next {
        self.shared.given.lock().unwrap().push(demand);
        (self.step)(turn, demand)
    }

    fn panicked(&mut self, turn: &Turn<Self>, panicked: Panicked<'_>) -> Recovery {
        (self.on_panic)(turn, panicked.demand)
    }

    fn stranded(mut stranded: Stranded<Self>) {
        let shared = stranded.ownership.with(|script| Arc::clone(&script.shared));
        shared.stranded.lock().unwrap().push(stranded.why);
        let on_stranded = shared.on_stranded.lock().unwrap().take();
        if let Some(mut act) = on_stranded {
            act(stranded);
        }
    }
}

fn script(step: impl FnMut(&Turn<Script>, Demand) -> Next + Send + 'static) -> (Script, Arc<Shared>) {
    let shared = Arc::new(Shared::default());
    let script = Script {
        step: Box::new(step),
        on_panic: Box::new(|_, demand| Recovery::Propagate(demand)),
        shared: Arc::clone(&shared),
    };
    (script, shared)
}

impl Shared {
    fn given(&self) -> Vec<Demand> {
        std::mem::take(&mut self.given.lock().unwrap())
    }

    fn stranded(&self) -> Vec<Why> {
        std::mem::take(&mut self.stranded.lock().unwrap())
    }

    fn when_stranded(&self, act: impl FnMut(Stranded<Script>) + Send + 'static) {
        *self.on_stranded.lock().unwrap() = Some(Box::new(act));
    }
}

/// Counts down: that many steps have something to do.
fn countdown(mut left: usize) -> impl FnMut(&Turn<Script>, Demand) -> Next + Send {
    move |_, _| {
        if left == 0 {
            return Next::Idle;
        }
        left -= 1;
        Next::Again
    }
}

#[test]
fn joining_without_demand_does_nothing() {
    let (work, shared) = script(|_, _| Next::Idle);
    let turn = Turn::builder(work).yield_to(ManualExecutor::new());
    assert_eq!(turn.join().unwrap(), Joined::Nothing);
    assert_eq!(turn.schedule(&ManualExecutor::new()).unwrap(), Scheduled::Nothing);
    assert_eq!(turn.record(Demand::NONE), Recorded::Waits);
    assert!(shared.given().is_empty());
}

/// O4: recording runs nothing; joining runs it here, once for all that was recorded.
#[test]
fn recorded_demand_is_given_to_one_step() {
    let (work, shared) = script(|_, _| Next::Idle);
    let turn = Turn::builder(work).yield_to(ManualExecutor::new());
    assert_eq!(turn.record(GO), Recorded::MustRun);
    assert_eq!(turn.record(GO), Recorded::MustRun);
    assert_eq!(turn.record(RESULT), Recorded::MustRun);
    assert!(shared.given().is_empty());
    assert_eq!(turn.join().unwrap(), Joined::Ran);
    assert_eq!(shared.given(), [GO | RESULT]);
    assert_eq!(turn.join().unwrap(), Joined::Nothing);
}

/// O4, I65: scheduling takes no step on the calling thread, and queues one turn for any amount of demand.
#[test]
fn scheduling_queues_one_turn_and_runs_nothing() {
    let executor = ManualExecutor::new();
    let (work, shared) = script(|_, _| Next::Idle);
    let turn = Turn::builder(work).yield_to(executor.clone());
    let _ = turn.record(GO);
    assert_eq!(turn.schedule(&executor).unwrap(), Scheduled::Queued);
    assert_eq!(turn.record(OTHER), Recorded::Seen);
    assert_eq!(turn.schedule(&executor).unwrap(), Scheduled::Elsewhere);
    assert_eq!(turn.join().unwrap(), Joined::Elsewhere);
    assert!(shared.given().is_empty());
    assert_eq!((executor.queued(), executor.run_all()), (1, 1));
    assert_eq!(shared.given(), [GO | OTHER]);
}

/// D1, D2, O5: a step may record, join and schedule its own turn; nothing nests, and the owner sees it before it lets go.
#[test]
fn a_step_may_ask_for_more() {
    let executor = ManualExecutor::new();
    let inner = executor.clone();
    let mut left = 3;
    let (work, shared) = script(move |turn, _| {
        if left > 0 {
            left -= 1;
            assert_eq!(turn.record(OTHER), Recorded::Seen);
            assert_eq!(turn.join().unwrap(), Joined::Elsewhere);
            assert_eq!(turn.schedule(&inner).unwrap(), Scheduled::Elsewhere);
        }
        Next::Idle
    });
    let turn = Turn::builder(work).yield_to(executor.clone());
    let _ = turn.record(GO);
    assert_eq!(turn.join().unwrap(), Joined::Ran);
    assert_eq!(shared.given(), [GO, OTHER, OTHER, OTHER]);
    assert_eq!(executor.queued(), 0);
}

/// O15, 11.6: race 3: with every budget the owner yields after exactly that many steps, with one turn queued, in order, never nested.
#[test]
fn turns_end_exactly_at_the_budget() {
    const STEPS: usize = 256;
    for budget in [1, 2, 3, 64, 128] {
        let executor = ManualExecutor::new();
        let order = Arc::new(Mutex::new(Vec::new()));
        let depth = Arc::new(AtomicUsize::new(0));
        let log = Arc::clone(&order);
        let (work, _shared) = script(move |_, _| {
            assert_eq!(depth.fetch_add(1, Ordering::Relaxed), 0, "steps nest");
            let mut log = log.lock().unwrap();
            let next = if log.len() == STEPS {
                Next::Idle
            } else {
                let step = log.len();
                log.push(step);
                Next::Again
            };
            depth.fetch_sub(1, Ordering::Relaxed);
            next
        });
        let turn = Turn::builder(work).budget(u32::try_from(budget).unwrap()).yield_to(executor.clone());
        let _ = turn.record(GO);
        assert_eq!(turn.join().unwrap(), Joined::Yielded);
        let mut boundaries = vec![order.lock().unwrap().len()];
        while executor.queued() > 0 {
            assert_eq!(executor.queued(), 1, "one turn is queued");
            // A request during the yield schedules nothing and runs nothing.
            assert_eq!(turn.record(OTHER), Recorded::Seen);
            assert_eq!(turn.join().unwrap(), Joined::Elsewhere);
            assert_eq!(turn.schedule(&executor).unwrap(), Scheduled::Elsewhere);
            assert!(executor.run_next());
            boundaries.push(order.lock().unwrap().len());
        }
        let expected: Vec<usize> = (1..=STEPS / budget).map(|turns| turns * budget).chain([STEPS]).collect();
        assert_eq!(boundaries, expected, "budget {budget}");
        assert_eq!(*order.lock().unwrap(), (0..STEPS).collect::<Vec<_>>());
        assert_eq!(executor.submissions(), STEPS / budget);
        assert_eq!(turn.join().unwrap(), Joined::Nothing, "nobody owns it any more");
    }
}

/// O15: a step that always finds new demand as it lets go does not hold the thread either.
#[test]
fn demand_without_end_is_held_to_the_budget() {
    let executor = ManualExecutor::new();
    let (work, shared) = script(|turn, _| {
        let _ = turn.record(GO);
        Next::Idle
    });
    let turn = Turn::builder(work).budget(10).yield_to(executor.clone());
    let _ = turn.record(GO);
    assert_eq!(turn.join().unwrap(), Joined::Yielded);
    assert_eq!(shared.given().len(), 10);
    assert!(executor.run_next());
    assert_eq!((shared.given().len(), executor.queued()), (10, 1));
    drop(executor.take_next());
    assert_eq!(shared.stranded(), [Why::Dropped]);
}

/// O15, I31: fixed when the turn is made, a budget of nothing is a budget of one step.
#[test]
fn the_least_budget_is_one_step() {
    let executor = ManualExecutor::new();
    let (work, shared) = script(countdown(2));
    let turn = Turn::builder(work).budget(0).yield_to(executor.clone());
    let _ = turn.record(GO);
    assert_eq!(turn.join().unwrap(), Joined::Yielded);
    assert_eq!((shared.given().len(), executor.run_all()), (1, 2));
}

/// O12, I65: in the wait soft demand neither runs nor queues; urgent demand does at once and brings the soft demand with it.
#[test]
fn the_wait_keeps_soft_demand_for_the_urgent() {
    let executor = ManualExecutor::new();
    let (work, shared) = script(|_, demand| if demand.contains(RESULT) { Next::Idle } else { Next::Wait });
    let turn = Turn::builder(work).yield_to(executor.clone());
    let _ = turn.record(GO);
    assert_eq!(turn.join().unwrap(), Joined::Ran);
    assert_eq!(turn.record(OTHER), Recorded::Waits);
    assert_eq!(turn.join().unwrap(), Joined::Nothing);
    assert_eq!(turn.schedule(&executor).unwrap(), Scheduled::Nothing);
    assert_eq!(turn.record(RESULT), Recorded::MustRun);
    // What somebody else recorded is his to run for.
    assert_eq!(turn.record(OTHER), Recorded::Waits);
    assert_eq!(turn.join().unwrap(), Joined::Ran);
    assert_eq!(shared.given(), [GO, OTHER | RESULT]);
    assert_eq!(turn.record(OTHER), Recorded::MustRun, "the wait is over");
}

/// O12: a result that comes inside the step that asked for it is seen before the owner waits.
#[test]
fn urgent_demand_of_the_waiting_step_itself_is_seen() {
    let mut asked = false;
    let (work, shared) = script(move |turn, _| {
        if asked {
            return Next::Idle;
        }
        asked = true;
        assert_eq!(turn.record(RESULT), Recorded::Seen);
        assert_eq!(turn.record(OTHER), Recorded::Seen);
        assert_eq!(turn.join().unwrap(), Joined::Elsewhere);
        Next::Wait
    });
    let turn = Turn::builder(work).yield_to(ManualExecutor::new());
    let _ = turn.record(GO);
    assert_eq!(turn.join().unwrap(), Joined::Ran);
    assert_eq!(shared.given(), [GO, RESULT | OTHER]);
}

/// O14, 11.6: race 14: a schedule that is refused comes back to its caller, who acts as the owner that he is.
#[test]
fn a_refused_schedule_comes_back_as_a_value() {
    let executor = ManualExecutor::new();
    let (work, shared) = script(|_, _| Next::Idle);
    let turn = Turn::builder(work).yield_to(executor.clone());
    let _ = turn.record(GO);
    executor.close();
    let stranded = turn.schedule(&executor).unwrap_err();
    assert_eq!(stranded.why, Why::Refused(RejectReason::Closed));
    assert_eq!(stranded.to_string(), "the hand-over of a turn was refused, closed");
    assert!(shared.given().is_empty(), "nothing runs on the thread that schedules");
    // As long as the value is there, nobody else gets the turn.
    assert_eq!(turn.join().unwrap(), Joined::Elsewhere);
    let ownership = stranded.ownership;
    let ownership = ownership.leave().expect_err("there is demand");
    assert_eq!(ownership.run().unwrap(), Joined::Ran);
    assert_eq!(shared.given(), [GO]);
    assert!(shared.stranded().is_empty(), "it came back once");
}

/// O14: ownership that came back can go to another executor, and be let go when nothing is asked.
#[test]
fn ownership_can_be_passed_on_or_let_go() {
    let (full, other) = (ManualExecutor::bounded(0), ManualExecutor::new());
    let (work, shared) = script(|_, _| Next::Idle);
    let turn = Turn::builder(work).yield_to(other.clone());
    let _ = turn.record(GO);
    let stranded = turn.schedule(&full).unwrap_err();
    assert_eq!(stranded.why, Why::Refused(RejectReason::Full));
    let stranded = stranded.ownership.schedule(&full).unwrap_err();
    stranded.ownership.schedule(&other).unwrap();
    assert_eq!(turn.join().unwrap(), Joined::Elsewhere);
    assert_eq!(other.run_all(), 1);
    assert_eq!(shared.given(), [GO]);

    let _ = turn.record(GO);
    let stranded = turn.schedule(&full).unwrap_err();
    drop(stranded);
    assert_eq!(turn.record(OTHER), Recorded::MustRun, "dropping lets go");
    assert_eq!(turn.join().unwrap(), Joined::Ran);
    assert_eq!(shared.given(), [GO | OTHER], "and loses nothing");
}

/// O14: a yield that is refused comes back from the join that ran the turn.
#[test]
fn a_refused_yield_comes_back_from_the_join() {
    let executor = ManualExecutor::new();
    let (work, shared) = script(countdown(3));
    let turn = Turn::builder(work).budget(2).yield_to(executor.clone());
    let _ = turn.record(GO);
    executor.refuse_next(1);
    let stranded = turn.join().unwrap_err();
    assert_eq!(stranded.why, Why::Refused(RejectReason::Refused));
    assert_eq!(shared.given().len(), 2);
    assert_eq!(stranded.ownership.run().unwrap(), Joined::Ran, "with a fresh budget");
    assert_eq!(shared.given().len(), 2);
    assert_eq!(executor.queued(), 0);
}

/// O14: a yield that is refused to a queued turn goes to the work's handler, which owns the turn.
#[test]
fn a_refused_yield_of_a_queued_turn_goes_to_the_handler() {
    let executor = ManualExecutor::new();
    let (work, shared) = script(countdown(5));
    let turn = Turn::builder(work).budget(2).yield_to(executor.clone());
    let _ = turn.record(GO);
    let _ = turn.schedule(&executor).unwrap();
    let refusing = executor.clone();
    shared.when_stranded(move |stranded| {
        refusing.refuse_next(1);
        let again = stranded.ownership.run().unwrap_err();
        refusing.refuse_next(0);
        again.ownership.schedule(&refusing).unwrap();
    });
    executor.refuse_next(1);
    assert!(executor.run_next());
    assert_eq!(shared.stranded(), [Why::Refused(RejectReason::Refused)], "the second came back as a value");
    assert_eq!(shared.given().len(), 4);
    assert_eq!(executor.run_all(), 1);
    assert_eq!(shared.given().len(), 2);
    assert_eq!(turn.join().unwrap(), Joined::Nothing);
}

/// O14, O16: a queued turn that is dropped unrun gives its ownership to the handler, also when the handler panics.
#[test]
fn a_dropped_turn_goes_to_the_handler() {
    let executor = ManualExecutor::new();
    let (work, shared) = script(|_, _| Next::Idle);
    let turn = Turn::builder(work).yield_to(executor.clone());
    let _ = turn.record(GO);
    let _ = turn.schedule(&executor).unwrap();
    shared.when_stranded(|stranded| {
        let turn = stranded.ownership.turn().clone();
        assert_eq!(turn.join().unwrap(), Joined::Elsewhere);
        assert_eq!(stranded.ownership.run().unwrap(), Joined::Ran);
    });
    drop(executor.take_next());
    assert_eq!((shared.stranded(), shared.given()), (vec![Why::Dropped], vec![GO]));

    let _ = turn.record(GO);
    let _ = turn.schedule(&executor).unwrap();
    shared.when_stranded(|_stranded| std::panic::resume_unwind(Box::new("in the handler")));
    drop(executor.take_next());
    assert_eq!(shared.stranded(), [Why::Dropped]);
    assert_eq!(turn.join().unwrap(), Joined::Ran, "the panic let go, with the demand kept");
    assert_eq!(shared.given(), [GO]);
}

/// D3, O13: a panic goes to whoever joined, when what it leaves to do is published and nobody owns the turn any more.
#[test]
fn a_panic_publishes_what_is_left_and_propagates() {
    let executor = ManualExecutor::new();
    let panics = Arc::new(AtomicUsize::new(1));
    let left = Arc::clone(&panics);
    let (mut work, shared) = script(move |_, _| {
        if left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok() {
            std::panic::resume_unwind(Box::new("planted"));
        }
        Next::Idle
    });
    work.on_panic = Box::new(|turn, demand| {
        assert_eq!(demand, GO);
        assert_eq!(turn.join().unwrap(), Joined::Elsewhere, "it is owned while the state is mended");
        Recovery::Propagate(MEND)
    });
    let turn = Turn::builder(work).yield_to(executor.clone());
    let _ = turn.record(GO);
    let payload = catch(|| turn.join()).unwrap_err();
    assert_eq!(message(&*payload), "planted");
    assert_eq!(shared.given(), [GO]);
    assert_eq!(turn.join().unwrap(), Joined::Ran, "what is left was recorded");
    assert_eq!(shared.given(), [MEND]);

    // The same in a queued turn: the executor gets the panic.
    panics.store(1, Ordering::Relaxed);
    let _ = turn.record(GO);
    let _ = turn.schedule(&executor).unwrap();
    let payload = catch(|| executor.run_next()).unwrap_err();
    assert_eq!(message(&*payload), "planted");
    assert_eq!(turn.schedule(&executor).unwrap(), Scheduled::Queued);
    assert_eq!((executor.run_all(), shared.given()), (1, vec![GO, MEND]));
}

/// O12, O13: demand that came before or during the mending keeps the owner; a contained panic ends there.
#[test]
fn demand_beside_a_panic_keeps_the_owner() {
    let panics = AtomicUsize::new(1);
    let (mut work, shared) = script(move |turn, _| {
        if panics.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok() {
            let _ = turn.record(OTHER);
            std::panic::resume_unwind(Box::new("planted"));
        }
        Next::Idle
    });
    work.on_panic = Box::new(|_, _| Recovery::Contain(MEND));
    let turn = Turn::builder(work).yield_to(ManualExecutor::new());
    let _ = turn.record(GO);
    assert_eq!(turn.join().unwrap(), Joined::Ran);
    assert_eq!(shared.given(), [GO, OTHER | MEND]);
}

/// O13: a panic while mending lets go all the same, with the demand of the step kept and the first panic told.
#[test]
fn a_panic_while_mending_lets_go_too() {
    let panics = AtomicUsize::new(1);
    let (mut work, shared) = script(move |_, _| {
        if panics.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok() {
            std::panic::resume_unwind(Box::new("first"));
        }
        Next::Idle
    });
    work.on_panic = Box::new(|_, _| std::panic::resume_unwind(Box::new("second")));
    let turn = Turn::builder(work).yield_to(ManualExecutor::new());
    let _ = turn.record(GO);
    assert_eq!(message(&*catch(|| turn.join()).unwrap_err()), "first");
    assert_eq!(turn.join().unwrap(), Joined::Ran);
    assert_eq!(shared.given(), [GO, GO]);
}

/// O15: a step that panics each time, with demand each time, yields at the budget like any other; the panic is told once.
#[test]
fn panicking_steps_are_held_to_the_budget() {
    let executor = ManualExecutor::new();
    let (mut work, shared) = script(|turn, _| {
        let _ = turn.record(GO);
        std::panic::resume_unwind(Box::new("each time"))
    });
    work.on_panic = Box::new(|_, _| Recovery::Propagate(Demand::NONE));
    let turn = Turn::builder(work).budget(4).yield_to(executor.clone());
    let _ = turn.record(GO);
    assert_eq!(message(&*catch(|| turn.join()).unwrap_err()), "each time");
    assert_eq!((shared.given().len(), executor.queued()), (4, 1), "the rest is queued with its ownership");
    executor.refuse_next(1);
    assert_eq!(message(&*catch(|| executor.run_next()).unwrap_err()), "each time");
    assert_eq!(shared.stranded(), [Why::Refused(RejectReason::Refused)]);
    // Where a join both panics and is refused, its caller gets the panic and the handler the ownership.
    executor.refuse_next(1);
    assert_eq!(message(&*catch(|| turn.join()).unwrap_err()), "each time");
    assert_eq!(shared.stranded(), [Why::Refused(RejectReason::Refused)]);
}

std::thread_local! {
    static NESTED: Cell<usize> = const { Cell::new(0) };
}

/// What an executor does with a job inside `submit`.
#[derive(Clone, Copy, PartialEq)]
enum Inline {
    Runs,
    Drops,
    RunsAndPanics,
    DropsAndPanics,
    RunsAndRefuses,
}

#[derive(Clone)]
struct InlineExecutor {
    does: Inline,
    deepest: Arc<AtomicUsize>,
}

impl InlineExecutor {
    fn new(does: Inline) -> Self {
        Self { does, deepest: Arc::new(AtomicUsize::new(0)) }
    }
}

impl Executor for InlineExecutor {
    fn submit(&self, job: Job) -> Result<(), Rejected<Job>> {
        let depth = NESTED.get() + 1;
        NESTED.set(depth);
        self.deepest.fetch_max(depth, Ordering::Relaxed);
        match self.does {
            Inline::Runs | Inline::RunsAndPanics | Inline::RunsAndRefuses => job.run(),
            Inline::Drops | Inline::DropsAndPanics => drop(job),
        }
        NESTED.set(depth - 1);
        match self.does {
            Inline::Runs | Inline::Drops => Ok(()),
            Inline::RunsAndPanics | Inline::DropsAndPanics => std::panic::resume_unwind(Box::new("executor")),
            Inline::RunsAndRefuses => Err(Rejected::new(Job::new(|| ()), RejectReason::Refused)),
        }
    }
}

/// O5: an executor that runs its jobs at once does not nest turns, whether the turn was joined or scheduled.
#[test]
fn an_inline_executor_does_not_recurse() {
    for scheduled in [false, true] {
        let executor = InlineExecutor::new(Inline::Runs);
        let (work, shared) = script(countdown(10_000));
        let turn = Turn::builder(work).budget(1).yield_to(executor.clone());
        let _ = turn.record(GO);
        if scheduled {
            assert_eq!(turn.schedule(&executor).unwrap(), Scheduled::Queued);
        } else {
            assert_eq!(turn.join().unwrap(), Joined::Ran);
        }
        assert_eq!(shared.given().len(), 10_001);
        assert_eq!(executor.deepest.load(Ordering::Relaxed), 1 + usize::from(scheduled));
        assert_eq!(turn.join().unwrap(), Joined::Nothing);
    }
}

/// O5, O14: an executor that drops its jobs at once gives the join its ownership back, again and again, without nesting.
#[test]
fn an_executor_that_drops_inline_gives_ownership_back_to_the_join() {
    let executor = InlineExecutor::new(Inline::Drops);
    let (work, shared) = script(countdown(1_000));
    let turn = Turn::builder(work).budget(1).yield_to(executor.clone());
    let _ = turn.record(GO);
    let mut joined = turn.join();
    let mut returned = 0;
    while let Err(stranded) = joined {
        assert_eq!(stranded.why, Why::Dropped);
        returned += 1;
        joined = stranded.ownership.run();
    }
    assert_eq!(joined.unwrap(), Joined::Ran);
    assert_eq!((returned, executor.deepest.load(Ordering::Relaxed)), (1_000, 1));
    assert!(shared.stranded().is_empty(), "each came back as a value");
}

/// O13: an executor that panics after it ran or dropped the job has nothing to say about ownership any more.
#[test]
fn an_executor_that_panics_loses_nothing() {
    for does in [Inline::RunsAndPanics, Inline::DropsAndPanics] {
        let executor = InlineExecutor::new(does);
        let (work, shared) = script(countdown(3));
        let turn = Turn::builder(work).budget(2).yield_to(executor.clone());
        shared.when_stranded(|stranded| assert_eq!(stranded.ownership.run().unwrap(), Joined::Ran));
        let _ = turn.record(GO);
        assert_eq!(message(&*catch(|| turn.join()).unwrap_err()), "executor");
        assert_eq!(shared.given().len(), 4, "the rest was run once");
        assert_eq!(shared.stranded().len(), usize::from(does == Inline::DropsAndPanics));
        assert_eq!(turn.join().unwrap(), Joined::Nothing);
        let _ = turn.record(GO);
        NESTED.set(0);
        assert!(catch(|| turn.schedule(&executor)).is_err());
        NESTED.set(0);
        let _ = turn.record(GO);
        assert_eq!(turn.join().unwrap(), Joined::Ran, "nobody owns it");
    }
}

/// O13, 11.6: race 11: a refusal of a job that ran all the same is the late error of an old owner, and touches nothing.
#[test]
fn a_refusal_after_the_job_ran_is_ignored() {
    let executor = InlineExecutor::new(Inline::RunsAndRefuses);
    let (work, shared) = script(countdown(4));
    let turn = Turn::builder(work).budget(2).yield_to(executor.clone());
    let _ = turn.record(GO);
    assert_eq!(turn.schedule(&executor).unwrap(), Scheduled::Queued);
    assert_eq!(shared.given().len(), 5, "each step was taken once");
    assert_eq!(turn.join().unwrap(), Joined::Nothing);
}

/// Keeps a job and reports it refused.
struct Lying(Mutex<Vec<Job>>);

impl Executor for Lying {
    fn submit(&self, job: Job) -> Result<(), Rejected<Job>> {
        self.0.lock().unwrap().push(job);
        Err(Rejected::new(Job::new(|| ()), RejectReason::Refused))
    }
}

/// O1: a job that was reported refused and comes to run later finds no turn of its own; nor does it strand one when dropped.
#[test]
fn a_job_that_was_given_back_has_no_ownership() {
    for runs in [true, false] {
        let lying = Lying(Mutex::new(Vec::new()));
        let (work, shared) = script(|_, _| Next::Idle);
        let turn = Turn::builder(work).yield_to(ManualExecutor::new());
        let _ = turn.record(GO);
        let stranded = turn.schedule(&lying).unwrap_err();
        let job = lying.0.lock().unwrap().pop().unwrap();
        if runs {
            job.run();
        } else {
            drop(job);
        }
        assert!(shared.given().is_empty() && shared.stranded().is_empty());
        assert_eq!(stranded.ownership.run().unwrap(), Joined::Ran);
        assert_eq!(shared.given(), [GO]);
    }
}

/// O15: on a serial executor the yield takes the running job's place, so that a full one takes it, too.
#[test]
fn a_yield_continues_the_job_of_a_full_serial_executor() {
    for serial in [true, false] {
        let executor = ManualExecutor::bounded(1);
        let filled = executor.clone();
        let mut steps = countdown(3);
        let (work, shared) = script(move |turn, demand| {
            filled.submit(Job::new(|| ())).expect("the queue is empty while the only job runs");
            steps(turn, demand)
        });
        let builder = Turn::builder(work).budget(1);
        let turn = if serial {
            builder.yield_to_serial(executor.clone())
        } else {
            builder.yield_to(executor.clone())
        };
        let _ = turn.record(GO);
        let _ = turn.schedule(&executor).unwrap();
        while executor.run_next() {
            // The filler is ahead of the continuation.
            assert!(executor.run_next());
        }
        if serial {
            assert_eq!((shared.given().len(), shared.stranded()), (4, vec![]));
        } else {
            assert_eq!(
                shared.stranded(),
                [Why::Refused(RejectReason::Full)],
                "merely submitted it is refused"
            );
        }
    }
}

/// Two turns that run each other inline: each has one owner, and each frame gets its own turn back.
#[test]
fn turns_that_join_each_other_do_not_nest_beyond_one_each() {
    let executor = InlineExecutor::new(Inline::Runs);
    let (second, second_seen) = script(countdown(100));
    let second = Turn::builder(second).budget(1).yield_to(executor.clone());
    let inner = second.clone();
    let mut left = 100;
    let (first, first_seen) = script(move |_, _| {
        if inner.record(GO).must_run() {
            assert_eq!(inner.join().unwrap(), Joined::Ran);
        }
        if left == 0 {
            return Next::Idle;
        }
        left -= 1;
        Next::Again
    });
    let first = Turn::builder(first).budget(1).yield_to(executor.clone());
    let _ = first.record(GO);
    assert_eq!(first.join().unwrap(), Joined::Ran);
    assert_eq!(first_seen.given().len(), 101);
    assert_eq!(second_seen.given().len(), 201, "100 that count, and one at the end of each join");
    assert_eq!(executor.deepest.load(Ordering::Relaxed), 1);
}

/// The state goes when the last handle does, a queued turn's among them.
#[test]
fn the_state_is_dropped_with_the_last_handle() {
    let executor = ManualExecutor::new();
    let witness = Arc::new(());
    let inside = Arc::clone(&witness);
    let (work, _shared) = script(move |_, _| {
        assert_eq!(Arc::strong_count(&inside), 2);
        Next::Idle
    });
    let turn = Turn::builder(work).yield_to(ManualExecutor::new());
    let _ = turn.record(GO);
    let _ = turn.schedule(&executor).unwrap();
    drop(turn);
    assert_eq!(Arc::strong_count(&witness), 2);
    assert_eq!(executor.run_all(), 1);
    assert_eq!(Arc::strong_count(&witness), 1);
}

#[test]
fn the_values_say_what_they_are() {
    fn is_send_and_sync<T: Send + Sync>() {}
    fn is_send<T: Send>() {}
    is_send_and_sync::<Turn<Script>>();
    is_send::<Ownership<Script>>();
    is_send::<Stranded<Script>>();

    assert_eq!(format!("{:?}", GO | MEND), "{soft 0, urgent 1}");
    assert_eq!((GO | MEND) - GO, MEND);
    assert!(MEND.is_urgent() && !GO.is_urgent() && Demand::default().is_empty());
    let mut both = GO;
    both |= OTHER;
    assert!(both.contains(GO) && !both.contains(RESULT));
    assert!(catch(|| Demand::soft(15)).is_err() && catch(|| Demand::urgent(15)).is_err());
    let all = (0..15).fold(Demand::NONE, |all, kind| all | Demand::soft(kind) | Demand::urgent(kind));

    let (work, shared) = script(|_, _| Next::Idle);
    let turn = Turn::builder(work).yield_to(ManualExecutor::new());
    let _ = turn.record(all);
    let text = format!("{turn:?}");
    assert!(
        text.contains("\"idle\"") && text.contains("urgent 14") && text.contains("generation: 0"),
        "{text}"
    );
    assert_eq!(turn.join().unwrap(), Joined::Ran);
    assert_eq!(shared.given(), [all], "every kind of demand reaches the step");
    assert!(format!("{turn:?}").contains("generation: 1"));
}
