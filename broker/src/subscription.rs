//! Subscriptions: a cursor, a dispatcher, and consumers.

use std::fmt;
use std::time::Duration;

use folio_ledger::Position;
use folio_sync::atomic::{AtomicU64, Ordering};
use folio_sync::timers::Timers;
use folio_sync::{Arc, Executor, arc_dyn, step};
use folio_turn::Turn;

use crate::consumer::Consumer;
use crate::dispatch::{CLOSE, Dispatch, FLOW, MORE, Mode, Shared, Slot, demand};
use crate::notifier::Notifier;
use crate::selector::{KeyOf, Selector};

/// How a subscription shares its messages out.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Kind {
    /// One consumer gets all of them, in order; a subscription that is given more is refused.
    ///
    /// Nothing is read that it has no permits for, so nothing is held for it. It is alone in this subscription only: another one of the same topic has
    /// all messages, too.
    Exclusive,
    /// Each consumer gets those of its own keys: a key always goes to the same one, in order.
    ///
    /// Reading goes on while any of them has permits; what comes for the others meanwhile is held, as many as
    /// [`max_held`](SubscriptionOptions::max_held).
    KeyShared {
        /// Finds the key in a payload.
        key_of: KeyOf,
    },
}

/// Where a subscription begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// With the first message of the topic that is still there.
    Earliest,
    /// With what is published from now on.
    Latest,
}

/// Settings of a subscription; what it was opened with never changes.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct SubscriptionOptions {
    /// How messages are shared out.
    pub kind: Kind,
    /// Where it begins.
    pub start: Start,
    /// How many messages are read at a time, at most; 1,000 by default, and at least 1.
    pub read_batch: usize,
    /// How many messages may be held for consumers without permits before nothing more is read; 20,000 by default, and at least 1.
    pub max_held: usize,
    /// How many bytes of payload may be held before nothing more is read; 64 MiB by default, and at least 1. One read more may be held beyond it.
    pub max_held_bytes: usize,
    /// How long after a read that failed it is repeated, unless permits or the like are a reason before; 15 seconds by default. Not 0.
    pub retry_first: Duration,
    /// How long at most, should it fail again: each time it is twice as long, until reads succeed; one minute by default. Not below the first.
    pub retry_most: Duration,
}

impl SubscriptionOptions {
    /// Of this kind, from the first message on, otherwise as by default.
    pub const fn new(kind: Kind) -> Self {
        Self {
            kind,
            start: Start::Earliest,
            read_batch: 1_000,
            max_held: 20_000,
            max_held_bytes: 64 << 20,
            retry_first: Duration::from_secs(15),
            retry_most: Duration::from_secs(60),
        }
    }
}

/// Why a subscription was not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SubscribeError {
    /// There is no consumer.
    NoConsumer,
    /// An exclusive subscription has one consumer, not so many.
    NotExclusive(usize),
    /// A key-shared subscription has at most 65,536 consumers, not so many.
    TooManyConsumers(usize),
    /// Reads that failed would be repeated at once, or sooner each time.
    RetryDelays,
}

impl fmt::Display for SubscribeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoConsumer => f.write_str("a subscription needs a consumer"),
            Self::NotExclusive(given) => write!(f, "an exclusive subscription has one consumer, not {given}"),
            Self::TooManyConsumers(given) => write!(f, "at most 65536 consumers share keys, not {given}"),
            Self::RetryDelays => {
                f.write_str("a read is repeated after some time, the longest not below the first")
            }
        }
    }
}

impl std::error::Error for SubscribeError {}

/// Consumers that share the messages of a topic, and how far they are.
///
/// Dispatching runs on the executor that it was opened with. When that does not take it, since it is full, it is offered again later, by a timer, or with
/// the next reason to dispatch; from an executor that is closed nothing comes any more. Closing, or dropping, ends it: nothing is delivered any more.
pub struct Subscription {
    shared: Arc<Shared>,
    turn: Turn<Dispatch>,
    notifier: Arc<Notifier>,
}

impl Subscription {
    /// Opens a subscription over a cursor that tells this notifier.
    pub(crate) fn open(
        options: &SubscriptionOptions,
        consumers: Vec<Arc<dyn Consumer>>,
        executor: impl Executor + 'static,
        timers: impl Timers + 'static,
        notifier: Arc<Notifier>,
        cursor: folio_ledger::Cursor,
    ) -> Self {
        let mode = match options.kind {
            Kind::Exclusive => Mode::Exclusive,
            Kind::KeyShared { key_of } => Mode::KeyShared(Selector::new(key_of, consumers.len())),
        };
        let slots =
            consumers.into_iter().map(|consumer| Slot { consumer, granted: AtomicU64::new(0) }).collect();
        let executor: Arc<dyn Executor> = arc_dyn!(executor => dyn Executor);
        let timers: Arc<dyn Timers> = arc_dyn!(timers => dyn Timers);
        let shared = Shared::new(cursor, slots, Arc::clone(&executor), timers, Arc::clone(&notifier));
        let shared = Arc::new(shared);
        let dispatch = Dispatch::new(Arc::clone(&shared), mode, options);
        let turn = Turn::builder(dispatch).yield_to(Arc::clone(&executor));
        notifier.tells(turn.clone(), executor);
        // From then on the cursor tells of what comes, be it the end.
        demand(&turn, &*shared.executor, MORE);
        Self { shared, turn, notifier }
    }

    /// A consumer takes so many messages more.
    ///
    /// # Panics
    /// When there is no such consumer.
    pub fn flow(&self, consumer: usize, permits: u32) {
        // Relaxed: a number; the demand comes after it.
        let granted = &self.shared.slots[consumer].granted;
        step!("dispatch.grant", granted.fetch_add(permits.into(), Ordering::Relaxed));
        demand(&self.turn, &*self.shared.executor, FLOW);
    }

    /// Messages are done with; how many were not before. For any thread, in any order.
    pub fn acknowledge(&self, positions: impl AsRef<[Position]>) -> usize {
        self.shared.cursor.delete(positions)
    }

    /// Messages that are published and not read for this subscription yet.
    pub fn unread(&self) -> u64 {
        self.shared.cursor.backlog()
    }

    /// Messages delivered so far.
    pub fn delivered(&self) -> u64 {
        // Relaxed: a statistic.
        self.shared.delivered.load(Ordering::Relaxed)
    }

    /// Messages that are held for consumers without permits.
    pub fn held(&self) -> u64 {
        // Relaxed: a statistic.
        self.shared.held.load(Ordering::Relaxed)
    }

    /// The number of the first message that is not acknowledged.
    pub fn mark_deleted(&self) -> i64 {
        self.shared.cursor.mark_deleted()
    }

    /// Ends it: what a consumer is being given at this moment is the last, and what was held is dropped.
    pub fn close(&self) {
        self.shared.close();
        // The listener would keep the dispatcher alive.
        self.notifier.forget();
        demand(&self.turn, &*self.shared.executor, CLOSE);
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.close();
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription")
            .field("consumers", &self.shared.slots.len())
            .field("delivered", &self.delivered())
            .field("unread", &self.unread())
            .field("held", &self.held())
            .finish_non_exhaustive()
    }
}
