//! How subscriptions and topics end: nothing comes after a close, everything before the end, and nothing is left behind.
#![cfg(not(any(loom, shuttle)))]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests run on the standard library only, and a failed unwrap fails the test"
)]

mod support;

use folio_broker::{Kind, SubscribeError, Subscription, SubscriptionOptions};
use folio_ledger::Policy;
use folio_sync::{Arc, Mutex};

use support::{Inbox, KEY_SHARED, Scene, shared};

#[test]
fn the_number_of_consumers_must_fit_the_kind() {
    let scene = Scene::new();
    let subscribe = |kind, consumers| {
        let consumers = (0..consumers).map(|_| shared(&Inbox::new())).collect();
        let options = SubscriptionOptions::new(kind);
        scene.topic.subscribe(options, consumers, scene.dispatcher.clone(), scene.timers.clone()).err()
    };
    assert_eq!(subscribe(Kind::Exclusive, 0), Some(SubscribeError::NoConsumer));
    assert_eq!(subscribe(KEY_SHARED, 0), Some(SubscribeError::NoConsumer));
    assert_eq!(subscribe(Kind::Exclusive, 2), Some(SubscribeError::NotExclusive(2)));
    assert_eq!(subscribe(KEY_SHARED, 65_537), Some(SubscribeError::TooManyConsumers(65_537)));
    assert_eq!(subscribe(KEY_SHARED, 65_536), None);
    assert_eq!(
        SubscribeError::NotExclusive(2).to_string(),
        "an exclusive subscription has one consumer, not 2"
    );
}

#[test]
#[should_panic(expected = "index out of bounds")]
fn permits_for_a_consumer_that_is_not_there_are_a_mistake() {
    let scene = Scene::new();
    let (_inbox, subscription) = scene.exclusive();
    subscription.flow(1, 1);
}

#[test]
fn nothing_is_delivered_after_a_close() {
    let scene = Scene::new();
    let (inbox, subscription) = scene.exclusive();
    subscription.flow(0, 100);
    scene.publish(0..5, 1);
    scene.give(5..10, 1);
    scene.worker.run_all();
    assert_eq!(scene.dispatcher.queued(), 1, "told that there is more");
    subscription.close();
    scene.run();
    subscription.flow(0, 100);
    scene.publish(10..15, 1);
    subscription.close();
    scene.run();
    assert_eq!((inbox.count(), inbox.ended()), (5, 0));
    assert_eq!(subscription.acknowledge(inbox.received().iter().map(|m| m.position).collect::<Vec<_>>()), 5);
}

#[test]
fn a_read_that_comes_back_after_a_close_is_not_delivered() {
    let scene = Scene::with(|options| options.completion = Policy::Affine);
    let (inbox, subscription) = scene.exclusive();
    scene.publish(0..5, 1);
    subscription.flow(0, 100);
    scene.dispatcher.run_all();
    assert_eq!(scene.worker.queued(), 1, "the read is outstanding");
    subscription.close();
    scene.run();
    assert_eq!(inbox.calls(), 0);

    let (inbox, subscription) = scene.exclusive();
    subscription.flow(0, 100);
    scene.dispatcher.run_all();
    scene.worker.run_all();
    assert_eq!(scene.dispatcher.queued(), 1, "the read came back");
    subscription.close();
    scene.run();
    assert_eq!(inbox.calls(), 0);
}

#[test]
fn held_messages_are_not_delivered_after_a_close() {
    let scene = Scene::new();
    let (inboxes, subscription) = scene.subscribe(SubscriptionOptions::new(KEY_SHARED), 2);
    subscription.flow(0, 100);
    scene.publish(0..100, 50);
    assert!(subscription.held() > 0);
    subscription.flow(1, 100);
    subscription.close();
    scene.run();
    assert_eq!(inboxes[1].calls(), 0);
}

/// A place for a subscription that its own consumers close or drop.
type Place = Arc<Mutex<Option<Subscription>>>;

