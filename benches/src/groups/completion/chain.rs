//! A chain of completions, each of which asks for the next.
//!
//! The chain runs in rayon's pool from its first hop to its last, which take the marks: waking the pool is not measured.

use std::sync::mpsc;

use folio_completer::{InlineCompleter, Policy};
use folio_sync::{Arc, Job, SerialExecutor};

use super::executors::{ChannelExecutor, Level};
use crate::runner::{Against, Block, Case, Effort, Mark, Metric, Row, Sample, Target, sample_between};

const BLOCK: &str = "chain of 20,000";

/// Completions of a chain.
const HOPS: u64 = 20_000;

/// Runs a completion at once, or elsewhere when the thread is at its limit.
pub(super) trait Completer: Send + Sync + 'static {
    fn complete(&'static self, completion: impl FnOnce() + Send + 'static);
}

impl Completer for InlineCompleter {
    #[inline]
    fn complete(&'static self, completion: impl FnOnce() + Send + 'static) {
        let completed = Self::complete(self, completion);
        assert!(completed.is_ok(), "the executors of a benchmark refuse nothing");
    }
}

/// Where the completer written by hand goes at the limit.
pub(super) enum Overflow {
    Rayon,
    Serial(Arc<dyn SerialExecutor>),
}

/// The completer written by hand.
pub(super) struct HandWritten {
    pub(super) limit: u32,
    pub(super) overflow: Overflow,
}

impl Completer for HandWritten {
    #[inline]
    fn complete(&'static self, completion: impl FnOnce() + Send + 'static) {
        let Some(_level) = Level::enter(self.limit) else {
            match &self.overflow {
                Overflow::Rayon => rayon::spawn_fifo(move || self.complete_landed(completion)),
                Overflow::Serial(executor) => executor
                    .submit(Job::new(move || self.complete_landed(completion)))
                    .expect("the executors of a benchmark refuse nothing"),
            }
            return;
        };
        completion();
    }
}

impl HandWritten {
    /// Runs what was queued, on the thread where it landed, one level deep.
    fn complete_landed(&self, completion: impl FnOnce()) {
        let level = Level::enter(self.limit);
        assert!(level.is_some(), "what lands has a fresh stack");
        completion();
    }
}

/// One hop: asks for the next, or ends the chain.
pub(super) fn hop<C: Completer>(completer: &'static C, left: u64, end: impl FnOnce() + Send + 'static) {
    if left == 0 {
        end();
    } else {
        completer.complete(move || hop(completer, left - 1, end));
    }
}

/// A completer that lives as long as the process, so that a hop carries no count of its owners.
pub(super) fn forever<C>(completer: C) -> &'static C {
    Box::leak(Box::new(completer))
}

fn trial<C: Completer>(completer: &'static C, effort: Effort) -> Sample {
    let hops = effort.scale(HOPS);
    let (tell, told) = mpsc::channel();
    rayon::spawn_fifo(move || {
        let start = Mark::now();
        hop(completer, hops, move || tell.send((start, Mark::now())).expect("the driver waits for the end"));
    });
    let (start, end) = told.recv().expect("a chain comes to its end");
    sample_between(start, end, hops)
}

fn ours(limit: u32) -> Case {
    let completer = forever(
        InlineCompleter::builder(Policy::Inline, ChannelExecutor::start()).depth_limit(limit).build(),
    );
    Case::new(format!("InlineCompleter, limit {limit}"), move |effort| trial(completer, effort))
}

fn hand_written(limit: u32, documented: f64) -> Case {
    let completer = forever(HandWritten { limit, overflow: Overflow::Rayon });
    Case::new(format!("hand-written guard, limit {limit}"), move |effort| trial(completer, effort))
        .documented(Metric::Wall, documented)
}

/// The chain rows.
pub(super) fn block() -> Block {
    Block::new(
        BLOCK,
        vec![
            ours(10),
            ours(64),
            ours(1),
            hand_written(10, 10.4),
            hand_written(64, 6.5),
            hand_written(1, 37.0),
        ],
    )
}

/// What is asked of them.
pub(super) fn targets() -> Vec<Target> {
    let limit = |limit: u32| Row::case(BLOCK, format!("InlineCompleter, limit {limit}"));
    let one = Against::Row(limit(1));
    vec![Target::lower("chain at limit 10, of limit 1", limit(10), one, Metric::Wall, 0.4, 0.3)]
}
