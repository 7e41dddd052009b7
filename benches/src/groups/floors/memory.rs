//! Floors of allocation and of memory.
//!
//! The global allocator of the command is mimalloc behind the counter, which is paused while times are taken: what is left of it is
//! one load and one branch. The system's allocator is reached beside it, through a box that names its allocator.

use std::hint::black_box;
use std::sync::mpsc;

use allocator_api2::alloc::System;
use allocator_api2::boxed::Box as BoxIn;

use crate::runner::{Case, Effort, Mark, Metric, Sample, sample_between, together};

/// 128 bytes, as a small message.
type Payload = [u64; 16];

const ALLOCATIONS: u64 = 200_000;

/// All of them.
pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::looped("malloc and free 128 B, system", ALLOCATIONS, |turns| {
            for turn in 0..turns {
                black_box(BoxIn::new_in([turn; 16], System));
            }
        })
        .documented(Metric::Cpu, 18.0),
        Case::looped("malloc and free 128 B, mimalloc", ALLOCATIONS, |turns| {
            for turn in 0..turns {
                black_box(Box::new([turn; 16]));
            }
        })
        .documented(Metric::Cpu, 11.0),
        Case::new("freed on another thread, system", |effort| {
            freed_elsewhere(effort, |turn| BoxIn::new_in([turn; 16] as Payload, System))
        })
        .documented(Metric::Cpu, 335.0),
        Case::new("freed on another thread, mimalloc", |effort| {
            freed_elsewhere(effort, |turn| Box::new([turn; 16] as Payload))
        })
        .documented(Metric::Cpu, 59.0),
        chase("L2 miss", 8 << 20).documented(Metric::Wall, 200.0),
        chase("memory", 256 << 20).documented(Metric::Wall, 420.0),
    ]
}

/// One thread allocates, a second one frees, a thousand blocks at a time.
fn freed_elsewhere<B: Send>(effort: Effort, allocate: impl Fn(u64) -> B + Send) -> Sample {
    const HANDFUL: u64 = 1_000;
    let handfuls = effort.scale(ALLOCATIONS).div_ceil(HANDFUL);
    let (give, take) = mpsc::sync_channel::<Vec<B>>(4);
    together(
        handfuls * HANDFUL,
        vec![
            Box::new(move || {
                for _ in 0..handfuls {
                    give.send((0..HANDFUL).map(&allocate).collect()).expect("the other thread takes all");
                }
            }),
            Box::new(move || {
                for handful in take {
                    drop(black_box(handful));
                }
            }),
        ],
    )
}

/// One cache line of a chain.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line {
    next: u32,
}

/// Follows a chain of cache lines in random order through this many bytes; the next line is known only when this one has come.
fn chase(name: &str, bytes: usize) -> Case {
    let mut chain: Vec<Line> = Vec::new();
    let mut lines = 0;
    Case::new(name, move |effort| {
        let wanted = effort.pick(bytes, 1 << 20) / size_of::<Line>();
        if lines != wanted {
            (chain, lines) = (shuffled(wanted), wanted);
        }
        let steps = effort.scale(100_000);
        let start = Mark::now();
        let mut at = 0_u32;
        for _ in 0..steps {
            at = chain[at as usize].next;
        }
        black_box(at);
        sample_between(start, Mark::now(), steps)
    })
}

/// One cycle through all lines, by a seeded shuffle.
fn shuffled(lines: usize) -> Vec<Line> {
    let count = u32::try_from(lines).expect("a chain has fewer than 2^32 lines");
    let mut order: Vec<u32> = (0..count).collect();
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    for place in (1..lines).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let other = usize::try_from(state % (place as u64 + 1)).expect("smaller than a place");
        order.swap(place, other);
    }
    let mut chain = vec![Line { next: 0 }; lines];
    for pair in order.windows(2) {
        chain[pair[0] as usize].next = pair[1];
    }
    if let (Some(&first), Some(&last)) = (order.first(), order.last()) {
        chain[last as usize].next = first;
    }
    chain
}
