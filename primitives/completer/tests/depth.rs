//! The depth of completions inside one another.
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests run on the standard library only, and unwrap also in their helpers"
)]

mod support;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::thread;

use folio_completer::{Completed, InlineCompleter, Policy, current_depth};
use folio_sync::Arc;
use folio_sync::test_util::ManualExecutor;
use support::{Mailbox, Ruler, Worker};

fn inline(limit: u32) -> (InlineCompleter, ManualExecutor, ManualExecutor) {
    let serial = ManualExecutor::new();
    let overflow = ManualExecutor::new();
    let completer = InlineCompleter::builder(Policy::Inline, serial.clone())
        .depth_limit(limit)
        .overflow(overflow.clone())
        .build();
    (completer, serial, overflow)
}

/// A read whose callback asks for the next one, `left` times.
fn chain(completer: &InlineCompleter, ruler: &Ruler, deepest: &Arc<AtomicU32>, left: u32) {
    if left == 0 {
        return;
    }
    let (next, ruler, deepest) = (completer.clone(), ruler.clone(), Arc::clone(deepest));
    completer
        .complete(move || {
            ruler.mark();
            deepest.fetch_max(current_depth(), Ordering::Relaxed);
            chain(&next, &ruler, &deepest, left - 1);
        })
        .unwrap();
}

/// The stack that a chain stretches over, the deepest it was, and how often it changed threads.
fn measure(limit: u32, length: u32) -> (usize, u32, usize) {
    let (completer, _serial, overflow) = inline(limit);
    let (ruler, deepest) = (Ruler::default(), Arc::new(AtomicU32::new(0)));
    chain(&completer, &ruler, &deepest, length);
    let hops = overflow.run_all();
    assert_eq!(current_depth(), 0);
    (ruler.longest(), deepest.load(Ordering::Relaxed), hops)
}

/// 4.7, I29, R3, bug 13, bug 14: a chain of 1,000 takes the stack of 10, plus what its executor adds.
#[test]
fn a_chain_of_a_thousand_keeps_the_stack_bounded() {
    let (ten, _, hops) = measure(10, 10);
    assert_eq!(hops, 0);
    let (thousand, deepest, hops) = measure(10, 1_000);
    assert_eq!((deepest, hops), (10, 99));
    assert!(thousand < 3 * ten, "{thousand} bytes, where a chain of ten takes {ten}");
    // The ruler does see a stack that grows; instrumented builds need more of it than a test's thread has.
    let roomy = thread::Builder::new().stack_size(32 << 20).spawn(|| measure(1_000, 1_000));
    let (unbounded, deepest, _) = roomy.unwrap().join().unwrap();
    assert_eq!(deepest, 1_000);
    assert!(unbounded > 20 * ten, "{unbounded} bytes, where a chain of ten takes {ten}");
}

/// 1.13, 4.7, I29, I30, R3: the 11th completion leaves the thread, and an independent one overtakes it.
#[test]
fn the_eleventh_leaves_the_thread_and_an_independent_one_overtakes_it() {
    let (completer, serial, overflow) = inline(10);
    let order = Arc::new(Mutex::new(Vec::new()));
    nest(&completer, &order, 1, 11);
    assert_eq!(*order.lock().unwrap(), (1..=10).collect::<Vec<u32>>());
    assert_eq!(
        (overflow.queued(), serial.queued()),
        (1, 0),
        "exactly one is queued, and not behind the owner's worker"
    );

    let seen = Arc::clone(&order);
    assert_eq!(completer.complete(move || seen.lock().unwrap().push(100)).unwrap(), Completed::Ran);
    assert_eq!(order.lock().unwrap().last(), Some(&100));

    assert!(overflow.run_next());
    assert_eq!(order.lock().unwrap().last(), Some(&11));
    let counts = completer.counts();
    assert_eq!((counts.queued, counts.landed_at_limit, counts.refused), (1, 0, 0));
}

fn nest(completer: &InlineCompleter, order: &Arc<Mutex<Vec<u32>>>, number: u32, last: u32) {
    let (next, seen) = (completer.clone(), Arc::clone(order));
    let outcome = completer
        .complete(move || {
            seen.lock().unwrap().push(number);
            if number < last {
                nest(&next, &seen, number + 1, last);
            }
        })
        .unwrap();
    let expected = if number <= completer.depth_limit() { Completed::Ran } else { Completed::Queued };
    assert_eq!(outcome, expected, "completion {number}");
}

