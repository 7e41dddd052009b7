//! The dispatcher of a subscription: a turn that reads from the cursor and gives to consumers.
//!
//! # Protocol
//! One owner at a time takes the steps; everybody else leaves demand: MORE when the ledger has entries, FLOW when a consumer gave permits, RESULT when a
//! read came back, CLOSE at the end. What belongs to the demand is somewhere before it is recorded: permits in their consumer's counter, the result in
//! the mailbox. At most one read is outstanding. A consumer without permits has its messages *held*, in order, and so has what comes after them;
//! at the limit of held messages nothing is read. Closing raises a flag before it records CLOSE; the flag is looked at before each call of a consumer.
//!
//! | step | of | by |
//! |---|---|---|
//! | `grant` | a consumer's permits | whoever gives them, before FLOW |
//! | `take` | a consumer's permits | the owner, at any demand |
//! | `post` | the mailbox | whoever completes the read, before RESULT |
//! | `fetch` | the mailbox | the owner, at RESULT |
//! | `close` | the flag | whoever closes, before CLOSE |
//!
//! After a read that failed a timer leaves RETRY; any other reason to dispatch may read again before. A turn that the executor does not take keeps its
//! demand, and nobody's ownership: the next demand schedules it, or a timer that is set then, at most one at a time.

use std::collections::VecDeque;

use folio_ledger::{Cursor, ReadError, Wait};
use folio_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use folio_sync::timers::{TimerId, Timers};
use folio_sync::{Arc, Executor, Mutex, RejectReason, step, unwind};
use folio_turn::{Demand, Next, Panicked, Recovery, Stranded, Turn, Why, Work};

use crate::consumer::{Consumer, Message};
use crate::notifier::Notifier;
use crate::retry::{Backoff, cancel, later};
use crate::selector::Selector;
use crate::subscription::SubscriptionOptions;

/// The ledger has more entries.
pub(crate) const MORE: Demand = Demand::soft(0);
/// A consumer gave permits.
pub(crate) const FLOW: Demand = Demand::soft(1);
/// It is time to read again after a failure.
const RETRY: Demand = Demand::soft(2);
/// The read that is outstanding came back.
const RESULT: Demand = Demand::urgent(0);
/// Nothing is to be delivered any more.
pub(crate) const CLOSE: Demand = Demand::urgent(1);

/// A consumer, and the permits it gave that the dispatcher has not taken yet.
pub(crate) struct Slot {
    pub(crate) consumer: Arc<dyn Consumer>,
    pub(crate) granted: AtomicU64,
}

/// What the dispatcher, the handle and the listener share.
pub(crate) struct Shared {
    pub(crate) cursor: Cursor,
    pub(crate) slots: Vec<Slot>,
    pub(crate) executor: Arc<dyn Executor>,
    timers: Arc<dyn Timers>,
    notifier: Arc<Notifier>,
    /// Nothing is to be delivered any more.
    closed: AtomicBool,
    /// The result of the read that came back.
    mailbox: Mutex<Option<Result<Vec<Message>, ReadError>>>,
    pub(crate) delivered: AtomicU64,
    pub(crate) held: AtomicU64,
}

impl Shared {
    pub(crate) fn new(
        cursor: Cursor,
        slots: Vec<Slot>,
        executor: Arc<dyn Executor>,
        timers: Arc<dyn Timers>,
        notifier: Arc<Notifier>,
    ) -> Self {
        Self {
            cursor,
            slots,
            executor,
            timers,
            notifier,
            closed: AtomicBool::new(false),
            mailbox: Mutex::default(),
            delivered: AtomicU64::new(0),
            held: AtomicU64::new(0),
        }
    }

    /// Nothing is delivered any more; CLOSE is recorded after this.
    pub(crate) fn close(&self) {
        // Relaxed: a flag that publishes nothing; who takes the demand that is recorded after it sees it.
        step!("dispatch.close", self.closed.store(true, Ordering::Relaxed));
    }

    /// Looked at before each call of a consumer.
    fn is_closed(&self) -> bool {
        // Relaxed: as above.
        self.closed.load(Ordering::Relaxed)
    }

    /// The consumers, as long as the subscription is open.
    fn open_slots(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter().take_while(|_| !self.is_closed())
    }
}

/// Leaves demand, and has the turn run on its executor if nobody runs it.
pub(crate) fn demand(turn: &Turn<Dispatch>, executor: &dyn Executor, demand: Demand) {
    if turn.record(demand).must_run()
        && let Err(stranded) = turn.schedule(executor)
    {
        stranded.settle();
    }
}

