//! Models of the switch itself: what the other crates' models rely on is shown to hold, and shown to fail when it should.
#![cfg(loom)]
#![allow(
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "what is counted outside of the executions must not be modelled; a model fails where it unwraps"
)]

use std::cell::Cell;
use std::mem::ManuallyDrop;

use folio_sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering, fence};
use folio_sync::cell::UnsafeCell;
use folio_sync::test_util::{
    ManualClock, ManualExecutor, ManualTimers, Model, Tracked, model, spurious_every,
};
use folio_sync::time::Clock;
use folio_sync::timers::Timers;
use folio_sync::{Arc, Executor, Job, Mutex, SerialExecutor, SharedJob, arc_dyn, hint, thread, unwind};

/// Runs a model with a fault in it, which must be reported with these words.
fn assert_reported(words: &str, faulty: impl FnOnce()) {
    let Err(payload) = unwind::catch(faulty) else {
        panic!("nothing was reported where {words:?} was expected")
    };
    let report = unwind::message(&*payload);
    assert!(report.contains(words), "{words:?} was expected, and reported was: {report}");
}

/// The smallest lock there is: a flag taken by a weak compare-and-set.
struct TinyLock {
    held: AtomicBool,
    payload: UnsafeCell<Tracked<usize>>,
}

// SAFETY: the payload is reached only by the thread that changed `held` from false to true and has not changed it back.
unsafe impl Sync for TinyLock {}

impl TinyLock {
    fn new() -> Self {
        Self { held: AtomicBool::new(false), payload: UnsafeCell::new(Tracked::new(0)) }
    }

    /// Replaces the payload by its successor.
    fn count(&self) {
        // Acquire: sees the payload that the last holder left; pairs with the Release below.
        while self.held.compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
            hint::spin_loop();
        }
        let old = self.payload.with_mut(|payload| {
            // SAFETY: this thread holds the lock.
            let payload = unsafe { &mut *payload };
            let next = Tracked::new(*payload.get() + 1);
            std::mem::replace(payload, next)
        });
        drop(old);
        // Release: publishes the payload; pairs with the Acquire above.
        self.held.store(false, Ordering::Release);
    }
}

#[test]
fn a_lock_built_on_a_weak_compare_and_set_protects_its_payload() {
    model("tiny lock", || {
        let _spurious = spurious_every(3);
        let lock = Arc::new(TinyLock::new());
        let threads = [(); 2].map(|()| {
            let lock = Arc::clone(&lock);
            thread::spawn(move || lock.count())
        });
        for thread in threads {
            thread.join().unwrap();
        }
        let count = lock.payload.with(|payload| {
            // SAFETY: both threads have ended, and joining them synchronised with this one.
            *unsafe { &*payload }.get()
        });
        assert_eq!(count, 2);
    });
}

/// Three payloads handed over by their addresses: `publish` and `read` are the orderings of the two sides.
fn hand_over(publish: Ordering, read: Ordering) {
    hand_over_by(move |slot, payload| slot.store(payload, publish), move |slot| slot.load(read));
}

type Slot = AtomicPtr<Tracked<usize>>;

fn hand_over_by(
    publish: impl Fn(&Slot, *mut Tracked<usize>),
    read: impl Fn(&Slot) -> *mut Tracked<usize> + Send + 'static,
) {
    let slots = Arc::new([(); 3].map(|()| Slot::default()));
    let other = Arc::clone(&slots);
    let reader = thread::spawn(move || {
        for (number, slot) in other.iter().enumerate() {
            let payload = read(slot);
            if !payload.is_null() {
                // SAFETY: the payload lives until both threads have ended.
                assert_eq!(*unsafe { &*payload }.get(), number);
            }
        }
    });
    let payloads = [0, 1, 2].map(|number| Box::into_raw(Box::new(Tracked::new(number))));
    for (slot, payload) in slots.iter().zip(payloads) {
        publish(slot, payload);
    }
    reader.join().unwrap();
    for payload in payloads {
        // SAFETY: the reader has ended; nobody else knows the payload.
        drop(unsafe { Box::from_raw(payload) });
    }
}

#[test]
fn a_payload_published_by_release_and_read_by_acquire_is_synchronised() {
    model("publication", || hand_over(Ordering::Release, Ordering::Acquire));
}

#[test]
fn a_payload_published_without_release_is_caught() {
    assert_reported("Causality violation", || {
        model("publication, relaxed store", || hand_over(Ordering::Relaxed, Ordering::Acquire));
    });
}

#[test]
fn a_payload_read_without_acquire_is_caught() {
    assert_reported("Causality violation", || {
        model("publication, relaxed load", || hand_over(Ordering::Release, Ordering::Relaxed));
    });
}

