//! The turn: its state, its word, and the loop that takes its steps.

use std::fmt;
use std::ptr;

use folio_sync::cell::UnsafeCell;
use folio_sync::unwind::{Payload, catch, discard};
use folio_sync::{Arc, Executor, Job, RejectReason, Rejected, SerialExecutor, SharedJob, arc_dyn};

use crate::demand::Demand;
use crate::frame::{self, Frame, Landed};
use crate::outcome::{Joined, Recorded, Scheduled, Stranded, Why};
use crate::ownership::Ownership;
use crate::word::{Held, Leave, NotOwned, QueuedBy, Word};
use crate::work::{Next, Panicked, Recovery, Work};

/// How many steps a turn takes before it yields, unless its builder says otherwise.
const DEFAULT_BUDGET: u32 = 64;

/// Work that many threads ask for and exactly one does at a time.
///
/// A clone is the same turn. See the [crate's page](crate) for an example and for what holds.
pub struct Turn<W: Work> {
    core: Arc<Core<W>>,
    /// What is queued; made once, so that queuing allocates nothing.
    job: Arc<dyn SharedJob>,
}

/// Settings of a turn to be made: see [`Turn::builder`].
#[derive(Debug)]
#[must_use = "a builder makes no turn until it is told where to yield to"]
pub struct Builder<W> {
    work: W,
    budget: u32,
}

struct Core<W> {
    word: Word,
    /// Reached only by whoever has the one `Held` of `word`.
    work: UnsafeCell<W>,
    /// At least 1.
    budget: u32,
    yields_to: Destination,
}

// SAFETY: `word` and `yields_to` are `Sync`. `work` is reached by one thread at a time, the one that has the only `Held` of `word`: the
// transition that made it was an Acquire, and the one that consumed the one before it a Release, so accesses are ordered. The state
// thereby moves between threads, which `W: Send` allows; it is never shared.
unsafe impl<W: Send> Sync for Core<W> {}

enum Destination {
    Any(Arc<dyn Executor>),
    Serial(Arc<dyn SerialExecutor>),
}

impl Destination {
    fn offer(&self, job: Job) -> Result<(), Rejected<Job>> {
        match self {
            Self::Any(executor) => executor.submit(job),
            Self::Serial(executor) => executor.resubmit(job),
        }
    }
}

/// Why the steps stopped.
enum Stop {
    BudgetUsed,
    Leave(Leave),
    Panicked(Payload),
}

/// What became of a turn.
enum End {
    Ran,
    Yielded,
    Stranded(Held, Why),
}

impl<W: Work> Turn<W> {
    /// Begins to make a turn around this state, with a budget of 64 steps.
    pub fn builder(work: W) -> Builder<W> {
        Builder { work, budget: DEFAULT_BUDGET }
    }

    /// Records demand; runs and queues nothing.
    ///
    /// Whatever this thread did before, above all what it put into a mailbox, is visible to the step that is given the demand.
    ///
    /// # Progress
    /// Lock-free: one read-modify-write.
    pub fn record(&self, demand: Demand) -> Recorded {
        self.core.word.record(demand)
    }

    /// Runs the turn here, if demand calls for an owner and there is none.
    ///
    /// # Progress
    /// Lock-free as far as this crate goes: it never waits for an owner, and runs steps only as the owner.
    ///
    /// # Errors
    /// [`Stranded`] when the budget is used up and the rest cannot be queued.
    ///
    /// # Panics
    /// When a step does and its panic is propagated. Nobody owns the turn then, or a queued job does.
    pub fn join(&self) -> Result<Joined, Stranded<W>> {
        match self.core.word.own() {
            Ok(held) => self.drive(held, false),
            Err(NotOwned::Elsewhere) => Ok(Joined::Elsewhere),
            Err(NotOwned::Nothing) => Ok(Joined::Nothing),
        }
    }

    /// Queues the turn if demand calls for an owner.
    ///
    /// Takes no step on this thread, and queues nothing where somebody owns the turn already.
    ///
    /// # Memory
    /// Allocates nothing: each time the same job is queued.
    ///
    /// # Progress
    /// Lock-free as far as this crate goes: it never waits for an owner.
    ///
    /// # Errors
    /// [`Stranded`] when the executor does not take the job.
    ///
    /// # Panics
    /// When the executor does. Ownership has then gone where the job went: to the executor, or to [`Work::stranded`].
    pub fn schedule<E: Executor + ?Sized>(&self, executor: &E) -> Result<Scheduled, Stranded<W>> {
        match self.core.word.own_for_job() {
            Ok(by) => self.offer(by, |job| executor.submit(job)).map(|()| Scheduled::Queued),
            Err(NotOwned::Elsewhere) => Ok(Scheduled::Elsewhere),
            Err(NotOwned::Nothing) => Ok(Scheduled::Nothing),
        }
    }

