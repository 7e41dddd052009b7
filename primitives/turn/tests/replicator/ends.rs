//! Races about sends, starts and ends: late errors, refusals, what comes back after the end.

use crate::Rig;
use crate::tasks::{Planted, State, Timers};
use crate::world::{Event, ReadError};

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

pub(crate) fn race_11(planted: Planted) {
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
