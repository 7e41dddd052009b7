//! A budget for the bytes that reads have in flight.
//!
//! # Guarantees
//! *Exactly once.* A request ends in one way: it has its permit at once, it is refused at once, or its callback runs once, with a permit or with an
//! error. The bytes of a permit come back once, when it is dropped, on whatever path that happens.
//!
//! *Order.* First come, first served: those that are queued are granted in their order, and one that does not fit yet holds up all behind it. A new
//! request goes past the queue never, so that a large one is not starved by small ones. One above the whole budget is cut down to it, by the budget
//! of the moment when it is granted.
//!
//! *Callbacks.* No callback and no destructor of one runs under the lock, nor inside another callback on the same thread: what a callback gives back
//! is granted to others when it has returned, so that a chain of grants does not nest. One that panics harms nobody; its permit comes back.
//!
//! *Progress.* With room in the budget and nobody queued, acquiring and giving back are lock-free: one read-modify-write each. Where somebody is queued,
//! both take a lock for the time of a map operation for each request that is granted.
//!
//! *Memory.* Nothing is allocated for a permit. A queued request has its callback in a box, an entry of a map and a timer.
//!
//! # Protocol
//! One word decides: the bytes that are out, and whether requests are *held up*. Rows with a star happen under the lock of the queue.
//!
//! | step | from | to | by |
//! |---|---|---|---|
//! | `take` | not held up, and it fits | more bytes out | a request |
//! | `take_or_hold_up` \* | not held up | more bytes out if it fits, else held up | a request that found no room, before it queues |
//! | `grant` \* | held up, and the first one fits | more bytes out | whoever gave bytes back, took a request out, or changed the budget |
//! | `let_go` \* | held up, nobody queued | not held up | the same |
//! | `hold_up` \* | any | held up, for good | `close` |
//! | `give_back` | any | fewer bytes out | a permit that is dropped; if it finds requests held up, it grants |
//!
//! Nobody is forgotten: who queues has marked the word by the same read-modify-write by which it found no room, so whatever comes back later
//! meets the mark. A request is in the queue until one thread takes it out under the lock: to grant it, as its time is over, as its timer
//! was refused, or to close. Its timer is set after it has queued, and names it by a number that no other one gets; a timer that is dropped unrun
//! ends its request as well, so that none waits without one.
//!
//! # Orderings
//! | operation | word | ordering | pairs with | why |
//! |---|---|---|---|---|
//! | all | the word | Relaxed | | a number that publishes nothing, changed by read-modify-writes only; what is queued is published by the lock |
//! | load, store | budget, counters | Relaxed | | numbers; the budget is stored under the lock, and read there by whoever queues |
//!
//! # Limits
//! Without a limit, up to 2^63 - 1 bytes can be out. A callback must not block: it holds up the others that its thread has to call.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::time::Duration;

use folio_sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use folio_sync::timers::{TimerId, Timers};
use folio_sync::{Arc, Job, Mutex, step};

mod due;
mod word;

use due::{Due, Granted};
use word::Word;

/// Settings of [`ReadPermits`]; all can be changed while they are in use.
///
/// ```
/// use folio_cache::PermitOptions;
///
/// let mut options = PermitOptions::default();
/// assert_eq!((options.budget, options.max_queued), (64 << 20, 50_000));
/// options.budget = 0; // no limit
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PermitOptions {
    /// How many bytes may be out at a time; 64 MiB by default, 0 for no limit.
    pub budget: u64,
    /// How many requests wait at most; 50,000 by default.
    pub max_queued: usize,
    /// How long a request waits at most; 60 seconds by default, `None` for as long as it takes.
    pub timeout: Option<Duration>,
}

impl Default for PermitOptions {
    fn default() -> Self {
        Self { budget: 64 << 20, max_queued: 50_000, timeout: Some(Duration::from_secs(60)) }
    }
}

/// Why there is no permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PermitError {
    /// It waited as long as a request may, or the timers were given up.
    TimedOut,
    /// As many requests are waiting as may.
    QueueFull,
    /// It would have to wait, and the timers take no timer.
    NoTimer,
    /// The permits were closed.
    Closed,
}

impl fmt::Display for PermitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TimedOut => "too many bytes are in flight: waited in vain, try again later",
            Self::QueueFull => "too many reads are waiting for others: try again later",
            Self::NoTimer => {
                "too many bytes are in flight, and no timer could be set for waiting: try again later"
            }
            Self::Closed => "the read permits are closed",
        })
    }
}

impl std::error::Error for PermitError {}

