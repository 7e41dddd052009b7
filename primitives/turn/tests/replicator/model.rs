//! A replicator around a turn: the word is the owner, its demand and its queued turn; what else is shared is the mailbox, under M.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use folio_sync::test_util::ManualExecutor;
use folio_sync::unwind::{catch, discard};
use folio_sync::{Executor, Job, Mutex};
use folio_turn::{Demand, Next, Panicked, Recovery, Stranded, Turn, Work};

use crate::tasks::{Monitor, Planted, State, Task, Timers};
use crate::world::{MONITOR_HELD, ReadError, ReadResult, World};

const READ: Demand = Demand::soft(0);
const RESULT: Demand = Demand::urgent(0);
const CANCEL: Demand = Demand::urgent(1);
const REWIND: Demand = Demand::urgent(2);

const QUEUE: usize = 1_000;
const THRESHOLD: usize = 900;

pub(crate) struct Replicator {
    pub(crate) world: World,
    pub(crate) monitor: Mutex<Monitor>,
    pub(crate) executor: ManualExecutor,
    pub(crate) timers: Mutex<Timers>,
    planted: Planted,
    /// The largest number of tasks there was at a time.
    pub(crate) most_tasks: AtomicUsize,
    turn: Mutex<Option<Turn<Owner>>>,
}

/// What the owner alone reaches: the demand that it could not act on yet.
pub(crate) struct Owner {
    replicator: Arc<Replicator>,
    read: bool,
    cancel: bool,
    rewind: bool,
}

impl Replicator {
    pub(crate) fn new(budget: u32, planted: Planted) -> Arc<Self> {
        let replicator = Arc::new(Self {
            world: World::default(),
            monitor: Mutex::new(Monitor {
                state: State::Started,
                tasks: VecDeque::new(),
                rewind_holds: 0,
                timer: false,
                next_id: 0,
            }),
            executor: ManualExecutor::new(),
            timers: Mutex::new(Timers::Take),
            planted,
            most_tasks: AtomicUsize::new(0),
            turn: Mutex::new(None),
        });
        let owner = Owner { replicator: Arc::clone(&replicator), read: false, cancel: false, rewind: false };
        let turn = Turn::builder(owner).budget(budget).yield_to(replicator.executor.clone());
        *replicator.turn.lock() = Some(turn);
        replicator
    }

    /// Undoes the circle of handles.
    pub(crate) fn forget_turn(&self) {
        self.turn.lock().take();
    }

    /// Records and, where nobody owns the turn, runs it here.
    fn own(&self, demand: Demand) {
        let Some(turn) = self.turn.lock().clone() else { return };
        if turn.record(demand).must_run()
            && let Err(stranded) = turn.join()
        {
            stranded.settle();
        }
    }

    /// Records and, where nobody owns the turn, queues it: for threads that must not run it.
    fn own_elsewhere(&self, demand: Demand) {
        let Some(turn) = self.turn.lock().clone() else { return };
        if turn.record(demand).must_run()
            && let Err(stranded) = turn.schedule(&self.executor)
        {
            stranded.settle();
        }
    }

    pub(crate) fn read_more(&self) {
        self.own(READ);
    }

    pub(crate) fn fire_timer(&self) {
        assert!(std::mem::take(&mut self.monitor.lock().timer), "a timer is set");
        self.own(READ);
    }

    fn on_read(&self, id: u64, result: ReadResult) {
        let late = {
            let mut monitor = self.monitor.lock();
            match (monitor.task(id), result) {
                (Some(task), Ok(entries)) => {
                    task.entries = entries.len();
                    task.result = Some(entries);
                    None
                }
                (Some(task), Err(error)) => {
                    task.error = Some(error);
                    task.result = Some(Vec::new());
                    None
                }
                (None, late) => Some(late),
            }
        };
        // Releases, outside of M.
        drop(late);
        self.own(RESULT);
    }

    pub(crate) fn begin_rewind(&self) {
        {
            let mut monitor = self.monitor.lock();
            monitor.rewind_holds += 1;
            monitor.skip_all();
        }
        self.own(CANCEL);
    }

    pub(crate) fn end_rewind(&self, trigger: bool) {
        self.monitor.lock().rewind_holds -= 1;
        self.own(if trigger { REWIND | READ } else { REWIND });
    }

