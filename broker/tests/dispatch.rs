//! Dispatch: who gets which messages, in which order, and how many.
#![cfg(not(any(loom, shuttle)))]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests run on the standard library only, and a failed unwrap fails the test"
)]

mod support;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use folio_broker::{Consumer, Kind, Message, Start, SubscriptionOptions};
use folio_sync::Arc;

use support::{Inbox, KEY_SHARED, Scene, key_of, parse, shared};

/// Options of a subscription by key.
fn by_key(read_batch: usize, max_held: usize) -> SubscriptionOptions {
    let mut options = SubscriptionOptions::new(KEY_SHARED);
    (options.read_batch, options.max_held) = (read_batch, max_held);
    options
}

/// F1: an exclusive consumer gets all messages in order, and never more than it has given permits for.
#[test]
fn an_exclusive_consumer_gets_what_it_has_permits_for_in_order() {
    let scene = Scene::new();
    let (inbox, subscription) = scene.exclusive();
    scene.publish(0..30, 3);
    assert_eq!((inbox.calls(), subscription.unread()), (0, 30), "nothing without permits");
    subscription.flow(0, 7);
    assert_eq!(inbox.calls(), 0, "not on the thread that gives permits");
    scene.run();
    assert_eq!(inbox.entries(), (0..7).collect::<Vec<_>>());
    subscription.flow(0, 2);
    subscription.flow(0, 0);
    subscription.flow(0, 11);
    scene.run();
    assert_eq!(inbox.entries(), (0..20).collect::<Vec<_>>());
    assert_eq!((subscription.delivered(), subscription.unread(), subscription.held()), (20, 10, 0));
    subscription.flow(0, 1_000);
    scene.publish(30..50, 3);
    assert_eq!(inbox.entries(), (0..50).collect::<Vec<_>>());
    let payloads: Vec<_> = inbox.received().iter().map(|message| parse(&message.payload).1).collect();
    assert_eq!(payloads, (0..50).collect::<Vec<_>>());
}

#[test]
fn nothing_is_read_beyond_the_batch_or_the_permits() {
    let scene = Scene::uncached();
    let mut options = SubscriptionOptions::new(Kind::Exclusive);
    options.read_batch = 8;
    let (inboxes, subscription) = scene.subscribe(options, 1);
    scene.publish(0..50, 1);
    subscription.flow(0, 20);
    scene.run();
    assert_eq!(scene.storage.reads(), [(0, 8), (8, 8), (16, 4)]);
    assert_eq!((inboxes[0].calls(), inboxes[0].count()), (3, 20));
}

/// Each message went to one consumer, each key to always the same one, in order; how many keys each consumer has.
fn settle(inboxes: &[Arc<Inbox>], messages: i64) -> Vec<usize> {
    let mut owners: BTreeMap<u32, (usize, i64)> = BTreeMap::new();
    let mut all = Vec::new();
    for (number, inbox) in inboxes.iter().enumerate() {
        for message in inbox.received() {
            let (key, n) = parse(&message.payload);
            assert_eq!(message.position.entry, n);
            let (owner, last) = owners.entry(key).or_insert((number, -1));
            assert_eq!(*owner, number, "key {key} has two consumers");
            assert!(n > *last, "messages of key {key} changed places: {n} after {last}");
            *last = n;
            all.push(n);
        }
    }
    all.sort_unstable();
    assert_eq!(all, (0..messages).collect::<Vec<_>>(), "each message once");
    (0..inboxes.len()).map(|number| owners.values().filter(|(owner, _)| *owner == number).count()).collect()
}

/// K1, K2: each message goes to the consumer of its key, and in the order of its key.
#[test]
fn each_message_goes_to_the_consumer_of_its_key() {
    let scene = Scene::new();
    let (inboxes, subscription) = scene.subscribe(SubscriptionOptions::new(KEY_SHARED), 5);
    (0..5).for_each(|consumer| subscription.flow(consumer, 10_000));
    scene.publish(0..3_000, 100);
    let keys = settle(&inboxes, 3_000);
    assert!(keys.iter().all(|keys| *keys > 5), "{keys:?}");
    assert_eq!(key_of(b"17:4"), b"17");
    assert_eq!((subscription.delivered(), subscription.held(), subscription.unread()), (3_000, 0, 0));
}