    pub(crate) fn queue_held<E: Executor + ?Sized>(
        &self,
        held: Held,
        executor: &E,
    ) -> Result<(), Stranded<W>> {
        let by = self.core.word.hand_on(held);
        self.offer(by, |job| executor.submit(job))
    }

    pub(crate) fn word(&self) -> &Word {
        &self.core.word
    }

    /// Reaches the state.
    pub(crate) fn work_on<R>(&self, _held: &mut Held, visit: impl FnOnce(&mut W) -> R) -> R {
        self.core.work.with_mut(|work| {
            // SAFETY: there is one `Held` of this word, and it is borrowed here for as long as the reference lives.
            visit(unsafe { &mut *work })
        })
    }

    fn offer(
        &self,
        by: QueuedBy,
        submit: impl FnOnce(Job) -> Result<(), Rejected<Job>>,
    ) -> Result<(), Stranded<W>> {
        let offered = submit(Job::shared(Arc::clone(&self.job)));
        match self.refused(by, offered) {
            None => Ok(()),
            Some((held, reason)) => {
                let ownership = Ownership::new(self.clone(), held);
                Err(Stranded { ownership, why: Why::Refused(reason) })
            }
        }
    }

    /// What an executor's answer means. A refusal counts only as long as the job that was offered has found no owner.
    fn refused(&self, by: QueuedBy, answer: Result<(), Rejected<Job>>) -> Option<(Held, RejectReason)> {
        let rejected = answer.err()?;
        let held = self.core.word.take_back(by)?;
        rejected.value.forget();
        Some((held, rejected.reason))
    }

    /// Runs the turn on this thread, and what comes back to this thread while it does.
    ///
    /// With `settle`, a hand-over that fails goes to [`Work::stranded`] instead of the caller.
    pub(crate) fn drive(&self, held: Held, settle: bool) -> Result<Joined, Stranded<W>> {
        let frame = Frame::enter(self.core.id());
        let mut panic = None;
        let mut landed = Landed::ToRun(held);
        let end = loop {
            let mut end = match landed {
                Landed::ToRun(held) => self.run_turn(held, &mut panic),
                Landed::Dropped(held) => End::Stranded(held, Why::Dropped),
            };
            // A value cannot be returned beside a panic.
            if settle || panic.is_some() {
                end = self.settle(end, &mut panic);
            }
            match frame.take_landed() {
                Some(again) => landed = again,
                None => break end,
            }
        };
        drop(frame);
        if let Some(payload) = panic {
            std::panic::resume_unwind(payload);
        }
        match end {
            End::Ran => Ok(Joined::Ran),
            End::Yielded => Ok(Joined::Yielded),
            End::Stranded(held, why) => Err(Stranded { ownership: Ownership::new(self.clone(), held), why }),
        }
    }

    fn settle(&self, end: End, panic: &mut Option<Payload>) -> End {
        let End::Stranded(held, why) = end else { return end };
        let stranded = Stranded { ownership: Ownership::new(self.clone(), held), why };
        if let Err(payload) = catch(|| W::stranded(stranded)) {
            keep_first(panic, payload);
        }
        End::Yielded
    }

    /// One turn: steps until there is nothing to do or the budget is used up.
    fn run_turn(&self, mut held: Held, panic: &mut Option<Payload>) -> End {
        let mut left = self.core.budget;
        while left > 0 {
            let mut demand = Demand::NONE;
            let back = match self.run_steps(&mut held, &mut left, &mut demand) {
                Stop::BudgetUsed => break,
                Stop::Leave(how) => self.core.word.leave(held, how),
                Stop::Panicked(payload) => {
                    let undone = self.mend(&mut held, demand, payload, panic);
                    self.core.word.recover(held, undone)
                }
            };
            match back {
                Ok(()) => return End::Ran,
                Err(still) => held = still,
            }
            // A step after which demand was found counts like one that says so itself: demand without end must not hold the thread.
            left -= 1;
        }
        self.hand_on(held, panic)
    }

    fn run_steps(&self, held: &mut Held, left: &mut u32, demand: &mut Demand) -> Stop {
        let stopped = catch(|| {
            self.work_on(held, |work| {
                loop {
                    *demand = self.core.word.take();
                    match work.step(self, *demand) {
                        Next::Again => *left -= 1,
                        Next::Idle => return Stop::Leave(Leave::Idle),
                        Next::Wait => return Stop::Leave(Leave::Waiting),
                    }
                    if *left == 0 {
                        return Stop::BudgetUsed;
                    }
                }
            })
        });
        stopped.unwrap_or_else(Stop::Panicked)
    }