/// What became of a request.
#[derive(Debug)]
#[must_use = "a permit that is dropped is given back"]
pub enum Acquired {
    /// Here it is; the callback was dropped.
    Now(Permit),
    /// It waits; the callback will run.
    Queued,
}

/// How the bytes in flight stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PermitSnapshot {
    /// Bytes that are out.
    pub in_use: u64,
    /// Requests that wait.
    pub queued: usize,
    /// Requests that had to wait, so far.
    pub ever_queued: u64,
    /// Requests that waited in vain, so far.
    pub timed_out: u64,
    /// Requests that were refused at once, so far.
    pub refused: u64,
}

/// A budget of bytes that many reads share.
///
/// A handle: clones share one budget. See the [module](crate::permits) for what it promises.
///
/// ```
/// use std::sync::mpsc;
///
/// use folio_cache::{Acquired, PermitOptions, ReadPermits};
/// use folio_sync::arc_dyn;
/// use folio_sync::timers::{ThreadTimers, Timers};
///
/// let mut options = PermitOptions::default();
/// options.budget = 100;
/// let permits = ReadPermits::new(options, arc_dyn!(ThreadTimers::new() => dyn Timers));
///
/// let Acquired::Now(first) = permits.acquire(70, |_| unreachable!())? else { panic!("there is room") };
/// let (tell, told) = mpsc::channel();
/// let second = permits.acquire(50, move |granted| tell.send(granted).unwrap())?;
/// assert!(matches!(second, Acquired::Queued));
///
/// drop(first);
/// let second = told.recv().unwrap()?;
/// assert_eq!((second.bytes(), permits.available()), (50, 50));
/// # Ok::<(), folio_cache::PermitError>(())
/// ```
#[derive(Clone)]
pub struct ReadPermits(Arc<Shared>);

struct Shared {
    word: Word,
    /// What may be out: [`word::MOST`] without a limit. Changed under the lock.
    budget: AtomicU64,
    /// How many are queued; as of the last change under the lock.
    queued: AtomicUsize,
    ever_queued: AtomicU64,
    timed_out: AtomicU64,
    refused: AtomicU64,
    /// Held for operations on the queue only: no timer is set, nothing of a user called or dropped under it.
    state: Mutex<State>,
    timers: Arc<dyn Timers>,
}

struct State {
    /// By ticket: the order in which they came. As long as there is one, the word says that requests are held up.
    queue: BTreeMap<u64, Waiter>,
    last_ticket: u64,
    max_queued: usize,
    timeout: Option<Duration>,
    closed: bool,
}

struct Waiter {
    /// As asked for; cut down when it is granted.
    bytes: u64,
    granted: Granted,
    /// Once it is set, which it is after the waiter was queued.
    timer: Option<TimerId>,
}

/// What looking for room under the lock came to.
enum Entered {
    Granted(Permit),
    Queued { ticket: u64, timeout: Option<Duration> },
}

/// How much may be out; 0 stands for no limit.
fn limit(budget: u64) -> u64 {
    if budget == 0 { word::MOST } else { budget.min(word::MOST) }
}

impl Shared {
    fn budget(&self) -> u64 {
        // Relaxed: see the module.
        self.budget.load(Ordering::Relaxed)
    }

    fn permit(shared: &Arc<Self>, bytes: u64) -> Permit {
        Permit { shared: Arc::clone(shared), bytes }
    }