#[test]
fn fences_synchronise_where_relaxed_accesses_do_not() {
    model("publication by fences", || {
        hand_over_by(
            |slot, payload| {
                // Release: publishes the payload; pairs with the fence after the load.
                fence(Ordering::Release);
                slot.store(payload, Ordering::Relaxed);
            },
            |slot| {
                let payload = slot.load(Ordering::Relaxed);
                // Acquire: pairs with the fence before the store.
                fence(Ordering::Acquire);
                payload
            },
        );
    });
}

#[test]
fn a_failed_weak_compare_and_set_loads_with_its_failure_ordering() {
    // The second one of an execution fails by injection, the others when a payload is there.
    model("failure ordering", || {
        let _spurious = spurious_every(2);
        hand_over_by(
            |slot, payload| slot.store(payload, Ordering::Release),
            |slot| {
                let nothing = std::ptr::null_mut();
                slot.compare_exchange_weak(nothing, nothing, Ordering::Relaxed, Ordering::Acquire)
                    .unwrap_or_else(|payload| payload)
            },
        );
    });
}

#[test]
fn a_weak_compare_and_set_that_succeeds_publishes_with_its_ordering() {
    model("success ordering", || {
        hand_over_by(
            |slot, payload| {
                let nothing = std::ptr::null_mut();
                slot.compare_exchange_weak(nothing, payload, Ordering::Release, Ordering::Relaxed).unwrap();
            },
            |slot| slot.load(Ordering::Acquire),
        );
    });
}

/// Runs a body with one thread, which has one execution.
fn alone(name: &'static str, body: impl Fn() + Send + Sync + 'static) {
    Model::new(name).few_executions("one thread has one schedule").check(body);
}

#[test]
fn a_tracked_value_that_is_leaked_is_caught() {
    assert_reported("Allocation leaked", || {
        alone("leak", || std::mem::forget(Tracked::new(7)));
    });
}

#[test]
fn a_tracked_value_that_is_dropped_twice_is_caught() {
    assert_reported("tracked value dropped twice", || {
        alone("double drop", || {
            let mut value = ManuallyDrop::new(Tracked::new(7));
            // SAFETY: none that holds: this is the fault that must be seen. Nothing is freed twice, since the value owns no memory.
            unsafe { ManuallyDrop::drop(&mut value) };
            // SAFETY: as above.
            unsafe { ManuallyDrop::drop(&mut value) };
        });
    });
}

#[test]
fn a_tracked_value_that_is_used_after_its_drop_is_caught() {
    assert_reported("tracked value used after its drop", || {
        alone("use after drop", || {
            let mut value = ManuallyDrop::new(Tracked::new(7));
            // SAFETY: the value is dropped once; its memory stays.
            unsafe { ManuallyDrop::drop(&mut value) };
            let _number = value.get();
        });
    });
}

#[test]
fn a_tracked_value_that_is_dropped_while_it_may_be_read_is_caught() {
    assert_reported("Causality violation", || {
        Model::new("drop against read").few_executions("the fault is in the first").check(|| {
            let value = Arc::new(Shared(UnsafeCell::new(ManuallyDrop::new(Tracked::new(7)))));
            let other = Arc::clone(&value);
            let dropping = thread::spawn(move || {
                let value = other.0.with(<*const _>::cast_mut);
                // SAFETY: none that holds: this is the fault that must be seen. The value's memory stays.
                let value = unsafe { &mut *value };
                // SAFETY: it is dropped once.
                unsafe { ManuallyDrop::drop(value) };
            });
            let value = value.0.with(|value| value);
            // SAFETY: none that holds, as above.
            let _number = unsafe { &*value }.get();
            dropping.join().unwrap();
        });
    });
}

/// Shares a cell between threads, as the structures under test do.
struct Shared<T>(UnsafeCell<T>);

// SAFETY: what its users do with the cell is what the models check.
unsafe impl<T> Sync for Shared<T> {}

#[test]
fn a_model_that_sees_nothing_fails() {
    assert_reported("fewer than 20 need a reason", || {
        model("nothing", || ());
    });
}

#[test]
fn a_model_that_says_why_may_have_few_executions() {
    alone("nothing, for a reason", || ());
}

/// The body of the next test, run by it in a process of its own.
#[test]
fn run_with_a_cap() {
    model("publication", || hand_over(Ordering::Release, Ordering::Acquire));
}