    /// The producer's callback for one entry of the oldest task with entries under way; its monitor is held by the caller.
    pub(crate) fn on_sent(&self, position: u64, ok: bool) {
        let was_held = MONITOR_HELD.replace(true);
        let mut demand = Demand::NONE;
        {
            let mut monitor = self.monitor.lock();
            let task =
                monitor.tasks.iter_mut().find(|task| task.result.is_some() && task.completed < task.entries);
            task.expect("an entry is under way").completed += 1;
            if !ok {
                monitor.skip_all();
                demand |= CANCEL | REWIND;
            }
            let in_flight: usize = monitor.tasks.iter().map(Task::in_flight).sum();
            if monitor.is_pending() || in_flight < THRESHOLD {
                demand |= READ;
            }
            monitor.recycle();
        }
        if ok {
            self.world.delete(position);
        }
        self.own_elsewhere(demand);
        MONITOR_HELD.set(was_held);
    }

    pub(crate) fn terminate(&self) {
        {
            let mut monitor = self.monitor.lock();
            monitor.state = State::Terminating;
            monitor.skip_all();
        }
        self.own(CANCEL);
    }

    fn arm_timer(&self) {
        let timers = *self.timers.lock();
        let taken = catch(|| match timers {
            Timers::Take => true,
            Timers::Refuse => false,
            Timers::Panic => std::panic::resume_unwind(Box::new("the timers")),
        });
        match taken {
            Ok(true) => self.monitor.lock().timer = true,
            Ok(false) => self.end(),
            Err(error) => {
                discard(error);
                self.end();
            }
        }
    }

    /// Starts the producer, as a job of its own: nobody owns the turn for it, and its late error is nobody's.
    fn start_producer(self: &Arc<Self>) {
        let replicator = Arc::clone(self);
        let start = Job::new(move || {
            let Err(error) = catch(|| replicator.world.start_producer()) else { return };
            if replicator.planted == Planted::StartErrorEscapes {
                replicator.recover();
                replicator.own(CANCEL | REWIND);
            }
            // The timer is there; the error ends here, whatever the start did before it.
            discard(error);
        });
        if let Err(refused) = self.executor.submit(start) {
            // The timer brings the next try.
            drop(refused);
        }
    }

    fn recover(&self) {
        self.monitor.lock().skip_all();
        self.arm_timer();
    }

    /// Terminates by the owner, or with its ownership in hand.
    fn end(&self) {
        let unsubmitted: Vec<_> = {
            let mut monitor = self.monitor.lock();
            if monitor.state == State::Terminated {
                return;
            }
            monitor.state = State::Terminated;
            monitor.timer = false;
            monitor.skip_all();
            let taken = monitor.tasks.iter_mut().filter(|task| !task.submitted).map(|task| {
                task.submitted = true;
                task.entries = 0;
                task.result.replace(Vec::new())
            });
            taken.collect()
        };
        drop(unsubmitted);
        self.monitor.lock().recycle();
        if let Err(error) = catch(|| self.world.close_producer()) {
            // The end is an end, whatever its hook does.
            discard(error);
        }
    }

    pub(crate) fn state(&self) -> State {
        self.monitor.lock().state
    }

    pub(crate) fn permits(&self) -> usize {
        let monitor = self.monitor.lock();
        if monitor.is_pending() {
            return 0;
        }
        QUEUE - monitor.tasks.iter().map(Task::in_flight).sum::<usize>()
    }

    pub(crate) fn tasks(&self) -> usize {
        self.monitor.lock().tasks.len()
    }
}

/// The oldest unsubmitted task, as a step sees it.
enum Oldest {
    None,
    Pending(u64),
    Result { id: u64, good: bool },
}

impl Owner {
    fn oldest(&self) -> (Oldest, State) {
        let monitor = self.replicator.monitor.lock();
        let oldest = match monitor.tasks.iter().find(|task| !task.submitted) {
            None => Oldest::None,
            Some(task) if task.result.is_none() => Oldest::Pending(task.id),
            Some(task) => Oldest::Result { id: task.id, good: task.error.is_none() && !task.skip },
        };
        (oldest, monitor.state)
    }

    fn cancel(&mut self) {
        let (Oldest::Pending(id), _) = self.oldest() else { return };
        if self.replicator.world.cancel_pending_read() {
            let mut monitor = self.replicator.monitor.lock();
            if let Some(task) = monitor.task(id) {
                task.result.get_or_insert_with(Vec::new);
                task.submitted = true;
            }
            monitor.recycle();
        }
    }

