//! Many threads at once, in exact accounts.
#![cfg(not(any(loom, shuttle)))]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests run on the standard library only, and their helpers unwrap as they do"
)]

mod support;

use folio_sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use folio_executor::{BatchingExecutor, Builder, OrderedExecutor};
use folio_sync::{Executor, RejectReason, Rejected};
use support::history::{Recorder, Submission, check_order, overlapping};
use support::{Account, LONG, Log, Settled, Task, by, producers, refusing, worker};

const THREADS: usize = 8;
const EACH: usize = 10_000;

/// A builder that accounts for what runs and what is handed to the reject handler.
fn accounted(account: &Arc<Account>) -> Builder<Task> {
    let (ran, handed) = (Arc::clone(account), Arc::clone(account));
    BatchingExecutor::builder(move |task| ran.run(task))
        .on_rejected(move |rejected| handed.hand(rejected.value))
}

/// Has each producer submit its tasks, and account for what comes back.
fn submit_all(executor: &BatchingExecutor<Task>, account: &Account, threads: usize, each: usize) {
    producers(threads, |producer| {
        for number in 0..each {
            if let Err(rejected) = executor.submit((producer, number)) {
                assert_eq!((rejected.value, rejected.reason), ((producer, number), RejectReason::Refused));
                account.give_back(rejected.value);
            }
        }
    });
}

fn ends_idle(executor: &BatchingExecutor<Task>, pool: OrderedExecutor) {
    executor.flush().wait().unwrap();
    assert_eq!((executor.queued(), executor.queued_weight()), (0, 0));
    assert!(pool.join().unwrap().is_empty());
}

/// Runs 8 x 10,000 tasks on a worker.
fn all_run(limits: impl Fn(Builder<Task>) -> Builder<Task>) {
    let account = Account::new(THREADS, EACH);
    let pool = worker();
    let executor = limits(accounted(&account)).build(pool.workers()[0].clone()).unwrap();
    submit_all(&executor, &account, THREADS, EACH);
    ends_idle(&executor, pool);
    assert_eq!(account.settle(), Settled { ran: THREADS * EACH, handed: 0, returned: 0 });
}

/// 4.1, I1, I2, I3, I4: 8 x 10,000 tasks, two a batch.
#[test]
fn eight_submitters_keep_their_order_at_2_tasks_a_batch() {
    all_run(|builder| builder.max_items(2));
}

/// 4.1, I1, I2, I3, I4: 8 x 10,000 tasks, 1,024 a batch.
#[test]
fn eight_submitters_keep_their_order_at_1024_tasks_a_batch() {
    all_run(|builder| builder.max_items(1024));
}

/// 4.1, I1, I2, I3, I4: 8 x 10,000 tasks of weight 1, a weight of 3 a batch.
#[test]
fn eight_submitters_keep_their_order_at_a_weight_of_3_a_batch() {
    all_run(|builder| builder.weigh(|_| 1).max_weight(3).max_queued_weight(u64::MAX));
}

/// 4.1, I1, I4, I7: 8 x 10,000 tasks and a delegate that always refuses: none runs, each comes back once.
#[test]
fn eight_submitters_to_a_refusing_delegate_leave_no_task_behind() {
    let account = Account::new(THREADS, EACH);
    let executor = accounted(&account).build(refusing()).unwrap();
    submit_all(&executor, &account, THREADS, EACH);
    assert_eq!(executor.queued(), 0);
    let settled = account.settle();
    assert_eq!((settled.ran, settled.handed + settled.returned), (0, THREADS * EACH));
    assert!(settled.returned > 0);
}

/// 4.1, I1, I2, I3, I4: every third batch is refused: each task runs or comes back once.
#[test]
fn each_task_runs_or_comes_back_once_when_every_third_batch_is_refused() {
    let account = Account::new(THREADS, EACH);
    let pool = worker();
    let (inner, offered) = (pool.workers()[0].clone(), AtomicUsize::new(0));
    let delegate = by(move |job| {
        if offered.fetch_add(1, Ordering::Relaxed) % 3 == 2 {
            return Err(Rejected::new(job, RejectReason::Refused));
        }
        inner.submit(job)
    });
    let executor = accounted(&account).max_items(16).build(delegate).unwrap();
    submit_all(&executor, &account, THREADS, EACH);
    ends_idle(&executor, pool);
    let settled = account.settle();
    assert_eq!(settled.ran + settled.handed + settled.returned, THREADS * EACH);
    assert!(settled.ran > 0 && settled.handed + settled.returned > 0, "{settled:?}");
}

