//! Reads that fail, and executors that do not take the dispatcher: both are tried again later, though nobody asks.
#![cfg(not(any(loom, shuttle)))]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests run on the standard library only, and a failed unwrap fails the test"
)]

mod support;

use std::time::Duration;

use folio_broker::{Kind, SubscribeError, Subscription, SubscriptionOptions};
use folio_ledger::Policy;
use folio_sync::timers::{TimerId, Timers};
use folio_sync::{Arc, Job, RejectReason, Rejected};

use support::{Inbox, KEY_SHARED, Place, Scene, broken, go_off, shared};

const SECOND: Duration = Duration::from_secs(1);
const MILLI: Duration = Duration::from_millis(1);

/// A scene whose messages come from storage.
fn uncached() -> (Scene, Arc<Inbox>, Subscription) {
    let scene = Scene::uncached();
    let (inbox, subscription) = scene.exclusive();
    (scene, inbox, subscription)
}

/// Advances the timers and runs everything; how many reads there were.
fn reads_after(scene: &Scene, by: Duration) -> usize {
    scene.storage.reads();
    scene.timers.advance(by);
    scene.run();
    scene.storage.reads().len()
}

/// R5: a read that failed is repeated after 15 seconds; each time that it fails again it is waited twice as long, up to a minute; and shorter again as
/// reads succeed.
#[test]
fn a_failed_read_is_repeated_after_a_while_though_nobody_asks() {
    let (scene, inbox, subscription) = uncached();
    subscription.flow(0, 1_000);
    scene.storage.fail(true);
    scene.publish(0..10, 1);
    assert_eq!((inbox.failures(), scene.timers.pending()), (vec![broken()], 1));
    for seconds in [15, 30, 60, 60] {
        assert_eq!(reads_after(&scene, SECOND * (seconds - 1)), 0, "before {seconds} s");
        assert_eq!(reads_after(&scene, SECOND), 1, "after {seconds} s");
        assert_eq!(inbox.failures(), [broken()]);
    }
    scene.storage.fail(false);
    assert_eq!(reads_after(&scene, SECOND * 60), 1);
    assert_eq!((inbox.entries(), scene.timers.pending()), ((0..10).collect(), 0));

    scene.storage.fail(true);
    scene.publish(10..20, 1);
    assert_eq!((reads_after(&scene, SECOND * 29), reads_after(&scene, SECOND)), (0, 1), "half of a minute");
    scene.storage.fail(false);
    assert_eq!(reads_after(&scene, SECOND * 60), 1);
    for n in 2..6 {
        scene.publish(n * 10..n * 10 + 10, 1);
    }
    scene.storage.fail(true);
    scene.publish(60..70, 1);
    assert_eq!((reads_after(&scene, SECOND * 14), reads_after(&scene, SECOND)), (0, 1), "as at first");
    subscription.close();
}

#[test]
fn the_delays_are_options() {
    let scene = Scene::uncached();
    let mut options = SubscriptionOptions::new(Kind::Exclusive);
    (options.retry_first, options.retry_most) = (10 * MILLI, 30 * MILLI);
    let (_inboxes, subscription) = scene.subscribe(options, 1);
    subscription.flow(0, 10);
    scene.storage.fail(true);
    scene.publish(0..10, 1);
    for millis in [10, 20, 30, 30] {
        assert_eq!(reads_after(&scene, MILLI * (millis - 1)), 0);
        assert_eq!(reads_after(&scene, MILLI), 1);
    }
    let refused = |first, most| {
        let mut options = SubscriptionOptions::new(Kind::Exclusive);
        (options.retry_first, options.retry_most) = (first, most);
        let consumers = vec![shared(&Inbox::new())];
        scene.topic.subscribe(options, consumers, scene.dispatcher.clone(), scene.timers.clone()).err()
    };
    assert_eq!(refused(Duration::ZERO, SECOND), Some(SubscribeError::RetryDelays));
    assert_eq!(refused(SECOND, MILLI), Some(SubscribeError::RetryDelays));
    assert_eq!(refused(SECOND, SECOND), None);
}