#[test]
fn a_close_inside_a_delivery_is_the_last_of_all_consumers() {
    for drops in [false, true] {
        let scene = Scene::new();
        let (inboxes, subscription) = scene.subscribe(SubscriptionOptions::new(KEY_SHARED), 3);
        (0..3).for_each(|consumer| subscription.flow(consumer, 1_000));
        let place: Place = Arc::new(Mutex::new(Some(subscription)));
        for inbox in &inboxes {
            let place = Arc::clone(&place);
            inbox.on_deliver(move |_| {
                let subscription = place.lock().take().expect("nothing is delivered after the close");
                subscription.close();
                if !drops {
                    *place.lock() = Some(subscription);
                }
            });
        }
        scene.publish(0..300, 50);
        assert_eq!(inboxes.iter().map(|inbox| inbox.calls()).sum::<usize>(), 1);
        scene.publish(300..310, 50);
        assert_eq!(inboxes.iter().map(|inbox| inbox.calls()).sum::<usize>(), 1);
        assert_eq!(place.lock().take().is_some(), !drops);
        for inbox in &inboxes {
            inbox.unhook();
        }
        scene.run();
        assert!(inboxes.iter().all(|inbox| Arc::strong_count(inbox) == 1), "nobody keeps the consumers");
    }
}

/// Brings a subscription into some state and drops it; nobody keeps its consumers then.
fn leaves_nothing(policy: Policy, state: impl FnOnce(&Scene, &Subscription)) {
    let scene = Scene::with(|options| options.completion = policy);
    let (inboxes, subscription) = scene.subscribe(SubscriptionOptions::new(KEY_SHARED), 2);
    state(&scene, &subscription);
    drop(subscription);
    let before: Vec<_> = inboxes.iter().map(|inbox| inbox.count()).collect();
    scene.run();
    scene.publish(1_000..1_010, 10);
    assert_eq!(
        inboxes.iter().map(|inbox| inbox.count()).collect::<Vec<_>>(),
        before,
        "nothing comes after the drop"
    );
    assert!(inboxes.iter().all(|inbox| Arc::strong_count(inbox) == 1), "nobody keeps the consumers");
    assert_eq!((scene.worker.queued(), scene.dispatcher.queued()), (0, 0));
}

#[test]
fn a_subscription_that_is_dropped_leaves_nothing_behind() {
    for policy in [Policy::Inline, Policy::Affine] {
        leaves_nothing(policy, |_, _| ());
        leaves_nothing(policy, |scene, _| scene.run());
        leaves_nothing(policy, |_, subscription| subscription.flow(0, 5));
        leaves_nothing(policy, |scene, subscription| {
            subscription.flow(0, 5);
            scene.publish(0..100, 10);
        });
        leaves_nothing(policy, |scene, subscription| {
            scene.publish(0..100, 10);
            subscription.flow(0, 5);
            scene.dispatcher.run_all();
        });
        leaves_nothing(policy, |scene, subscription| {
            subscription.flow(1, 5);
            scene.run();
            scene.give(0..100, 10);
            scene.worker.run_all();
        });
        leaves_nothing(policy, |_, subscription| subscription.close());
    }
}

#[test]
fn executors_that_drop_their_jobs_leave_nothing_behind() {
    for policy in [Policy::Inline, Policy::Affine] {
        let scene = Scene::with(|options| options.completion = policy);
        let (inbox, subscription) = scene.exclusive();
        scene.publish(0..10, 1);
        subscription.flow(0, 5);
        drop(scene.dispatcher.take_next());
        subscription.flow(0, 5);
        scene.dispatcher.run_all();
        drop(scene.worker.take_next());
        while let Some(job) = scene.dispatcher.take_next() {
            drop(job);
        }
        drop(subscription);
        while let Some(job) = scene.dispatcher.take_next() {
            drop(job);
        }
        assert_eq!(Arc::strong_count(&inbox), 1, "{policy:?}");
    }
}

