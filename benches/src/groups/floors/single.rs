//! Floors of one thread.
//!
//! Nothing depends on the operation before: what the processor can overlap, it does.

use std::cell::Cell;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use bytes::Bytes;

use crate::runner::{Case, Metric};

/// Operations a trial of those that take a few nanoseconds.
const MANY: u64 = 1_000_000;

/// All of them.
pub(super) fn cases() -> Vec<Case> {
    vec![
        atomic("load", |word, _| {
            black_box(word.load(Ordering::Acquire));
        })
        .documented(Metric::Cpu, 2.2),
        atomic("release store", |word, turn| word.store(turn, Ordering::Release))
            .documented(Metric::Cpu, 2.2),
        atomic("SeqCst store", |word, turn| word.store(turn, Ordering::SeqCst)).documented(Metric::Cpu, 3.0),
        atomic("SeqCst fence", |_, _| fence(Ordering::SeqCst)).documented(Metric::Cpu, 3.1),
        super::scale_case(),
        atomic("compare_exchange", |word, turn| {
            let _ = black_box(word.compare_exchange(turn, turn + 1, Ordering::AcqRel, Ordering::Relaxed));
        })
        .documented(Metric::Cpu, 3.6),
        depth_guard().documented(Metric::Cpu, 1.2),
        arc_clone().documented(Metric::Cpu, 5.9),
        bytes_clone().documented(Metric::Cpu, 7.2),
        mutex().documented(Metric::Cpu, 6.3),
        Case::looped("Instant::now", MANY / 10, |turns| {
            for _ in 0..turns {
                black_box(Instant::now());
            }
        })
        .documented(Metric::Cpu, 31.0),
    ]
}

/// An uncontended read-modify-write.
pub(super) fn fetch_add(name: &str) -> Case {
    atomic(name, |word, _| {
        black_box(word.fetch_add(1, Ordering::AcqRel));
    })
}

fn atomic(name: &str, operation: impl Fn(&AtomicU64, u64) + 'static) -> Case {
    Case::looped(name, MANY, move |turns| {
        let word = AtomicU64::new(0);
        for turn in 0..turns {
            operation(black_box(&word), turn);
        }
    })
}

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

struct Deeper;

impl Deeper {
    fn enter() -> Self {
        DEPTH.set(DEPTH.get() + 1);
        Self
    }
}

impl Drop for Deeper {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

fn depth_guard() -> Case {
    Case::looped("thread-local depth guard", MANY, |turns| {
        for turn in 0..turns {
            let _deeper = Deeper::enter();
            black_box(turn);
        }
    })
}

fn arc_clone() -> Case {
    let arc = Arc::new(7_u64);
    Case::looped("Arc clone and drop", MANY, move |turns| {
        for _ in 0..turns {
            black_box(Arc::clone(&arc));
        }
    })
}

fn bytes_clone() -> Case {
    let bytes = Bytes::from(vec![0_u8; 128]);
    // The first clone makes the buffer a shared one.
    let shared = bytes.clone();
    Case::looped("Bytes clone and drop", MANY, move |turns| {
        for _ in 0..turns {
            black_box(shared.clone());
        }
        black_box(&bytes);
    })
}

fn mutex() -> Case {
    let mutex = Mutex::new(0_u64);
    Case::looped("uncontended Mutex", MANY, move |turns| {
        for _ in 0..turns {
            let mut guard = black_box(&mutex).lock().expect("no holder panics");
            *guard += 1;
        }
    })
}