    /// Lets the work mend its state after a panic; what is left to do.
    fn mend(&self, held: &mut Held, demand: Demand, payload: Payload, panic: &mut Option<Payload>) -> Demand {
        let asked =
            catch(|| self.work_on(held, |work| work.panicked(self, Panicked { demand, payload: &payload })));
        match asked {
            Ok(Recovery::Contain(undone)) => {
                discard(payload);
                undone
            }
            Ok(Recovery::Propagate(undone)) => {
                keep_first(panic, payload);
                undone
            }
            Err(again) => {
                keep_first(panic, payload);
                discard(again);
                demand
            }
        }
    }

    /// Yields: queues the rest, ownership with it.
    fn hand_on(&self, held: Held, panic: &mut Option<Payload>) -> End {
        let by = self.core.word.hand_on(held);
        let job = Job::shared(Arc::clone(&self.job));
        match catch(|| self.core.yields_to.offer(job)) {
            Ok(answer) => match self.refused(by, answer) {
                Some((held, reason)) => End::Stranded(held, Why::Refused(reason)),
                None => End::Yielded,
            },
            Err(payload) => {
                // Ownership went with the job, wherever that is: kept by the executor, or dropped and so landed at our frame.
                keep_first(panic, payload);
                End::Yielded
            }
        }
    }
}

/// Keeps the first panic of a turn.
fn keep_first(kept: &mut Option<Payload>, payload: Payload) {
    match kept {
        None => *kept = Some(payload),
        Some(_) => discard(payload),
    }
}

impl<W> Core<W> {
    fn id(&self) -> usize {
        ptr::from_ref(self).addr()
    }
}

impl<W: Work> Builder<W> {
    /// How many steps a turn takes before it yields; 0 is taken as 1.
    pub fn budget(mut self, steps: u32) -> Self {
        self.budget = steps.max(1);
        self
    }

    /// Makes a turn that yields to this executor.
    ///
    /// # Memory
    /// Three allocations: the turn, its job, and the executor's handle. Each thread makes one more when it first drives any turn.
    pub fn yield_to<E: Executor + 'static>(self, executor: E) -> Turn<W> {
        self.build(Destination::Any(arc_dyn!(executor => dyn Executor)))
    }

    /// Makes a turn that yields to this serial executor.
    ///
    /// A yield continues the executor's running job where there is one.
    ///
    /// # Memory
    /// Three allocations, as in [`yield_to`](Self::yield_to).
    pub fn yield_to_serial<E: SerialExecutor + 'static>(self, executor: E) -> Turn<W> {
        self.build(Destination::Serial(arc_dyn!(executor => dyn SerialExecutor)))
    }

    fn build(self, yields_to: Destination) -> Turn<W> {
        let core = Arc::new(Core {
            word: Word::new(),
            work: UnsafeCell::new(self.work),
            budget: self.budget,
            yields_to,
        });
        let job = arc_dyn!(TurnJob { core: Arc::clone(&core) } => dyn SharedJob);
        Turn { core, job }
    }
}

impl<W: Work> Clone for Turn<W> {
    fn clone(&self) -> Self {
        Self { core: Arc::clone(&self.core), job: Arc::clone(&self.job) }
    }
}

impl<W: Work> fmt::Debug for Turn<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn")
            .field("word", &self.core.word)
            .field("budget", &self.core.budget)
            .finish_non_exhaustive()
    }
}

/// The queued owner.
struct TurnJob<W> {
    core: Arc<Core<W>>,
}

impl<W: Work> TurnJob<W> {
    fn turn(&self, this: &Arc<dyn SharedJob>) -> Turn<W> {
        Turn { core: Arc::clone(&self.core), job: Arc::clone(this) }
    }
}

impl<W: Work> SharedJob for TurnJob<W> {
    fn run(&self, this: &Arc<dyn SharedJob>) {
        let Some(held) = self.core.word.claim() else { return };
        if frame::is_driven_here(self.core.id()) {
            frame::land(self.core.id(), Landed::ToRun(held));
            return;
        }
        let settled = self.turn(this).drive(held, true);
        debug_assert!(settled.is_ok(), "a failed hand-over was settled");
    }

    fn abandoned(&self, this: &Arc<dyn SharedJob>) {
        let Some(held) = self.core.word.claim() else { return };
        if frame::is_driven_here(self.core.id()) {
            frame::land(self.core.id(), Landed::Dropped(held));
            return;
        }
        let ownership = Ownership::new(self.turn(this), held);
        if let Err(payload) = catch(|| W::stranded(Stranded { ownership, why: Why::Dropped })) {
            discard(payload);
        }
    }
}
