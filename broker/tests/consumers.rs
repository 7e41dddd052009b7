//! Consumers that panic, that call back, and that are told of reads that failed.
#![cfg(not(any(loom, shuttle)))]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests run on the standard library only, and a failed unwrap fails the test"
)]

mod support;

use std::time::Duration;

use folio_broker::{Subscription, SubscriptionOptions};
use folio_ledger::{Policy, ReadError};
use folio_sync::{Arc, Mutex, RejectReason};

use support::{KEY_SHARED, Scene, broken, go_off, payload};

/// A place for a subscription that its consumers use.
fn shared(subscription: Subscription) -> Arc<Mutex<Option<Arc<Subscription>>>> {
    Arc::new(Mutex::new(Some(Arc::new(subscription))))
}

#[test]
fn a_consumer_that_panics_has_had_its_messages_and_stops_no_other() {
    let scene = Scene::new();
    let (inboxes, subscription) = scene.subscribe(SubscriptionOptions::new(KEY_SHARED), 3);
    (0..3).for_each(|consumer| subscription.flow(consumer, 1_000));
    inboxes[0].on_deliver(|_| go_off());
    scene.publish(0..300, 50);
    scene.publish(300..400, 50);
    assert_eq!(inboxes.iter().map(|inbox| inbox.count()).sum::<usize>(), 400);
    assert_eq!((inboxes[0].calls(), subscription.delivered()), (2, 400));
    scene.topic.close();
    scene.run();
    assert_eq!(inboxes.iter().map(|inbox| inbox.ended()).collect::<Vec<_>>(), [1, 1, 1]);
}

#[test]
fn what_a_consumer_leaves_is_dropped_and_what_it_takes_is_its_own() {
    let scene = Scene::new();
    let (inbox, subscription) = scene.exclusive();
    subscription.flow(0, 1_000);
    inbox.on_deliver(|messages| {
        messages.truncate(1);
        messages.shrink_to_fit();
    });
    scene.publish(0..10, 1);
    inbox.on_deliver(|messages| drop(std::mem::take(messages)));
    scene.publish(10..20, 1);
    assert_eq!(inbox.entries(), (0..20).collect::<Vec<_>>());
}

#[test]
fn a_consumer_may_acknowledge_and_give_permits_inside_a_delivery() {
    let scene = Scene::new();
    let (inbox, subscription) = scene.exclusive();
    let place = shared(subscription);
    let subscription = place.lock().clone().unwrap();
    let inside = Arc::clone(&place);
    inbox.on_deliver(move |messages| {
        let subscription = inside.lock().clone().unwrap();
        let positions: Vec<_> = messages.iter().map(|message| message.position).collect();
        assert_eq!(subscription.acknowledge(&positions), positions.len());
        subscription.flow(0, u32::try_from(messages.len()).unwrap());
    });
    subscription.flow(0, 3);
    scene.publish(0..1_000, 1);
    assert_eq!(inbox.entries(), (0..1_000).collect::<Vec<_>>());
    assert_eq!((subscription.mark_deleted(), subscription.unread()), (1_000, 0));
    assert!(inbox.calls() >= 333, "never more than three at a time: {} calls", inbox.calls());
    place.lock().take();
}

#[test]
fn a_consumer_may_publish_inside_a_delivery() {
    let scene = Arc::new(Scene::new());
    let (inbox, subscription) = scene.exclusive();
    subscription.flow(0, 1_000);
    let inside = Arc::downgrade(&scene);
    inbox.on_deliver(move |messages| {
        let scene = inside.upgrade().unwrap();
        for message in messages.drain(..) {
            let n = message.position.entry;
            if n < 50 {
                scene.topic.publish(payload(0, n + 10), ());
            }
        }
    });
    scene.publish(0..10, 1);
    assert_eq!(inbox.entries(), (0..60).collect::<Vec<_>>());
}

/// A read that fails is told to all consumers, and its messages come when there is a reason to dispatch again.
#[test]
fn a_failed_read_is_told_and_its_messages_come_on_the_next_flow() {
    let scene = Scene::uncached();
    let (inboxes, subscription) = scene.subscribe(SubscriptionOptions::new(KEY_SHARED), 2);
    (0..2).for_each(|consumer| subscription.flow(consumer, 1_000));
    scene.publish(0..10, 10);
    scene.storage.fail(true);
    scene.publish(10..30, 10);
    for inbox in &inboxes {
        assert_eq!(inbox.failures(), [broken()]);
    }
    assert_eq!((subscription.delivered(), subscription.unread()), (10, 20));
    subscription.flow(0, 1);
    scene.run();
    assert_eq!(inboxes[1].failures(), [broken()], "it is tried again, and fails again");
    scene.storage.fail(false);
    assert_eq!(subscription.delivered(), 10);
    subscription.flow(1, 1);
    scene.run();
    assert_eq!((subscription.delivered(), subscription.unread()), (30, 0));
    let mut all: Vec<_> = inboxes.iter().flat_map(|inbox| inbox.entries()).collect();
    all.sort_unstable();
    assert_eq!(all, (0..30).collect::<Vec<_>>());
}

#[test]
fn a_consumer_may_give_permits_and_panic_as_a_read_fails() {
    let scene = Scene::uncached();
    let (inbox, subscription) = scene.exclusive();
    let place = shared(subscription);
    let subscription = place.lock().clone().unwrap();
    let (inside, storage) = (Arc::clone(&place), scene.storage.clone());
    inbox.on_failure(move || {
        storage.fail(false);
        inside.lock().clone().unwrap().flow(0, 1);
        go_off();
    });
    subscription.flow(0, 100);
    scene.storage.fail(true);
    scene.publish(0..10, 1);
    assert_eq!((inbox.failures(), inbox.count()), (vec![broken()], 10));
    place.lock().take();
}

/// R5: a read whose completion the worker does not take is a read that failed: its messages come on the next flow, or later without one.
#[test]
fn a_read_that_the_worker_refuses_is_repeated() {
    let scene = Scene::with(|options| options.completion = Policy::Affine);
    let (inbox, subscription) = scene.exclusive();
    scene.publish(0..10, 1);
    scene.worker.refuse_next(1);
    subscription.flow(0, 100);
    scene.run();
    assert_eq!(inbox.failures(), [ReadError::Rejected(RejectReason::Refused)]);
    subscription.flow(0, 1);
    scene.run();
    assert_eq!(inbox.entries(), (0..10).collect::<Vec<_>>());
    scene.give(10..20, 1);
    scene.worker.run_all();
    scene.worker.refuse_next(1);
    scene.run();
    assert_eq!(inbox.failures(), [ReadError::Rejected(RejectReason::Refused)]);
    scene.timers.advance(Duration::from_secs(15));
    scene.run();
    assert_eq!(inbox.entries(), (0..20).collect::<Vec<_>>());
}
