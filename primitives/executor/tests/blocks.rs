//! Where blocks of the queue begin and end.
#![cfg(not(any(loom, shuttle)))]
#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "tests run on the standard library only")]

mod support;

use std::sync::Arc;
use std::thread;

use folio_executor::{BatchingExecutor, Builder};
use folio_sync::test_util::ManualExecutor;
use folio_sync::test_util::pause::{Stop, When};
use support::{Account, Log, Task, batches, producers, worker};

/// I1, I2: a producer that stops between its claim and its place finds the place, though the queue's tail has gone past its block.
#[test]
fn a_producer_whose_block_the_tail_has_left_finds_its_place() {
    let (delegate, ran) = (ManualExecutor::new(), Log::new());
    let noted = ran.clone();
    let executor = Builder::<u32, 2>::new(move |task| noted.push(task)).build(delegate.clone()).unwrap();
    let stop = Stop::new("queue.claim", When::After);
    thread::scope(|scope| {
        let stopped = scope.spawn(|| stop.run(|| executor.submit(0)));
        stop.wait_until_stopped();
        for task in 1..100 {
            executor.submit(task).unwrap();
        }
        stop.release();
        stopped.join().unwrap().unwrap();
    });
    assert_eq!(batches(&delegate, &ran), [(0..100).collect::<Vec<_>>()]);
}
