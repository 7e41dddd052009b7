//! A small replicator whose read owner is a turn, and the races that the turn decides.
#![cfg(not(any(loom, shuttle)))]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests of the standard build use the standard library's own types, and unwrap also in their helpers"
)]

mod model;
mod world;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use folio_sync::Mutex;
use folio_sync::unwind::catch;
use model::{Planted, Replicator, State, Timers};
use world::{Event, ReadError};

/// A replicator that is checked at its end: nothing held, everything released, never nested.
struct Rig(Arc<Replicator>);

impl Rig {
    fn new() -> Self {
        Self::with_budget(64)
    }

    fn with_budget(budget: u32) -> Self {
        Self(Replicator::new(budget, Planted::Nothing))
    }

    fn with_fault(planted: Planted) -> Self {
        Self(Replicator::new(64, planted))
    }

    /// Cached batches of these sizes.
    fn cache(&self, batches: impl IntoIterator<Item = usize>) {
        self.world.cursor.lock().cached.extend(batches);
    }

    fn on_send(&self, hook: impl Fn(&Arc<Replicator>, u64) + Send + Sync + 'static) {
        let weak = Arc::downgrade(&self.0);
        let hook = move |position| hook(&weak.upgrade().expect("alive"), position);
        self.world.producer.lock().on_send = Some(Arc::new(hook));
    }

    /// The producer completes each send inside the call.
    fn complete_sends(&self) {
        self.on_send(|replicator, position| replicator.on_sent(position, true));
    }

    fn hook(&self, act: impl FnOnce(&Arc<Replicator>) + Send + 'static) -> world::Hook {
        let weak = Arc::downgrade(&self.0);
        Box::new(move || act(&weak.upgrade().expect("alive")))
    }

    fn set_state(&self, state: State) {
        self.monitor.lock().state = state;
    }

    fn has_timer(&self) -> bool {
        self.monitor.lock().timer
    }

    /// A read is under way and has not come back.
    fn reading(&self) {
        self.read_more();
        assert!(self.world.is_pending());
    }
}

impl std::ops::Deref for Rig {
    type Target = Arc<Replicator>;

    fn deref(&self) -> &Arc<Replicator> {
        &self.0
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(self.executor.queued(), 0, "a turn is left queued");
            assert_eq!(self.world.live(), 0, "an entry is left unreleased");
            assert!(self.world.deepest.load(Ordering::Relaxed) <= 1, "cursor callbacks nested");
            assert!(self.executor.take_blocked().is_empty());
            assert_eq!(self.monitor.lock().rewind_holds, 0);
        }
        self.forget_turn();
        let mut cursor = self.world.cursor.lock();
        drop((cursor.pending.take(), cursor.before_read.take(), cursor.after_read.take()));
    }
}

/// O1, O2, O3, R6, 11.6: race 1: an acknowledgement between two sends, whose read would complete at once, lets nothing overtake.
#[test]
fn an_acknowledgement_in_the_middle_of_a_batch_lets_nothing_overtake() {
    let rig = Rig::new();
    rig.cache([2, 2]);
    rig.on_send(|replicator, position| {
        if position == 0 {
            std::thread::scope(|scope| {
                let acknowledging = scope.spawn(|| {
                    replicator.on_sent(0, true);
                    replicator.read_more();
                });
                acknowledging.join().unwrap();
            });
            assert_eq!((replicator.world.reads(), replicator.world.sent()), (1, vec![0]));
        } else {
            replicator.on_sent(position, true);
        }
    });
    rig.read_more();
    assert_eq!(rig.world.sent(), [0, 1, 2, 3]);
    assert_eq!(rig.executor.submissions(), 0);
}

/// O5, R2, I63, 11.6: race 2: a producer that completes on the submitting thread, whose callback asks for more, does not recurse.
#[test]
fn inline_acknowledgements_do_not_recurse() {
    let rig = Rig::new();
    rig.cache([1, 1, 1, 1]);
    rig.on_send(|replicator, position| {
        replicator.on_sent(position, true);
        replicator.read_more();
    });
    rig.read_more();
    assert_eq!(rig.world.sent(), [0, 1, 2, 3]);
}

