//! Overflow into rayon's global pool.
#![cfg(all(feature = "rayon", not(any(loom, shuttle))))]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests run on the standard library only, and unwrap also in their helpers"
)]

mod support;

use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use folio_completer::{Completed, InlineCompleter, Policy, current_depth};
use folio_sync::test_util::ManualExecutor;
use folio_sync::{Executor, Job};
use support::{LONG, Ruler, Worker, count};

/// Two workers, which one test at a time has to itself.
fn pool() -> MutexGuard<'static, bool> {
    static SET_UP: Mutex<bool> = Mutex::new(false);
    let mut set_up = SET_UP.lock().unwrap_or_else(PoisonError::into_inner);
    if !*set_up {
        rayon::ThreadPoolBuilder::new().num_threads(2).build_global().unwrap();
        *set_up = true;
    }
    set_up
}

/// Waits, without giving its thread away to other jobs.
fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < LONG, "waited in vain until {what}");
        thread::yield_now();
    }
}

fn chain(
    completer: &InlineCompleter,
    left: usize,
    each: Arc<dyn Fn() + Send + Sync>,
    end: Arc<dyn Fn() + Send + Sync>,
) {
    let next = completer.clone();
    let outcome = completer.complete(move || {
        each();
        if left == 1 { end() } else { chain(&next, left - 1, each, end) }
    });
    assert!(matches!(outcome, Ok(Completed::Ran | Completed::Queued)), "{outcome:?}");
}

/// 1.13, I29, I30: a chain goes on in the pool, on bounded stacks, without the owner's worker.
#[test]
fn a_long_chain_goes_on_in_the_pool() {
    let _pool = pool();
    let worker = ManualExecutor::new();
    let completer = InlineCompleter::builder(Policy::Inline, worker.clone()).depth_limit(10).build();
    assert_eq!(format!("{completer:?}"), "InlineCompleter { policy: Inline, limit: 10, overflow: Pool, .. }");
    let asker = thread::current().id();
    let measure = |length: usize| {
        let ruler = Ruler::default();
        let (here, deepest) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicU32::new(0)));
        let (tell, told) = channel();
        let each = {
            let (ruler, here, deepest) = (ruler.clone(), Arc::clone(&here), Arc::clone(&deepest));
            move || {
                ruler.mark();
                deepest.fetch_max(current_depth(), Ordering::Relaxed);
                if thread::current().id() == asker {
                    count(&here);
                }
            }
        };
        chain(&completer, length, Arc::new(each), Arc::new(move || tell.send(()).unwrap()));
        told.recv_timeout(LONG).unwrap();
        assert_eq!(here.load(Ordering::Relaxed), 10, "the 11th left the thread");
        assert_eq!(deepest.load(Ordering::Relaxed), 10);
        ruler.longest()
    };
    let twenty = measure(20);
    let thousand = measure(1_000);
    assert!(thousand < 3 * twenty, "{thousand} bytes, where a chain of twenty takes {twenty}");
    wait_until("all are counted", || completer.counts().queued == 100);
    let counts = completer.counts();
    assert_eq!((counts.landed_at_limit, counts.panics, worker.submissions()), (0, 0, 0));
}

/// 4.7, R8: a chain that crosses a boundary asks its next leg of the serial executor, and is complete there, at depth one.
#[test]
fn a_chain_on_the_pool_returns_to_the_serial_executor_across_a_boundary() {
    let _pool = pool();
    let (worker, thread) = Worker::start();
    let completer = InlineCompleter::builder(Policy::Inline, worker.clone()).depth_limit(10).build();
    let (tell, told) = channel();
    let end = {
        let (worker, completer) = (worker.clone(), completer.clone());
        move || {
            let (before, tell, next) = (thread::current().id(), tell.clone(), completer.clone());
            let leg = Job::new(move || {
                let outcome = next.complete(move || {
                    tell.send((before, thread::current().id(), current_depth())).unwrap();
                });
                assert_eq!(outcome.unwrap(), Completed::Ran);
            });
            worker.submit(leg).unwrap();
        }
    };
    chain(&completer, 35, Arc::new(|| ()), Arc::new(end));
    let (before, after, depth) = told.recv_timeout(LONG).unwrap();
    assert_ne!(before, thread::current().id());
    assert_ne!(before, worker.id());
    assert_eq!((after, depth), (worker.id(), 1));
    worker.ask(|| ());
    drop((worker, completer));
    thread.join().unwrap();
}

