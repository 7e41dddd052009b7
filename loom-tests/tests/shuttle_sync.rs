//! The switch under shuttle: many threads, random and PCT schedules, a seed that replays.
#![cfg(shuttle)]
#![allow(clippy::unwrap_used, reason = "a checked body fails where it unwraps")]

use folio_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use folio_sync::test_util::{ManualExecutor, Tracked, shuttle_check, spurious_every};
use folio_sync::{Arc, Executor, Job, Mutex, thread};

const THREADS: usize = 4;
const ROUNDS: u64 = 5;

#[test]
fn a_mutex_and_a_weak_compare_and_set_loop_lose_no_count() {
    shuttle_check("counters", 300, || {
        let _spurious = spurious_every(3);
        let locked = Arc::new(Mutex::new(0_u64));
        let swapped = Arc::new(AtomicU64::new(0));
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                let locked = Arc::clone(&locked);
                let swapped = Arc::clone(&swapped);
                thread::spawn(move || {
                    for _ in 0..ROUNDS {
                        *locked.lock() += 1;
                        let mut seen = swapped.load(Ordering::Relaxed);
                        while let Err(now) = swapped.compare_exchange_weak(
                            seen,
                            seen + 1,
                            Ordering::Relaxed,
                            Ordering::Relaxed,
                        ) {
                            seen = now;
                        }
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(*locked.lock(), THREADS as u64 * ROUNDS);
        assert_eq!(swapped.load(Ordering::Relaxed), THREADS as u64 * ROUNDS);
    });
}

#[test]
fn a_parked_thread_is_woken() {
    shuttle_check("park", 300, || {
        let ready = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&ready);
        let waiter = thread::spawn(move || {
            while !seen.load(Ordering::Acquire) {
                thread::park();
            }
        });
        ready.store(true, Ordering::Release);
        waiter.thread().unpark();
        waiter.join().unwrap();
    });
}

/// A count in two steps, which loses some.
fn lost_update() {
    let count = Arc::new(AtomicU64::new(0));
    let other = Arc::clone(&count);
    let add = |count: &AtomicU64| count.store(count.load(Ordering::SeqCst) + 1, Ordering::SeqCst);
    let thread = thread::spawn(move || add(&other));
    add(&count);
    thread.join().unwrap();
    assert_eq!(count.load(Ordering::SeqCst), 2, "a count was lost");
}

#[test]
#[should_panic(expected = "a count was lost")]
fn an_update_in_two_steps_is_caught() {
    shuttle_check("lost update", 300, lost_update);
}

/// The body of the next test, run by it in a process of its own.
#[test]
#[should_panic(expected = "a count was lost")]
fn run_with_a_seed() {
    shuttle_check("lost update by seed", 300, lost_update);
}

#[test]
fn a_printed_seed_replays_the_run() {
    let run = |seed: Option<&str>| {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "run_with_a_seed", "--nocapture"]).env_remove("SHUTTLE_RANDOM_SEED");
        if let Some(seed) = seed {
            command.env("SHUTTLE_RANDOM_SEED", seed);
        }
        let output = command.output().unwrap();
        assert!(output.status.success());
        let text = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
        let seed = between(&text, "(SHUTTLE_RANDOM_SEED=", " replays)");
        (seed, between(&text, "failing seed:\n\"\n", "\n"), between(&text, "failing schedule:\n\"\n", "\n"))
    };
    let (seed, failing, schedule) = run(None);
    assert_eq!(run(Some(&seed)), (seed, failing.clone(), schedule.clone()), "the whole run");
    assert_eq!(run(Some(&failing)), (failing.clone(), failing, schedule), "the failing schedule at once");
}

fn between(text: &str, before: &str, after: &str) -> String {
    let (_, text) = text.split_once(before).unwrap();
    text.split_once(after).unwrap().0.to_owned()
}

#[test]
fn jobs_handed_from_thread_to_thread_run_once() {
    shuttle_check("hand-over", 200, || {
        let executor = ManualExecutor::new();
        let sum = Arc::new(AtomicU64::new(0));
        let threads: Vec<_> = (0..3)
            .map(|number| {
                let (executor, sum) = (executor.clone(), Arc::clone(&sum));
                thread::spawn(move || {
                    for round in 0..2 {
                        let (payload, sum) = (Tracked::new(1 << (2 * number + round)), Arc::clone(&sum));
                        let job = Job::new(move || {
                            sum.fetch_add(*payload.get(), Ordering::Relaxed);
                        });
                        executor.submit(job).unwrap();
                        executor.run_next();
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(executor.run_all(), 0, "as many were run as were submitted");
        assert_eq!(sum.load(Ordering::Relaxed), 0b11_1111);
    });
}

#[test]
#[should_panic(expected = "tracked values leaked")]
fn a_leak_is_caught() {
    shuttle_check("leak", 2, || {
        thread::spawn(|| std::mem::forget(Tracked::new(7))).join().unwrap();
    });
}

#[test]
#[should_panic(expected = "tracked value dropped twice")]
fn a_second_drop_is_caught() {
    shuttle_check("double drop", 2, || {
        let mut value = std::mem::ManuallyDrop::new(Tracked::new(7));
        // SAFETY: none that holds: this is the fault that must be seen. Nothing is freed twice, since the value owns no memory.
        unsafe { std::mem::ManuallyDrop::drop(&mut value) };
        // SAFETY: as above.
        unsafe { std::mem::ManuallyDrop::drop(&mut value) };
    });
}

#[test]
#[should_panic(expected = "1 iterations show nothing")]
fn a_single_iteration_is_refused() {
    shuttle_check("once", 1, || ());
}