/// R5: permits may repeat a read before its time; then the timer is not needed any more, and if it fails again it stays.
#[test]
fn a_flow_repeats_a_failed_read_and_the_timer_stays_while_it_fails() {
    let (scene, inbox, subscription) = uncached();
    subscription.flow(0, 100);
    scene.storage.fail(true);
    scene.publish(0..10, 1);
    for _ in 0..3 {
        scene.timers.advance(SECOND);
        subscription.flow(0, 1);
        scene.run();
    }
    assert_eq!((inbox.failures().len(), scene.timers.set(), scene.timers.pending()), (4, 1, 1));
    assert_eq!(reads_after(&scene, SECOND * 12), 1, "15 s after the first failure");
    scene.storage.fail(false);
    subscription.flow(0, 1);
    scene.run();
    assert_eq!((inbox.count(), scene.timers.pending()), (10, 0));
}

/// Timers that are no good.
struct Broken {
    panics: bool,
}

impl Timers for Broken {
    fn once(&self, _delay: Duration, job: Job) -> Result<TimerId, Rejected<Job>> {
        if self.panics {
            go_off();
        }
        Err(Rejected::new(job, RejectReason::Closed))
    }

    fn cancel(&self, _timer: TimerId) -> Option<Job> {
        go_off();
    }
}

#[test]
fn without_timers_the_next_demand_does_it() {
    for panics in [false, true] {
        let scene = Scene::uncached();
        let inbox = Inbox::new();
        let consumers = vec![shared(&inbox)];
        let options = SubscriptionOptions::new(Kind::Exclusive);
        let subscription =
            scene.topic.subscribe(options, consumers, scene.dispatcher.clone(), Broken { panics }).unwrap();
        subscription.flow(0, 100);
        scene.storage.fail(true);
        scene.publish(0..10, 1);
        assert_eq!(inbox.failures(), [broken()], "once");
        scene.storage.fail(false);
        scene.dispatcher.refuse_next(1);
        subscription.flow(0, 1);
        scene.run();
        assert_eq!(inbox.count(), 0);
        subscription.flow(0, 1);
        scene.run();
        assert_eq!(inbox.entries(), (0..10).collect::<Vec<_>>());
    }
}

#[test]
fn a_subscription_that_is_closed_sets_no_timer_and_takes_its_own_back() {
    let (scene, inbox, subscription) = uncached();
    subscription.flow(0, 100);
    scene.storage.fail(true);
    scene.publish(0..10, 1);
    assert_eq!(scene.timers.pending(), 1);
    subscription.close();
    scene.run();
    assert_eq!((scene.timers.pending(), scene.timers.cancelled()), (0, 1));
    drop(subscription);
    scene.run();
    assert_eq!(Arc::strong_count(&inbox), 1, "nobody keeps the consumer");

    let (inbox, subscription) = scene.exclusive();
    subscription.flow(0, 100);
    scene.run();
    assert_eq!(scene.timers.pending(), 1);
    scene.dispatcher.close();
    drop(subscription);
    assert_eq!(Arc::strong_count(&inbox), 1, "a timer keeps nothing, though the executor is gone");
    assert_eq!(reads_after(&scene, SECOND * 100), 0);
}

/// What the dispatcher had to do when its executor was full.
#[derive(Clone, Copy, Debug)]
enum Refused {
    Flow,
    More,
    Result,
    Yield,
    Dropped,
}

/// A wake-up that the executor does not take is not lost: it is offered again by a timer.
#[test]
fn a_dispatcher_that_is_refused_is_offered_again_though_nobody_asks() {
    for refused in [Refused::Flow, Refused::More, Refused::Result, Refused::Yield, Refused::Dropped] {
        let scene = Scene::with(|options| {
            if let Refused::Result = refused {
                options.completion = Policy::Affine;
            }
        });
        let mut options = SubscriptionOptions::new(Kind::Exclusive);
        options.read_batch = 1;
        let (inboxes, subscription) = scene.subscribe(options, 1);
        scene.run();
        let messages = 200;
        let refuse = || scene.dispatcher.refuse_next(1);
        match refused {
            Refused::More => {
                subscription.flow(0, 1_000);
                scene.run();
                refuse();
                scene.give(0..messages, 1);
                scene.worker.run_all();
            }
            Refused::Flow => {
                scene.publish(0..messages, 1);
                refuse();
                subscription.flow(0, 1_000);
            }
            Refused::Result => {
                scene.publish(0..messages, 1);
                subscription.flow(0, 1_000);
                scene.dispatcher.run_all();
                refuse();
                scene.worker.run_all();
            }
            Refused::Yield => {
                scene.publish(0..messages, 1);
                subscription.flow(0, 1_000);
                refuse();
                scene.dispatcher.run_all();
                assert!(inboxes[0].count() > 0, "it is refused on its way");
            }
            Refused::Dropped => {
                scene.publish(0..messages, 1);
                subscription.flow(0, 1_000);
                drop(scene.dispatcher.take_next());
            }
        }
        scene.run();
        assert!(inboxes[0].count() < 200, "{refused:?}: it was refused");
        assert_eq!(scene.timers.pending(), 1, "{refused:?}");
        scene.timers.advance(MILLI);
        scene.run();
        assert_eq!(inboxes[0].entries(), (0..messages).collect::<Vec<_>>(), "{refused:?}");
        assert_eq!(scene.timers.set(), 1, "{refused:?}");
    }
}

