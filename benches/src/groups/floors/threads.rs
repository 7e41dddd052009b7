//! Floors of two threads.

use std::hint::{black_box, spin_loop};
use std::sync::Condvar;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread::{self, Thread};

use crossbeam_utils::CachePadded;

use crate::runner::{Case, Effort, Metric, Sample, together};

/// All of them.
pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new("contended fetch_add, two threads", contended).documented(Metric::Cpu, 8.0),
        Case::new("spinning ping-pong, one way", |effort| ping_pong(effort.scale(200_000), &Spinning))
            .documented(Metric::Wall, 100.0),
        Case::new("park and unpark, one way", |effort| ping_pong(effort.scale(5_000), &Parking))
            .documented(Metric::Wall, 3_000.0),
        Case::looped("wake with nobody waiting", 20_000, |turns| {
            let condvar = Condvar::new();
            for _ in 0..turns {
                black_box(&condvar).notify_one();
            }
        })
        .documented(Metric::Cpu, 300.0),
    ]
}

fn contended(effort: Effort) -> Sample {
    let each = effort.scale(500_000);
    let word = CachePadded::new(AtomicU64::new(0));
    let body = || {
        for _ in 0..each {
            black_box(word.fetch_add(1, Ordering::AcqRel));
        }
    };
    together(2 * each, vec![Box::new(body), Box::new(body)])
}

/// How a thread waits for its turn, and passes it on.
trait Waiting: Sync {
    /// Waits a moment, for the `tries`-th time this turn.
    fn wait(&self, tries: u32);
    fn wake(&self, other: &Thread);
}

struct Spinning;

impl Waiting for Spinning {
    fn wait(&self, tries: u32) {
        // Where both threads share a core, the other one must run.
        if tries % 1024 == 1023 { thread::yield_now() } else { spin_loop() }
    }

    fn wake(&self, _: &Thread) {}
}

struct Parking;

impl Waiting for Parking {
    fn wait(&self, _: u32) {
        thread::park();
    }

    fn wake(&self, other: &Thread) {
        other.unpark();
    }
}

/// Two threads take turns; an operation is one turn, so that a message there and back is two.
fn ping_pong(turns: u64, waiting: &impl Waiting) -> Sample {
    let turn = CachePadded::new(AtomicU64::new(0));
    let (to_even, even) = mpsc::channel::<Thread>();
    let (to_odd, odd) = mpsc::channel::<Thread>();
    let turn = &turn;
    let body = move |parity: u64, tell: mpsc::Sender<Thread>, told: mpsc::Receiver<Thread>| {
        tell.send(thread::current()).expect("the other thread listens");
        let other = told.recv().expect("the other thread has told");
        let mut tries = 0;
        loop {
            // Acquire: sees what the other thread did in its turn.
            let now = turn.load(Ordering::Acquire);
            if now >= turns {
                break;
            }
            if now % 2 == parity {
                // Release: hands the turn over; only its holder stores.
                turn.store(now + 1, Ordering::Release);
                waiting.wake(&other);
                tries = 0;
            } else {
                waiting.wait(tries);
                tries = tries.wrapping_add(1);
            }
        }
        waiting.wake(&other);
    };
    together(turns, vec![Box::new(move || body(0, to_odd, even)), Box::new(move || body(1, to_even, odd))])
}