    fn hold(&mut self, state: State) -> Next {
        self.replicator.arm_timer();
        if state == State::Disconnected {
            self.replicator.start_producer();
        }
        Next::Idle
    }

    fn process(&mut self, id: u64) {
        let replicator = Arc::clone(&self.replicator);
        let (entries, error, skip, state) = {
            let mut monitor = replicator.monitor.lock();
            let state = monitor.state;
            let task = monitor.task(id).expect("the task is kept until it is submitted");
            let entries = std::mem::take(task.result.as_mut().expect("the read came back"));
            (entries, task.error, task.skip, state)
        };
        let count = entries.len();
        let mut released = 0;
        if let Some(error) = error {
            let dropped =
                replicator.planted == Planted::NoRewindWhileDisconnected && state == State::Disconnected;
            self.rewind |= error == ReadError::Rejected && !dropped;
            if state == State::Started {
                replicator.arm_timer();
            }
        } else if state.is_terminal() || skip {
            released = count;
            drop(entries);
            self.rewind |= !state.is_terminal();
        } else {
            for entry in entries {
                replicator.world.send(&entry);
            }
        }
        let mut monitor = replicator.monitor.lock();
        if let Some(task) = monitor.task(id) {
            task.completed += released;
            task.submitted = true;
            self.read |= error.is_none() && !task.skip;
        }
        monitor.recycle();
    }

    fn read(&mut self) {
        self.read = false;
        let replicator = Arc::clone(&self.replicator);
        let id = {
            let mut monitor = replicator.monitor.lock();
            let id = monitor.next_id;
            monitor.next_id += 1;
            monitor.tasks.push_back(Task {
                id,
                requested: 100,
                result: None,
                error: None,
                entries: 0,
                completed: 0,
                submitted: false,
                skip: false,
            });
            replicator.most_tasks.fetch_max(monitor.tasks.len(), Ordering::Relaxed);
            id
        };
        let callback = Arc::clone(&replicator);
        let called =
            catch(|| replicator.world.read_or_wait(Box::new(move |result| callback.on_read(id, result))));
        if let Err(error) = called {
            discard(error);
            let came_back = replicator.monitor.lock().task(id).is_none_or(|task| task.result.is_some());
            if !came_back {
                replicator.on_read(id, Err(ReadError::TooManyRequests));
            }
        }
    }
}

impl Work for Owner {
    fn step(&mut self, _turn: &Turn<Self>, demand: Demand) -> Next {
        self.read |= demand.contains(READ);
        self.cancel |= demand.contains(CANCEL);
        self.rewind |= demand.contains(REWIND);
        if std::mem::take(&mut self.cancel) {
            self.cancel();
            return Next::Again;
        }
        let (oldest, state) = self.oldest();
        match oldest {
            Oldest::Pending(_) if self.replicator.planted == Planted::NoShortcutWhilePending => {
                return Next::Idle;
            }
            Oldest::Pending(_) => return Next::Wait,
            Oldest::Result { good: true, .. } if state == State::Disconnected => return self.hold(state),
            Oldest::Result { id, .. } => {
                self.process(id);
                return Next::Again;
            }
            Oldest::None => {}
        }
        if std::mem::take(&mut self.rewind) && !state.is_terminal() {
            self.replicator.world.rewind();
            return Next::Again;
        }
        if state == State::Terminating {
            self.replicator.end();
        }
        let held = self.replicator.monitor.lock().rewind_holds > 0;
        if !self.read || state.is_terminal() || held {
            return Next::Idle;
        }
        if state != State::Started {
            return self.hold(state);
        }
        self.read();
        Next::Again
    }

    fn panicked(&mut self, _turn: &Turn<Self>, _panicked: Panicked<'_>) -> Recovery {
        if self.replicator.state().is_terminal() {
            self.replicator.end();
            return Recovery::Contain(Demand::NONE);
        }
        self.replicator.recover();
        Recovery::Contain(CANCEL | REWIND)
    }

    fn stranded(mut stranded: Stranded<Self>) {
        // No step and no cursor call on the thread that was refused.
        stranded.ownership.with(|owner| owner.replicator.end());
    }
}