/// How messages find their consumers.
pub(crate) enum Mode {
    /// All to the only one.
    Exclusive,
    /// By key.
    KeyShared(Selector),
}

/// A consumer as the owner of the turn sees it.
#[derive(Default)]
struct Outlet {
    permits: u64,
    /// Messages that wait for permits, in order.
    held: VecDeque<Message>,
    /// Messages to deliver in this step.
    out: Vec<Message>,
}

/// The state of the turn.
pub(crate) struct Dispatch {
    shared: Arc<Shared>,
    mode: Mode,
    outlets: Vec<Outlet>,
    read_batch: usize,
    max_held: usize,
    max_held_bytes: usize,
    held: usize,
    held_bytes: usize,
    /// A read is outstanding; it began here.
    reading: Option<i64>,
    /// The timer for another read after one that failed.
    retry: Option<TimerId>,
    backoff: Backoff,
    /// Room for the next read.
    buffer: Vec<Message>,
    told_end: bool,
}

impl Dispatch {
    pub(crate) fn new(shared: Arc<Shared>, mode: Mode, options: &SubscriptionOptions) -> Self {
        let outlets = shared.slots.iter().map(|_| Outlet::default()).collect();
        Self {
            shared,
            mode,
            outlets,
            read_batch: options.read_batch.max(1),
            max_held: options.max_held.max(1),
            max_held_bytes: options.max_held_bytes.max(1),
            held_bytes: 0,
            held: 0,
            reading: None,
            retry: None,
            backoff: Backoff::new(options.retry_first, options.retry_most),
            buffer: Vec::new(),
            told_end: false,
        }
    }

    /// Takes the permits that consumers gave, and releases what waited for them.
    fn take_permits(&mut self) {
        for (slot, outlet) in self.shared.slots.iter().zip(&mut self.outlets) {
            // Relaxed, both: a number; the demand that came with it orders nothing else.
            if slot.granted.load(Ordering::Relaxed) != 0 {
                let given = step!("dispatch.take", slot.granted.swap(0, Ordering::Relaxed));
                outlet.permits = outlet.permits.saturating_add(given);
            }
            let released = usize::try_from(outlet.permits).unwrap_or(usize::MAX).min(outlet.held.len());
            outlet.permits -= released as u64;
            self.held -= released;
            for message in outlet.held.drain(..released) {
                self.held_bytes -= message.payload.len();
                outlet.out.push(message);
            }
        }
    }

    /// Sends the messages of a read to their consumers' outlets.
    fn route(&mut self, messages: &mut Vec<Message>) {
        for message in messages.drain(..) {
            let at = match &self.mode {
                Mode::Exclusive => 0,
                Mode::KeyShared(selector) => selector.select(&message.payload),
            };
            let outlet = &mut self.outlets[at];
            if outlet.permits == 0 || !outlet.held.is_empty() {
                self.held += 1;
                self.held_bytes += message.payload.len();
                // Held messages have a bound of their own: others' reads do not wait for them.
                outlet.held.push_back(Message::new(message.position, message.payload));
            } else {
                outlet.permits -= 1;
                outlet.out.push(message);
            }
        }
    }

    /// Gives the outlets' messages to the consumers.
    fn deliver(&mut self) {
        let mut delivered = 0;
        for (slot, outlet) in self.shared.slots.iter().zip(&mut self.outlets) {
            if !outlet.out.is_empty() && !self.shared.is_closed() {
                delivered += outlet.out.len() as u64;
                contained(|| slot.consumer.deliver(&mut outlet.out));
                contained(|| outlet.out.clear());
            }
        }
        // Relaxed, both: statistics, and this owner's alone.
        self.shared.delivered.fetch_add(delivered, Ordering::Relaxed);
        self.shared.held.store(self.held as u64, Ordering::Relaxed);
    }

    /// How many messages to read next.
    fn wanted(&self) -> usize {
        let permits = self.outlets.iter().fold(0_u64, |sum, outlet| sum.saturating_add(outlet.permits));
        if permits == 0 {
            return 0;
        }
        match self.mode {
            Mode::Exclusive => self.read_batch.min(usize::try_from(permits).unwrap_or(usize::MAX)),
            Mode::KeyShared(_) if self.held_bytes >= self.max_held_bytes => 0,
            Mode::KeyShared(_) => self.read_batch.min(self.max_held.saturating_sub(self.held)),
        }
    }

