//! One completion that may run at once.
//!
//! Every case clones an `Arc` into the completion, which adds to a counter behind it.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use folio_completer::InlineCompleter;

use super::executors::{ChannelExecutor, Level};
use crate::runner::{Against, Block, Case, Metric, Row, Target};

const BLOCK: &str = "inline";
const OURS: &str = "InlineCompleter";
const BOXED: &str = "plain boxed call";

/// Completions a trial.
const MANY: u64 = 500_000;

/// What a completion does.
#[inline]
fn deliver(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

fn counter() -> Arc<AtomicU64> {
    Arc::new(AtomicU64::new(0))
}

/// Calls of a boxed closure.
pub fn boxed_call() -> impl FnMut(u64) {
    let counter = counter();
    move |turns| {
        for _ in 0..turns {
            let seen = Arc::clone(black_box(&counter));
            let completion: Box<dyn FnOnce() + Send> = Box::new(move || deliver(&seen));
            black_box(completion)();
        }
    }
}

/// Calls of a boxed closure, inside the depth counter written by hand.
fn boxed_guarded_call() -> impl FnMut(u64) {
    let counter = counter();
    move |turns| {
        for _ in 0..turns {
            let seen = Arc::clone(black_box(&counter));
            let completion: Box<dyn FnOnce() + Send> = Box::new(move || deliver(&seen));
            if let Some(_level) = Level::enter(black_box(10)) {
                black_box(completion)();
            }
        }
    }
}

/// Calls of a typed closure, inside the depth counter written by hand.
pub fn guarded_call() -> impl FnMut(u64) {
    let counter = counter();
    move |turns| {
        for _ in 0..turns {
            let seen = Arc::clone(black_box(&counter));
            if let Some(_level) = Level::enter(black_box(10)) {
                deliver(&seen);
            }
        }
    }
}

/// Completions by ours.
pub fn inline_completer() -> impl FnMut(u64) {
    let (counter, completer) = (counter(), InlineCompleter::inline(ChannelExecutor::start()));
    move |turns| {
        for _ in 0..turns {
            let seen = Arc::clone(black_box(&counter));
            let outcome = black_box(&completer).complete(move || deliver(&seen));
            black_box(outcome.is_ok());
        }
    }
}

/// The inline rows.
pub(super) fn block() -> Block {
    Block::new(
        BLOCK,
        vec![
            Case::looped(OURS, MANY, inline_completer()),
            Case::looped(BOXED, MANY, boxed_call()).documented(Metric::Cpu, 13.0),
            Case::looped("boxed call, hand-written guard", MANY, boxed_guarded_call())
                .documented(Metric::Cpu, 14.9),
            Case::looped("typed call, hand-written guard", MANY, guarded_call()).documented(Metric::Cpu, 8.0),
        ],
    )
}

/// What is asked of them.
pub(super) fn targets() -> Vec<Target> {
    let ours = || Row::case(BLOCK, OURS);
    let boxed = Against::Row(Row::case(BLOCK, BOXED));
    vec![
        Target::lower("inline completion, of a plain boxed call", ours(), boxed, Metric::Cpu, 0.8, 0.65),
        Target::lower(
            "inline completion, allocations",
            ours(),
            Against::Nothing,
            Metric::Allocations,
            0.0,
            0.0,
        ),
    ]
}