    fn count(counter: &AtomicU64) {
        // Relaxed: see the module.
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Looks again, under the lock, and queues the callback if there is no room.
    fn enter(shared: &Arc<Self>, bytes: u64, granted: &mut Option<Granted>) -> Result<Entered, PermitError> {
        let mut state = shared.state.lock();
        if state.closed {
            return Err(PermitError::Closed);
        }
        let budget = shared.budget();
        let cut = bytes.min(budget);
        let has_room = state.queue.len() < state.max_queued;
        if state.queue.is_empty() {
            let fits = if has_room {
                step!("permits.hold_up", shared.word.take_or_hold_up(cut, budget))
            } else {
                shared.word.take(cut, budget)
            };
            if fits {
                return Ok(Entered::Granted(Self::permit(shared, cut)));
            }
        }
        let Some(granted) = granted.take_if(|_| has_room) else {
            return Err(PermitError::QueueFull);
        };
        state.last_ticket += 1;
        let ticket = state.last_ticket;
        state.queue.insert(ticket, Waiter { bytes, granted, timer: None });
        shared.tell_queued(&state);
        Self::count(&shared.ever_queued);
        Ok(Entered::Queued { ticket, timeout: state.timeout })
    }

    fn tell_queued(&self, state: &State) {
        // Relaxed: see the module.
        self.queued.store(state.queue.len(), Ordering::Relaxed);
    }

    /// Sets the timer of a waiter, or takes it out again if there is none to be had.
    fn set_timer(shared: &Arc<Self>, ticket: u64, timeout: Duration) -> Result<(), PermitError> {
        let expiry = Expiry { shared: Arc::clone(shared), ticket };
        let set = shared.timers.once(timeout, Job::new(move || drop(expiry)));
        match set {
            Ok(timer) => {
                let waits = match shared.state.lock().queue.get_mut(&ticket) {
                    Some(waiter) => {
                        waiter.timer = Some(timer);
                        true
                    }
                    None => false,
                };
                if !waits {
                    drop(shared.timers.cancel(timer));
                }
                Ok(())
            }
            Err(rejected) => {
                let mut due = VecDeque::new();
                let taken = Self::take_out(shared, ticket, &mut due);
                due::settle(due);
                // Its expiry finds nobody.
                drop(rejected);
                if taken.is_some() { Err(PermitError::NoTimer) } else { Ok(()) }
            }
        }
    }

    /// Takes a waiter out of the queue, if it is there, and whoever fits now that it is gone.
    fn take_out(shared: &Arc<Self>, ticket: u64, due: &mut VecDeque<Due>) -> Option<Waiter> {
        let mut state = shared.state.lock();
        let waiter = step!("permits.take_out", state.queue.remove(&ticket))?;
        Self::take_due(shared, &mut state, due);
        Some(waiter)
    }

    /// Takes those at the head of the queue out that fit.
    fn take_due(shared: &Arc<Self>, state: &mut State, due: &mut VecDeque<Due>) {
        let budget = shared.budget();
        while let Some(first) = state.queue.first_entry() {
            let bytes = first.get().bytes.min(budget);
            if !step!("permits.grant", shared.word.grant(bytes, budget)) {
                break;
            }
            due.push_back(Due::new(shared, first.remove(), Ok(Self::permit(shared, bytes))));
        }
        if state.queue.is_empty() && !state.closed {
            shared.word.let_go();
        }
        shared.tell_queued(state);
    }

    fn change_budget(shared: &Arc<Self>, state: &mut State, bytes: u64) -> VecDeque<Due> {
        let mut due = VecDeque::new();
        // Relaxed: see the module.
        shared.budget.store(limit(bytes), Ordering::Relaxed);
        Self::take_due(shared, state, &mut due);
        due
    }

    /// Grants what fits.
    fn grant(shared: &Arc<Self>) {
        let mut due = VecDeque::new();
        Self::take_due(shared, &mut shared.state.lock(), &mut due);
        due::settle(due);
    }

    /// The time of a waiter is over, if it still waits.
    fn expire(shared: &Arc<Self>, ticket: u64) {
        let mut due = VecDeque::new();
        if let Some(waiter) = Self::take_out(shared, ticket, &mut due) {
            Self::count(&shared.timed_out);
            due.push_front(Due::new(shared, waiter, Err(PermitError::TimedOut)));
        }
        due::settle(due);
    }
}

/// The end of a waiter's time: its timer's job runs, or is dropped unrun.
struct Expiry {
    shared: Arc<Shared>,
    ticket: u64,
}

impl Drop for Expiry {
    fn drop(&mut self) {
        Shared::expire(&self.shared, self.ticket);
    }
}

impl ReadPermits {
    /// Permits that time out by these timers.
    pub fn new(options: PermitOptions, timers: Arc<dyn Timers>) -> Self {
        let PermitOptions { budget, max_queued, timeout } = options;
        Self(Arc::new(Shared {
            word: Word::new(),
            budget: AtomicU64::new(limit(budget)),
            queued: AtomicUsize::new(0),
            ever_queued: AtomicU64::new(0),
            timed_out: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            state: Mutex::new(State {
                queue: BTreeMap::new(),
                last_ticket: 0,
                max_queued,
                timeout,
                closed: false,
            }),
            timers,
        }))
    }

    /// A permit for this many bytes if there is room, and nobody waits; allocates nothing, and never waits.
    pub fn try_acquire(&self, bytes: u64) -> Option<Permit> {
        let budget = self.0.budget();
        let cut = bytes.min(budget);
        step!("permits.take", self.0.word.take(cut, budget)).then(|| Shared::permit(&self.0, cut))
    }

