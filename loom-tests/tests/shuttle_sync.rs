//! The switch under shuttle: many threads, random and PCT schedules, a seed that replays.
#![cfg(shuttle)]

use folio_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use folio_sync::test_util::{shuttle_check, spurious_every};
use folio_sync::{Arc, Mutex, thread};

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

#[test]
#[should_panic(expected = "a count was lost")]
fn an_update_in_two_steps_is_caught() {
    shuttle_check("lost update", 300, || {
        let count = Arc::new(AtomicU64::new(0));
        let other = Arc::clone(&count);
        let add = |count: &AtomicU64| count.store(count.load(Ordering::SeqCst) + 1, Ordering::SeqCst);
        let thread = thread::spawn(move || add(&other));
        add(&count);
        thread.join().unwrap();
        assert_eq!(count.load(Ordering::SeqCst), 2, "a count was lost");
    });
}
