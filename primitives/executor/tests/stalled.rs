//! Threads that stand still right before or right after a step, while others go on.
#![cfg(not(any(loom, shuttle)))]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests run on the standard library only, and their helpers unwrap as they do"
)]

mod support;

use folio_sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use folio_executor::{BatchingExecutor, Builder, OrderedExecutor};
use folio_sync::test_util::pause::{Stop, When};
use folio_sync::{Executor, Job, RejectReason, Rejected};
use support::{Account, Gate, Settled, Task, by, until};

/// Tasks of each of the two threads that go on.
const EACH: usize = 5_000;
const BOTH: usize = 2 * EACH;

/// Who submits, as the producers of the account: the test itself, the thread that stops, the two others.
const TEST: usize = 0;
const STOPPED: usize = 1;
const OTHERS: [usize; 2] = [2, 3];

/// An executor with blocks of 2 whose first batch runs on one worker, and all others on a second.
struct Scene {
    executor: BatchingExecutor<Task, 2>,
    account: Arc<Account>,
    pool: OrderedExecutor,
    /// The first worker stands here until it is opened.
    gate: Gate,
}

impl Scene {
    /// The first batch stops where `consumer` says.
    fn new(consumer: Option<&Arc<Stop>>) -> Self {
        let account = Account::new(4, EACH);
        let pool = OrderedExecutor::builder().threads(2).build().unwrap();
        let gate = Gate::hold(&pool.workers()[0]);
        let (first, second) = (pool.workers()[0].clone(), pool.workers()[1].clone());
        let (is_first, consumer) = (AtomicBool::new(true), consumer.cloned());
        let delegate = by(move |job| {
            if !is_first.swap(false, Ordering::Relaxed) {
                return second.submit(job);
            }
            match consumer.clone() {
                Some(stop) => first.submit(Job::new(move || stop.run(|| job.run()))),
                None => first.submit(job),
            }
        });
        let ran = Arc::clone(&account);
        let executor =
            Builder::<Task, 2>::new(move |task| ran.run(task)).max_items(3).build(delegate).unwrap();
        Self { executor, account, pool, gate }
    }

    fn submit(&self, producer: usize, count: usize) {
        for number in 0..count {
            self.executor.submit((producer, number)).unwrap();
        }
    }

    /// Two threads submit 10,000 tasks, and return.
    fn others_submit(&self) {
        support::producers(2, |thread| self.submit(OTHERS[thread], EACH));
    }

    /// Waits until this many tasks have run and this many are queued: nothing moves before the stopped thread goes on.
    fn comes_to_rest(&self, ran: usize, queued: usize) {
        until("it comes to rest", || self.account.ran() == ran as u64 && self.executor.queued() == queued);
        for _ in 0..100 {
            thread::yield_now();
        }
        assert_eq!((self.account.ran(), self.executor.queued()), (ran as u64, queued));
    }

    /// After the stopped thread went on: everything has run.
    fn ends(self, by_test: usize, by_stopped: usize) {
        self.executor.flush().wait().unwrap();
        let ran = by_test + by_stopped + BOTH;
        let settled = self.account.settle_first(&[by_test, by_stopped, EACH, EACH]);
        assert_eq!(settled, Settled { ran, handed: 0, returned: 0 });
        assert_eq!(self.executor.queued(), 0);
        assert!(self.pool.join().unwrap().is_empty());
    }
}

/// A producer stops, with `ahead` tasks queued before its own; so many run and are queued while it stands.
fn a_producer_stops(at: &'static str, when: When, ahead: usize, ran: usize, queued: usize) {
    let scene = Scene::new(None);
    scene.submit(TEST, ahead);
    let stop = Stop::new(at, when);
    thread::scope(|scope| {
        let producer = scope.spawn(|| stop.run(|| scene.executor.submit((STOPPED, 0))));
        let stopped = stop.stopped();
        scene.others_submit();
        scene.gate.open();
        scene.comes_to_rest(ran, queued);
        assert!(!producer.is_finished());
        drop(stopped);
        producer.join().unwrap().unwrap();
    });
    scene.ends(ahead, 1);
}

