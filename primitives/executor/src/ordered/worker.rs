//! One worker: its queue, its thread, and what it tells of itself.

use std::cell::Cell;
use std::fmt;
use std::ptr;
use std::time::Duration;

use crossbeam_utils::CachePadded;
use folio_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use folio_sync::time::{Clock, Instant};
use folio_sync::{Arc, Executor, Job, Mutex, Rejected, SerialExecutor, hint, step, thread, unwind};

use super::JobPanic;
use crate::queue::word::{CLOSED, MOST, QUEUED, SHUT};
use crate::queue::{Next, Pushed, Queue, Turn};

/// Jobs in a block of a worker's queue.
const BLOCK: usize = 64;

/// Jobs that an unbounded worker takes before it tells the queue that they are done.
const BATCH: u32 = 64;

folio_sync::thread_local! {
    /// The worker whose thread this is.
    static CURRENT: Cell<*const ()> = Cell::new(ptr::null());
}

/// What a worker and its handles share.
pub(super) struct Shared {
    queue: Queue<Job, BLOCK>,
    name: String,
    /// The most jobs queued; `None` for no bound.
    capacity: Option<u32>,
    /// Spin hints before the worker parks.
    spins: u32,
    clock: Option<Arc<dyn Clock>>,
    panicked: Arc<dyn Fn(JobPanic) + Send + Sync>,
    /// Set before the word's `SHUT`: by it a running batch stops early. The word decides.
    stop: AtomicBool,
    figures: CachePadded<Figures>,
    /// The jobs that were queued when the worker was shut down; `None` once nobody can come for them.
    unrun: Mutex<Option<Vec<Job>>>,
}

/// Written by the worker alone, read by anybody; every number is Relaxed and publishes nothing.
#[derive(Default)]
struct Figures {
    jobs: AtomicU64,
    batches: AtomicU64,
    busy_nanos: AtomicU64,
    /// When the worker last began to be busy, in nanoseconds of its clock; 0 while it is parked.
    busy_since: AtomicU64,
}

impl Figures {
    /// Adds to a number that only this thread writes.
    fn add(number: &AtomicU64, more: u64) {
        // Relaxed, both: see the struct.
        number.store(number.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
    }
}

impl Shared {
    pub(super) fn new(
        name: String,
        capacity: Option<u32>,
        spins: u32,
        clock: Option<Arc<dyn Clock>>,
        panicked: Arc<dyn Fn(JobPanic) + Send + Sync>,
    ) -> Self {
        Self {
            queue: Queue::new(),
            name,
            capacity,
            spins,
            clock,
            panicked,
            stop: AtomicBool::new(false),
            figures: CachePadded::new(Figures::default()),
            unrun: Mutex::new(Some(Vec::new())),
        }
    }

    fn identity(&self) -> *const () {
        ptr::from_ref(self).cast()
    }

    fn now(&self) -> Instant {
        let Some(clock) = &self.clock else { return Instant::ORIGIN };
        // A clock that panics measures nothing, and takes no worker down.
        unwind::catch(|| clock.now()).unwrap_or_else(|payload| {
            self.report(payload);
            Instant::ORIGIN
        })
    }

    /// The worker's thread: runs jobs until the queue is closed and empty.
    pub(super) fn work(&self) {
        CURRENT.with(|current| current.set(self.identity()));
        self.begin_busy();
        loop {
            if let Some(turn) = self.queue.begin() {
                self.run(turn);
            } else if self.is_over() {
                break;
            } else if !self.spin() {
                self.park();
            }
        }
        // Nothing that destructors of the thread still do belongs to a job: it would find nobody to run it.
        CURRENT.with(|current| current.set(ptr::null()));
        self.end_busy();
    }

    /// Whether nothing is pending and nothing more can come.
    fn is_over(&self) -> bool {
        let word = self.queue.word();
        word.has(CLOSED) && word.pending() == 0
    }

    /// Looks for work a bounded number of times; whether there is some.
    fn spin(&self) -> bool {
        for _ in 0..self.spins {
            if self.queue.word().has(QUEUED) {
                return true;
            }
            hint::spin_loop();
        }
        false
    }

    /// Parks until somebody unparks the thread. Whoever sets `QUEUED` or `CLOSED` does so afterwards.
    fn park(&self) {
        self.end_busy();
        step!("worker.park", thread::park());
        self.begin_busy();
    }

    fn begin_busy(&self) {
        // Relaxed: see `Figures`.
        self.figures.busy_since.store(self.now().as_nanos().max(1), Ordering::Relaxed);
    }

    fn end_busy(&self) {
        // Relaxed: see `Figures`.
        let since = Instant::from_nanos(self.figures.busy_since.load(Ordering::Relaxed));
        let busy = self.now().since(since).as_nanos();
        // Relaxed: see `Figures`.
        self.figures.busy_since.store(0, Ordering::Relaxed);
        Figures::add(&self.figures.busy_nanos, u64::try_from(busy).unwrap_or(u64::MAX));
    }

