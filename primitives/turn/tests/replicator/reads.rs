//! Races about reads: one at a time, in order, stale results, failures, rewinds.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use folio_sync::Mutex;

use crate::Rig;
use crate::tasks::{Planted, State};
use crate::world::{Event, ReadError};

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

pub(crate) fn race_8(planted: Planted) {
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

/// O9, R5, I27, 11.6: race 12: a completion that was rejected after the cursor advanced is followed by a rewind before the next read.
#[test]
fn a_rejected_completion_rewinds_before_the_next_read() {
    race_12(State::Started, Planted::Nothing);
    race_12(State::Disconnected, Planted::Nothing);
}

pub(crate) fn race_12(state: State, planted: Planted) {
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
