//! Models of `Turn` through its public interface: every hand-off of ownership, with payloads that only the word publishes.
#![cfg(loom)]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "counters of the test itself, which the checker must not see as synchronisation; models fail where they unwrap"
)]

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc as StdArc, Mutex as StdMutex};

use folio_sync::cell::UnsafeCell;
use folio_sync::test_util::{Tracked, model, spurious_every};
use folio_sync::{Arc, Executor, Job, RejectReason, Rejected, thread, unwind};
use folio_turn::{Demand, Joined, Next, Panicked, Recovery, Stranded, Turn, Why, Work};

/// What the two recorders of a model ask for; each has a mailbox of its own.
const ASK: [Demand; 2] = [Demand::soft(0), Demand::soft(1)];
const URGENT: Demand = Demand::urgent(0);
const MEND: Demand = Demand::urgent(1);
const PANIC: Demand = Demand::soft(2);

/// A mailbox without any ordering of its own: what is put into it is published by the recorded demand, or the model fails.
struct Mailbox(UnsafeCell<Option<Tracked<u32>>>);

// SAFETY: loom watches the cell and fails the model when two accesses are not ordered.
unsafe impl Sync for Mailbox {}
// SAFETY: as above; what is inside is `Send`.
unsafe impl Send for Mailbox {}

impl Mailbox {
    fn new() -> Self {
        Self(UnsafeCell::new(None))
    }

    fn put(&self, value: u32) {
        self.0.with_mut(|cell| {
            // SAFETY: loom fails the model if anybody else reaches the cell now.
            unsafe { *cell = Some(Tracked::new(value)) }
        });
    }

    fn take(&self) -> Option<u32> {
        let taken = self.0.with_mut(|cell| {
            // SAFETY: loom fails the model if anybody else reaches the cell now.
            unsafe { (*cell).take() }
        });
        taken.map(|tracked| *tracked.get())
    }
}

/// An executor of the least: a slot for jobs that orders nothing, so that only the turn's own word does.
#[derive(Clone)]
struct Slot(StdArc<SlotState>);

struct SlotState {
    /// A mutex that the checker does not see: it makes nothing visible.
    jobs: StdMutex<Vec<Job>>,
    refusals: AtomicUsize,
    lies: AtomicUsize,
    inline: AtomicUsize,
    taken: AtomicUsize,
}

impl Slot {
    fn new() -> Self {
        Self(StdArc::new(SlotState {
            jobs: StdMutex::new(Vec::new()),
            refusals: AtomicUsize::new(0),
            lies: AtomicUsize::new(0),
            inline: AtomicUsize::new(0),
            taken: AtomicUsize::new(0),
        }))
    }

    fn refusing(self, count: usize) -> Self {
        self.0.refusals.store(count, Relaxed);
        self
    }

    /// Keeps the next job and reports it as refused.
    fn lying(self) -> Self {
        self.0.lies.store(1, Relaxed);
        self
    }

    /// Runs so many jobs inside `submit`.
    fn inline(self, count: usize) -> Self {
        self.0.inline.store(count, Relaxed);
        self
    }

    fn pop(&self) -> Option<Job> {
        let mut jobs = self.0.jobs.lock().unwrap();
        (!jobs.is_empty()).then(|| jobs.remove(0))
    }

    fn run_one(&self) -> bool {
        let job = self.pop();
        job.is_some_and(|job| {
            job.run();
            true
        })
    }

    fn run_all(&self) {
        while self.run_one() {}
    }

    fn taken(&self) -> usize {
        self.0.taken.load(Relaxed)
    }
}

fn once(counter: &AtomicUsize) -> bool {
    counter.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok()
}

impl Executor for Slot {
    fn submit(&self, job: Job) -> Result<(), Rejected<Job>> {
        if once(&self.0.refusals) {
            return Err(Rejected::new(job, RejectReason::Refused));
        }
        self.0.taken.fetch_add(1, Relaxed);
        if once(&self.0.inline) {
            job.run();
            return Ok(());
        }
        self.0.jobs.lock().unwrap().push(job);
        if once(&self.0.lies) {
            return Err(Rejected::new(Job::new(|| ()), RejectReason::Refused));
        }
        Ok(())
    }
}