/// A batch stops that had `ahead` tasks when it began; batches take three. So many run and are queued while it stands.
fn a_batch_stops(at: &'static str, when: When, ahead: usize, ran: usize, queued: usize) {
    let stop = Arc::new(Stop::new(at, when));
    let scene = Scene::new(Some(&stop));
    scene.submit(TEST, ahead);
    scene.gate.open();
    let stopped = stop.stopped();
    scene.others_submit();
    scene.comes_to_rest(ran, queued);
    drop(stopped);
    scene.ends(ahead, 0);
}

/// I1, I4: a producer before its claim holds up nobody.
#[test]
fn a_producer_stalled_before_its_claim() {
    a_producer_stops("queue.claim", When::Before, 0, BOTH, 0);
    a_producer_stops("queue.claim", When::Before, 2, 2 + BOTH, 0);
}

/// I1, I2, I4: a producer that has claimed holds back what is behind its claim, and nothing before it.
#[test]
fn a_producer_stalled_after_its_claim() {
    a_producer_stops("queue.claim", When::After, 0, 0, 1 + BOTH);
    a_producer_stops("queue.claim", When::After, 2, 2, 1 + BOTH);
}

/// I1, I2, I4: a producer that has found its slot and not filled it.
#[test]
fn a_producer_stalled_before_its_publication() {
    a_producer_stops("queue.publish", When::Before, 0, 0, 1 + BOTH);
    a_producer_stops("queue.publish", When::Before, 2, 2, 1 + BOTH);
}

/// I1, I4: a producer that has published holds up nobody, unless it is the one that has to schedule.
#[test]
fn a_producer_stalled_after_its_publication() {
    a_producer_stops("queue.publish", When::After, 0, 0, 1 + BOTH);
    a_producer_stops("queue.publish", When::After, 2, 3 + BOTH, 0);
}

/// I1, I2, I4: others link the next block, and the stalled one's is given up.
#[test]
fn a_producer_stalled_before_it_links_a_block() {
    a_producer_stops("queue.link", When::Before, 1, 1, 1 + BOTH);
}

/// I1, I2, I4: others use the block that the stalled one has linked.
#[test]
fn a_producer_stalled_after_it_linked_a_block() {
    a_producer_stops("queue.link", When::After, 1, 1, 1 + BOTH);
}

/// I1, I2, I4: others move the tail, far beyond the stalled one's block.
#[test]
fn a_producer_stalled_before_it_moves_the_tail() {
    a_producer_stops("queue.move", When::Before, 2, 2, 1 + BOTH);
}

/// I1, I2, I4: the tail is moved and the block behind is not released.
#[test]
fn a_producer_stalled_after_it_moved_the_tail() {
    a_producer_stops("queue.move", When::After, 2, 2, 1 + BOTH);
}

/// I1, I2, I4: the same, right before the block behind is released.
#[test]
fn a_producer_stalled_before_it_releases_a_block() {
    a_producer_stops("queue.release", When::Before, 2, 2, 1 + BOTH);
}

/// I1, I2, I4: the ticket of the release is read and not told.
#[test]
fn a_producer_stalled_after_it_read_the_ticket_of_a_release() {
    a_producer_stops("queue.release", When::After, 2, 2, 1 + BOTH);
}

/// I1, I3, I4: a batch that has not taken its turn: nobody else takes it, and submitting goes on.
#[test]
fn a_batch_stalled_before_it_begins() {
    a_batch_stops("queue.begin", When::Before, 1, 0, 1 + BOTH);
}

/// I1, I3, I4: a batch that has the turn and has run nothing.
#[test]
fn a_batch_stalled_after_it_began() {
    a_batch_stops("queue.begin", When::After, 1, 0, 1 + BOTH);
}

/// I1, I3, I4: a batch that has run its tasks and not said so.
#[test]
fn a_batch_stalled_before_it_ends() {
    a_batch_stops("queue.end", When::Before, 1, 1, 1 + BOTH);
}

/// I1, I3, I4: a batch that left nothing is done with: other batches run though its thread stands.
#[test]
fn a_batch_stalled_after_it_ended() {
    a_batch_stops("queue.end", When::After, 1, 1 + BOTH, 0);
}

