//! Where completions run, and where they go instead.
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests run on the standard library only, and unwrap also in their helpers"
)]

mod support;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use folio_completer::{Completed, InlineCompleter, Policy, current_depth};
use folio_sync::test_util::ManualExecutor;
use folio_sync::{Arc, Executor, Job};
use support::{Always, Does, Mailbox, Worker, count};

/// 1.13, R2, I34: the completion runs inside the asking call, re-enters, and finds the pending state that was set before it.
#[test]
fn inline_runs_inside_the_call_that_asked() {
    let completer = InlineCompleter::inline(ManualExecutor::new());
    let pending = Arc::new(Mutex::new(false));
    let asker = thread::current().id();

    *pending.lock().unwrap() = true;
    let (again, seen) = (completer.clone(), Arc::clone(&pending));
    let outcome = completer.complete(move || {
        assert_eq!(thread::current().id(), asker);
        assert!(std::mem::take(&mut *seen.lock().unwrap()), "set before it was asked");
        // No lock of the completer is held: the same one can be asked again, by a completion and by what it captured.
        assert_eq!(again.complete(|| ()).unwrap(), Completed::Ran);
    });
    assert_eq!(outcome.unwrap(), Completed::Ran);
    assert!(!*pending.lock().unwrap(), "done when the call returns");
}

/// 1.13, 4.7, R4, bug 65: affine runs at once on its worker, and queues one job from anywhere else.
#[test]
fn affine_runs_at_once_on_its_worker_and_queues_elsewhere() {
    let (worker, thread) = Worker::start();
    let completer = InlineCompleter::affine(worker.clone());
    let ran_on = Mailbox::new();
    let from_outside = ran_on.clone();
    let outcome = completer.complete(move || from_outside.put(thread::current().id()));
    assert_eq!(outcome.unwrap(), Completed::Queued);
    assert_eq!(ran_on.take(), worker.id());

    let (inside, from_inside) = (completer.clone(), ran_on.clone());
    let (outcome, depth) = worker.ask(move || {
        let outcome = inside.complete(move || from_inside.put(thread::current().id())).unwrap();
        (outcome, current_depth())
    });
    assert_eq!((outcome, depth), (Completed::Ran, 0));
    assert_eq!(ran_on.try_take(), Some(worker.id()));
    assert_eq!(completer.counts().queued, 1);

    drop((worker, completer));
    thread.join().unwrap();
}

/// 1.13, 4.7, I29, R3, R4: affine at the limit queues on its worker, never on the overflow executor.
#[test]
fn affine_queues_on_its_worker_at_the_limit() {
    let worker = ManualExecutor::new();
    let overflow = ManualExecutor::new();
    let completer = InlineCompleter::builder(Policy::Affine, worker.clone())
        .depth_limit(10)
        .overflow(overflow.clone())
        .build();
    let ran = Arc::new(AtomicUsize::new(0));
    nest(&completer, &ran, 25);
    assert_eq!((ran.load(Ordering::Relaxed), worker.queued()), (0, 1), "off the worker, so queued");
    assert!(worker.run_next());
    assert_eq!((ran.load(Ordering::Relaxed), worker.queued()), (10, 1));
    assert_eq!(worker.run_all(), 2);
    assert_eq!((ran.load(Ordering::Relaxed), overflow.submissions()), (25, 0));
    assert_eq!(worker.handovers(), 1, "the rest were continuations of the worker's own jobs");
}

fn nest(completer: &InlineCompleter, ran: &Arc<AtomicUsize>, left: usize) {
    if left > 0 {
        let (next, count) = (completer.clone(), Arc::clone(ran));
        completer
            .complete(move || {
                count.fetch_add(1, Ordering::Relaxed);
                nest(&next, &count, left - 1);
            })
            .unwrap();
    }
}

/// R4: a worker that is full takes what its own job continues with.
#[test]
fn a_full_worker_takes_the_continuation_of_its_own_job() {
    let worker = ManualExecutor::bounded(1);
    let completer = InlineCompleter::builder(Policy::Affine, worker.clone()).depth_limit(1).build();
    let (inner, full) = (completer.clone(), worker.clone());
    let job = completer.complete(move || {
        full.submit(Job::new(|| ())).unwrap();
        assert!(full.submit(Job::new(|| ())).is_err(), "full");
        assert_eq!(inner.complete(|| ()).unwrap(), Completed::Queued);
    });
    assert_eq!(job.unwrap(), Completed::Queued);
    assert_eq!((worker.run_all(), completer.counts().panics), (3, 0));
}