/// F1, K1, K2: whatever comes when, no consumer gets more than its permits, and in the end each message has come once, by key and in order.
#[test]
fn permits_are_never_exceeded_whatever_comes_when() {
    for seed in 1..40_u64 {
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut below = |bound: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % bound
        };
        let scene = Scene::new();
        let consumers = 1 + usize::try_from(below(4)).unwrap();
        let options =
            by_key(1 + usize::try_from(below(20)).unwrap(), 1 + usize::try_from(below(30)).unwrap());
        let (inboxes, subscription) = scene.subscribe(options, consumers);
        let (mut published, mut granted) = (0, vec![0; consumers]);
        for _ in 0..200 {
            match below(5) {
                0 => {
                    let more = i64::try_from(below(12)).unwrap();
                    scene.give(published..published + more, 17);
                    published += more;
                }
                1 => {
                    let (consumer, permits) = (usize::try_from(below(4)).unwrap() % consumers, below(10));
                    subscription.flow(consumer, u32::try_from(permits).unwrap());
                    granted[consumer] += usize::try_from(permits).unwrap();
                }
                2 => {
                    scene.worker.run_next();
                }
                _ => {
                    scene.dispatcher.run_next();
                }
            }
            for (inbox, granted) in inboxes.iter().zip(&granted) {
                assert!(inbox.count() <= *granted, "{} of {granted}", inbox.count());
            }
            assert!(subscription.held() <= options.max_held as u64);
        }
        for round in 0.. {
            scene.run();
            if subscription.delivered() == u64::try_from(published).unwrap() {
                break;
            }
            assert!(round < published, "messages are left");
            (0..consumers).for_each(|consumer| subscription.flow(consumer, 5));
        }
        settle(&inboxes, published);
    }
}

/// F1: a consumer without permits stops no other; its messages are held in order, and released in order before any later one.
#[test]
fn held_messages_are_released_in_order() {
    let scene = Scene::new();
    let (inboxes, subscription) = scene.subscribe(by_key(7, 1_000), 2);
    subscription.flow(0, 10_000);
    scene.publish(0..400, 50);
    let (theirs, held) = (inboxes[0].count(), subscription.held());
    assert_eq!((inboxes[1].calls(), theirs + usize::try_from(held).unwrap()), (0, 400));
    assert!(theirs > 50 && held > 50, "both have keys: {theirs} and {held}");
    let mut given = 0;
    for permits in [1, 2, 30] {
        subscription.flow(1, permits);
        given += usize::try_from(permits).unwrap();
        scene.run();
        assert_eq!((inboxes[1].count(), subscription.held()), (given, held - given as u64));
    }
    scene.publish(400..500, 50);
    assert_eq!(inboxes[1].count(), given, "new ones wait behind those that are held");
    subscription.flow(1, 10_000);
    scene.run();
    assert_eq!(subscription.held(), 0);
    settle(&inboxes, 500);
    let entries = inboxes[1].entries();
    assert!(entries.is_sorted(), "in the order of the topic");
}

#[test]
fn nothing_is_read_at_the_limit_of_held_messages() {
    let scene = Scene::uncached();
    let (inboxes, subscription) = scene.subscribe(by_key(10, 25), 2);
    subscription.flow(0, 10_000);
    scene.publish(0..400, 50);
    assert_eq!(subscription.held(), 25);
    let read: usize = scene.storage.reads().iter().map(|(_, count)| count).sum();
    assert_eq!((read, subscription.unread()), (inboxes[0].count() + 25, 400 - read as u64));
    scene.publish(400..410, 50);
    subscription.flow(0, 5);
    scene.run();
    assert_eq!(scene.storage.reads(), [], "at the limit");
    subscription.flow(1, 3);
    scene.run();
    assert_eq!((inboxes[1].count(), subscription.held()), (3, 25), "as many as were released are read");
    assert!(!scene.storage.reads().is_empty());
    subscription.flow(1, 10_000);
    scene.run();
    settle(&inboxes, 410);
}

#[test]
fn limits_of_zero_are_limits_of_one() {
    let scene = Scene::uncached();
    let (inboxes, subscription) = scene.subscribe(by_key(0, 0), 2);
    (0..2).for_each(|consumer| subscription.flow(consumer, 100));
    scene.publish(0..20, 10);
    settle(&inboxes, 20);
    assert_eq!(scene.storage.reads().len(), 20, "one at a time");
}

