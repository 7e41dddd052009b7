//! Models of the queue: producers that consume when they must.
#![allow(clippy::disallowed_types, reason = "what the model must not see is kept in standard types")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the model")]

use std::sync::Mutex as Unseen;
use std::sync::atomic::{AtomicUsize, Ordering};

use folio_sync::test_util::{Model, Tracked, model, spurious_every};
use folio_sync::{Arc, thread};

use super::{Ended, Next, Pushed, Queue};

/// Items that came out, in order. A standard mutex: the model must not see it, since it would order what it is to show unordered.
type Log = Unseen<Vec<u32>>;

type Small = Queue<Tracked<u32>, 2>;

/// How often a slot was awaited in all executions of a model.
static AWAITED: AtomicUsize = AtomicUsize::new(0);

/// Consumes as long as this thread has the turn, at most `most` items a turn.
fn consume(queue: &Small, log: &Log, most: usize) {
    while let Some(mut turn) = queue.begin() {
        for _ in 0..most {
            let Next::Item(item, _) = turn.next() else { break };
            log.lock().unwrap().push(*item.get());
        }
        match turn.end().0 {
            Ended::Idle => break,
            Ended::Awaited => {
                AWAITED.fetch_add(1, Ordering::Relaxed);
                break;
            }
            Ended::Again => {}
        }
    }
}

fn push(queue: &Small, log: &Log, item: u32, most: usize) {
    if let Pushed::MustSchedule(_) = queue.push(Tracked::new(item), 0, u32::MAX).unwrap() {
        consume(queue, log, most);
    }
}

/// Runs the bodies on a thread each, the last one on this thread, and checks that exactly these items came out.
fn race(queue: &Arc<Small>, log: &Arc<Log>, pushes: &[&'static [u32]], most: usize) {
    let (here, elsewhere) = pushes.split_last().unwrap();
    let threads: Vec<_> = elsewhere
        .iter()
        .map(|&items| {
            let (queue, log) = (Arc::clone(queue), Arc::clone(log));
            thread::spawn(move || items.iter().for_each(|&item| push(&queue, &log, item, most)))
        })
        .collect();
    here.iter().for_each(|&item| push(queue, log, item, most));
    for thread in threads {
        thread.join().unwrap();
    }
    check(queue, log, pushes);
}

/// Checks that exactly these items came out, those from 90 on aside.
fn check(queue: &Small, log: &Log, pushes: &[&[u32]]) {
    assert_eq!(queue.word().pending(), 0, "nothing is left behind");
    let order = log.lock().unwrap().clone();
    let mut sorted = order.clone();
    sorted.sort_unstable();
    let mut expected: Vec<u32> = pushes.iter().flat_map(|items| items.iter().copied()).collect();
    expected.extend(order.iter().filter(|item| **item >= 90));
    expected.sort_unstable();
    assert_eq!(sorted, expected, "each item comes out exactly once");
    for items in pushes {
        let mine: Vec<u32> = order.iter().copied().filter(|item| items.contains(item)).collect();
        assert_eq!(mine, *items, "the items of one thread stay in order");
    }
}

fn small() -> (Arc<Small>, Arc<Log>) {
    (Arc::new(Queue::new()), Arc::new(Unseen::new(Vec::new())))
}

/// I1, I3, I4: two producers and the batch.
#[test]
fn two_producers_and_the_batch() {
    Model::new("two producers and the batch").at_every_step().check(|| {
        let (queue, log) = small();
        race(&queue, &log, &[&[1], &[2]], 8);
    });
    assert!(AWAITED.load(Ordering::Relaxed) > 0, "some execution comes before a claimed slot is written");
}

/// I1, I4: two producers and the batch, with every third weak compare-and-set failing.
#[test]
fn two_producers_with_spurious_failures() {
    Model::new("two producers with spurious failures").at_every_step().check(|| {
        let _spurious = spurious_every(3);
        let (queue, log) = small();
        race(&queue, &log, &[&[1], &[2]], 8);
    });
}

/// I2, I4: a hand-over races the end of a batch: the batch's end leaves nothing behind.
#[test]
fn hand_over_racing_the_end_of_a_batch() {
    Model::new("hand-over racing the end of a batch").at_every_step().check(|| {
        let (queue, log) = small();
        race(&queue, &log, &[&[1, 2], &[3]], 8);
    });
}

/// I4: a slot that is claimed and not written ends the batch, and its writer goes on, while a third thread joins.
#[test]
fn claimed_slot_stalled_across_a_batch() {
    model("claimed slot stalled across a batch", || {
        let (queue, log) = small();
        let only_pushes = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || queue.push(Tracked::new(90), 0, u32::MAX).unwrap())
        };
        let consumes = {
            let (queue, log) = (Arc::clone(&queue), Arc::clone(&log));
            thread::spawn(move || push(&queue, &log, 1, 8))
        };
        let mine = queue.push(Tracked::new(2), 0, u32::MAX).unwrap();
        consumes.join().unwrap();
        let other = only_pushes.join().unwrap();
        if mine != Pushed::Joined || other != Pushed::Joined {
            consume(&queue, &log, 8);
        }
        assert_eq!(queue.word().pending(), 0, "nothing is left behind");
        let mut items = log.lock().unwrap().clone();
        items.sort_unstable();
        assert_eq!(items, [1, 2, 90], "each item comes out exactly once");
    });
}