/// O5, O6, O15, 11.6: race 3: cached batches under every budget: exact reads and submissions before the yield, one queued turn, in order.
#[test]
fn cached_batches_yield_exactly_and_stay_in_order() {
    for budget in [1, 2, 3, 64, 128_u32] {
        let rig = Rig::with_budget(budget);
        rig.cache([1; 256]);
        rig.complete_sends();
        rig.read_more();
        let budget = budget as usize;
        let exact = (budget.div_ceil(2), budget / 2);
        assert_eq!((rig.world.reads(), rig.world.sent().len()), exact, "budget {budget}");
        assert_eq!(rig.executor.queued(), 1);
        rig.read_more();
        assert_eq!((rig.world.reads(), rig.world.sent().len()), exact, "a request during the yield");
        while rig.executor.run_next() {
            assert!(rig.executor.queued() <= 1, "one queued turn");
        }
        assert_eq!(rig.world.sent(), (0..256).collect::<Vec<_>>());
        assert_eq!((rig.world.reads(), rig.tasks()), (257, 1));
        assert!(rig.world.is_pending(), "one read is outstanding at the end");
        assert_eq!(rig.most_tasks.load(Ordering::Relaxed), 1);
    }
}

/// O7, O9, 11.6: race 4: a result that was asked for before a rewind is released unsent; then comes the rewind, then a new read.
#[test]
fn a_stale_result_is_released_and_read_again() {
    let rig = Rig::new();
    rig.reading();
    rig.begin_rewind();
    rig.end_rewind(true);
    assert_eq!(rig.world.take_events(), [Event::Read(0), Event::Cancel(false)]);
    rig.world.complete(2);
    assert_eq!(rig.world.take_events(), [Event::Rewind, Event::Read(0)]);
    assert_eq!(rig.world.live(), 0);
}

/// O9, 11.6: race 5: a rewind between the reservation and the cursor call is done after the read has come back.
#[test]
fn a_rewind_between_reservation_and_read_comes_after_the_stale_result() {
    let rig = Rig::new();
    let hook = rig.hook(|replicator| {
        replicator.begin_rewind();
        replicator.end_rewind(true);
    });
    rig.world.cursor.lock().before_read = Some(hook);
    rig.read_more();
    assert_eq!(rig.world.take_events(), [Event::Read(0), Event::Cancel(false)]);
    rig.world.complete(3);
    assert_eq!(rig.world.take_events(), [Event::Rewind, Event::Read(0)]);
}

/// O10, 11.6: race 6: a read that the cursor cancels is settled at once, and none follows while rewinds are held.
#[test]
fn a_cancelled_read_is_settled_at_once() {
    let rig = Rig::new();
    rig.world.cursor.lock().cancels.push_back(true);
    let hook = rig.hook(|replicator| replicator.begin_rewind());
    rig.world.cursor.lock().before_read = Some(hook);
    rig.read_more();
    assert_eq!(rig.world.take_events(), [Event::Read(0), Event::Cancel(true)]);
    assert_eq!((rig.tasks(), rig.permits()), (0, 1_000));
    rig.read_more();
    assert_eq!(rig.world.take_events(), []);
    rig.end_rewind(false);
    assert_eq!(rig.world.take_events(), [Event::Rewind, Event::Read(0)], "what was asked for is kept");
}

/// O11, 11.6: race 7: a failed read waits for its timer; a demand before that reads at once, and the timer then reads no second time.
#[test]
fn a_failed_read_waits_for_the_timer_or_for_demand() {
    let rig = Rig::new();
    rig.reading();
    rig.world.fail(ReadError::TooManyRequests, 0);
    assert!(rig.has_timer());
    assert_eq!(rig.world.reads(), 1);
    rig.read_more();
    assert_eq!(rig.world.reads(), 2);
    rig.fire_timer();
    assert_eq!(rig.world.reads(), 2, "the timer found a read outstanding");
}

/// O11, O12, I64, 11.6: race 8: an acknowledgement while the read is outstanding queues nothing and allows one immediate retry.
#[test]
fn an_acknowledgement_during_a_read_allows_one_retry() {
    race_8(Planted::Nothing);
}

fn race_8(planted: Planted) {
    let rig = Rig::with_fault(planted);
    rig.cache([2]);
    rig.on_send(|_, _| ());
    rig.read_more();
    assert!(rig.world.is_pending(), "the second read");
    rig.on_sent(0, true);
    assert_eq!((rig.executor.submissions(), rig.world.reads()), (0, 2));
    rig.world.fail(ReadError::TooManyRequests, 0);
    assert_eq!(rig.world.reads(), 3, "one retry without the timer");
    rig.world.fail(ReadError::TooManyRequests, 0);
    assert_eq!(rig.world.reads(), 3);
    rig.fire_timer();
    assert_eq!((rig.world.reads(), rig.executor.submissions()), (4, 0));
}