/// What the model asserts about at its end.
#[derive(Default)]
struct Seen {
    mail: [AtomicUsize; 2],
    steps: AtomicUsize,
    mended: AtomicUsize,
    stranded: AtomicUsize,
}

/// Takes its mail; waits for something urgent if told so.
struct Reader {
    mail: Arc<[Mailbox; 2]>,
    seen: StdArc<Seen>,
    /// Owned state that the checker watches.
    own: Tracked<()>,
    steps: usize,
    broken: bool,
    waits: bool,
    /// Every piece of mail is a step that counts.
    step_counts: bool,
    /// So many steps count in any case.
    agains: usize,
}

impl Work for Reader {
    fn step(&mut self, _turn: &Turn<Self>, demand: Demand) -> Next {
        self.own = Tracked::new(());
        self.steps += 1;
        self.seen.steps.fetch_add(1, Relaxed);
        if self.broken {
            assert!(demand.contains(MEND), "a new owner came before the mending demand");
            self.broken = false;
            self.seen.mended.fetch_add(1, Relaxed);
        }
        let mut found = false;
        for (index, ask) in ASK.into_iter().enumerate() {
            if demand.contains(ask) || (demand.contains(URGENT) && index == 1) {
                let mail = self.mail[index].take();
                found |= mail.is_some();
                self.seen.mail[index].fetch_add(usize::from(mail.is_some()), Relaxed);
            }
        }
        if demand.contains(PANIC) {
            self.broken = true;
            std::panic::resume_unwind(Box::new("planted"));
        }
        if self.agains > 0 {
            self.agains -= 1;
            Next::Again
        } else if found && self.step_counts {
            Next::Again
        } else if self.waits && !demand.contains(URGENT) {
            Next::Wait
        } else {
            self.waits = false;
            Next::Idle
        }
    }

    fn panicked(&mut self, _turn: &Turn<Self>, panicked: Panicked<'_>) -> Recovery {
        assert_eq!(unwind::message(&**panicked.payload), "planted");
        Recovery::Contain(MEND)
    }

    fn stranded(stranded: Stranded<Self>) {
        let mut ownership = stranded.ownership;
        ownership.with(|reader| reader.seen.stranded.fetch_add(1, Relaxed));
        assert_eq!(ownership.run().expect("no second hand-over fails"), Joined::Ran);
    }
}

struct Rig {
    turn: Turn<Reader>,
    mail: Arc<[Mailbox; 2]>,
    seen: StdArc<Seen>,
    slot: Slot,
}

impl Clone for Rig {
    fn clone(&self) -> Self {
        Self {
            turn: self.turn.clone(),
            mail: Arc::clone(&self.mail),
            seen: StdArc::clone(&self.seen),
            slot: self.slot.clone(),
        }
    }
}

impl Rig {
    fn new(slot: Slot, budget: u32, adjust: impl FnOnce(&mut Reader)) -> Self {
        let mail = Arc::new([Mailbox::new(), Mailbox::new()]);
        let seen = StdArc::new(Seen::default());
        let mut reader = Reader {
            mail: Arc::clone(&mail),
            seen: StdArc::clone(&seen),
            own: Tracked::new(()),
            steps: 0,
            broken: false,
            waits: false,
            step_counts: false,
            agains: 0,
        };
        adjust(&mut reader);
        Self { turn: Turn::builder(reader).budget(budget).yield_to(slot.clone()), mail, seen, slot }
    }

    fn plain() -> Self {
        Self::new(Slot::new(), 64, |_| ())
    }

    /// Yields after every piece of mail.
    fn yielding(slot: Slot) -> Self {
        Self::new(slot, 1, |reader| reader.step_counts = true)
    }

    fn ask(&self, index: usize, demand: Demand) -> bool {
        self.mail[index].put(7);
        self.turn.record(demand).must_run()
    }

    fn mail(&self) -> [usize; 2] {
        [self.seen.mail[0].load(Relaxed), self.seen.mail[1].load(Relaxed)]
    }

