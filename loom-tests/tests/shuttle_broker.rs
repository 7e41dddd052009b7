//! The broker under shuttle: publishing against subscribing, permits by key, closing against everything; exact accounts.
#![cfg(shuttle)]
#![allow(clippy::unwrap_used, reason = "a checked body fails where it unwraps")]
#![allow(clippy::disallowed_types, reason = "what is noted must be no step of the schedule")]

use std::sync::Mutex as Unseen;
use std::time::Duration;

use bytes::Bytes;
use folio_broker::{Consumer, Kind, Message, Start, Subscription, SubscriptionOptions, Topic};
use folio_executor::{OrderedExecutor, Worker};
use folio_ledger::{
    AppendError, AppendSink, CacheManager, CacheOptions, Handover, LedgerOptions, MemoryStorage, Policy,
    Position,
};
use folio_sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use folio_sync::test_util::{
    ManualClock, ManualExecutor, ManualTimers, Tracked, shuttle_check, spurious_every,
};
use folio_sync::time::Instant;
use folio_sync::{Arc, Executor, Job, Mutex, RejectReason, Rejected, thread};

const MESSAGES: u8 = 6;
const SCHEDULES: usize = 200;

/// Counts what was published.
#[derive(Clone, Default)]
struct Publishes(Arc<AtomicUsize>);