/// I3: a turn that is up is begun by a thread that learnt of it by nothing but the word.
#[test]
fn turn_begun_by_a_stranger() {
    Model::new("turn begun by a stranger").at_every_step().check(|| {
        let (queue, log) = small();
        let stranger = {
            let (queue, log) = (Arc::clone(&queue), Arc::clone(&log));
            thread::spawn(move || consume(&queue, &log, 1))
        };
        for item in 1..=3 {
            push(&queue, &log, item, 1);
        }
        stranger.join().unwrap();
        check(&queue, &log, &[&[1, 2, 3]]);
    });
}

/// I4, I5: what a batch leaves at its limit is run by the next.
#[test]
fn leftovers_after_a_limit() {
    Model::new("leftovers after a limit").at_every_step().check(|| {
        let (queue, log) = small();
        race(&queue, &log, &[&[1], &[2, 3]], 1);
    });
}

/// Blocks of two: producers cross into blocks that one of them links, while the consumer frees those it has left.
#[test]
fn block_hand_over() {
    Model::new("block hand-over").at_every_step().check(|| {
        let (queue, log) = small();
        push(&queue, &log, 90, 8);
        race(&queue, &log, &[&[1, 2], &[3]], 8);
    });
}

/// Blocks of two: a producer stalls right after its claim, and the other moves the tail past its block.
#[test]
fn tail_moved_past_a_claimed_ticket() {
    Model::new("tail moved past a claimed ticket").at_every_step().check(|| {
        let (queue, log) = small();
        push(&queue, &log, 90, 8);
        let other = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || queue.push(Tracked::new(1), 0, u32::MAX).unwrap())
        };
        let mine = queue.push(Tracked::new(2), 0, u32::MAX).unwrap();
        let other = other.join().unwrap();
        assert!(mine != Pushed::Joined || other != Pushed::Joined);
        consume(&queue, &log, 8);
        let mut items = log.lock().unwrap().clone();
        items.sort_unstable();
        assert_eq!(items, [1, 2, 90]);
    });
}

/// Blocks of two: three producers at the end of a block; one comes in by the tail that another has just moved.
#[test]
fn producers_meet_at_the_end_of_a_block() {
    model("producers meet at the end of a block", || {
        let (queue, log) = small();
        push(&queue, &log, 90, 8);
        let threads = [1, 2].map(|item| {
            let queue = Arc::clone(&queue);
            thread::spawn(move || queue.push(Tracked::new(item), 0, u32::MAX).unwrap())
        });
        let _scheduled = queue.push(Tracked::new(3), 0, u32::MAX).unwrap();
        for thread in threads {
            let _scheduled = thread.join().unwrap();
        }
        consume(&queue, &log, 8);
        let mut items = log.lock().unwrap().clone();
        items.sort_unstable();
        assert_eq!(items, [1, 2, 3, 90]);
    });
}

/// Blocks of two: both producers find the block full, one of them moves the tail, and the block behind is freed under them or not.
#[test]
fn tail_moved_under_a_producer() {
    Model::new("tail moved under a producer").at_every_step().check(|| {
        let (queue, log) = small();
        push(&queue, &log, 90, 8);
        push(&queue, &log, 91, 8);
        race(&queue, &log, &[&[1], &[2]], 8);
        push(&queue, &log, 92, 8);
        push(&queue, &log, 93, 8);
    });
}

/// Dropping a queue drops what is in it, once.
#[test]
fn dropped_queue_drops_its_items() {
    Model::new("dropped queue").few_executions("nothing races a drop: it shows leaks only").check(|| {
        let queue: Small = Queue::new();
        for item in 0..3 {
            let _scheduled = queue.push(Tracked::new(item), 0, u32::MAX).unwrap();
        }
        let mut turn = queue.begin().unwrap();
        assert!(matches!(turn.next(), Next::Item(..)));
        assert_eq!(turn.end().0, Ended::Again);
    });
}