/// I1, I3, I4: every third batch is dropped unrun.
#[test]
fn each_task_runs_or_is_handed_back_once_when_every_third_batch_is_dropped() {
    let account = Account::new(THREADS, EACH);
    let pool = worker();
    let (inner, offered) = (pool.workers()[0].clone(), AtomicUsize::new(0));
    let delegate = by(move |job| {
        if offered.fetch_add(1, Ordering::Relaxed) % 3 == 2 {
            drop(job);
            return Ok(());
        }
        inner.submit(job)
    });
    let executor = accounted(&account).max_items(16).build(delegate).unwrap();
    submit_all(&executor, &account, THREADS, EACH);
    ends_idle(&executor, pool);
    let settled = account.settle();
    assert_eq!((settled.ran + settled.handed, settled.returned), (THREADS * EACH, 0));
    assert!(settled.ran > 0 && settled.handed > 0, "{settled:?}");
}

/// I1, I2, I3, I4: 500 producers of 200 tasks.
#[test]
fn five_hundred_producers_lose_nothing() {
    let account = Account::new(500, 200);
    let pool = worker();
    let executor = accounted(&account).build(pool.workers()[0].clone()).unwrap();
    submit_all(&executor, &account, 500, 200);
    ends_idle(&executor, pool);
    assert_eq!(account.settle(), Settled { ran: 100_000, handed: 0, returned: 0 });
}

/// I1, I2: a worker that takes one job at a time, and refuses the batches it has no place for.
#[test]
fn a_bounded_worker_runs_or_returns_each_task_once() {
    let account = Account::new(THREADS, EACH);
    let pool = OrderedExecutor::builder().threads(1).capacity(1).build().unwrap();
    let executor = accounted(&account).max_items(64).build(pool.workers()[0].clone()).unwrap();
    producers(THREADS, |producer| {
        for number in 0..EACH {
            if let Err(rejected) = executor.submit((producer, number)) {
                assert_eq!(rejected.reason, RejectReason::Full);
                account.give_back(rejected.value);
            }
        }
    });
    ends_idle(&executor, pool);
    assert!(account.settle().ran > 0);
}

/// I2: the submitter goes from thread to thread, and its tasks keep its order while others submit in between.
#[test]
fn a_submitter_that_hops_threads_keeps_its_order() {
    const HOPPERS: usize = 3;
    const HOPS: usize = 4_000;
    let account = Account::new(2, HOPS * HOPPERS);
    let pool = worker();
    let executor = accounted(&account).max_items(8).build(pool.workers()[0].clone()).unwrap();
    let token = AtomicUsize::new(0);
    producers(HOPPERS + 1, |thread| {
        if thread == HOPPERS {
            // Somebody else, all the while.
            for number in 0..HOPS * HOPPERS {
                executor.submit((1, number)).unwrap();
            }
            return;
        }
        for hop in 0..HOPS {
            let mine = hop * HOPPERS + thread;
            // Acquire: the submission before has returned; pairs with the Release below.
            support::until("the token comes", || token.load(Ordering::Acquire) == mine);
            executor.submit((0, mine)).unwrap();
            // Release: hands the token on after the submission.
            token.store(mine + 1, Ordering::Release);
        }
    });
    executor.flush().wait().unwrap();
    assert_eq!(account.settle().ran, 2 * HOPS * HOPPERS);
}

/// I2: the whole order is linearizable: what was submitted before another submission began runs before it.
#[test]
fn what_was_submitted_before_another_submission_began_runs_before_it() {
    const PRODUCERS: usize = 4;
    const TASKS: usize = 10_000;
    // On busy processors producers take turns more often than they meet.
    let (start, mut overlapped, mut submitted) = (Instant::now(), 0, 0);
    while overlapped < 10_000 && start.elapsed() < LONG {
        let (pool, recorder, ran) = (worker(), Recorder::new(PRODUCERS * TASKS), Log::new());
        let noted = ran.clone();
        let executor = BatchingExecutor::builder(move |task: usize| noted.push(task))
            .max_items(32)
            .build(pool.workers()[0].clone())
            .unwrap();
        producers(PRODUCERS, |producer| {
            for task in producer * TASKS..(producer + 1) * TASKS {
                recorder.submit(task, || executor.submit(task).unwrap());
            }
        });
        executor.flush().wait().unwrap();
        assert!(pool.join().unwrap().is_empty());
        let history = recorder.history(&ran.take());
        assert_eq!(history.len(), PRODUCERS * TASKS);
        assert_eq!(check_order(&history), Ok(()), "a task ran after one that was submitted after it");
        if submitted == 0 {
            rejects_swaps(&history);
        }
        overlapped += overlapping(&history);
        submitted += history.len();
    }
    println!("{overlapped} of {submitted} submissions overlapped another, each one of its own");
    assert!(overlapped >= 10_000, "the producers did not get in each other's way");
}

