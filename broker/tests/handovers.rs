//! How often a message changes threads on its way, counted by the executors.
#![cfg(not(any(loom, shuttle)))]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests run on the standard library only, and a failed unwrap fails the test"
)]

mod support;

use folio_broker::{Kind, SubscriptionOptions};
use folio_ledger::Policy;

use support::{KEY_SHARED, Scene};

/// Publishes batches and lets them through; hand-overs to the ledger's worker and to the dispatcher.
fn handovers(policy: Policy, kind: Kind, batches: i64, each: i64) -> (usize, usize) {
    let scene = Scene::with(|options| options.completion = policy);
    let (inboxes, subscription) =
        scene.subscribe(SubscriptionOptions::new(kind), if matches!(kind, Kind::Exclusive) { 1 } else { 4 });
    (0..inboxes.len()).for_each(|consumer| subscription.flow(consumer, 1_000_000));
    scene.run();
    let before = (scene.worker.handovers(), scene.dispatcher.handovers());
    for batch in 0..batches {
        scene.publish(batch * each..(batch + 1) * each, 50);
    }
    assert_eq!(
        inboxes.iter().map(|inbox| inbox.count()).sum::<usize>(),
        usize::try_from(batches * each).unwrap()
    );
    let all = u64::try_from(batches * each).unwrap();
    let reads = scene.topic.ledger().cache().snapshot();
    assert_eq!((reads.entries_hit, reads.storage_entries), (all, 0));
    assert!(
        scene.worker.take_blocked().is_empty() && scene.dispatcher.take_blocked().is_empty(),
        "nobody blocked"
    );
    (scene.worker.handovers() - before.0, scene.dispatcher.handovers() - before.1)
}

/// Two a batch: to the ledger's worker, and to the dispatcher; acknowledging and giving permits are none.
#[test]
fn a_batch_changes_threads_twice() {
    for kind in [Kind::Exclusive, KEY_SHARED] {
        assert_eq!(handovers(Policy::Inline, kind, 20, 500), (20, 20));
        assert_eq!(handovers(Policy::Inline, kind, 100, 1), (100, 100), "at most two a message");
    }
}

/// What inline completion saves: the read's way to the worker and back.
#[test]
fn affine_completion_costs_two_more() {
    assert_eq!(handovers(Policy::Affine, KEY_SHARED, 20, 500), (40, 40));
}

#[test]
fn a_dispatcher_that_has_much_to_do_stays_on_its_thread() {
    let scene = Scene::new();
    let mut options = SubscriptionOptions::new(Kind::Exclusive);
    options.read_batch = 1;
    let (inboxes, subscription) = scene.subscribe(options, 1);
    scene.run();
    scene.publish(0..1_000, 1);
    let (submissions, handovers) = (scene.dispatcher.submissions(), scene.dispatcher.handovers());
    subscription.flow(0, 1_000);
    scene.run();
    assert_eq!(inboxes[0].count(), 1_000);
    assert_eq!(scene.dispatcher.handovers() - handovers, 1);
    let yields = scene.dispatcher.submissions() - submissions - 1;
    assert!((20..60).contains(&yields), "others have their turn meanwhile: {yields} yields");
}
