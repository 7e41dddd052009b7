//! Ours: batches over one worker of an ordered executor, with the default settings of both.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use folio_executor::{BatchingExecutor, OrderedExecutor};

use super::delegate::Counted;
use super::latency::{Arrival, measure};
use super::{Open, Peer, Sink, Task};
use crate::runner::{Effort, Sample};

/// One worker thread.
pub(super) fn pool() -> OrderedExecutor {
    OrderedExecutor::builder().name("bench").threads(1).build().expect("the system starts one more thread")
}

/// Ends the pool when everything has run.
pub(super) fn end(pool: OrderedExecutor) {
    let unrun = pool.join().expect("the driver is no worker");
    assert!(unrun.is_empty(), "a graceful end runs everything");
}

/// [`BatchingExecutor`] over a worker of [`OrderedExecutor`].
#[derive(Debug)]
pub(super) struct Batching;

impl Peer for Batching {
    type Sender = Arc<BatchingExecutor<Task>>;

    fn open(mut sink: Sink, producers: u64) -> Open<Self::Sender> {
        let pool = pool();
        let delegate = Counted::new(pool.worker("handover").clone());
        let batches = delegate.counter();
        let batching = BatchingExecutor::builder(move |task| sink.handle(task))
            .build(delegate)
            .expect("the default settings are valid");
        let batching = Arc::new(batching);
        Open {
            senders: (0..producers).map(|_| Arc::clone(&batching)).collect(),
            close: Box::new(move || {
                drop(batching);
                end(pool);
                Some(batches.load(Ordering::Relaxed))
            }),
        }
    }

    #[inline]
    fn send(sender: &mut Self::Sender, task: Task) {
        sender.submit(task).expect("an open executor takes every task");
    }
}

/// A trial of the latency rows.
pub(super) fn latency(effort: Effort) -> Sample {
    let pool = pool();
    let arrival = Arrival::default();
    let tell = arrival.clone();
    let batching = BatchingExecutor::builder(move |submitted: Instant| tell.arrived(submitted))
        .build(pool.worker("latency").clone())
        .expect("the default settings are valid");
    let sample =
        measure(effort, &arrival, |now| batching.submit(now).expect("an open executor takes every task"));
    drop(batching);
    end(pool);
    sample
}