#[test]
fn a_capped_model_is_refused() {
    let run = |name: &str, value: &str| {
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "run_with_a_cap", "--nocapture"])
            .env(name, value)
            .output()
            .unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for cap in ["LOOM_MAX_DURATION", "LOOM_MAX_PERMUTATIONS", "LOOM_CHECKPOINT_FILE"] {
        let (passed, errors) = run(cap, "1000000");
        assert!(!passed && errors.contains("a capped model proves nothing"), "{cap}: {errors}");
    }
    let (passed, errors) = run("FOLIO_LOOM_BOUND", "2");
    assert!(!passed && errors.contains("real faults stay hidden"), "{errors}");
    let (passed, errors) = run("FOLIO_LOOM_BOUND", "4");
    assert!(passed, "{errors}");
}

#[test]
fn every_kth_weak_compare_and_set_fails_and_finds_the_value() {
    alone("injection", || {
        let word = AtomicUsize::new(0);
        let attempt = || word.compare_exchange_weak(0, 0, Ordering::AcqRel, Ordering::Acquire);
        let spurious = spurious_every(3);
        let failed: Vec<_> = (0..7).map(|_| attempt().is_err()).collect();
        assert_eq!(failed, [false, false, true, false, false, true, false]);
        assert_eq!(
            word.compare_exchange(0, 0, Ordering::AcqRel, Ordering::Acquire),
            Ok(0),
            "the strong one never does"
        );
        assert!(attempt().is_ok());
        assert_eq!(attempt(), Err(0), "with the value found");
        drop(spurious);
        assert!((0..9).all(|_| attempt().is_ok()), "it ends with its guard");
        let _every_second = spurious_every(2);
        assert!(attempt().is_ok(), "each injection counts from its own beginning");
        assert_eq!(word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |value| Some(value + 1)), Ok(0));
        assert_eq!(word.load(Ordering::Relaxed), 1, "an update tries again");
        assert_eq!(word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |_| None), Err(1));
    });
}

