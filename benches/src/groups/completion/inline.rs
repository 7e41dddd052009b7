//! One completion that may run at once.
//!
//! Twice: with a completion that is a plain value, which shows what the way to it costs and is judged; and with one that holds an
//! `Arc` and adds to a counter behind it, whose own atomic operations every way to it has to pay.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use folio_completer::InlineCompleter;

use super::executors::{ChannelExecutor, Level};
use crate::runner::{Against, Block, Case, Metric, Row, Target};

const PLAIN: &str = "inline, plain value";
const COUNTED: &str = "inline, Arc and counter";
const OURS: &str = "InlineCompleter";
const BOXED: &str = "plain boxed call";
const BOXED_GUARDED: &str = "boxed call, hand-written guard";
const TYPED_GUARDED: &str = "typed call, hand-written guard";

/// Completions a trial.
const MANY: u64 = 500_000;

/// The levels that the guard written by hand allows.
const LIMIT: u32 = 10;

/// What a completion holds; made anew for each.
pub trait Payload: Send + Sync + 'static {
    /// What one completion holds.
    type Held: Send + 'static;

    /// For completion number `turn`.
    fn hold(&self, turn: u64) -> Self::Held;

    /// What the completion does with it.
    fn deliver(held: Self::Held);
}

/// Three numbers.
#[derive(Debug)]
pub struct Plain;

impl Payload for Plain {
    type Held = [u64; 3];

    #[inline]
    fn hold(&self, turn: u64) -> [u64; 3] {
        [turn; 3]
    }

    #[inline]
    fn deliver(held: [u64; 3]) {
        black_box(held);
    }
}

/// A clone of an `Arc`, behind which a counter is raised.
#[derive(Debug, Default)]
pub struct Counted(Arc<AtomicU64>);

impl Payload for Counted {
    type Held = Arc<AtomicU64>;

    #[inline]
    fn hold(&self, _: u64) -> Arc<AtomicU64> {
        Arc::clone(black_box(&self.0))
    }

    #[inline]
    fn deliver(held: Arc<AtomicU64>) {
        held.fetch_add(1, Ordering::Relaxed);
    }
}

/// Calls of a boxed closure.
pub fn boxed_call<P: Payload>(payload: P) -> impl FnMut(u64) {
    move |turns| {
        for turn in 0..turns {
            let held = payload.hold(turn);
            let completion: Box<dyn FnOnce() + Send> = Box::new(move || P::deliver(held));
            black_box(completion)();
        }
    }
}

/// Calls of a boxed closure, inside the depth counter written by hand.
fn boxed_guarded_call<P: Payload>(payload: P) -> impl FnMut(u64) {
    move |turns| {
        for turn in 0..turns {
            let held = payload.hold(turn);
            let completion: Box<dyn FnOnce() + Send> = Box::new(move || P::deliver(held));
            if let Some(_level) = Level::enter(black_box(LIMIT)) {
                black_box(completion)();
            }
        }
    }
}

/// Calls of a typed closure, inside the depth counter written by hand.
pub fn guarded_call<P: Payload>(payload: P) -> impl FnMut(u64) {
    move |turns| {
        for turn in 0..turns {
            let held = payload.hold(turn);
            if let Some(_level) = Level::enter(black_box(LIMIT)) {
                P::deliver(held);
            }
        }
    }
}

/// Completions by ours, whose serial executor is not used.
pub fn inline_completer<P: Payload>(payload: P) -> impl FnMut(u64) {
    let completer = InlineCompleter::inline(ChannelExecutor::start());
    move |turns| {
        for turn in 0..turns {
            let held = payload.hold(turn);
            let outcome = black_box(&completer).complete(move || P::deliver(held));
            black_box(outcome.is_ok());
        }
    }
}

/// The inline rows.
pub(super) fn blocks() -> [Block; 2] {
    let plain = vec![
        Case::looped(OURS, MANY, inline_completer(Plain)),
        Case::looped(BOXED, MANY, boxed_call(Plain)).documented(Metric::Cpu, 13.0),
        Case::looped(BOXED_GUARDED, MANY, boxed_guarded_call(Plain)).documented(Metric::Cpu, 14.9),
        Case::looped(TYPED_GUARDED, MANY, guarded_call(Plain)),
    ];
    let counted = vec![
        Case::looped(OURS, MANY, inline_completer(Counted::default())),
        Case::looped(BOXED, MANY, boxed_call(Counted::default())),
        Case::looped(BOXED_GUARDED, MANY, boxed_guarded_call(Counted::default())),
        Case::looped(TYPED_GUARDED, MANY, guarded_call(Counted::default())).documented(Metric::Cpu, 8.0),
    ];
    [Block::new(PLAIN, plain), Block::new(COUNTED, counted)]
}

/// What is asked of them.
pub(super) fn targets() -> Vec<Target> {
    let boxed = Against::Row(Row::case(PLAIN, BOXED));
    let time = Target::lower(
        "inline completion, of a plain boxed call",
        Row::case(PLAIN, OURS),
        boxed,
        Metric::Cpu,
        0.8,
        0.65,
    );
    let allocations = Target {
        goal: None,
        ..Target::lower(
            "inline completion: allocations, the worst",
            Row::Worst(OURS.into()),
            Against::Nothing,
            Metric::Allocations,
            0.0,
            0.0,
        )
    };
    vec![time, allocations]
}
