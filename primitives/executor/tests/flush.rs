//! Waiting until earlier tasks are done.
#![cfg(not(any(loom, shuttle)))]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests run on the standard library only, and their helpers unwrap as they do"
)]

mod support;

use folio_sync::Arc;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc as StdArc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

use folio_executor::{BatchingExecutor, WouldDeadlock};
use folio_sync::test_util::ManualExecutor;
use folio_sync::{Executor, Job};
use support::{Gate, Log, refusing, worker};

type Shared = Arc<OnceLock<BatchingExecutor<u32>>>;

/// A waker that counts.
#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: StdArc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn plain(delegate: &ManualExecutor) -> BatchingExecutor<u32> {
    BatchingExecutor::builder(drop).max_items(2).build(delegate.clone()).unwrap()
}

#[test]
fn a_flush_of_an_idle_executor_is_done_at_once() {
    let executor = plain(&ManualExecutor::new());
    let flush = executor.flush();
    assert!(flush.is_done());
    assert_eq!(flush.wait(), Ok(()));
    let called = Log::new();
    let noted = called.clone();
    executor.flush_with(move || noted.push(thread::current().id()));
    assert_eq!(called.take(), [thread::current().id()]);
}

#[test]
fn a_flush_is_done_when_the_tasks_before_it_have_run_and_not_before() {
    let delegate = ManualExecutor::new();
    let executor = plain(&delegate);
    let mut flushes = Vec::new();
    for task in 0..5 {
        executor.submit(task).unwrap();
        flushes.push(executor.flush());
    }
    let done = |flushes: &[folio_executor::Flush]| {
        flushes.iter().map(folio_executor::Flush::is_done).collect::<Vec<_>>()
    };
    assert_eq!(done(&flushes), [false; 5]);
    delegate.run_next();
    assert_eq!(done(&flushes), [true, true, false, false, false]);
    delegate.run_next();
    assert_eq!(done(&flushes), [true, true, true, true, false]);
    // Tasks submitted later do not hold it up.
    executor.submit(5).unwrap();
    executor.submit(6).unwrap();
    delegate.run_next();
    assert_eq!(done(&flushes), [true; 5]);
    assert_eq!(executor.queued(), 1);
}

#[test]
fn a_flush_counts_from_its_call_and_not_from_its_first_poll() {
    let delegate = ManualExecutor::new();
    let executor = plain(&delegate);
    executor.submit(0).unwrap();
    let flush = executor.flush();
    executor.submit(1).unwrap();
    executor.submit(2).unwrap();
    delegate.run_next();
    let mut flush = pin!(flush);
    assert_eq!(flush.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(()));
}

#[test]
fn a_flush_wakes_the_waker_of_its_last_poll_once() {
    let delegate = ManualExecutor::new();
    let executor = plain(&delegate);
    executor.submit(0).unwrap();
    let mut flush = pin!(executor.flush());
    let (first, last) = (StdArc::new(Count::default()), StdArc::new(Count::default()));
    for count in [&first, &last] {
        let waker = Waker::from(StdArc::clone(count));
        assert_eq!(flush.as_mut().poll(&mut Context::from_waker(&waker)), Poll::Pending);
    }
    delegate.run_all();
    assert_eq!((first.0.load(Ordering::Relaxed), last.0.load(Ordering::Relaxed)), (0, 1));
    let waker = Waker::from(last.clone());
    assert_eq!(flush.as_mut().poll(&mut Context::from_waker(&waker)), Poll::Ready(()));
    executor.submit(1).unwrap();
    delegate.run_all();
    assert_eq!(last.0.load(Ordering::Relaxed), 1);
    assert_eq!(StdArc::strong_count(&last), 2, "the waker is not kept: this one is in `last` and in `waker`");
}

#[test]
fn a_flush_that_is_dropped_changes_nothing() {
    let delegate = ManualExecutor::new();
    let executor = plain(&delegate);
    executor.submit(0).unwrap();
    drop(executor.flush());
    assert_eq!(delegate.run_all(), 1);
    assert_eq!(executor.queued(), 0);
}

#[test]
fn completions_are_called_in_order_and_may_submit_and_flush_again() {
    let delegate = ManualExecutor::new();
    let executor = Shared::default();
    let built = plain(&delegate);
    executor.get_or_init(|| built).submit(0).unwrap();
    let called = Log::new();
    for number in 0..3 {
        let (inner, noted) = (Arc::clone(&executor), called.clone());
        executor.get().unwrap().flush_with(move || {
            let executor = inner.get().unwrap();
            executor.submit(number).unwrap();
            noted.push(number);
            let noted = noted.clone();
            executor.flush_with(move || noted.push(number + 10));
        });
    }
    delegate.run_next();
    assert_eq!(called.take(), [0, 1, 2]);
    delegate.run_all();
    assert_eq!(called.take(), [10, 11, 12]);
}