/// I30, R3: a worker at the limit that waits in `join` steals the continuation, which then goes to the serial executor.
#[test]
fn a_worker_that_waits_in_join_passes_what_it_steals_to_the_serial_executor() {
    let _pool = pool();
    let worker = ManualExecutor::new();
    let completer = InlineCompleter::builder(Policy::Inline, worker.clone()).depth_limit(1).build();
    let (tell, told) = channel();
    let (at_limit, ran) = (completer.clone(), Arc::new(AtomicUsize::new(0)));
    let ran_late = Arc::clone(&ran);
    rayon::spawn(move || {
        let (inner, waiting) = (at_limit.clone(), at_limit.clone());
        let outcome = at_limit.complete(move || {
            let stolen = AtomicBool::new(false);
            let (asked, ()) = rayon::join(
                || {
                    // The other worker is busy with the other half: what is queued here only this one can take.
                    wait_until("the other half is stolen", || stolen.load(Ordering::Acquire));
                    inner.complete(move || count(&ran_late)).unwrap()
                },
                || {
                    stolen.store(true, Ordering::Release);
                    wait_until("the continuation has landed", || waiting.counts().landed_at_limit == 1);
                },
            );
            assert_eq!((asked, current_depth()), (Completed::Queued, 1));
        });
        tell.send(outcome.unwrap()).unwrap();
    });
    assert_eq!(told.recv_timeout(LONG), Ok(Completed::Ran));
    assert_eq!((worker.queued(), ran.load(Ordering::Relaxed)), (1, 0), "it did not run above the limit");
    assert_eq!(worker.run_all(), 1);
    assert_eq!(ran.load(Ordering::Relaxed), 1);
    let counts = completer.counts();
    assert_eq!((counts.queued, counts.landed_at_limit, counts.refused, counts.panics), (1, 1, 0, 0));
}

/// No panic reaches rayon, which would end the process: not the completion's, nor the sink's, nor the serial executor's.
#[test]
fn a_panic_does_not_reach_the_pool() {
    let _pool = pool();
    let (tell, told) = channel();
    let tell = Mutex::new(tell);
    let completer = InlineCompleter::builder(Policy::Inline, ManualExecutor::new())
        .depth_limit(1)
        .on_panic(move |payload| {
            let text = folio_sync::unwind::message(&*payload).to_owned();
            tell.lock().unwrap().send((thread::current().id(), text)).unwrap();
            panic!("on purpose, in the sink");
        })
        .build();
    let inner = completer.clone();
    let outcome = completer
        .complete(move || assert_eq!(inner.complete(|| panic!("on purpose")).unwrap(), Completed::Queued));
    assert_eq!(outcome.unwrap(), Completed::Ran);
    let (elsewhere, text) = told.recv_timeout(LONG).unwrap();
    assert_ne!(elsewhere, thread::current().id());
    assert_eq!(text, "on purpose");
    // The pool is alive.
    let (tell, told) = channel();
    rayon::spawn(move || tell.send(7).unwrap());
    assert_eq!(told.recv_timeout(LONG), Ok(7));
}

/// 1.13, I30: on a worker of a pool of one the serial executor is used: that worker may be the one that waits.
#[test]
fn a_pool_of_one_that_asks_is_not_used() {
    let _pool = pool();
    let worker = ManualExecutor::new();
    let completer = InlineCompleter::builder(Policy::Inline, worker.clone()).depth_limit(1).build();
    let one = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let (inner, asked) = (completer.clone(), completer.clone());
    let (outcome, built) = one.install(move || {
        let outcome =
            asked.complete(move || assert_eq!(inner.complete(|| ()).unwrap(), Completed::Queued)).unwrap();
        (outcome, format!("{:?}", InlineCompleter::builder(Policy::Inline, ManualExecutor::new()).build()))
    });
    assert_eq!((outcome, worker.run_all()), (Completed::Ran, 1));
    assert!(built.contains("overflow: Serial"), "{built}");
    // Affine mode does not even look.
    let affine = InlineCompleter::affine(worker);
    assert!(format!("{affine:?}").contains("overflow: Serial"), "{affine:?}");
}

/// 1.13, I30: a process whose global pool has one worker, or none, queues overflow on the serial executor.
#[test]
fn a_pool_that_is_small_or_absent_is_not_used() {
    let one = child("RAYON_NUM_THREADS", "1");
    assert!(said(&one, "built with overflow: Serial, 1 queued there"), "{one:?}");
    // No thread can have a stack of this size, so that the pool cannot start.
    let none = child("RUST_MIN_STACK", "70368744177664");
    assert!(said(&none, "built with overflow: Serial, 1 queued there"), "{none:?}");
    assert!(String::from_utf8_lossy(&none.stderr).contains("has not been initialized"), "{none:?}");
    let two = child("RAYON_NUM_THREADS", "2");
    assert!(said(&two, "built with overflow: Pool, 0 queued there"), "{two:?}");
}

fn child(variable: &str, value: &str) -> Output {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "in_a_child_process", "--ignored", "--nocapture", "--test-threads=1"])
        .env(variable, value)
        .output()
        .unwrap()
}

fn said(output: &Output, line: &str) -> bool {
    output.status.success() && String::from_utf8_lossy(&output.stdout).contains(line)
}

#[test]
#[ignore = "the child of another test"]
fn in_a_child_process() {
    let worker = ManualExecutor::new();
    let completer = InlineCompleter::builder(Policy::Inline, worker.clone()).depth_limit(1).build();
    let inner = completer.clone();
    let outcome = completer.complete(move || {
        assert_eq!(inner.complete(|| ()).unwrap(), Completed::Queued);
    });
    assert_eq!(outcome.unwrap(), Completed::Ran);
    let built = format!("{completer:?}");
    let overflow = built.split("overflow: ").nth(1).unwrap().split(',').next().unwrap();
    println!("built with overflow: {overflow}, {} queued there", worker.queued());
    // What is queued keeps its completer alive, and that the worker.
    worker.run_all();
}