impl AppendSink<Tracked<()>> for Publishes {
    fn appended(&self, token: Tracked<()>, result: Result<Position, AppendError>, _at: Instant) {
        token.get();
        if result.is_ok() {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Caches for one test, whose passes nobody runs.
fn cache() -> CacheManager<Bytes> {
    let clock = ManualClock::new();
    let timers = ManualTimers::new(&clock);
    CacheManager::new(CacheOptions::default(), ManualExecutor::new(), timers, clock).unwrap()
}

/// A worker that refuses all offers but every so many, as one whose queue is full now and then.
struct Moody {
    worker: Worker,
    offers: Arc<AtomicUsize>,
    refuses: usize,
}

impl Executor for Moody {
    fn submit(&self, job: Job) -> Result<(), Rejected<Job>> {
        if self.offers.fetch_add(1, Ordering::Relaxed) % (self.refuses + 1) != self.refuses {
            return Err(Rejected::new(job, RejectReason::Full));
        }
        self.worker.submit(job)
    }
}

struct Scene {
    timers: ManualTimers,
    /// How many offers of a dispatcher are refused for one that is taken.
    refuses: usize,
    pool: OrderedExecutor,
    published: Publishes,
    topic: Arc<Topic<Tracked<()>>>,
}

impl Scene {
    fn new(completion: Policy) -> Self {
        let pool = OrderedExecutor::builder().threads(2).spins(1).build().unwrap();
        let published = Publishes::default();
        let options =
            LedgerOptions { completion, handover: Handover::Batched(3), ..LedgerOptions::default() };
        let worker = pool.workers()[0].clone();
        let topic = Topic::open(options, MemoryStorage::new(), &cache(), worker, published.clone());
        let timers = ManualTimers::new(&ManualClock::new());
        Self { timers, refuses: 0, pool, published, topic: Arc::new(topic.unwrap()) }
    }

    /// A thread that publishes messages of two keys.
    fn publisher(&self) -> thread::JoinHandle<()> {
        let topic = Arc::clone(&self.topic);
        thread::spawn(move || {
            for n in 0..MESSAGES {
                topic.publish(Bytes::from(vec![b'a' + n % 2, n]), Tracked::new(()));
            }
        })
    }

    fn subscribe(
        &self,
        options: SubscriptionOptions,
        consumers: usize,
    ) -> (Vec<Arc<Inbox>>, Arc<Subscription>) {
        let inboxes: Vec<_> = (0..consumers).map(|number| Arc::new(Inbox::new(number))).collect();
        let consumers = inboxes.iter().map(|inbox| Arc::clone(inbox) as Arc<dyn Consumer>).collect();
        let dispatcher =
            Moody { worker: self.pool.workers()[1].clone(), offers: Arc::default(), refuses: self.refuses };
        let subscription = self.topic.subscribe(options, consumers, dispatcher, self.timers.clone());
        (inboxes, Arc::new(subscription.unwrap()))
    }

    /// Ends the threads; how much was published.
    fn end(self) -> usize {
        drop(self.topic);
        assert!(self.pool.join().unwrap().is_empty());
        self.published.0.load(Ordering::Relaxed)
    }
}

/// A consumer that notes what it gets, never more than it has permits for.
struct Inbox {
    number: usize,
    received: Unseen<Vec<(i64, u8)>>,
    granted: AtomicUsize,
    ended: AtomicBool,
    /// Set once a close has returned.
    closed: AtomicBool,
    /// Deliveries that began after that.
    late: AtomicUsize,
    /// Whom to wake at the end.
    waits: thread::Thread,
    /// What it gives new permits to.
    refill: Mutex<Option<Arc<Subscription>>>,
}

impl Inbox {
    fn new(number: usize) -> Self {
        Self {
            number,
            received: Unseen::default(),
            granted: AtomicUsize::new(0),
            ended: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            late: AtomicUsize::new(0),
            waits: thread::current(),
            refill: Mutex::new(None),
        }
    }

    fn grant(&self, subscription: &Subscription, permits: usize) {
        self.granted.fetch_add(permits, Ordering::Relaxed);
        subscription.flow(self.number, u32::try_from(permits).unwrap());
    }

    fn entries(&self) -> Vec<i64> {
        self.received.lock().unwrap().iter().map(|(entry, _)| *entry).collect()
    }

    /// A consumer that nobody tells would let this thread park for ever, which the checker reports.
    fn wait_for_the_end(&self) {
        while !self.ended.load(Ordering::Acquire) {
            thread::park();
        }
    }
}

impl Consumer for Inbox {
    fn deliver(&self, messages: &mut Vec<Message>) {
        let count = messages.len();
        self.late.fetch_add(self.closed.load(Ordering::Relaxed).into(), Ordering::Relaxed);
        let received = {
            let mut received = self.received.lock().unwrap();
            received.extend(messages.iter().map(|message| (message.position.entry, message.payload[0])));
            received.len()
        };
        assert!(received <= self.granted.load(Ordering::Relaxed), "more than there are permits for");
        let subscription = self.refill.lock().clone();
        if let Some(subscription) = subscription {
            let positions: Vec<_> = messages.iter().map(|message| message.position).collect();
            assert_eq!(subscription.acknowledge(positions), count);
            self.grant(&subscription, count);
        }
    }

    fn ended(&self) {
        assert!(!self.ended.swap(true, Ordering::Release), "told once");
        self.waits.unpark();
    }
}

/// A subscription at the latest message gets everything that is published after it, and nothing that was confirmed before it, whatever comes when.
#[test]
fn publish_against_subscribe() {
    for completion in [Policy::Inline, Policy::Affine] {
        shuttle_check("publish, subscribe", SCHEDULES, move || {
            let _spurious = spurious_every(5);
            let scene = Scene::new(completion);
            let publisher = scene.publisher();
            let mut options = SubscriptionOptions::new(Kind::Exclusive);
            options.start = Start::Latest;
            let before = scene.topic.ledger().confirmed();
            let (inboxes, subscription) = scene.subscribe(options, 1);
            let begins = subscription.mark_deleted();
            assert!(before <= begins && begins <= scene.topic.ledger().confirmed());
            inboxes[0].grant(&subscription, 100);
            publisher.join().unwrap();
            scene.topic.close();
            inboxes[0].wait_for_the_end();
            assert_eq!(inboxes[0].entries(), (begins..MESSAGES.into()).collect::<Vec<_>>());
            drop(subscription);
            assert_eq!(scene.end(), usize::from(MESSAGES));
        });
    }
}

/// F1, K1: two consumers by key with one permit each, given anew as they are used: each message once, in order, and then the end.
#[test]
fn permits_by_key_against_publishing() {
    shuttle_check("permits by key", SCHEDULES, || {
        let _spurious = spurious_every(5);
        let scene = Scene::new(Policy::Inline);
        let mut options = SubscriptionOptions::new(Kind::KeyShared { key_of: |payload| &payload[..1] });
        (options.read_batch, options.max_held) = (3, 2);
        let (inboxes, subscription) = scene.subscribe(options, 2);
        let publisher = scene.publisher();
        for inbox in &inboxes {
            *inbox.refill.lock() = Some(Arc::clone(&subscription));
            inbox.grant(&subscription, 1);
        }
        publisher.join().unwrap();
        scene.topic.close();
        let mut all = Vec::new();
        let mut keys = Vec::new();
        for inbox in &inboxes {
            inbox.wait_for_the_end();
            inbox.refill.lock().take();
            let received = inbox.received.lock().unwrap().clone();
            for key in [b'a', b'b'] {
                let entries: Vec<_> =
                    received.iter().filter(|(_, of)| *of == key).map(|(entry, _)| *entry).collect();
                assert!(entries.is_sorted(), "messages of a key changed places: {entries:?}");
                keys.extend((!entries.is_empty()).then_some(key));
            }
            all.extend(inbox.entries());
        }
        all.sort_unstable();
        keys.sort_unstable();
        assert_eq!(all, (0..MESSAGES.into()).collect::<Vec<i64>>(), "each message once");
        assert_eq!(keys, [b'a', b'b'], "each key has one consumer");
        assert_eq!(
            (subscription.held(), subscription.unread(), subscription.mark_deleted()),
            (0, 0, MESSAGES.into())
        );
        drop(subscription);
        scene.end();
    });
}

/// A dispatcher whose executor is full most of the time gets to everything in the end, though nobody asks again but the timer.
#[test]
fn refusals_against_publishing() {
    for completion in [Policy::Inline, Policy::Affine] {
        shuttle_check("refusals", SCHEDULES, move || {
            let _spurious = spurious_every(5);
            let mut scene = Scene::new(completion);
            scene.refuses = 2;
            let mut options = SubscriptionOptions::new(Kind::Exclusive);
            options.read_batch = 2;
            let (inboxes, subscription) = scene.subscribe(options, 1);
            let inbox = Arc::clone(&inboxes[0]);
            let publisher = scene.publisher();
            let (gives, given) = (Arc::clone(&subscription), Arc::clone(&inbox));
            let giver = thread::spawn(move || (0..3).for_each(|_| given.grant(&gives, 3)));
            for _ in 0..3 {
                scene.timers.advance(Duration::from_millis(1));
                thread::yield_now();
            }
            publisher.join().unwrap();
            giver.join().unwrap();
            scene.topic.close();
            let mut rounds = 0;
            while !inbox.ended.load(Ordering::Acquire) {
                rounds += 1;
                assert!(rounds < 10_000, "nobody comes any more");
                assert!(scene.timers.pending() <= 1, "one timer for all");
                scene.timers.advance(Duration::from_secs(1));
                thread::yield_now();
            }
            assert_eq!(inbox.entries(), (0..MESSAGES.into()).collect::<Vec<i64>>());
            drop((subscription, inboxes));
            scene.end();
        });
    }
}

/// A topic and a subscription are closed amid publishing and permits: what came is a beginning, the end comes after all or not at all, and
/// nobody is kept.
#[test]
fn topic_closed_against_everything() {
    for completion in [Policy::Inline, Policy::Affine] {
        shuttle_check("close, everything", SCHEDULES, move || {
            let _spurious = spurious_every(5);
            let scene = Scene::new(completion);
            let (inboxes, subscription) = scene.subscribe(SubscriptionOptions::new(Kind::Exclusive), 1);
            let inbox = Arc::clone(&inboxes[0]);
            let publisher = scene.publisher();
            let (gives, given) = (Arc::clone(&subscription), Arc::clone(&inbox));
            let giver = thread::spawn(move || (0..3).for_each(|_| given.grant(&gives, 2)));
            let topic = Arc::clone(&scene.topic);
            let closer = thread::spawn(move || topic.close());
            subscription.close();
            inbox.closed.store(true, Ordering::Relaxed);
            for thread in [publisher, giver, closer] {
                thread.join().unwrap();
            }
            drop(subscription);
            drop(inboxes);
            let published = scene.end();
            let entries = inbox.entries();
            assert_eq!(entries, (0..i64::try_from(entries.len()).unwrap()).collect::<Vec<_>>());
            assert!(
                inbox.late.load(Ordering::Relaxed) <= 1,
                "at most one delivery is under way at the close"
            );
            assert!(
                !inbox.ended.load(Ordering::Relaxed) || entries.len() == published,
                "the end comes after all"
            );
            assert_eq!(Arc::strong_count(&inbox), 1, "nobody keeps the consumer");
        });
    }
}