/// 4.7, I29, R3: independent completions stay inline, one after another, whatever the owner's worker is busy with.
#[test]
fn independent_completions_stay_inline_while_the_worker_is_blocked() {
    let (worker, thread) = Worker::start();
    let (release, entered) = (Mailbox::new(), Mailbox::new());
    let (blocked, tell) = (release.clone(), entered.clone());
    let busy = worker.clone();
    folio_sync::Executor::submit(
        &busy,
        folio_sync::Job::new(move || {
            tell.put(());
            blocked.take();
        }),
    )
    .unwrap();
    entered.take();

    let completer = InlineCompleter::builder(Policy::Inline, worker.clone()).depth_limit(10).build();
    let ran = Arc::new(AtomicUsize::new(0));
    for _ in 0..30 {
        let (ran, asker) = (Arc::clone(&ran), thread::current().id());
        let outcome = completer.complete(move || {
            assert_eq!((current_depth(), thread::current().id()), (1, asker));
            ran.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(outcome.unwrap(), Completed::Ran);
        assert_eq!(current_depth(), 0);
    }
    assert_eq!(ran.load(Ordering::Relaxed), 30);
    assert_eq!(completer.counts().queued, 0);

    release.put(());
    drop((worker, busy, completer));
    thread.join().unwrap();
}

/// 1.13, R3: at limit 1 every nested completion is queued, and 0 means 1.
#[test]
fn at_limit_one_every_nested_completion_is_queued() {
    for limit in [1, 0] {
        let (completer, _serial, overflow) = inline(limit);
        assert_eq!(completer.depth_limit(), 1);
        let deepest = Arc::new(AtomicU32::new(0));
        chain(&completer, &Ruler::default(), &deepest, 20);
        assert_eq!(overflow.run_all(), 19);
        assert_eq!((deepest.load(Ordering::Relaxed), completer.counts().queued), (1, 19));
    }
}

/// 1.13, I29: a panic at any depth leaves the counter as it was.
#[test]
fn a_panic_restores_the_depth() {
    let sunk = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&sunk);
    let overflow = ManualExecutor::new();
    let completer = InlineCompleter::builder(Policy::Inline, ManualExecutor::new())
        .depth_limit(3)
        .overflow(overflow.clone())
        .on_panic(move |payload| {
            assert_eq!(current_depth(), 0, "the sink runs outside of the completion");
            heard.lock().unwrap().push(folio_sync::unwind::message(&*payload).to_owned());
        })
        .build();
    for _ in 0..5 {
        assert_eq!(completer.complete(|| panic!("on purpose")).unwrap(), Completed::Panicked);
        assert_eq!(current_depth(), 0);
    }
    // Every level is free again.
    let (one, two, three) = (completer.clone(), completer.clone(), completer.clone());
    let outcome = one.complete(move || {
        let inner = two.complete(move || assert_eq!(three.complete(|| ()).unwrap(), Completed::Ran));
        assert_eq!(inner.unwrap(), Completed::Ran);
    });
    assert_eq!(outcome.unwrap(), Completed::Ran);
    assert_eq!(*sunk.lock().unwrap(), vec!["on purpose"; 5]);
    assert_eq!((completer.counts().panics, overflow.queued()), (5, 0));
}

/// I29: a nested completion that panics does not end the one around it.
#[test]
fn a_nested_panic_stays_in_its_own_completion() {
    let (completer, _serial, overflow) = inline(2);
    let went_on = Arc::new(AtomicUsize::new(0));
    let (inner, after) = (completer.clone(), Arc::clone(&went_on));
    let outcome = completer.complete(move || {
        assert_eq!(inner.complete(|| panic!("on purpose")).unwrap(), Completed::Panicked);
        assert_eq!(current_depth(), 1);
        assert_eq!(inner.complete(|| ()).unwrap(), Completed::Ran, "the level is free again");
        after.fetch_add(1, Ordering::Relaxed);
    });
    assert_eq!(outcome.unwrap(), Completed::Ran);
    assert_eq!((went_on.load(Ordering::Relaxed), overflow.queued()), (1, 0));
}

/// I29: all completers of a thread count together, each against its own limit.
#[test]
fn completers_share_the_depth_of_a_thread() {
    let (one, _, overflow_of_one) = inline(2);
    let (other, _, overflow_of_other) = inline(3);
    let ends = Arc::new(Mutex::new(Vec::new()));
    let (first, second, seen) = (one.clone(), other.clone(), Arc::clone(&ends));
    other
        .complete(move || {
            let (third, fourth) = (first.clone(), second.clone());
            let inner = first.complete(move || {
                seen.lock().unwrap().push(third.complete(|| ()).unwrap());
                seen.lock().unwrap().push(fourth.complete(|| ()).unwrap());
                let deep = fourth.clone();
                let deepest = fourth.complete(move || {
                    assert_eq!(current_depth(), 3);
                    assert_eq!(deep.complete(|| ()).unwrap(), Completed::Queued);
                });
                seen.lock().unwrap().push(deepest.unwrap());
            });
            assert_eq!(inner.unwrap(), Completed::Ran);
        })
        .unwrap();
    assert_eq!(*ends.lock().unwrap(), [Completed::Queued, Completed::Ran, Completed::Ran]);
    assert_eq!((overflow_of_one.queued(), overflow_of_other.queued()), (1, 1));
    assert_eq!((overflow_of_one.run_all(), overflow_of_other.run_all()), (1, 1));
}

/// I29: threads that share a completer do not share its depth.
#[test]
fn each_thread_has_its_own_depth() {
    let (completer, _serial, overflow) = inline(1);
    let elsewhere = completer.clone();
    completer
        .complete(move || {
            let other = thread::spawn(move || (current_depth(), elsewhere.complete(|| ()).unwrap()));
            assert_eq!(other.join().unwrap(), (0, Completed::Ran));
            assert_eq!(current_depth(), 1);
        })
        .map(|outcome| assert_eq!(outcome, Completed::Ran))
        .unwrap();
    assert_eq!(overflow.queued(), 0);
}