    /// Nobody owns the turn and nothing is queued: another demand is served here.
    fn assert_free(&self) {
        let steps = self.seen.steps.load(Relaxed);
        let _recorded = self.turn.record(URGENT);
        assert_eq!(self.turn.join().expect("nothing is queued"), Joined::Ran);
        assert!(self.seen.steps.load(Relaxed) > steps);
    }
}

fn join_here(rig: &Rig) -> Joined {
    rig.turn.join().expect("no hand-over fails here")
}

fn demand_racing_release() {
    let rig = Rig::plain();
    let other = rig.clone();
    let thread = thread::spawn(move || {
        if other.ask(0, ASK[0]) {
            let _joined = join_here(&other);
        }
    });
    if rig.ask(1, ASK[1]) {
        let _joined = join_here(&rig);
    }
    thread.join().unwrap();
    assert_eq!(rig.mail(), [1, 1], "demand was lost");
    rig.assert_free();
}

/// O1, O12, D1, D2, D4: demand that comes while the owner is about to let go is seen by it or runs anew.
#[test]
fn demand_racing_release_is_seen() {
    model("demand racing release", demand_racing_release);
}

/// O12: the same when weak exchanges fail for no reason, which loom alone never has them do.
#[test]
fn spurious_failures_change_nothing() {
    model("demand racing release, spurious failures", || {
        let _injected = spurious_every(2);
        demand_racing_release();
    });
}

/// O15, O1: demand that comes during a yield queues nothing; the queued owner sees it, whatever the executor orders.
#[test]
fn demand_during_a_yield_is_seen_by_the_queued_owner() {
    model("demand during yield", || {
        let rig = Rig::yielding(Slot::new());
        let worker = rig.clone();
        let thread = thread::spawn(move || worker.slot.run_one());
        let other = rig.clone();
        let second = thread::spawn(move || {
            if other.ask(1, ASK[1]) {
                let _joined = join_here(&other);
            }
        });
        if rig.ask(0, ASK[0]) {
            let _joined = join_here(&rig);
        }
        thread.join().unwrap();
        second.join().unwrap();
        rig.slot.run_all();
        assert_eq!(rig.mail(), [1, 1], "demand was lost");
        rig.assert_free();
    });
}

/// O5, O15: a job that the executor runs inside the yield goes back to the thread that yielded, whatever is asked meanwhile.
#[test]
fn an_inline_yield_comes_back_to_its_owner() {
    model("inline yield", || {
        let rig = Rig::yielding(Slot::new().inline(1));
        let other = rig.clone();
        let thread = thread::spawn(move || {
            if other.ask(1, ASK[1]) {
                let _joined = join_here(&other);
            }
        });
        if rig.ask(0, ASK[0]) {
            let _joined = join_here(&rig);
        }
        thread.join().unwrap();
        rig.slot.run_all();
        assert_eq!(rig.mail(), [1, 1], "demand was lost");
        rig.assert_free();
    });
}

/// O4, O15, 11.6: race 13: two threads that record and schedule queue one turn, and neither runs a step.
#[test]
fn two_demands_queue_one_turn() {
    model("two demands, one turn", || {
        let rig = Rig::plain();
        let schedule = |rig: &Rig, index: usize| {
            if rig.ask(index, ASK[index]) {
                let _scheduled = rig.turn.schedule(&rig.slot).expect("the slot takes all");
            }
        };
        let other = rig.clone();
        let thread = thread::spawn(move || schedule(&other, 0));
        schedule(&rig, 1);
        thread.join().unwrap();
        assert_eq!((rig.slot.taken(), rig.seen.steps.load(Relaxed)), (1, 0), "one turn, and not run here");
        rig.slot.run_all();
        assert_eq!(rig.mail(), [1, 1], "demand was lost");
        rig.assert_free();
    });
}