    /// Asks for this many bytes.
    ///
    /// If there is room, and nobody waits, the permit is in the answer, and `granted` is dropped. If there is not, `granted` runs once, later, with a
    /// permit or an error: on the thread that gave bytes back, changed the budget or closed the permits, or on that of the timers. It may acquire and
    /// drop permits; it must not block.
    ///
    /// # Memory
    /// Allocates only if the request has to wait.
    ///
    /// # Errors
    /// [`QueueFull`](PermitError::QueueFull), [`NoTimer`](PermitError::NoTimer) and [`Closed`](PermitError::Closed); `granted` was dropped and will not run.
    pub fn acquire(
        &self,
        bytes: u64,
        granted: impl FnOnce(Result<Permit, PermitError>) + Send + 'static,
    ) -> Result<Acquired, PermitError> {
        if let Some(permit) = self.try_acquire(bytes) {
            return Ok(Acquired::Now(permit));
        }
        let shared = &self.0;
        let mut granted: Option<Granted> = Some(Box::new(granted));
        let entered = Shared::enter(shared, bytes, &mut granted).and_then(|entered| match entered {
            Entered::Granted(permit) => Ok(Acquired::Now(permit)),
            Entered::Queued { ticket, timeout } => {
                timeout.map_or(Ok(()), |timeout| Shared::set_timer(shared, ticket, timeout))?;
                Ok(Acquired::Queued)
            }
        });
        if entered.is_err() {
            Shared::count(&shared.refused);
        }
        entered
    }

    /// Bytes that may still go out; `u64::MAX` without a limit.
    pub fn available(&self) -> u64 {
        match self.0.budget() {
            word::MOST => u64::MAX,
            budget => budget.saturating_sub(self.in_use()),
        }
    }

    /// Bytes that are out.
    pub fn in_use(&self) -> u64 {
        self.0.word.in_use()
    }

    /// Requests that wait.
    pub fn queued(&self) -> usize {
        // Relaxed: see the module.
        self.0.queued.load(Ordering::Relaxed)
    }

    /// How things stand: each number by itself, as of a moment within the call. Takes no lock.
    pub fn snapshot(&self) -> PermitSnapshot {
        // Relaxed, all: see the module.
        PermitSnapshot {
            in_use: self.in_use(),
            queued: self.queued(),
            ever_queued: self.0.ever_queued.load(Ordering::Relaxed),
            timed_out: self.0.timed_out.load(Ordering::Relaxed),
            refused: self.0.refused.load(Ordering::Relaxed),
        }
    }

    /// Sets how many bytes may be out; 0 for no limit.
    ///
    /// What is out stays out and counts: below that, nothing goes out before enough has come back. What fits now is granted.
    pub fn set_budget(&self, bytes: u64) {
        let due = Shared::change_budget(&self.0, &mut self.0.state.lock(), bytes);
        due::settle(due);
    }

    /// Sets everything; those that wait keep their timers, and none is sent away.
    pub fn set_options(&self, options: PermitOptions) {
        self.change(options)();
    }

    /// Sets everything; what is returned calls those who are granted, when nothing is locked.
    pub(crate) fn change(&self, options: PermitOptions) -> impl FnOnce() + use<> {
        let PermitOptions { budget, max_queued, timeout } = options;
        let mut state = self.0.state.lock();
        state.max_queued = max_queued;
        state.timeout = timeout;
        let due = Shared::change_budget(&self.0, &mut state, budget);
        || due::settle(due)
    }

    /// Takes no request again, and ends those that wait.
    ///
    /// Permits that are out stay good, and come back as ever.
    pub fn close(&self) {
        let waiting = {
            let mut state = self.0.state.lock();
            state.closed = true;
            self.0.word.hold_up();
            let waiting = std::mem::take(&mut state.queue);
            self.0.tell_queued(&state);
            waiting
        };
        let due = |waiter| Due::new(&self.0, waiter, Err(PermitError::Closed));
        due::settle(waiting.into_values().map(due).collect());
    }
}

impl fmt::Debug for ReadPermits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadPermits")
            .field("in_use", &self.in_use())
            .field("available", &self.available())
            .field("queued", &self.queued())
            .finish_non_exhaustive()
    }
}

/// Bytes that a read may have in flight; they come back when it is dropped.
///
/// An [`Arc`] of it rides on all entries of a batch, so that the bytes come back with the last one.
#[must_use = "a permit that is dropped is given back"]
pub struct Permit {
    shared: Arc<Shared>,
    bytes: u64,
}

impl Permit {
    /// How many: as many as were asked for, or the whole budget if that was less.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Gives back all but this many; does nothing if there are no more.
    pub fn shrink(&mut self, to: u64) {
        if let Some(excess) = self.bytes.checked_sub(to) {
            self.bytes = to;
            self.give_back(excess);
        }
    }

    fn give_back(&self, bytes: u64) {
        if bytes != 0 && step!("permits.give_back", self.shared.word.give_back(bytes)) {
            Shared::grant(&self.shared);
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.give_back(self.bytes);
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}