/// 1.13, I30: overflow in inline mode never waits behind the serial executor.
#[test]
fn inline_overflow_does_not_wait_behind_the_worker() {
    let worker = ManualExecutor::new();
    worker.submit(Job::new(|| panic!("the worker stays busy"))).unwrap();
    let overflow = ManualExecutor::new();
    let completer = InlineCompleter::builder(Policy::Inline, worker.clone())
        .depth_limit(2)
        .overflow(overflow.clone())
        .build();
    let ran = Arc::new(AtomicUsize::new(0));
    nest(&completer, &ran, 9);
    assert_eq!(overflow.run_all(), 4);
    assert_eq!(
        (ran.load(Ordering::Relaxed), worker.submissions(), completer.counts().landed_at_limit),
        (9, 1, 0)
    );
}

/// 1.13, I30, R3: what lands at the limit again goes to the serial executor, and is counted.
#[test]
fn what_lands_at_the_limit_goes_to_the_serial_executor() {
    let worker = ManualExecutor::new();
    let overflow = Always::new(Does::RunInside);
    let completer = InlineCompleter::builder(Policy::Inline, worker.clone())
        .depth_limit(1)
        .overflow(overflow.clone())
        .build();
    let ran = Arc::new(AtomicUsize::new(0));
    nest(&completer, &ran, 2);
    assert_eq!((ran.load(Ordering::Relaxed), worker.queued(), overflow.attempts()), (1, 1, 1));
    let counts = completer.counts();
    assert_eq!((counts.queued, counts.landed_at_limit, counts.refused), (1, 1, 0));
    assert_eq!(worker.run_all(), 1);
    assert_eq!(ran.load(Ordering::Relaxed), 2);
}

/// 1.13, 4.7, I31: what the builder was given is fixed, whatever its givers change afterwards.
#[test]
fn policy_and_limit_are_captured_when_built() {
    struct Settings {
        inline: bool,
        limit: u32,
    }
    let build = |settings: &Settings, worker: &ManualExecutor| {
        let policy = if settings.inline { Policy::Inline } else { Policy::Affine };
        InlineCompleter::builder(policy, worker.clone())
            .depth_limit(settings.limit)
            .overflow(ManualExecutor::new())
            .build()
    };
    let mut settings = Settings { inline: false, limit: 4 };
    let worker = ManualExecutor::new();
    let before = build(&settings, &worker);
    settings = Settings { inline: true, limit: 7 };
    let after = build(&settings, &worker);

    assert_eq!((before.policy(), before.depth_limit()), (Policy::Affine, 4));
    assert_eq!((after.policy(), after.depth_limit()), (Policy::Inline, 7));
    assert_eq!(before.complete(|| ()).unwrap(), Completed::Queued);
    assert_eq!(after.complete(|| ()).unwrap(), Completed::Ran);
    assert_eq!(before.complete(|| ()).unwrap(), Completed::Queued);
    assert_eq!(worker.queued(), 2);
    assert_eq!(worker.run_all(), 2);
}

/// Asks once more when it is dropped.
struct OnDrop(InlineCompleter, Arc<AtomicUsize>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        let ended = Arc::clone(&self.1);
        self.0.complete(move || count(&ended)).unwrap();
    }
}

/// I34: a queued completion runs, and a refused one is refused, outside of the completer's locks.
#[test]
fn queued_completions_may_ask_again() {
    let worker = ManualExecutor::new();
    let completer = InlineCompleter::affine(worker.clone());
    let (again, ended) = (completer.clone(), Arc::new(AtomicUsize::new(0)));
    let (run, dropped) = (Arc::clone(&ended), OnDrop(completer.clone(), Arc::clone(&ended)));
    completer
        .complete(move || {
            let _dropped = dropped;
            again.complete(move || count(&run)).unwrap();
        })
        .unwrap();
    assert_eq!(worker.run_all(), 1);
    assert_eq!(ended.load(Ordering::Relaxed), 2);
}

#[test]
fn completers_can_be_looked_at() {
    let builder = InlineCompleter::builder(Policy::Affine, ManualExecutor::new()).depth_limit(3);
    assert_eq!(format!("{builder:?}"), "Builder { policy: Affine, limit: Some(3), .. }");
    let completer = builder.build();
    assert_eq!(
        format!("{completer:?}"),
        "InlineCompleter { policy: Affine, limit: 3, overflow: Serial, .. }"
    );
}
