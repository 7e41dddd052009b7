//! Publishing beside subscribing, closing and consuming, on real threads, with exact accounts.
#![cfg(not(any(loom, shuttle)))]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests run on the standard library only, and a failed unwrap fails the test"
)]

mod support;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread;

use folio_broker::{Consumer, Kind, Message, Start, SubscriptionOptions, Topic};
use folio_executor::OrderedExecutor;
use folio_ledger::{Handover, LedgerOptions, MemoryStorage, Policy};
use folio_sync::test_util::ManualClock;
use folio_sync::timers::ThreadTimers;
use folio_sync::{Arc, Mutex};

use support::{Deaf, Inbox, KEY_SHARED, Place, manager, parse, payload, shared, until};

fn topic(pool: &OrderedExecutor, completion: Policy) -> Topic<()> {
    let options = LedgerOptions { completion, handover: Handover::Batched(32), ..LedgerOptions::default() };
    let cache = manager(&ManualClock::new(), 1 << 30);
    Topic::open(options, MemoryStorage::new(), &cache, pool.workers()[0].clone(), Deaf).unwrap()
}

/// Subscriptions that open at the latest message while two threads publish get everything from there on, each once and in order: what was confirmed
/// before they were opened comes to none of them, what was published after that to all.
#[test]
fn a_subscription_at_the_latest_message_gets_everything_after_it() {
    const EACH: i64 = 10_000;
    let pool = OrderedExecutor::builder().threads(2).build().unwrap();
    let topic = topic(&pool, Policy::Inline);
    let done = AtomicBool::new(false);
    let mut opened = Vec::new();
    thread::scope(|scope| {
        let publishers: Vec<_> = (0..2_u32)
            .map(|key| {
                let topic = &topic;
                scope.spawn(move || {
                    for n in 0..EACH {
                        topic.publish(payload(key, n), ());
                        if n % 128 == 0 {
                            thread::yield_now();
                        }
                    }
                })
            })
            .collect();
        let subscriber = scope.spawn(|| {
            let mut opened = Vec::new();
            while opened.len() < 5 || (opened.len() < 40 && !done.load(Ordering::Acquire)) {
                let mut options = SubscriptionOptions::new(Kind::Exclusive);
                options.start = Start::Latest;
                let inbox = Inbox::new();
                let before = topic.ledger().confirmed();
                let consumers = vec![shared(&inbox)];
                let subscription = topic
                    .subscribe(options, consumers, pool.workers()[1].clone(), ThreadTimers::new())
                    .unwrap();
                let begins = subscription.mark_deleted();
                let after = topic.ledger().confirmed();
                assert!((before..=after).contains(&begins), "{before} <= {begins} <= {after}");
                subscription.flow(0, 1_000_000);
                opened.push((begins, inbox, subscription));
                thread::yield_now();
            }
            opened
        });
        for publisher in publishers {
            publisher.join().unwrap();
        }
        done.store(true, Ordering::Release);
        opened = subscriber.join().unwrap();
    });
    topic.close();
    for (begins, inbox, subscription) in opened {
        until("the end is told", || inbox.ended() == 1);
        assert_eq!(inbox.entries(), (begins..2 * EACH).collect::<Vec<_>>());
        assert_eq!(subscription.delivered(), u64::try_from(2 * EACH - begins).unwrap());
    }
    drop(topic);
    assert!(pool.join().unwrap().is_empty());
}

/// A client: checks, acknowledges and gives new permits, on the dispatcher's thread.
struct Client {
    number: usize,
    /// Permits given and not used.
    permits: AtomicI64,
    last_of_keys: Mutex<BTreeMap<u32, i64>>,
    received: AtomicI64,
    ended: AtomicBool,
    subscription: Place,
}

impl Client {
    const WINDOW: u32 = 50;
}

impl Consumer for Client {
    fn deliver(&self, messages: &mut Vec<Message>) {
        let count = i64::try_from(messages.len()).unwrap();
        let before = self.permits.fetch_sub(count, Ordering::Relaxed);
        assert!(before >= count, "{count} messages for {before} permits");
        let mut last_of_keys = self.last_of_keys.lock();
        for message in &*messages {
            let (key, n) = parse(&message.payload);
            let last = last_of_keys.entry(key).or_insert(-1);
            assert_eq!(n, *last + 1, "messages of key {key}");
            *last = n;
        }
        let positions: Vec<_> = messages.drain(..).map(|message| message.position).collect();
        self.received.fetch_add(count, Ordering::Release);
        let subscription = self.subscription.get();
        assert_eq!(subscription.acknowledge(&positions), positions.len());
        if self.permits.load(Ordering::Relaxed) <= i64::from(Self::WINDOW / 2) {
            self.permits.fetch_add(i64::from(Self::WINDOW), Ordering::Relaxed);
            subscription.flow(self.number, Self::WINDOW);
        }
    }