/// I65: a job sees the state that the last owner left, though only the thread between them met either.
#[test]
fn a_scheduled_job_sees_the_state_of_the_last_owner() {
    model("state through a scheduler", || {
        let rig = Rig::plain();
        let owner = rig.clone();
        let first = thread::spawn(move || {
            if owner.ask(0, ASK[0]) {
                let _joined = join_here(&owner);
            }
        });
        let worker = rig.clone();
        let second = thread::spawn(move || worker.slot.run_one());
        if rig.ask(1, ASK[1]) {
            let _scheduled = rig.turn.schedule(&rig.slot).expect("the slot takes all");
        }
        first.join().unwrap();
        second.join().unwrap();
        rig.slot.run_all();
        assert_eq!(rig.mail(), [1, 1], "demand was lost");
        rig.assert_free();
    });
}

/// O12, 11.6: race 8: a result that comes while the owner is about to wait for it is never left lying.
#[test]
fn urgent_demand_racing_entry_into_the_wait_takes_ownership() {
    model("urgent demand racing the wait", || {
        let rig = Rig::new(Slot::new(), 64, |reader| reader.waits = true);
        let other = rig.clone();
        let thread = thread::spawn(move || {
            if other.ask(1, URGENT) {
                let _joined = join_here(&other);
            }
        });
        if rig.ask(0, ASK[0]) {
            let _joined = join_here(&rig);
        }
        thread.join().unwrap();
        let mail = rig.mail();
        assert_eq!(mail[1], 1, "the result was left lying");
        assert_eq!(mail[0], 1, "soft demand recorded before the result was passed over");
        rig.assert_free();
    });
}

/// I65, O12: soft demand in the wait schedules nothing, and the owner that the result brings sees it.
#[test]
fn soft_demand_in_the_wait_queues_nothing_and_comes_with_the_result() {
    model("soft demand in the wait", || {
        let rig = Rig::new(Slot::new(), 64, |reader| reader.waits = true);
        let _recorded = rig.turn.record(Demand::soft(3));
        assert_eq!(join_here(&rig), Joined::Ran);
        let ack = rig.clone();
        let thread = thread::spawn(move || {
            if ack.ask(0, ASK[0]) {
                let results = ack.seen.mail[1].load(Relaxed);
                assert_eq!(results, 1, "soft demand took the turn from its wait");
                let _scheduled = ack.turn.schedule(&ack.slot).expect("the slot takes all");
            }
        });
        if rig.ask(1, URGENT) {
            let _joined = join_here(&rig);
        }
        thread.join().unwrap();
        rig.slot.run_all();
        assert_eq!(rig.mail(), [1, 1], "demand was lost");
        rig.assert_free();
    });
}

/// I34, 11.6: race 14: a refused yield gives ownership back to its caller, with all that was recorded meanwhile.
#[test]
fn a_refused_yield_gives_ownership_back() {
    model("refusal of the yield", || {
        let rig = Rig::yielding(Slot::new().refusing(1));
        let act = |rig: &Rig, index: usize| {
            if !rig.ask(index, ASK[index]) {
                return;
            }
            if let Err(mut stranded) = rig.turn.join() {
                assert_eq!(stranded.why, Why::Refused(RejectReason::Refused));
                stranded.ownership.with(|reader| reader.seen.stranded.fetch_add(1, Relaxed));
                stranded.ownership.run().expect("the second is taken");
            }
        };
        let other = rig.clone();
        let thread = thread::spawn(move || act(&other, 0));
        act(&rig, 1);
        thread.join().unwrap();
        rig.slot.run_all();
        assert_eq!(rig.mail(), [1, 1], "demand was lost");
        assert_eq!(rig.seen.stranded.load(Relaxed), 1, "the refusal came back once");
        rig.assert_free();
    });
}

/// O14: whoever is refused a turn that he scheduled has the state as the last owner left it.
#[test]
fn a_refused_schedule_gives_the_last_owners_state() {
    model("refusal of the schedule", || {
        let rig = Rig::new(Slot::new().refusing(1), 64, |_| ());
        let owner = rig.clone();
        let thread = thread::spawn(move || {
            if owner.ask(0, ASK[0]) {
                let _joined = join_here(&owner);
            }
        });
        if rig.ask(1, ASK[1])
            && let Err(stranded) = rig.turn.schedule(&rig.slot)
        {
            stranded.settle();
        }
        thread.join().unwrap();
        assert_eq!(rig.mail(), [1, 1], "demand was lost");
        rig.assert_free();
    });
}