/// O14, 11.6: race 9: where no timer can be set, whether it is refused or the timers throw, the replicator ends.
#[test]
fn a_retry_that_cannot_be_scheduled_terminates() {
    for timers in [Timers::Refuse, Timers::Panic] {
        let rig = Rig::new();
        *rig.timers.lock() = timers;
        rig.reading();
        rig.world.fail(ReadError::TooManyRequests, 0);
        assert_eq!((rig.state(), rig.has_timer(), rig.world.reads()), (State::Terminated, false, 1));
        rig.read_more();
        assert_eq!(rig.world.take_events(), [Event::Read(0), Event::ProducerClosed]);
    }
}

/// O13, I65, 11.6: race 11: a producer start that throws after a new owner submitted a result neither releases that nor reads it again.
#[test]
fn a_late_error_of_the_producer_start_leaves_the_result_alone() {
    race_11(Planted::Nothing);
}

fn race_11(planted: Planted) {
    let rig = Rig::with_fault(planted);
    rig.on_send(|_, _| ());
    rig.reading();
    rig.set_state(State::Disconnected);
    let hook = rig.hook(|replicator| {
        replicator.monitor.lock().state = State::Started;
        std::thread::scope(|scope| {
            scope.spawn(|| replicator.read_more()).join().unwrap();
        });
        assert_eq!(replicator.world.sent(), [0], "a new owner was here before the start is over");
        std::panic::resume_unwind(Box::new("the start failed late"));
    });
    rig.world.producer.lock().on_start = Some(hook);
    rig.world.complete(1);
    assert_eq!(rig.world.take_events(), [Event::Read(0)], "the result is held, and nobody owns the turn");
    assert_eq!(rig.executor.run_all(), 1);
    assert!(rig.has_timer());
    assert_eq!(
        rig.world.take_events(),
        [Event::ProducerStart, Event::Sent(0), Event::Read(1)],
        "submitted once; no cancel, no rewind"
    );
}

/// O9, R5, I27, 11.6: race 12: a completion that was rejected after the cursor advanced is followed by a rewind before the next read.
#[test]
fn a_rejected_completion_rewinds_before_the_next_read() {
    race_12(State::Started, Planted::Nothing);
    race_12(State::Disconnected, Planted::Nothing);
}

fn race_12(state: State, planted: Planted) {
    let rig = Rig::with_fault(planted);
    rig.cache([1]);
    rig.complete_sends();
    rig.read_more();
    assert_eq!(rig.world.take_events(), [Event::Read(0), Event::Sent(0), Event::Read(1)]);
    // Only this demand may remain.
    rig.read_more();
    rig.set_state(state);
    rig.world.fail(ReadError::Rejected, 2);
    if state == State::Started {
        assert_eq!(rig.world.take_events(), [Event::Rewind, Event::Read(1)]);
        return;
    }
    assert_eq!((rig.world.take_events(), rig.executor.run_all()), (vec![Event::Rewind], 1));
    assert_eq!(rig.world.take_events(), [Event::ProducerStart]);
    rig.set_state(State::Started);
    rig.read_more();
    assert_eq!(rig.world.take_events(), [Event::Read(1)]);
}

type Race = fn(Planted);

/// 11.6: without what each of three races is about, exactly that race is lost: the negative controls.
#[test]
fn each_race_is_lost_without_what_it_is_about() {
    let races: [(&str, Race); 4] = [
        ("8", race_8),
        ("11", race_11),
        ("12, started", |planted| race_12(State::Started, planted)),
        ("12, disconnected", |planted| race_12(State::Disconnected, planted)),
    ];
    for (planted, lost) in [
        (Planted::Nothing, None),
        (Planted::NoShortcutWhilePending, Some("8")),
        (Planted::StartErrorEscapes, Some("11")),
        (Planted::NoRewindWhileDisconnected, Some("12, disconnected")),
    ] {
        for (name, race) in races {
            let held = catch(|| race(planted)).is_ok();
            assert_eq!(held, lost != Some(name), "race {name} with {planted:?}");
        }
    }
}