/// 1.2: waiting where it would never end is refused.
#[test]
fn waiting_on_the_thread_that_has_to_run_the_tasks_is_refused() {
    let delegate = ManualExecutor::new();
    let executor = Shared::default();
    let waited = Log::new();
    let (inner, noted) = (Arc::downgrade(&executor), waited.clone());
    let built = BatchingExecutor::builder(move |_| {
        noted.push(inner.upgrade().unwrap().get().unwrap().flush().wait());
    })
    .build(delegate.clone())
    .unwrap();
    executor.get_or_init(|| built).submit(0).unwrap();
    executor.get().unwrap().submit(0).unwrap();
    let (inner, noted) = (Arc::clone(&executor), waited.clone());
    let foreign = Job::new(move || {
        let executor = inner.get().unwrap();
        executor.submit(1).unwrap();
        noted.push(executor.flush().wait());
    });
    delegate.submit(foreign).unwrap();
    delegate.run_all();
    assert_eq!(waited.take(), [Err(WouldDeadlock); 4], "in two tasks, in a job of the delegate, in its task");
    assert!(WouldDeadlock.to_string().contains("waits"));
    assert!(delegate.take_blocked().is_empty());
}

#[test]
fn a_done_flush_can_be_waited_for_anywhere() {
    let delegate = ManualExecutor::new();
    let executor = Arc::new(plain(&delegate));
    let flush = executor.flush();
    let waited = Log::new();
    let noted = waited.clone();
    delegate.submit(Job::new(move || noted.push(flush.wait()))).unwrap();
    delegate.run_all();
    assert_eq!(waited.take(), [Ok(())]);
}

#[test]
fn waiting_from_another_thread_ends_when_the_tasks_are_done() {
    let pool = worker();
    let ran = Log::new();
    let noted = ran.clone();
    let gate = Gate::new();
    let inside = gate.clone();
    let executor = BatchingExecutor::builder(move |task: u32| {
        if task == 0 {
            inside.pass();
        }
        noted.push(task);
    })
    .max_items(3)
    .build(pool.workers()[0].clone())
    .unwrap();
    for task in 0..10 {
        executor.submit(task).unwrap();
    }
    let (flush, returned) = (executor.flush(), AtomicBool::new(false));
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            flush.wait().unwrap();
            returned.store(true, Ordering::Release);
            ran.len()
        });
        gate.wait_until_reached();
        assert!(!returned.load(Ordering::Acquire));
        gate.open();
        assert_eq!(waiting.join().unwrap(), 10);
    });
}

/// I1: a flush is done when the tasks are given back, too.
#[test]
fn a_flush_is_done_when_the_tasks_are_given_back() {
    let delegate = ManualExecutor::new();
    let handed = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&handed);
    let executor = BatchingExecutor::builder(drop::<u32>)
        .max_items(2)
        .on_rejected(move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
        })
        .build(delegate.clone())
        .unwrap();
    let flush_of = |tasks: u32| {
        for task in 0..tasks {
            executor.submit(task).unwrap();
        }
        executor.flush()
    };
    // By a refused follow-up batch.
    let flush = flush_of(3);
    delegate.refuse_next(1);
    delegate.run_next();
    assert!(flush.is_done());
    // By a batch that is dropped.
    let flush = flush_of(2);
    drop(delegate.take_next());
    assert!(flush.is_done());
    // By a shutdown.
    let flush = flush_of(2);
    executor.shutdown_now();
    assert!(flush.is_done());
    assert_eq!(handed.load(Ordering::Relaxed), 5);
    let refused = BatchingExecutor::builder(drop::<u32>).build(refusing()).unwrap();
    refused.submit(1).unwrap_err();
    assert_eq!(refused.flush().wait(), Ok(()));
}

#[test]
fn a_flush_and_a_close_go_together() {
    let delegate = ManualExecutor::new();
    let executor = plain(&delegate);
    executor.submit(0).unwrap();
    let before = executor.flush();
    executor.close();
    let after = executor.flush();
    assert!(!before.is_done() && !after.is_done());
    delegate.run_all();
    assert!(before.is_done() && after.is_done());
    assert!(executor.flush().is_done());
    executor.shutdown_now();
    assert!(executor.flush().is_done());
}

#[test]
fn a_flush_outlives_its_executor() {
    let delegate = ManualExecutor::new();
    let executor = plain(&delegate);
    executor.submit(0).unwrap();
    let flush = executor.flush();
    drop(executor);
    assert_eq!(flush.wait(), Ok(()));
}

/// I1, I4: flushes by many threads while tasks come and go: each has seen its own thread's tasks done.
#[test]
fn flushes_of_many_threads_each_see_their_own_tasks_done() {
    const THREADS: usize = 4;
    const ROUNDS: usize = 500;
    let pool = worker();
    let done: Arc<Vec<AtomicUsize>> = Arc::new((0..THREADS).map(|_| AtomicUsize::new(0)).collect());
    let counted = Arc::clone(&done);
    let executor = BatchingExecutor::builder(move |thread: usize| {
        counted[thread].fetch_add(1, Ordering::Relaxed);
    })
    .max_items(2)
    .build(pool.workers()[0].clone())
    .unwrap();
    support::producers(THREADS, |thread| {
        for round in 1..=ROUNDS {
            executor.submit(thread).unwrap();
            if round % 5 == thread {
                executor.flush().wait().unwrap();
                assert_eq!(done[thread].load(Ordering::Relaxed), round);
            }
        }
    });
    executor.flush().wait().unwrap();
    assert_eq!(done.iter().map(|count| count.load(Ordering::Relaxed)).sum::<usize>(), THREADS * ROUNDS);
}
