//! Topics.

use std::fmt;

use bytes::Bytes;
use folio_ledger::{AppendSink, CacheManager, ConfigError, Ledger, LedgerOptions, LogStorage};
use folio_sync::timers::Timers;
use folio_sync::{Arc, Executor, SerialExecutor};

use crate::consumer::Consumer;
use crate::dispatch::MORE;
use crate::notifier::Notifier;
use crate::subscription::{Kind, Start, SubscribeError, Subscription, SubscriptionOptions};

/// A topic: messages are published to it, and subscriptions share them out.
///
/// ```
/// use std::sync::{Arc, Mutex};
///
/// use bytes::Bytes;
/// use folio_broker::{Consumer, Kind, Message, SubscriptionOptions, Topic};
/// use folio_ledger::{CacheManager, CacheOptions, Callbacks, LedgerOptions, MemoryStorage};
/// use folio_sync::test_util::{ManualClock, ManualExecutor, ManualTimers};
///
/// struct Prints(Mutex<Vec<Message>>);
///
/// impl Consumer for Prints {
///     fn deliver(&self, messages: &mut Vec<Message>) {
///         self.0.lock().unwrap().append(messages);
///     }
/// }
///
/// let (worker, dispatcher, clock) = (ManualExecutor::new(), ManualExecutor::new(), ManualClock::new());
/// let timers = ManualTimers::new(&clock);
/// let cache = CacheManager::new(CacheOptions::default(), worker.clone(), timers.clone(), clock)?;
/// let topic =
///     Topic::open(LedgerOptions::default(), MemoryStorage::new(), &cache, worker.clone(), Callbacks)?;
/// let consumer = Arc::new(Prints(Mutex::default()));
/// let options = SubscriptionOptions::new(Kind::Exclusive);
/// let subscription = topic.subscribe(options, vec![consumer.clone()], dispatcher.clone(), timers)?;
/// subscription.flow(0, 10);
/// topic.publish(Bytes::from_static(b"hello"), |result, _| assert!(result.is_ok()));
/// worker.run_all();
/// dispatcher.run_all();
/// let received = consumer.0.lock().unwrap();
/// assert_eq!(received[0].payload, "hello");
/// assert_eq!(subscription.acknowledge([received[0].position]), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Topic<T: Send + 'static> {
    ledger: Ledger<T>,
}

impl<T: Send + 'static> Topic<T> {
    /// Opens an empty topic, whose messages are appended on `worker`; `sink` hears what becomes of them. They are cached within the manager's budgets.
    ///
    /// # Errors
    /// [`ConfigError`] when the settings contradict each other.
    pub fn open(
        options: LedgerOptions,
        storage: impl LogStorage,
        cache: &CacheManager<Bytes>,
        worker: impl SerialExecutor + Clone + 'static,
        sink: impl AppendSink<T>,
    ) -> Result<Self, ConfigError> {
        Ok(Self { ledger: Ledger::open(options, storage, cache, worker, sink)? })
    }

    /// Publishes a message; the sink is told what became of it, with this token.
    #[inline]
    pub fn publish(&self, payload: Bytes, token: T) {
        self.ledger.append(payload, token);
    }

    /// How many published messages the slowest subscription has not read yet: by this, whoever publishes much can hold back until it has caught up.
    ///
    /// What a subscription holds for consumers without permits is read. It looks at each subscription, under a short lock.
    #[inline]
    pub fn unread(&self) -> u64 {
        self.ledger.unread()
    }

    /// Opens a subscription of these consumers, which dispatches on `executor`. None of them has permits yet.
    ///
    /// A timer is set when a read failed, or the executor did not take the dispatcher, and never otherwise; its job leaves a mark and submits to
    /// `executor`.
    ///
    /// # Errors
    /// [`SubscribeError`] when the number of consumers does not fit the kind, or one of the options cannot be.
    pub fn subscribe(
        &self,
        options: SubscriptionOptions,
        consumers: Vec<Arc<dyn Consumer>>,
        executor: impl Executor + 'static,
        timers: impl Timers + 'static,
    ) -> Result<Subscription, SubscribeError> {
        match (options.kind, consumers.len()) {
            (_, 0) => return Err(SubscribeError::NoConsumer),
            (Kind::Exclusive, given @ 2..) => return Err(SubscribeError::NotExclusive(given)),
            (Kind::KeyShared { .. }, given @ 65_537..) => {
                return Err(SubscribeError::TooManyConsumers(given));
            }
            _ => {}
        }
        if options.retry_first.is_zero() || options.retry_most < options.retry_first {
            return Err(SubscribeError::RetryDelays);
        }
        let notifier = Arc::new(Notifier::new());
        let told = Arc::clone(&notifier);
        let more = move || told.tell(MORE);
        let cursor = match options.start {
            Start::Earliest => self.ledger.cursor(0, more),
            Start::Latest => self.ledger.cursor_at_tail(more),
        };
        Ok(Subscription::open(&options, consumers, executor, timers, notifier, cursor))
    }

    /// Takes no more messages. Those that were taken are delivered; then consumers are told of the end.
    pub fn close(&self) {
        self.ledger.close();
    }

    /// The topic's ledger.
    pub fn ledger(&self) -> &Ledger<T> {
        &self.ledger
    }
}

impl<T: Send + 'static> fmt::Debug for Topic<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Topic").field("ledger", &self.ledger).finish_non_exhaustive()
    }
}
