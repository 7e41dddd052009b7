//! Consumers that remember, storage that fails on demand, and a topic whose executors the test steps.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::ops::Range;
use std::panic::resume_unwind;
use std::time::{Duration, Instant};

use bytes::Bytes;
use folio_broker::{Consumer, Kind, Message, Subscription, SubscriptionOptions, Topic};
use folio_ledger::{
    AppendError, AppendSink, CacheManager, CacheOptions, Done, LedgerOptions, LogStorage, MemoryStorage,
    Position, ReadError, StorageError,
};
use folio_sync::test_util::{ManualClock, ManualExecutor, ManualTimers};
use folio_sync::time::Instant as Moment;
use folio_sync::{Arc, Mutex, arc_dyn};

/// Waits until something is so.
#[track_caller]
pub(crate) fn until(what: &str, so: impl Fn() -> bool) {
    let began = Instant::now();
    while !so() {
        assert!(began.elapsed() < Duration::from_secs(60), "waited too long until {what}");
        std::thread::yield_now();
    }
}

/// Panics without the noise of a panic hook.
pub(crate) fn go_off() -> ! {
    resume_unwind(Box::new("planted"));
}

/// A payload: its key, and its number in the topic.
pub(crate) fn payload(key: u32, number: i64) -> Bytes {
    Bytes::from(format!("{key}:{number}"))
}

/// The key of a payload, for the broker.
pub(crate) fn key_of(payload: &[u8]) -> &[u8] {
    payload.split(|byte| *byte == b':').next().unwrap_or(payload)
}

/// What a payload says: its key, and its number.
pub(crate) fn parse(payload: &[u8]) -> (u32, i64) {
    let text = std::str::from_utf8(payload).expect("payloads are text");
    let (key, number) = text.split_once(':').expect("payloads have a key");
    (key.parse().expect("keys are numbers"), number.parse().expect("numbers are numbers"))
}

/// By key, as above.
pub(crate) const KEY_SHARED: Kind = Kind::KeyShared { key_of };

type Hook = dyn Fn(&mut Vec<Message>) + Send + Sync;

/// A consumer that remembers.
#[derive(Default)]
pub(crate) struct Inbox {
    received: Mutex<Vec<Message>>,
    calls: Mutex<usize>,
    ended: Mutex<usize>,
    failures: Mutex<Vec<ReadError>>,
    on_deliver: Mutex<Option<Arc<Hook>>>,
    on_failure: Mutex<Option<Arc<dyn Fn() + Send + Sync>>>,
}

impl Inbox {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Has this called in each delivery, after it was noted.
    pub(crate) fn on_deliver(&self, hook: impl Fn(&mut Vec<Message>) + Send + Sync + 'static) {
        let hook: Arc<Hook> = arc_dyn!(hook => Hook);
        let before = self.on_deliver.lock().replace(hook);
        drop(before);
    }

    /// Has this called in each failure, after it was noted.
    pub(crate) fn on_failure(&self, hook: impl Fn() + Send + Sync + 'static) {
        let before = self.on_failure.lock().replace(arc_dyn!(hook => dyn Fn() + Send + Sync));
        drop(before);
    }

    /// Lets go of what its hooks hold.
    pub(crate) fn unhook(&self) {
        let hooks = (self.on_deliver.lock().take(), self.on_failure.lock().take());
        drop(hooks);
    }

    /// The entry numbers of what was received.
    pub(crate) fn entries(&self) -> Vec<i64> {
        self.received.lock().iter().map(|message| message.position.entry).collect()
    }

    pub(crate) fn received(&self) -> Vec<Message> {
        self.received.lock().clone()
    }

    pub(crate) fn count(&self) -> usize {
        self.received.lock().len()
    }

    pub(crate) fn calls(&self) -> usize {
        *self.calls.lock()
    }

    pub(crate) fn ended(&self) -> usize {
        *self.ended.lock()
    }