/// O4, I34, I65, 11.6: race 13: two send callbacks under the producer's monitor queue one turn, and no cursor call comes inside.
#[test]
fn send_callbacks_queue_one_turn() {
    for failed in [false, true] {
        let rig = Rig::new();
        rig.on_send(|_, _| ());
        // The batch is followed by a failed read, so that nothing is outstanding when the callbacks come.
        rig.cache([2]);
        rig.read_more();
        rig.world.fail(ReadError::TooManyRequests, 0);
        rig.world.take_events();
        rig.on_sent(0, !failed);
        rig.on_sent(1, true);
        assert_eq!(rig.world.take_events(), [], "nothing runs inside the callbacks");
        assert_eq!(rig.executor.queued(), 1);
        assert_eq!(rig.executor.run_all(), 1);
        if failed {
            assert_eq!(rig.world.take_events(), [Event::Rewind, Event::Read(0)]);
        } else {
            assert_eq!(rig.world.take_events(), [Event::Read(2)]);
        }
    }
}

/// O4, O14, O16, 11.6: race 14: an executor that rejects the acknowledgement's turn ends the replicator, even where the end's hook throws.
#[test]
fn a_rejected_acknowledgement_turn_terminates() {
    for throws in [false, true] {
        let rig = Rig::new();
        rig.on_send(|_, _| ());
        rig.cache([2]);
        rig.read_more();
        rig.world.fail(ReadError::TooManyRequests, 0);
        rig.world.take_events();
        if throws {
            let hook = rig.hook(|_| std::panic::resume_unwind(Box::new("the end")));
            rig.world.producer.lock().closing = Some(hook);
        }
        rig.executor.close();
        rig.on_sent(0, true);
        assert_eq!(rig.state(), State::Terminated);
        assert_eq!(rig.world.take_events(), [Event::ProducerClosed], "no cursor call");
        rig.on_sent(1, true);
        rig.read_more();
        assert_eq!(rig.world.take_events(), []);
        assert_eq!((rig.tasks(), rig.world.live(), rig.has_timer()), (0, 0, false));
    }
}

/// O14, O16: a queued acknowledgement turn that is dropped with its executor's queue ends the replicator in the same way.
#[test]
fn a_dropped_acknowledgement_turn_terminates() {
    let rig = Rig::new();
    rig.on_send(|_, _| ());
    rig.cache([1]);
    rig.read_more();
    rig.world.fail(ReadError::TooManyRequests, 0);
    rig.on_sent(0, true);
    rig.world.take_events();
    drop(rig.executor.take_next());
    assert_eq!(rig.state(), State::Terminated);
    assert_eq!(rig.world.take_events(), [Event::ProducerClosed], "no cursor call");
}

/// O8, 11.6: race 15: a failed send settles its task before the recovery runs; that is a rewind, then a read.
#[test]
fn a_failed_send_settles_its_task_before_the_recovery() {
    let rig = Rig::new();
    rig.on_send(|_, _| ());
    rig.cache([1]);
    rig.read_more();
    rig.world.fail(ReadError::TooManyRequests, 0);
    rig.world.take_events();
    rig.on_sent(0, false);
    assert_eq!((rig.tasks(), rig.permits()), (0, 1_000));
    assert_eq!(rig.world.take_events(), []);
    assert_eq!(rig.executor.run_all(), 1);
    assert_eq!(rig.world.take_events(), [Event::Rewind, Event::Read(0)]);
}

/// O9, 11.6: race 21: a failed send while the next read is outstanding takes the wait: cancelled, released, rewound, read again, in order.
#[test]
fn a_failed_send_takes_the_wait() {
    let rig = Rig::new();
    rig.on_send(|_, _| ());
    rig.cache([1]);
    rig.read_more();
    rig.world.take_events();
    rig.on_sent(0, false);
    assert_eq!((rig.world.take_events(), rig.executor.run_all()), (vec![], 1));
    assert_eq!(rig.world.take_events(), [Event::Cancel(false)]);
    rig.world.complete(1);
    assert_eq!(rig.world.take_events(), [Event::Rewind, Event::Read(0)]);
    rig.world.complete(2);
    assert_eq!(rig.world.sent(), [0, 1], "restarts from the first that is not acknowledged");
}