#[test]
fn an_executor_that_is_closed_ends_the_dispatch_and_harms_nobody() {
    let scene = Scene::new();
    let (inbox, subscription) = scene.exclusive();
    subscription.flow(0, 5);
    scene.run();
    scene.dispatcher.close();
    scene.publish(0..10, 1);
    subscription.flow(0, 5);
    assert_eq!(scene.timers.set(), 0, "what is closed is not offered anything again");
    subscription.close();
    assert_eq!(inbox.calls(), 0);
    drop(subscription);
    assert_eq!(Arc::strong_count(&inbox), 1);
}

/// 1.12: messages that were taken before the topic was closed are delivered; then consumers are told of the end, once.
#[test]
fn the_end_of_a_topic_is_told_once_after_its_last_message() {
    let scene = Scene::new();
    let (inbox, subscription) = scene.exclusive();
    subscription.flow(0, 8);
    scene.give(0..10, 1);
    scene.topic.close();
    scene.give(10..12, 1);
    scene.run();
    assert_eq!((inbox.count(), inbox.ended()), (8, 0), "two wait for permits");
    subscription.flow(0, 2);
    scene.run();
    assert_eq!((inbox.count(), inbox.ended()), (10, 1), "with its last permits");
    subscription.flow(0, 100);
    scene.topic.close();
    scene.run();
    assert_eq!((inbox.count(), inbox.ended()), (10, 1));
}

#[test]
fn a_consumer_that_has_all_is_told_of_the_end_without_permits() {
    let scene = Scene::new();
    let (inbox, subscription) = scene.exclusive();
    let (idle, other) = scene.exclusive();
    subscription.flow(0, 10);
    scene.publish(0..10, 1);
    assert_eq!(inbox.count(), 10);
    scene.topic.close();
    scene.run();
    assert_eq!((inbox.ended(), idle.ended()), (1, 0));
    other.flow(0, 10);
    scene.run();
    assert_eq!((idle.count(), idle.ended()), (10, 1));

    let scene = Scene::new();
    let (inbox, _subscription) = scene.exclusive();
    scene.topic.close();
    scene.run();
    assert_eq!(inbox.ended(), 1, "there was nothing");
    let (inbox, _subscription) = scene.exclusive();
    scene.run();
    assert_eq!(inbox.ended(), 1, "there will be nothing");
}

#[test]
fn the_end_is_told_to_each_consumer_once_what_is_held_is_delivered() {
    let scene = Scene::new();
    let (inboxes, subscription) = scene.subscribe(SubscriptionOptions::new(KEY_SHARED), 3);
    subscription.flow(0, 1_000);
    subscription.flow(1, 1_000);
    scene.publish(0..100, 50);
    scene.topic.close();
    scene.run();
    let ended = || inboxes.iter().map(|inbox| inbox.ended()).collect::<Vec<_>>();
    assert!(subscription.held() > 0);
    assert_eq!(ended(), [0, 0, 0]);
    subscription.flow(2, u32::try_from(subscription.held()).unwrap());
    scene.run();
    assert_eq!((ended(), subscription.delivered()), (vec![1, 1, 1], 100));
}

#[test]
fn a_topic_that_is_dropped_has_ended() {
    let scene = Scene::new();
    let (inbox, subscription) = scene.exclusive();
    scene.publish(0..10, 1);
    let Scene { topic, dispatcher, .. } = scene;
    drop(topic);
    subscription.flow(0, 100);
    dispatcher.run_all();
    assert_eq!((inbox.count(), inbox.ended()), (10, 1));
}

#[test]
fn a_topic_that_ends_while_its_subscription_is_closed_tells_nothing() {
    let scene = Scene::new();
    let (inbox, subscription) = scene.exclusive();
    subscription.flow(0, 10);
    scene.run();
    subscription.close();
    scene.topic.close();
    scene.run();
    assert_eq!(inbox.ended(), 0);
}