/// O14, O16: a queued turn that is dropped unrun gives its ownership to the handler, with all that was recorded meanwhile.
#[test]
fn a_dropped_turn_gives_ownership_to_the_handler() {
    model("dropped turn", || {
        let rig = Rig::plain();
        let closer = rig.clone();
        let thread = thread::spawn(move || drop(closer.slot.pop()));
        let other = rig.clone();
        let second = thread::spawn(move || {
            if other.ask(1, ASK[1]) {
                let _scheduled = other.turn.schedule(&other.slot).expect("the slot takes all");
            }
        });
        if rig.ask(0, ASK[0]) {
            let _scheduled = rig.turn.schedule(&rig.slot).expect("the slot takes all");
        }
        thread.join().unwrap();
        second.join().unwrap();
        while let Some(job) = rig.slot.pop() {
            drop(job);
        }
        assert_eq!(rig.mail(), [1, 1], "demand was lost");
        assert!(rig.seen.stranded.load(Relaxed) >= 1, "the handler was called");
        assert_eq!(rig.seen.stranded.load(Relaxed), rig.slot.taken(), "each drop came back once");
        rig.assert_free();
    });
}

/// O13, 11.6: race 16: no owner comes between a panic and the demand to mend what it broke.
#[test]
fn a_panicked_step_publishes_recovery_before_it_lets_go() {
    model("panic in a step", || {
        let rig = Rig::plain();
        let other = rig.clone();
        let thread = thread::spawn(move || {
            if other.ask(1, ASK[1]) {
                let _joined = join_here(&other);
            }
        });
        if rig.ask(0, ASK[0] | PANIC) {
            let _joined = join_here(&rig);
        }
        thread.join().unwrap();
        assert_eq!(rig.mail(), [1, 1], "demand that was recorded beside the panic was passed over");
        // What the panic left to do has no runner of its own.
        let _joined = join_here(&rig);
        assert_eq!(rig.seen.mended.load(Relaxed), 1, "the state was mended once");
        rig.assert_free();
    });
}

/// O13, I65: an executor that keeps a job and reports it refused cannot make the old owner take from the new one.
#[test]
fn a_late_error_of_the_previous_owner_touches_nothing() {
    model("late error of the previous owner", || {
        // The first owner yields and the second does, too, so that the turn may be queued again when the first hears its error.
        let rig = Rig::new(Slot::new().lying(), 1, |reader| reader.agains = 2);
        let worker = rig.clone();
        let thread = thread::spawn(move || worker.slot.run_one());
        assert!(rig.ask(0, ASK[0]));
        match rig.turn.join() {
            Ok(joined) => assert_eq!(joined, Joined::Yielded),
            Err(mut stranded) => {
                let steps = stranded.ownership.with(|reader| reader.steps);
                assert_eq!(steps, 1, "the error of an old owner touched a newer one");
                let _joined = stranded.ownership.run().expect("the second is taken");
            }
        }
        thread.join().unwrap();
        rig.slot.run_all();
        assert_eq!(rig.mail(), [1, 0], "demand was lost");
        rig.assert_free();
    });
}

/// O13: ownership that is dropped lets go with the state published and the demand kept.
#[test]
fn dropped_ownership_lets_go_with_state_and_demand() {
    model("dropped ownership", || {
        let rig = Rig::new(Slot::new().refusing(1), 64, |_| ());
        let other = rig.clone();
        let thread = thread::spawn(move || {
            if other.ask(0, ASK[0]) {
                let _joined = join_here(&other);
            }
        });
        if rig.ask(1, ASK[1])
            && let Err(mut stranded) = rig.turn.schedule(&rig.slot)
        {
            stranded.ownership.with(|reader| reader.own = Tracked::new(()));
            drop(stranded);
        }
        // Dropped ownership leaves its demand to the next who joins, on whichever thread.
        let last = rig.clone();
        let second = thread::spawn(move || {
            let _joined = join_here(&last);
        });
        thread.join().unwrap();
        second.join().unwrap();
        let _joined = join_here(&rig);
        assert_eq!(rig.mail(), [1, 1], "demand was lost");
        rig.assert_free();
    });
}
