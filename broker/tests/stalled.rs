//! Threads that stand still right before or right after a step of the dispatcher, while others go on.
#![cfg(not(any(loom, shuttle)))]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests run on the standard library only, and a failed unwrap fails the test"
)]

mod support;

use std::thread;

use folio_broker::Subscription;
use folio_ledger::{Policy, Position};
use folio_sync::Arc;
use folio_sync::test_util::pause::{Stop, When};

use support::{Inbox, Scene};

/// How many messages one of the two that go on publishes, and how many permits the other one gives, one at a time.
const ROUNDS: i64 = 10_000;

/// Messages that are delivered before.
const BEFORE: i64 = 10;

/// Permits that the stopped thread gives, or takes, and messages for them.
const MORE: i64 = 5;

const END: i64 = BEFORE + ROUNDS + MORE;

/// Which executor somebody runs while the thread stands; it is at one of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Runs {
    Both,
    Worker,
    Dispatcher,
}

/// A subscription with one consumer, which has had all messages and used all permits.
struct Stage {
    scene: Scene,
    inbox: Arc<Inbox>,
    subscription: Subscription,
}

impl Stage {
    fn new(completion: Policy) -> Self {
        let scene = Scene::with(|options| options.completion = completion);
        let (inbox, subscription) = scene.exclusive();
        scene.publish(0..BEFORE, 1);
        subscription.flow(0, u32::try_from(BEFORE).unwrap());
        scene.run();
        let stage = Self { scene, inbox, subscription };
        stage.has_delivered(BEFORE);
        stage
    }

    #[track_caller]
    fn has_delivered(&self, end: i64) {
        assert!(self.inbox.entries().into_iter().eq(0..end), "{} of {end}", self.inbox.count());
    }

    fn flow(&self, permits: i64) {
        self.subscription.flow(0, u32::try_from(permits).unwrap());
    }
}

/// Runs an operation that stops at a step; while it stands one other thread publishes ten thousand messages, and one gives as many permits, then
/// `meanwhile` runs.
#[track_caller]
fn stalled(
    at: &'static str,
    when: When,
    runs: Runs,
    stage: &Stage,
    operation: impl FnOnce(&Stage) + Send,
    meanwhile: impl FnOnce(&Stage),
) {
    let stop = Stop::new(at, when);
    thread::scope(|scope| {
        let thread = scope.spawn(|| stop.run(|| operation(stage)));
        let stopped = stop.stopped();
        thread::scope(|scope| {
            scope.spawn(|| publish(stage, runs));
            scope.spawn(|| give_permits(stage, runs));
        });
        meanwhile(stage);
        assert!(!thread.is_finished(), "it stands {when:?} {at}");
        drop(stopped);
        thread.join().unwrap();
    });
    stage.scene.run();
}

fn publish(stage: &Stage, runs: Runs) {
    for n in BEFORE..END {
        stage.scene.give(n..n + 1, 1);
        if runs != Runs::Dispatcher && n % 8 == 0 {
            stage.scene.worker.run_all();
        }
    }
}

fn give_permits(stage: &Stage, runs: Runs) {
    for n in 0..ROUNDS {
        stage.flow(1);
        if runs != Runs::Worker && n % 8 == 0 {
            stage.scene.dispatcher.run_all();
        }
        // What is done with, and what is told of it, wait for nobody either.
        let done = Position { ledger: 0, entry: n % BEFORE };
        assert_eq!(stage.subscription.acknowledge([done]), usize::from(n < BEFORE));
        assert!(stage.subscription.unread() <= END.unsigned_abs() && stage.subscription.held() == 0);
    }
}

/// F1: permits that are not given yet are nobody's; those that are given are taken, though the dispatcher was not told.
#[test]
fn a_consumer_stalled_as_it_gives_permits() {
    for (when, given) in [(When::Before, 0), (When::After, MORE)] {
        let stage = Stage::new(Policy::Inline);
        stalled(
            "dispatch.grant",
            when,
            Runs::Both,
            &stage,
            |stage| stage.flow(MORE),
            |stage| {
                stage.scene.run();
                stage.has_delivered(BEFORE + ROUNDS + given);
            },
        );
        stage.has_delivered(END);
    }
}

/// F1: a dispatcher that stands holds up neither publishers nor consumers; what they left it finds, and no more.
#[test]
fn a_dispatcher_stalled_as_it_takes_permits() {
    for when in [When::Before, When::After] {
        let stage = Stage::new(Policy::Inline);
        stage.flow(MORE);
        let dispatch = |stage: &Stage| assert!(stage.scene.dispatcher.run_all() > 0);
        stalled("dispatch.take", when, Runs::Worker, &stage, dispatch, |stage| stage.has_delivered(BEFORE));
        stage.has_delivered(END);
        stage.scene.publish(END..END + 1, 1);
        stage.has_delivered(END);
    }
}

/// R5: a result that is not posted, or not told of, is waited for; nobody reads beside it.
#[test]
fn a_worker_stalled_as_it_posts_a_result() {
    for when in [When::Before, When::After] {
        let stage = Stage::new(Policy::Affine);
        stage.scene.publish(BEFORE..BEFORE + 1, 1);
        stage.flow(MORE);
        stage.scene.dispatcher.run_all();
        assert_eq!(stage.scene.worker.queued(), 1, "the read is outstanding");
        let work = |stage: &Stage| assert!(stage.scene.worker.run_all() > 0);
        stalled("dispatch.post", when, Runs::Dispatcher, &stage, work, |stage| stage.has_delivered(BEFORE));
        stage.inbox.entries().windows(2).for_each(|pair| assert_eq!(pair[0] + 1, pair[1]));
        // One was published before, and the others' first has its number in its payload, too.
        assert_eq!(stage.inbox.count(), usize::try_from(END).unwrap());
    }
}

/// R5: the same for a dispatcher that fetches it.
#[test]
fn a_dispatcher_stalled_as_it_fetches_a_result() {
    for when in [When::Before, When::After] {
        let stage = Stage::new(Policy::Inline);
        stage.scene.worker.run_all();
        stage.flow(MORE);
        stage.scene.give(BEFORE..BEFORE + 1, 1);
        stage.scene.worker.run_all();
        let dispatch = |stage: &Stage| assert!(stage.scene.dispatcher.run_all() > 0);
        stalled("dispatch.fetch", when, Runs::Worker, &stage, dispatch, |stage| stage.has_delivered(BEFORE));
        stage.has_delivered(END);
    }
}

/// Before the flag is raised messages are delivered; after, none is, though the dispatcher was not told.
#[test]
fn a_thread_stalled_as_it_closes() {
    for (when, delivered) in [(When::Before, ROUNDS), (When::After, 0)] {
        let stage = Stage::new(Policy::Inline);
        stalled(
            "dispatch.close",
            when,
            Runs::Both,
            &stage,
            |stage| stage.subscription.close(),
            |stage| {
                stage.scene.run();
                stage.has_delivered(BEFORE + delivered);
            },
        );
        stage.flow(MORE);
        stage.scene.run();
        stage.has_delivered(BEFORE + delivered);
    }
}