    fn ended(&self) {
        self.ended.store(true, Ordering::Release);
    }
}

/// F1, K1, K2: four consumers by key beside two publishers: each message once, in the order of its key, never more than there are permits for.
#[test]
fn consumers_by_key_beside_publishers_get_each_message_once() {
    const CLIENTS: usize = 4;
    const EACH: i64 = 10_000;
    const KEYS: u32 = 40;
    for completion in [Policy::Inline, Policy::Affine] {
        let pool = OrderedExecutor::builder().threads(2).build().unwrap();
        let topic = topic(&pool, completion);
        let subscription = Place::default();
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                Arc::new(Client {
                    number,
                    permits: AtomicI64::new(Client::WINDOW.into()),
                    last_of_keys: Mutex::default(),
                    received: AtomicI64::new(0),
                    ended: AtomicBool::new(false),
                    subscription: subscription.clone(),
                })
            })
            .collect();
        let consumers = clients.iter().map(shared).collect();
        let mut options = SubscriptionOptions::new(KEY_SHARED);
        (options.max_held, options.read_batch) = (300, 64);
        let opened =
            topic.subscribe(options, consumers, pool.workers()[1].clone(), ThreadTimers::new()).unwrap();
        let opened = Arc::new(opened);
        subscription.set(&opened);
        (0..CLIENTS).for_each(|number| opened.flow(number, Client::WINDOW));
        thread::scope(|scope| {
            for publisher in 0..2 {
                let topic = &topic;
                scope.spawn(move || {
                    for n in 0..EACH {
                        let key = u32::try_from(n).unwrap() % KEYS * 2 + publisher;
                        topic.publish(payload(key, n / i64::from(KEYS)), ());
                    }
                });
            }
        });
        topic.close();
        until("the end is told", || clients.iter().all(|client| client.ended.load(Ordering::Acquire)));
        let received: i64 = clients.iter().map(|client| client.received.load(Ordering::Acquire)).sum();
        assert_eq!(received, 2 * EACH);
        assert_eq!((opened.mark_deleted(), opened.unread(), opened.held()), (2 * EACH, 0, 0));
        let mut keys: Vec<_> = clients.iter().flat_map(|client| client.last_of_keys.lock().clone()).collect();
        keys.sort_unstable();
        let last = EACH / i64::from(KEYS) - 1;
        assert_eq!(
            keys,
            (0..2 * KEYS).map(|key| (key, last)).collect::<Vec<_>>(),
            "each key has one consumer"
        );
        drop(opened);
        drop(topic);
        assert!(pool.join().unwrap().is_empty());
    }
}

/// A subscription is closed while messages are delivered: its consumer gets a beginning of them, and nothing after the close has come to the dispatcher.
#[test]
fn a_close_beside_publishing_ends_with_a_beginning() {
    for round in 0..50 {
        let pool = OrderedExecutor::builder().threads(2).build().unwrap();
        let topic = topic(&pool, if round % 2 == 0 { Policy::Inline } else { Policy::Affine });
        let inbox = Inbox::new();
        let consumers = vec![shared(&inbox)];
        let options = SubscriptionOptions::new(Kind::Exclusive);
        let subscription =
            topic.subscribe(options, consumers, pool.workers()[1].clone(), ThreadTimers::new()).unwrap();
        subscription.flow(0, 1_000_000);
        thread::scope(|scope| {
            scope.spawn(|| (0..500).for_each(|n| topic.publish(payload(0, n), ())));
            until("some have come", || inbox.count() >= round);
            drop(subscription);
        });
        topic.close();
        drop(topic);
        assert!(pool.join().unwrap().is_empty());
        let entries = inbox.entries();
        assert_eq!(entries, (0..i64::try_from(entries.len()).unwrap()).collect::<Vec<_>>());
        assert_eq!((inbox.ended(), Arc::strong_count(&inbox)), (0, 1));
    }
}