    /// Runs what was pending when the turn began, up to the size of a batch.
    fn run(&self, mut turn: Turn<'_, Job, BLOCK>) {
        // A bounded queue hears of each job as it is done, since its room is asked for.
        let most = if self.capacity.is_some() { 1 } else { BATCH };
        let mut count = 0;
        // Relaxed: a hint to stop early; the word's `SHUT` decides.
        while count < most && !turn.is_shut() && !self.stop.load(Ordering::Relaxed) {
            let Next::Item(job, _) = turn.next() else { break };
            count += 1;
            if let Err(payload) = unwind::catch(|| job.run()) {
                self.report(payload);
            }
        }
        Figures::add(&self.figures.jobs, u64::from(count));
        Figures::add(&self.figures.batches, 1);
        let mut unrun = Vec::new();
        // Relaxed: as above.
        if turn.is_shut() || self.stop.load(Ordering::Relaxed) {
            while let Next::Item(job, _) = turn.next() {
                unrun.push(job);
            }
            if let Some(kept) = self.unrun.lock().as_mut() {
                kept.append(&mut unrun);
            }
        }
        // If something is left the flag is set, or the writer of an awaited slot will set it and unpark this thread.
        let _next = turn.end();
        drop_each(unrun);
    }

    /// Takes the jobs that did not run; those that come later are dropped.
    pub(super) fn take_unrun(&self) -> Vec<Job> {
        self.unrun.lock().take().unwrap_or_default()
    }

    fn report(&self, payload: unwind::Payload) {
        let panic = JobPanic { worker: self.name.clone(), payload };
        if let Err(again) = unwind::catch(|| (self.panicked)(panic)) {
            unwind::discard(again);
        }
    }
}

/// Drops jobs that nobody can have back. Their owners' code must not stop the next one from being dropped.
pub(super) fn drop_each(jobs: Vec<Job>) {
    for job in jobs {
        if let Err(payload) = unwind::catch(|| drop(job)) {
            unwind::discard(payload);
        }
    }
}

/// One serial worker of an [`OrderedExecutor`](super::OrderedExecutor): a handle, cheap to clone.
///
/// It outlives the executor, and then refuses every job as closed.
#[derive(Clone)]
pub struct Worker {
    pub(super) shared: Arc<Shared>,
    pub(super) thread: thread::Thread,
}

impl Worker {
    /// The name of the worker and of its thread.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// How many jobs are queued, those being run among them.
    pub fn depth(&self) -> usize {
        self.shared.queue.word().pending() as usize
    }

    /// How many jobs have been run, as of the last batch.
    pub fn jobs(&self) -> u64 {
        // Relaxed: see `Figures`.
        self.shared.figures.jobs.load(Ordering::Relaxed)
    }

    /// How many times the worker took what was queued and ran it.
    pub fn batches(&self) -> u64 {
        // Relaxed: see `Figures`.
        self.shared.figures.batches.load(Ordering::Relaxed)
    }

    /// How long the worker has not been parked.
    ///
    /// It looks at the clock only around parking. Read while the worker goes to park or comes from it, the figure can be off by the stretch that ends or begins there.
    pub fn busy(&self) -> Duration {
        let figures = &self.shared.figures;
        // Relaxed, both: see `Figures`.
        let nanos = figures.busy_nanos.load(Ordering::Relaxed);
        let since = figures.busy_since.load(Ordering::Relaxed);
        let now =
            if since == 0 { Duration::ZERO } else { self.shared.now().since(Instant::from_nanos(since)) };
        Duration::from_nanos(nanos) + now
    }

    pub(super) fn close(&self) {
        self.shared.queue.set(CLOSED);
        self.thread.unpark();
    }

    pub(super) fn shut(&self) {
        // Relaxed: a hint to stop early; the word's `SHUT` decides.
        self.shared.stop.store(true, Ordering::Relaxed);
        self.shared.queue.set(CLOSED | SHUT);
        self.thread.unpark();
    }

    /// Wakes the thread if the push found nobody awake to see it.
    fn see_to(&self, pushed: Pushed) {
        match pushed {
            Pushed::MustSchedule(_) => step!("worker.unpark", self.thread.unpark()),
            Pushed::Joined => {}
        }
    }
}

impl Executor for Worker {
    fn submit(&self, job: Job) -> Result<(), Rejected<Job>> {
        let pushed = self.shared.queue.push(job, 0, self.shared.capacity.unwrap_or(MOST))?;
        self.see_to(pushed);
        Ok(())
    }
}

impl SerialExecutor for Worker {
    fn is_current(&self) -> bool {
        // A thread that exits is no worker's any more.
        CURRENT.try_with(Cell::get).is_ok_and(|current| current == self.shared.identity())
    }

    /// Takes the continuation of the running job, also when the worker is full or closed: a graceful end runs it.
    fn resubmit(&self, job: Job) -> Result<(), Rejected<Job>> {
        if !self.is_current() {
            return self.submit(job);
        }
        // The running job is pending until its batch ends, so the thread looks at the queue again.
        let pushed = self.shared.queue.push_continuation(job)?;
        self.see_to(pushed);
        Ok(())
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker")
            .field("name", &self.name())
            .field("depth", &self.depth())
            .finish_non_exhaustive()
    }
}
