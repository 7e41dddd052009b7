//! What is counted: single-threaded paths, on executors that are stepped by the kernel itself.

use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crossbeam_queue::SegQueue;
use folio_completer::{InlineCompleter, Policy};
use folio_executor::{BatchingExecutor, Linger};
use folio_sync::{Arc, Executor, Job, Rejected, SerialExecutor};
use folio_turn::{Demand, Next, Stranded, Turn, Work};

use crate::groups::cache::bodies as cache;
use crate::groups::completion::bodies;

/// One path.
pub(super) struct Kernel {
    pub(super) name: &'static str,
    pub(super) run: fn(u64),
}

/// What all others are divided by.
pub(super) const REFERENCE: &str = "reference-locked-deque";

/// All kernels.
pub(super) const ALL: &[Kernel] = &[
    Kernel { name: REFERENCE, run: locked_deque },
    Kernel { name: "segqueue", run: segqueue },
    Kernel { name: "batching-by-the-thousand", run: |operations| batching(operations, 1_000) },
    Kernel { name: "batching-one-by-one", run: |operations| batching(operations, 1) },
    Kernel { name: "boxed-call", run: |operations| bodies::boxed_call(bodies::Plain)(operations) },
    Kernel { name: "hand-written-guard", run: |operations| bodies::guarded_call(bodies::Plain)(operations) },
    Kernel { name: "completer-inline", run: completer_inline },
    Kernel { name: "completer-chain-limit-10", run: |operations| completer_chain(operations, 10) },
    Kernel { name: "completer-chain-limit-1", run: |operations| completer_chain(operations, 1) },
    Kernel { name: "turn-record-and-join", run: turn_joined },
    Kernel { name: "turn-steps", run: turn_steps },
    Kernel { name: "cache-tail", run: cache::tail },
    Kernel { name: "cache-insert-batch", run: cache::insert_batch },
    Kernel { name: "cache-get", run: cache::get },
    Kernel { name: "cache-range-100-visited", run: cache::range_of_100 },
];

type Task = [u64; 3];

/// Tasks by value through a deque behind a lock, a lock each way.
fn locked_deque(operations: u64) {
    let deque = Mutex::new(VecDeque::<Task>::with_capacity(16));
    let lock = || black_box(&deque).lock().unwrap_or_else(PoisonError::into_inner);
    for operation in 0..operations {
        lock().push_back([operation; 3]);
        black_box(lock().pop_front());
    }
}

/// Tasks by value through crossbeam's queue.
fn segqueue(operations: u64) {
    let queue = SegQueue::<Task>::new();
    for operation in 0..operations {
        black_box(&queue).push([operation; 3]);
        black_box(queue.pop());
    }
}

/// Keeps jobs until it is told to run them.
#[derive(Clone, Default)]
struct Stepped(Arc<Mutex<VecDeque<Job>>>);

impl Stepped {
    fn jobs(&self) -> MutexGuard<'_, VecDeque<Job>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run_all(&self) {
        loop {
            let next = self.jobs().pop_front();
            let Some(job) = next else { break };
            job.run();
        }
    }
}

impl Executor for Stepped {
    fn submit(&self, job: Job) -> Result<(), Rejected<Job>> {
        self.jobs().push_back(job);
        Ok(())
    }
}

impl SerialExecutor for Stepped {
    fn is_current(&self) -> bool {
        false
    }
}

/// Submits this many tasks, then lets the delegate run, again and again.
fn batching(operations: u64, burst: u64) {
    let delegate = Stepped::default();
    let batching = BatchingExecutor::builder(|task: Task| {
        black_box(task);
    })
    .linger(Linger::OFF)
    .build(delegate.clone())
    .expect("these settings are valid");
    for operation in 1..=operations {
        assert!(black_box(&batching).submit([operation; 3]).is_ok(), "an open executor takes every task");
        if operation % burst == 0 {
            delegate.run_all();
        }
    }
    delegate.run_all();
}

fn completer_inline(operations: u64) {
    let completer = InlineCompleter::inline(Stepped::default());
    for operation in 0..operations {
        let outcome = black_box(&completer).complete(move || {
            black_box(operation);
        });
        black_box(outcome.is_ok());
    }
}

/// A chain that goes on in a stepped executor at the limit.
fn completer_chain(operations: u64, limit: u32) {
    fn hop(completer: &InlineCompleter, left: u64) {
        if left > 0 {
            let next = completer.clone();
            let outcome = completer.complete(move || hop(&next, left - 1));
            black_box(outcome.is_ok());
        }
    }
    let overflow = Stepped::default();
    let completer = InlineCompleter::builder(Policy::Inline, Stepped::default())
        .depth_limit(limit)
        .overflow(overflow.clone())
        .build();
    hop(&completer, operations);
    overflow.run_all();
}

/// Work of so many steps.
struct Countdown(u64);

impl Work for Countdown {
    fn step(&mut self, _: &Turn<Self>, demand: Demand) -> Next {
        black_box(demand);
        if self.0 == 0 {
            return Next::Idle;
        }
        self.0 -= 1;
        Next::Again
    }

    fn stranded(_: Stranded<Self>) {
        unreachable!("a stepped executor refuses nothing and drops nothing")
    }
}

/// Demand that finds nobody, and a turn with nothing to do.
fn turn_joined(operations: u64) {
    let turn = Turn::builder(Countdown(0)).yield_to(Stepped::default());
    for _ in 0..operations {
        black_box(black_box(&turn).record(Demand::soft(0)).must_run());
        black_box(turn.join().is_ok());
    }
}

/// Steps of a turn that yields after every 64.
fn turn_steps(operations: u64) {
    let executor = Stepped::default();
    let turn = Turn::builder(Countdown(operations)).budget(64).yield_to(executor.clone());
    black_box(turn.record(Demand::soft(0)).must_run());
    black_box(turn.join().is_ok());
    executor.run_all();
}