#[test]
fn an_executor_that_stays_full_is_asked_more_and_more_seldom_by_one_timer() {
    let scene = Scene::new();
    let (inbox, subscription) = scene.exclusive();
    scene.publish(0..10, 1);
    let offered = |by: u64| {
        let before = scene.timers.fired();
        scene.timers.advance(Duration::from_millis(by));
        scene.timers.fired() - before
    };
    scene.dispatcher.refuse_next(usize::MAX);
    for _ in 0..100 {
        subscription.flow(0, 1);
    }
    assert_eq!(scene.timers.pending(), 1, "one for all");
    assert_eq!((offered(1), offered(1), offered(1), offered(4), offered(8)), (1, 0, 1, 1, 1));
    assert_eq!(offered(16 + 32 + 64 + 128 + 256 + 512), 6);
    assert_eq!((offered(1_000), offered(999), offered(1), scene.timers.pending()), (1, 0, 1, 1));
    scene.dispatcher.refuse_next(0);
    assert_eq!(offered(1_000), 1);
    scene.run();
    assert_eq!((inbox.count(), scene.timers.pending()), (10, 0));
    scene.dispatcher.refuse_next(1);
    scene.publish(10..20, 1);
    assert_eq!(offered(1), 1, "as soon as at first");
    scene.run();
    assert_eq!(inbox.count(), 20);
}

#[test]
fn a_close_that_a_full_executor_refuses_drops_what_was_held() {
    let scene = Scene::new();
    let (inboxes, subscription) = scene.subscribe(SubscriptionOptions::new(KEY_SHARED), 2);
    subscription.flow(0, 100);
    scene.publish(0..100, 50);
    assert!(subscription.held() > 0);
    scene.dispatcher.refuse_next(usize::MAX);
    subscription.close();
    assert_eq!((subscription.held(), scene.timers.pending()), (0, 0));
    let calls: usize = inboxes.iter().map(|inbox| inbox.calls()).sum();
    scene.run();
    assert_eq!(inboxes.iter().map(|inbox| inbox.calls()).sum::<usize>(), calls);

    let (inbox, subscription) = scene.exclusive();
    subscription.flow(0, 10);
    assert_eq!(scene.timers.pending(), 1);
    drop(subscription);
    assert_eq!(Arc::strong_count(&inbox), 1, "the timer that is still set keeps nothing");
    scene.timers.advance(SECOND);
    assert_eq!(scene.timers.pending(), 0);
}

/// The executor is full again and again beside publishers and consumers on threads of their own: nothing is lost, and nothing waits for ever.
#[test]
fn an_executor_that_refuses_now_and_then_loses_nothing() {
    const MESSAGES: i64 = 2_000;
    let scene = Scene::new();
    let (inboxes, subscription) = scene.subscribe(SubscriptionOptions::new(KEY_SHARED), 3);
    let subscription = Arc::new(subscription);
    for (number, inbox) in inboxes.iter().enumerate() {
        let place = Place::default();
        place.set(&subscription);
        inbox.on_deliver(move |messages| place.get().flow(number, u32::try_from(messages.len()).unwrap()));
        subscription.flow(number, 7);
    }
    scene.dispatcher.refuse_every(2);
    let total = || inboxes.iter().map(|inbox| inbox.count()).sum::<usize>();
    let everything = usize::try_from(MESSAGES).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| scene.give(0..MESSAGES, 30));
        scope.spawn(|| {
            while total() < everything {
                scene.worker.run_next();
                std::thread::yield_now();
            }
        });
        while total() < everything {
            scene.dispatcher.run_next();
            scene.timers.advance(MILLI);
        }
    });
    assert!(scene.timers.set() > 0, "it was refused");
    let mut all: Vec<_> = inboxes.iter().flat_map(|inbox| inbox.entries()).collect();
    all.sort_unstable();
    assert_eq!(all, (0..MESSAGES).collect::<Vec<_>>());
    for inbox in &inboxes {
        inbox.unhook();
    }
}