    pub(crate) fn failures(&self) -> Vec<ReadError> {
        std::mem::take(&mut *self.failures.lock())
    }
}

impl Consumer for Inbox {
    fn deliver(&self, messages: &mut Vec<Message>) {
        assert!(!messages.is_empty(), "there is something to deliver");
        *self.calls.lock() += 1;
        self.received.lock().extend_from_slice(messages);
        let hook = self.on_deliver.lock().clone();
        if let Some(hook) = hook {
            hook(messages);
        }
    }

    fn ended(&self) {
        *self.ended.lock() += 1;
        if self.on_deliver.lock().is_some() {
            go_off();
        }
    }

    fn read_failed(&self, error: &ReadError) {
        self.failures.lock().push(error.clone());
        let hook = self.on_failure.lock().clone();
        if let Some(hook) = hook {
            hook();
        }
    }
}

/// A consumer as a subscription takes it; the test keeps it, too.
pub(crate) fn shared(consumer: &Arc<impl Consumer>) -> Arc<dyn Consumer> {
    arc_dyn!(Shared(Arc::clone(consumer)) => dyn Consumer)
}

/// A consumer of whichever `Arc` there is, which need not turn into one of a trait object.
struct Shared<C>(Arc<C>);

impl<C: Consumer> Consumer for Shared<C> {
    fn deliver(&self, messages: &mut Vec<Message>) {
        self.0.deliver(messages);
    }

    fn ended(&self) {
        Consumer::ended(&*self.0);
    }

    fn read_failed(&self, error: &ReadError) {
        self.0.read_failed(error);
    }
}

type Upgrade = dyn Fn() -> Option<Arc<Subscription>> + Send + Sync;

/// A subscription that its own consumers use without keeping it.
#[derive(Clone, Default)]
pub(crate) struct Place(Arc<Mutex<Option<Arc<Upgrade>>>>);

impl Place {
    pub(crate) fn set(&self, subscription: &Arc<Subscription>) {
        let weak = Arc::downgrade(subscription);
        let before = self.0.lock().replace(arc_dyn!(move || weak.upgrade() => Upgrade));
        drop(before);
    }

    /// The subscription, which must be there.
    pub(crate) fn get(&self) -> Arc<Subscription> {
        let upgrade = self.0.lock().clone().expect("it was set before anything is delivered");
        upgrade().expect("it is kept while it delivers")
    }
}

/// Publishers that want to hear nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deaf;

impl AppendSink<()> for Deaf {
    fn appended(&self, (): (), _result: Result<Position, AppendError>, _at: Moment) {}
}

/// Storage in memory whose reads fail on demand, and are counted.
#[derive(Clone, Default)]
pub(crate) struct Shelf(Arc<Inner>);

#[derive(Default)]
struct Inner {
    memory: MemoryStorage,
    fails: Mutex<bool>,
    reads: Mutex<Vec<(i64, usize)>>,
}

impl Shelf {
    pub(crate) fn fail(&self, fails: bool) {
        *self.0.fails.lock() = fails;
    }

    /// The first entry and the length of each read so far.
    pub(crate) fn reads(&self) -> Vec<(i64, usize)> {
        std::mem::take(&mut *self.0.reads.lock())
    }
}

/// The error of storage that fails.
pub(crate) fn broken() -> ReadError {
    ReadError::Storage(StorageError::Failed("planted".to_owned()))
}

impl LogStorage for Shelf {
    fn append(&self, first: Position, entries: Vec<Bytes>, done: Done<(), StorageError>) {
        self.0.memory.append(first, entries, done);
    }

    fn read(&self, first: Position, count: usize, done: Done<Vec<Bytes>, StorageError>) {
        self.0.reads.lock().push((first.entry, count));
        if *self.0.fails.lock() {
            return done.tell(Err(StorageError::Failed("planted".to_owned())));
        }
        self.0.memory.read(first, count, done);
    }

    fn trim(&self, before: Position) {
        self.0.memory.trim(before);
    }
}