/// I1, I4: a batch that has ended at its limit and not yet put the turn up.
#[test]
fn a_batch_stalled_before_it_offers_the_turn_again() {
    a_batch_stops("queue.again", When::Before, 4, 3, 1 + BOTH);
}

/// I1, I4: a batch that has put the turn up and not yet submitted the next.
#[test]
fn a_batch_stalled_after_it_offered_the_turn_again() {
    a_batch_stops("queue.again", When::After, 4, 3, 1 + BOTH);
}

/// Batch and producer both stop: the batch where it finds a claimed slot that is not written, the producer before it writes it.
fn a_batch_and_a_producer_stop(when: When) {
    let batch = Arc::new(Stop::new("queue.await", when));
    let scene = Scene::new(Some(&batch));
    scene.submit(TEST, 1);
    let publish = Stop::new("queue.publish", When::Before);
    thread::scope(|scope| {
        let producer = scope.spawn(|| publish.run(|| scene.executor.submit((STOPPED, 0))));
        let claimed = publish.stopped();
        scene.gate.open();
        let at_await = batch.stopped();
        scene.others_submit();
        scene.comes_to_rest(1, 1 + BOTH);
        drop(claimed);
        producer.join().unwrap().unwrap();
        match when {
            // The slot is written before it is awaited: the turn is still the batch's.
            When::Before => scene.comes_to_rest(1, 1 + BOTH),
            // The slot was awaited: its writer has the turn, and all run while the batch stands.
            When::After => scene.comes_to_rest(2 + BOTH, 0),
        }
        drop(at_await);
    });
    scene.ends(1, 1);
}

/// I1, I3, I4: the slot is written while the batch is about to await it.
#[test]
fn a_batch_stalled_before_it_awaits_a_slot() {
    a_batch_and_a_producer_stop(When::Before);
}

/// I1, I3, I4: the slot is written after it was awaited: its writer schedules the next batch.
#[test]
fn a_batch_stalled_after_it_awaited_a_slot() {
    a_batch_and_a_producer_stop(When::After);
}

/// I1, I4, I7: a refusal does not wait for a claimed slot; who completes it gets that task back, and the rest goes to the handler.
#[test]
fn a_refusal_does_not_wait_for_a_claimed_slot() {
    for others_first in [false, true] {
        let account = Account::new(4, EACH);
        let submitting = Gate::new();
        let (inside, first) = (submitting.clone(), AtomicBool::new(true));
        let (ran, handed) = (Arc::clone(&account), Arc::clone(&account));
        let executor = Builder::<Task, 2>::new(move |task| ran.run(task))
            .on_rejected(move |rejected: Rejected<Task>| handed.hand(rejected.value))
            .build(by(move |job| {
                if first.swap(false, Ordering::Relaxed) {
                    inside.pass();
                }
                Err(Rejected::new(job, RejectReason::Refused))
            }))
            .unwrap();
        let submit = |task| {
            let result = executor.submit(task);
            if let Err(rejected) = &result {
                assert_eq!((rejected.value, rejected.reason), (task, RejectReason::Refused));
                account.give_back(task);
            }
            result.is_ok()
        };
        let others = || {
            support::producers(2, |thread| {
                (0..EACH).for_each(|number| assert!(submit((OTHERS[thread], number))));
            });
        };
        let stop = Stop::new("queue.claim", When::After);
        thread::scope(|scope| {
            let refused = scope.spawn(|| submit((TEST, 0)));
            submitting.wait_until_reached();
            if others_first {
                others();
            }
            let stalled = scope.spawn(|| stop.run(|| submit((STOPPED, 0))));
            let stopped = stop.stopped();
            if !others_first {
                others();
            }
            submitting.open();
            assert!(!refused.join().unwrap(), "the refused submitter returns while the other stands");
            assert_eq!(executor.queued(), if others_first { 1 } else { 1 + BOTH });
            assert!(!stalled.is_finished());
            drop(stopped);
            assert!(!stalled.join().unwrap(), "who completes the slot has its task back");
        });
        assert_eq!(executor.queued(), 0);
        let settled = account.settle_first(&[1, 1, EACH, EACH]);
        assert_eq!(settled, Settled { ran: 0, handed: BOTH, returned: 2 });
    }
}