/// K1: a message whose key cannot be found is delivered like one with an empty key.
#[test]
fn a_key_function_that_panics_loses_nothing() {
    fn picky(payload: &[u8]) -> &[u8] {
        if payload.ends_with(b"3") {
            support::go_off();
        }
        key_of(payload)
    }

    let scene = Scene::new();
    let mut options = by_key(10, 100);
    options.kind = Kind::KeyShared { key_of: picky };
    let (inboxes, subscription) = scene.subscribe(options, 4);
    (0..4).for_each(|consumer| subscription.flow(consumer, 100));
    scene.publish(0..50, 50);
    let mut all: Vec<_> = inboxes.iter().flat_map(|inbox| inbox.entries()).collect();
    all.sort_unstable();
    assert_eq!(all, (0..50).collect::<Vec<_>>());
    let with_keyless = inboxes.iter().filter(|inbox| inbox.entries().iter().any(|n| n % 10 == 3));
    assert_eq!(with_keyless.count(), 1, "they have one consumer");
}

#[test]
fn a_subscription_begins_where_it_is_told() {
    let scene = Scene::new();
    scene.publish(0..10, 1);
    let mut options = SubscriptionOptions::new(Kind::Exclusive);
    let (earliest, first) = scene.subscribe(options, 1);
    options.start = Start::Latest;
    let (latest, second) = scene.subscribe(options, 1);
    first.flow(0, 100);
    second.flow(0, 100);
    scene.publish(10..15, 1);
    assert_eq!(earliest[0].entries(), (0..15).collect::<Vec<_>>());
    assert_eq!(latest[0].entries(), (10..15).collect::<Vec<_>>());
    assert_eq!((first.mark_deleted(), second.mark_deleted()), (0, 10));
}

#[test]
fn the_earliest_message_is_the_first_that_was_not_acknowledged_by_all() {
    let scene = Scene::new();
    let (inbox, first) = scene.exclusive();
    first.flow(0, 10_000);
    scene.publish(0..10_000, 1);
    let positions: Vec<_> = inbox.received().iter().map(|message| message.position).collect();
    assert_eq!((first.acknowledge(&positions[1..]), first.mark_deleted()), (9_999, 0));
    assert_eq!((first.acknowledge(positions), first.mark_deleted()), (1, 10_000));
    let (late, second) = scene.exclusive();
    second.flow(0, 100);
    scene.publish(10_000..10_010, 1);
    assert_eq!(late.entries(), (10_000..10_010).collect::<Vec<_>>());
    assert!(late.failures().is_empty());
}

/// Counts messages, and keeps none.
#[derive(Default)]
struct Count(AtomicUsize);

impl Consumer for Count {
    fn deliver(&self, messages: &mut Vec<Message>) {
        self.0.fetch_add(messages.len(), Ordering::Relaxed);
    }
}

/// What is held for a consumer without permits keeps nobody from reading: it has bounds of its own, in messages and in bytes.
#[test]
fn what_is_held_takes_no_room_from_others_reads() {
    // As much as ten of the messages, which weigh little but what each of them is counted for.
    let scene = Scene::reading(10 * (6 + 64));
    let (counts, subscriptions): (Vec<_>, Vec<_>) = (0..2)
        .map(|_| {
            let counts: [Arc<Count>; 2] = [Arc::default(), Arc::default()];
            let consumers = counts.iter().map(shared).collect();
            let executor = scene.dispatcher.clone();
            let opened = scene.topic.subscribe(by_key(5, 1_000), consumers, executor, scene.timers.clone());
            (counts, opened.unwrap())
        })
        .unzip();
    for subscription in &subscriptions {
        subscription.flow(0, 1_000);
    }
    scene.publish(0..400, 40);
    let received =
        |subscription: usize, consumer: usize| counts[subscription][consumer].0.load(Ordering::Relaxed);
    for (number, subscription) in subscriptions.iter().enumerate() {
        let held = usize::try_from(subscription.held()).unwrap();
        assert!(held > 100, "{held} are held");
        assert_eq!(received(number, 0) + held, 400, "the other consumer has all of its own");
        subscription.flow(1, 1_000);
    }
    scene.run();
    assert_eq!(received(0, 0) + received(0, 1), 400);
}

#[test]
fn as_many_bytes_are_held_as_may_be() {
    let scene = Scene::new();
    let mut options = by_key(10, 1_000_000);
    options.max_held_bytes = 1_000;
    let (inboxes, subscription) = scene.subscribe(options, 2);
    subscription.flow(0, 1_000);
    scene.publish(0..1_000, 40);
    let held = subscription.held();
    // Of three to six bytes each; a read of ten may come beyond it.
    assert!((1_000 / 6..1_000 / 3 + 10).contains(&held), "{held} are held");
    assert!(subscription.unread() > 500, "nothing more is read");
    subscription.flow(1, 1_000);
    scene.run();
    settle(&inboxes, 1_000);
}