/// Plants swaps of two tasks of which one was submitted before the other began: the check must see each.
#[track_caller]
fn rejects_swaps(history: &[Submission]) {
    let mut planted = 0;
    for early in (0..history.len()).step_by(history.len() / 100) {
        // The nearest: the fault that shows least.
        let after = (early + 1..history.len()).find(|&late| history[early].precedes(&history[late]));
        let Some(late) = after else { continue };
        let mut swapped = history.to_vec();
        swapped.swap(early, late);
        assert!(check_order(&swapped).is_err(), "tasks {early} and {late} have changed places unseen");
        planted += 1;
    }
    assert!(planted > 50, "only {planted} swaps were planted");
}

/// The check of histories takes the orders of submissions that overlap, and rejects a swap of two that do not.
#[test]
fn a_planted_swap_in_a_history_is_rejected() {
    let at = |began, ended| Submission { began, ended };
    // The first two overlap, so do the second and the third; the first had returned before the third began.
    let [one, two, three] = [at(1, 4), at(2, 6), at(5, 8)];
    let after = at(9, 10);
    assert_eq!(overlapping(&[one, two, three, after]), 2);
    assert_eq!(overlapping(&[at(1, 100), two, after]), 2, "one that stands still counts once");
    assert_eq!(overlapping(&[one, after]), 0);
    for good in [[one, two, three, after], [two, one, three, after], [one, three, two, after]] {
        assert_eq!(check_order(&good), Ok(()));
    }
    assert_eq!(check_order(&[three, two, one, after]), Err(2));
    assert_eq!(check_order(&[three, one, two, after]), Err(1));
    // A stale one: it runs after everything that came later.
    assert_eq!(check_order(&[two, three, after, one]), Err(3));
    assert_eq!(check_order(&[one, two, after, three]), Err(3));
    let in_turn: Vec<_> = (0..200).map(|number| at(2 * number + 1, 2 * number + 2)).collect();
    assert_eq!(check_order(&in_turn), Ok(()));
    rejects_swaps(&in_turn);
}

/// I1, I2: tasks whose destructors submit, while many threads do.
#[test]
fn tasks_whose_destructors_submit_lose_nothing() {
    use std::sync::OnceLock;

    /// Submits its successors as it is dropped.
    struct Chain {
        executor: Arc<OnceLock<BatchingExecutor<Chain>>>,
        dropped: Arc<AtomicUsize>,
        left: usize,
    }

    impl Drop for Chain {
        fn drop(&mut self) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            if self.left > 0 {
                let next = Self {
                    executor: Arc::clone(&self.executor),
                    dropped: Arc::clone(&self.dropped),
                    left: self.left - 1,
                };
                // On a refusal the task comes back and is dropped here, and submits its successor.
                drop(self.executor.get().unwrap().submit(next));
            }
        }
    }

    for refuses in [false, true] {
        let executor: Arc<OnceLock<BatchingExecutor<Chain>>> = Arc::default();
        let dropped = Arc::new(AtomicUsize::new(0));
        let pool = worker();
        let (inner, offered) = (pool.workers()[0].clone(), AtomicUsize::new(0));
        let delegate = by(move |job| {
            if refuses && offered.fetch_add(1, Ordering::Relaxed) % 3 == 2 {
                return Err(Rejected::new(job, RejectReason::Refused));
            }
            inner.submit(job)
        });
        let built = BatchingExecutor::builder(drop::<Chain>).max_items(4).build(delegate).unwrap();
        executor.get_or_init(|| built);
        producers(4, |_| {
            for _ in 0..250 {
                let chain = Chain { executor: Arc::clone(&executor), dropped: Arc::clone(&dropped), left: 9 };
                drop(executor.get().unwrap().submit(chain));
            }
        });
        support::until("every chain ended", || dropped.load(Ordering::Relaxed) == 4 * 250 * 10);
        executor.get().unwrap().flush().wait().unwrap();
        assert_eq!(dropped.load(Ordering::Relaxed), 10_000);
    }
}