#[test]
fn the_injected_failure_reaches_every_execution() {
    // Counted outside of the executions: the k-th attempt of each fails, however often the body is run.
    let failures = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let executions = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let (failed, executed) = (std::sync::Arc::clone(&failures), std::sync::Arc::clone(&executions));
    model("injection in each execution", move || {
        let _spurious = spurious_every(2);
        executed.fetch_add(1, Ordering::Relaxed);
        let word = Arc::new(AtomicUsize::new(0));
        let other = Arc::clone(&word);
        let add = |word: &AtomicUsize| {
            for _ in 0..3 {
                word.fetch_add(1, Ordering::AcqRel);
            }
        };
        let thread = thread::spawn(move || add(&other));
        add(&word);
        thread.join().unwrap();
        for _ in 0..4 {
            if word.compare_exchange_weak(6, 6, Ordering::AcqRel, Ordering::Acquire).is_err() {
                failed.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    assert_eq!(failures.load(Ordering::Relaxed), 2 * executions.load(Ordering::Relaxed));
}

#[test]
fn a_mutex_lets_one_in_at_a_time_and_publishes_what_it_guards() {
    model("mutex", || {
        let shared = Arc::new(Mutex::new(Tracked::new(0)));
        let count = |shared: &Mutex<Tracked<usize>>| {
            let mut payload = shared.lock();
            let next = Tracked::new(*payload.get() + 1);
            *payload = next;
        };
        let threads = [(); 2].map(|()| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                count(&shared);
                count(&shared);
            })
        });
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(*shared.lock().get(), 4);
    });
}

folio_sync::thread_local! {
    /// One a thread of the model.
    static NUMBER: Cell<u32> = Cell::new(7);
}

#[test]
fn a_thread_local_is_one_a_thread_of_the_model() {
    model("thread-local", || {
        let step = Arc::new(AtomicUsize::new(0));
        let threads = [1, 2].map(|number| {
            let step = Arc::clone(&step);
            thread::spawn(move || {
                assert_eq!(NUMBER.with(Cell::get), 7);
                step.fetch_add(1, Ordering::AcqRel);
                NUMBER.with(|own| own.set(number));
                step.fetch_add(1, Ordering::AcqRel);
                assert_eq!(NUMBER.with(Cell::get), number);
            })
        });
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(NUMBER.with(Cell::get), 7);
    });
}

#[test]
fn a_parked_thread_is_woken_and_sees_what_came_before() {
    model("park", || {
        let ready = Arc::new([AtomicBool::new(false), AtomicBool::new(false)]);
        let payloads = Arc::new([0, 0].map(|number| Shared(UnsafeCell::new(Tracked::new(number)))));
        let waiter = thread::current();
        let threads = [0, 1].map(|which| {
            let (ready, payloads, waiter) = (Arc::clone(&ready), Arc::clone(&payloads), waiter.clone());
            let publish = move || {
                let old = payloads[which].0.with_mut(|payload| {
                    // SAFETY: the payload is read only after the flag.
                    std::mem::replace(unsafe { &mut *payload }, Tracked::new(7))
                });
                drop(old);
                // Release: publishes the payload; pairs with the Acquire of the waiter.
                ready[which].store(true, Ordering::Release);
                waiter.unpark();
            };
            thread::Builder::new().name("publisher".into()).spawn(publish).unwrap()
        });
        for (ready, payload) in ready.iter().zip(payloads.iter()) {
            // Acquire: sees the payload; pairs with the Release of its publisher.
            while !ready.load(Ordering::Acquire) {
                thread::park();
            }
            payload.0.with(|payload| {
                // SAFETY: the payload is not written after the flag.
                assert_eq!(*unsafe { &*payload }.get(), 7);
            });
        }
        for thread in threads {
            assert_eq!(thread.thread().name(), Some("publisher"));
            thread.join().unwrap();
        }
    });
}

/// Submits a shared job once; how often it was taken.
fn submit(executor: &ManualExecutor, job: &Arc<dyn SharedJob>) -> usize {
    match executor.submit(Job::shared(Arc::clone(job))) {
        Ok(()) => 1,
        Err(rejected) => {
            rejected.into_inner().forget();
            0
        }
    }
}

#[test]
fn each_submission_of_a_shared_job_is_run_or_abandoned_once() {
    model("shared job", || {
        let counts = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
        let job = {
            let counts = Arc::clone(&counts);
            arc_dyn!(Telling(counts, Tracked::new(())) => dyn SharedJob)
        };
        let executor = ManualExecutor::bounded(1);
        let thread = {
            let (executor, job) = (executor.clone(), Arc::clone(&job));
            thread::spawn(move || submit(&executor, &job))
        };
        let mine = submit(&executor, &job);
        executor.run_next();
        let mine = mine + submit(&executor, &job);
        drop(job);
        let taken = thread.join().unwrap() + mine;
        drop(executor);
        let [ran, abandoned] = [0, 1].map(|which| counts[which].load(Ordering::Relaxed));
        assert!(ran >= 1 && ran + abandoned == taken, "{ran} ran and {abandoned} were abandoned of {taken}");
    });
}

/// Counts how often it ran and how often it was abandoned.
struct Telling(Arc<[AtomicUsize; 2]>, Tracked<()>);

impl SharedJob for Telling {
    fn run(&self, _this: &Arc<dyn SharedJob>) {
        let () = self.1.get();
        self.0[0].fetch_add(1, Ordering::Relaxed);
    }

    fn abandoned(&self, _this: &Arc<dyn SharedJob>) {
        let () = self.1.get();
        self.0[1].fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn current_is_told_for_the_thread_of_the_model() {
    model("is_current", || {
        let executor = ManualExecutor::new();
        let order = Arc::new(AtomicUsize::new(0));
        let inside = {
            let (executor, order) = (executor.clone(), Arc::clone(&order));
            Job::new(move || {
                order.fetch_add(1, Ordering::AcqRel);
                assert!(executor.is_current());
            })
        };
        executor.submit(inside).unwrap();
        let outside = {
            let (executor, order) = (executor.clone(), Arc::clone(&order));
            thread::spawn(move || {
                order.fetch_add(1, Ordering::AcqRel);
                assert!(!executor.is_current());
                order.fetch_add(1, Ordering::AcqRel);
            })
        };
        assert!(executor.run_next());
        outside.join().unwrap();
    });
}

#[test]
fn a_timer_is_fired_or_cancelled_once() {
    model("hand-stepped timers", || {
        let clock = ManualClock::new();
        let timers = ManualTimers::new(&clock);
        let delay = std::time::Duration::from_secs(1);
        let fired = Arc::new(AtomicUsize::new(0));
        let timer = {
            let (fired, payload) = (Arc::clone(&fired), Tracked::new(1));
            timers
                .once(
                    delay,
                    Job::new(move || {
                        fired.fetch_add(*payload.get(), Ordering::Relaxed);
                    }),
                )
                .unwrap()
        };
        let cancelling = {
            let timers = timers.clone();
            thread::spawn(move || timers.cancel(timer).is_some())
        };
        assert_eq!(timers.advance(delay), fired.load(Ordering::Relaxed));
        assert_eq!(clock.now().as_nanos(), 1_000_000_000);
        let cancelled = cancelling.join().unwrap();
        assert_eq!(fired.load(Ordering::Relaxed) + usize::from(cancelled), 1);
    });
}