/// What caches; nobody runs its passes.
pub(crate) fn manager(clock: &ManualClock, budget: u64) -> CacheManager<Bytes> {
    let mut options = CacheOptions::default();
    options.budget = budget;
    manager_of(clock, options)
}

fn manager_of(clock: &ManualClock, options: CacheOptions) -> CacheManager<Bytes> {
    let manager = CacheManager::new(options, ManualExecutor::new(), ManualTimers::new(clock), clock.clone());
    manager.expect("the options are good")
}

/// A topic whose executors the test steps.
pub(crate) struct Scene {
    pub(crate) worker: ManualExecutor,
    pub(crate) dispatcher: ManualExecutor,
    pub(crate) timers: ManualTimers,
    pub(crate) storage: Shelf,
    pub(crate) topic: Topic<()>,
    _ends: [Ends; 2],
}

/// Drops what an executor still has, which would keep the executor alive.
struct Ends(ManualExecutor);

impl Drop for Ends {
    fn drop(&mut self) {
        while let Some(job) = self.0.take_next() {
            drop(job);
        }
    }
}

impl Scene {
    pub(crate) fn new() -> Self {
        Self::with(|_| ())
    }

    /// Nothing is cached.
    pub(crate) fn uncached() -> Self {
        Self::reading(CacheOptions::default().reads.budget)
    }

    pub(crate) fn with(change: impl FnOnce(&mut LedgerOptions)) -> Self {
        Self::over(CacheOptions::default(), change)
    }

    /// Nothing is cached, and so many bytes may be read at a time.
    pub(crate) fn reading(bytes: u64) -> Self {
        let mut options = CacheOptions::default();
        (options.budget, options.reads.budget) = (0, bytes);
        Self::over(options, |_| ())
    }

    fn over(cache_options: CacheOptions, change: impl FnOnce(&mut LedgerOptions)) -> Self {
        let (worker, storage) = (ManualExecutor::new(), Shelf::default());
        let mut options = LedgerOptions::default();
        change(&mut options);
        let clock = ManualClock::new();
        let cache = manager_of(&clock, cache_options);
        let topic = Topic::open(options, storage.clone(), &cache, worker.clone(), Deaf);
        let topic = topic.expect("the settings are good");
        let dispatcher = ManualExecutor::new();
        let ends = [&dispatcher, &worker].map(|executor| Ends(executor.clone()));
        Self { worker, dispatcher, timers: ManualTimers::new(&clock), storage, topic, _ends: ends }
    }

    /// Opens a subscription of so many consumers.
    pub(crate) fn subscribe(
        &self,
        options: SubscriptionOptions,
        consumers: usize,
    ) -> (Vec<Arc<Inbox>>, Subscription) {
        let inboxes: Vec<_> = (0..consumers).map(|_| Inbox::new()).collect();
        let consumers = inboxes.iter().map(shared);
        let subscription =
            self.topic.subscribe(options, consumers.collect(), self.dispatcher.clone(), self.timers.clone());
        (inboxes, subscription.expect("the options are good"))
    }

    /// One consumer that gets everything.
    pub(crate) fn exclusive(&self) -> (Arc<Inbox>, Subscription) {
        let (mut inboxes, subscription) = self.subscribe(SubscriptionOptions::new(Kind::Exclusive), 1);
        (inboxes.remove(0), subscription)
    }

    /// Publishes messages, by one key each of so many in turn; the ledger's worker does not run.
    pub(crate) fn give(&self, range: Range<i64>, keys: u32) {
        range.for_each(|n| self.topic.publish(payload(u32::try_from(n).unwrap_or(0) % keys, n), ()));
    }

    /// Publishes messages, and runs everything.
    pub(crate) fn publish(&self, range: Range<i64>, keys: u32) {
        self.give(range, keys);
        self.run();
    }

    /// Runs both executors until neither has anything to do.
    pub(crate) fn run(&self) {
        while self.worker.run_all() + self.dispatcher.run_all() > 0 {}
    }
}