/// O13, 11.6: race 16: a rewind that throws leaves the replicator started with one timer; then it rewinds and reads, without recursion.
#[test]
fn a_rewind_that_panics_is_tried_again_by_the_timer() {
    let rig = Rig::new();
    rig.world.cursor.lock().on_rewind = Some(Box::new(|| std::panic::resume_unwind(Box::new("the cursor"))));
    rig.begin_rewind();
    rig.end_rewind(true);
    assert_eq!(rig.world.take_events(), [Event::Rewind]);
    assert_eq!((rig.state(), rig.has_timer()), (State::Started, true));
    rig.fire_timer();
    assert_eq!(rig.world.take_events(), [Event::Rewind, Event::Read(0)]);
}

/// I24, 11.6: race 17: a cursor that completes a read and then throws has completed it.
#[test]
fn a_cursor_that_panics_after_completing_has_completed() {
    let rig = Rig::new();
    rig.complete_sends();
    rig.cache([1]);
    rig.world.cursor.lock().after_read = Some(Box::new(|| std::panic::resume_unwind(Box::new("the cursor"))));
    rig.read_more();
    assert_eq!(rig.world.take_events(), [Event::Read(0), Event::Sent(0), Event::Read(1)]);
    assert_eq!((rig.state(), rig.has_timer()), (State::Started, false));
}

/// O7, O16, 11.6: race 18: a termination whose cancellation delivers the result and then throws releases that result and reads no more.
#[test]
fn a_termination_during_which_the_result_comes_releases_it() {
    let rig = Rig::new();
    rig.reading();
    let hook = rig.hook(|replicator| {
        replicator.world.complete(1);
        std::panic::resume_unwind(Box::new("the cancellation"));
    });
    rig.world.cursor.lock().on_cancel = Some(hook);
    rig.terminate();
    assert_eq!(rig.state(), State::Terminated);
    assert_eq!(rig.world.take_events(), [Event::Read(0), Event::Cancel(false), Event::ProducerClosed]);
    assert_eq!((rig.tasks(), rig.world.live(), rig.has_timer()), (0, 0, false));
}

/// O16, 11.6: race 19: what comes back after the end is released, and nothing else happens.
#[test]
fn a_result_after_the_end_is_released() {
    let rig = Rig::new();
    rig.reading();
    rig.terminate();
    assert_eq!(rig.world.take_events(), [Event::Read(0), Event::Cancel(false)]);
    rig.world.complete(2);
    assert_eq!((rig.world.take_events(), rig.state()), (vec![Event::ProducerClosed], State::Terminated));
    rig.read_more();
    rig.begin_rewind();
    rig.end_rewind(true);
    assert_eq!(rig.world.take_events(), []);
}

/// O1, O2, O3, I63, I64, I66: reads completed, sends acknowledged and more asked for by three threads: all in order, once.
#[test]
fn three_threads_keep_the_order() {
    const ENTRIES: u64 = 1_500;
    let rig = Rig::with_budget(5);
    let acknowledged = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&acknowledged);
    let under_way = Arc::new(Mutex::new(VecDeque::new()));
    let told = Arc::clone(&under_way);
    rig.on_send(move |_, position| {
        count.fetch_add(1, Ordering::Relaxed);
        told.lock().push_back(position);
    });
    rig.read_more();
    std::thread::scope(|scope| {
        let acknowledging = scope.spawn(|| {
            let mut left = ENTRIES;
            while left > 0 {
                let Some(position) = under_way.lock().pop_front() else {
                    std::thread::yield_now();
                    continue;
                };
                left -= 1;
                rig.on_sent(position, true);
                if position % 7 == 0 {
                    rig.read_more();
                }
            }
        });
        let completing = scope.spawn(|| {
            let mut left = ENTRIES;
            while left > 0 {
                if rig.world.is_pending() {
                    let batch = left.min(3);
                    left -= batch;
                    rig.world.complete(usize::try_from(batch).unwrap());
                }
                rig.executor.run_all();
                std::thread::yield_now();
            }
        });
        acknowledging.join().unwrap();
        completing.join().unwrap();
    });
    rig.executor.run_all();
    assert_eq!(rig.world.sent(), (0..ENTRIES).collect::<Vec<_>>());
    assert_eq!(acknowledged.load(Ordering::Relaxed), usize::try_from(ENTRIES).unwrap());
    assert!(rig.world.is_pending());
}