    /// Begins a read, whose result may be here when this returns.
    fn read(&mut self, turn: &Turn<Self>, most: usize) {
        self.reading = Some(self.shared.cursor.position());
        let (turn, shared) = (turn.clone(), Arc::clone(&self.shared));
        self.shared.cursor.read(most, std::mem::take(&mut self.buffer), move |result| {
            step!("dispatch.post", *shared.mailbox.lock() = Some(result));
            demand(&turn, &*shared.executor, RESULT);
        });
    }

    fn came_back(&mut self, result: Result<Vec<Message>, ReadError>) {
        let began = self.reading.take();
        match result {
            Ok(mut messages) => {
                self.forget_retry();
                self.backoff.ease();
                self.take_permits();
                self.route(&mut messages);
                self.buffer = messages;
                self.deliver();
            }
            Err(error) => {
                if let Some(entry) = began {
                    self.shared.cursor.seek(entry);
                }
                self.read_later();
                self.shared.open_slots().for_each(|slot| contained(|| slot.consumer.read_failed(&error)));
            }
        }
    }

    /// Has a timer read again, unless one is set already.
    fn read_later(&mut self) {
        if self.retry.is_none() {
            // The notifier forgets the turn as the subscription is closed: the timer keeps nothing alive.
            let notifier = Arc::clone(&self.shared.notifier);
            self.retry = later(&*self.shared.timers, self.backoff.next(), move || notifier.tell(RETRY));
        }
    }

    fn forget_retry(&mut self) {
        if let Some(timer) = self.retry.take() {
            cancel(&*self.shared.timers, timer);
        }
    }

    fn tell_end(&mut self) {
        if !std::mem::replace(&mut self.told_end, true) {
            self.shared.open_slots().for_each(|slot| contained(|| slot.consumer.ended()));
        }
    }

    /// Drops the messages that nobody gets any more.
    fn let_go(&mut self) {
        self.forget_retry();
        let result = self.shared.mailbox.lock().take();
        let messages = (std::mem::take(&mut self.outlets), std::mem::take(&mut self.buffer));
        (self.held, self.held_bytes) = (0, 0);
        // Relaxed: a statistic, and this owner's alone.
        self.shared.held.store(0, Ordering::Relaxed);
        contained(|| drop((result, messages)));
    }
}

/// Calls a consumer; its panic ends here.
fn contained(call: impl FnOnce()) {
    if let Err(payload) = unwind::catch(call) {
        unwind::discard(payload);
    }
}

impl Work for Dispatch {
    fn step(&mut self, turn: &Turn<Self>, demand: Demand) -> Next {
        if self.shared.is_closed() {
            self.let_go();
            return Next::Idle;
        }
        if demand.contains(RETRY) {
            self.retry = None;
        }
        if demand.contains(RESULT) {
            let result = step!("dispatch.fetch", self.shared.mailbox.lock().take());
            let failed = matches!(result, Some(Err(_)));
            if let Some(result) = result {
                self.came_back(result);
            }
            // What failed once may fail again at once: the timer is waited for, or another reason to dispatch.
            return if failed { Next::Idle } else { Next::Again };
        }
        if self.reading.is_some() {
            return Next::Wait;
        }
        self.take_permits();
        self.deliver();
        // Asked for also without permits: who has all messages is told of the end.
        match self.shared.cursor.wait() {
            Wait::More => match self.wanted() {
                0 => Next::Idle,
                most => {
                    self.read(turn, most);
                    Next::Again
                }
            },
            Wait::Waiting => Next::Idle,
            Wait::Closed => {
                if self.held == 0 {
                    self.tell_end();
                }
                Next::Idle
            }
        }
    }

    fn panicked(&mut self, _turn: &Turn<Self>, panicked: Panicked<'_>) -> Recovery {
        // Consumers' panics never come here; what had been asked is asked again.
        Recovery::Contain(panicked.demand)
    }

    fn stranded(stranded: Stranded<Self>) {
        let Stranded { mut ownership, why, .. } = stranded;
        let (shared, closed) = ownership.with(|dispatch| {
            let closed = dispatch.shared.is_closed();
            if closed {
                dispatch.let_go();
            }
            (Arc::clone(&dispatch.shared), closed)
        });
        // What was asked stays recorded, and the timer comes after this: it finds the turn without an owner.
        drop(ownership);
        // From an executor that is closed nothing comes any more.
        if !closed && why != Why::Refused(RejectReason::Closed) {
            Notifier::offer_later(&shared.notifier, &*shared.timers);
        }
    }
}
