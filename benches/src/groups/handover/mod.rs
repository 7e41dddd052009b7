//! Handing tasks to one consumer: CPU a task, and the latency of a single one.
//!
//! # The workload
//! Producer threads, started once a trial, hand over empty tasks of 24 bytes as fast as they can; a trial ends when the consumer has
//! handled the last. CPU a task is the CPU time of the whole process over the number of tasks. *Unbounded*: producers never wait.
//! *512 outstanding*: all producers together have at most 512 tasks that were not handled, an equal share each; a producer at its
//! share spins a little and then yields. Every way to hand over has the same producers, tasks, windows and handler.
//!
//! # The peers
//! *Boxed*: a boxed closure a task, over a mutex and a condition variable or a channel. *Typed*: a channel of tasks, drained by a thread
//! of its own. *Batched*: tasks by value in a queue, and one submission a batch to a serial executor.

mod baseline;
mod boxed;
mod delegate;
mod latency;
mod ours;
mod trial;
mod typed;

pub use trial::{Open, Peer, Regime, Setting, Sink, Task, trial};

use super::floors;
use crate::runner::{Against, Block, Case, Group, Metric, Row, Sample, Target};

/// Our case's name.
const OURS: &str = "BatchingExecutor";
const CROSSBEAM: &str = "typed crossbeam-channel";
const CROSSFIRE: &str = "typed crossfire";
const KANAL: &str = "typed kanal";
const STD_MPSC: &str = "typed std mpsc";
const FLUME: &str = "typed flume";
const BOXED_MUTEX: &str = "boxed, Mutex and Condvar";
const BOXED_CROSSBEAM: &str = "boxed, crossbeam-channel";
const SEGQUEUE: &str = "batched SegQueue, Mutex delegate";
const SEGQUEUE_ORDERED: &str = "batched SegQueue, OrderedExecutor";

/// Peers from which the best typed channel is taken.
const TYPED: [&str; 5] = [KANAL, CROSSFIRE, CROSSBEAM, STD_MPSC, FLUME];

/// Documented CPU nanoseconds a task on the reference machine, in the order of [`Setting::ALL`].
const DOCUMENTED: [(&str, [f64; 8]); 8] = [
    (KANAL, [25.0, 26.0, 48.0, 131.0, 151.0, 368.0, 238.0, 297.0]),
    (CROSSFIRE, [90.0, 82.0, 83.0, 131.0, 182.0, 116.0, 107.0, 246.0]),
    (CROSSBEAM, [95.0, 98.0, 101.0, 141.0, 79.0, 156.0, 148.0, 283.0]),
    (STD_MPSC, [121.0, 139.0, 200.0, 175.0, 139.0, 184.0, 184.0, 236.0]),
    (FLUME, [212.0, 272.0, 269.0, 210.0, 312.0, 496.0, 293.0, 329.0]),
    (BOXED_MUTEX, [387.0, 330.0, 380.0, 371.0, f64::NAN, f64::NAN, f64::NAN, f64::NAN]),
    (BOXED_CROSSBEAM, [210.0, 128.0, 123.0, 165.0, 526.0, 349.0, 187.0, 302.0]),
    (SEGQUEUE, [103.0, 85.0, 83.0, 117.0, 161.0, 168.0, 146.0, 212.0]),
];

/// The hand-over rows.
pub fn group() -> Group {
    let mut blocks: Vec<Block> = Setting::ALL
        .iter()
        .enumerate()
        .map(|(index, &setting)| Block::new(setting.name(), cases(index, setting)))
        .collect();
    blocks.push(latency::block());
    blocks.push(floors::scale_block());
    Group { name: "handover", blocks, targets: targets(), floor: Some(floors::scale_floor()) }
}

/// A trial of one way to hand over, of about so many tasks.
pub type Run = fn(Setting, u64) -> Sample;

/// Every way to hand over.
const WAYS: [(&str, Run); 10] = [
    (OURS, trial::<ours::Batching>),
    (KANAL, trial::<typed::Kanal>),
    (CROSSFIRE, trial::<typed::Crossfire>),
    (CROSSBEAM, trial::<typed::Crossbeam>),
    (STD_MPSC, trial::<typed::StdMpsc>),
    (FLUME, trial::<typed::Flume>),
    (BOXED_MUTEX, trial::<boxed::MutexCondvar>),
    (BOXED_CROSSBEAM, trial::<boxed::Crossbeam>),
    (SEGQUEUE, trial::<baseline::OverMutex>),
    (SEGQUEUE_ORDERED, trial::<baseline::OverOrdered>),
];

/// The ways that are worth exploring in another harness.
pub fn explored() -> impl Iterator<Item = (&'static str, Run)> {
    WAYS.into_iter().filter(|(name, _)| [OURS, KANAL, CROSSFIRE, CROSSBEAM, SEGQUEUE_ORDERED].contains(name))
}

fn cases(index: usize, setting: Setting) -> Vec<Case> {
    let case = |(name, run): (&'static str, Run)| {
        let case = Case::new(name, move |effort| run(setting, effort.scale(setting.tasks())));
        let documented = DOCUMENTED.iter().find(|(of, _)| *of == name).map(|(_, figures)| figures[index]);
        match documented {
            Some(figure) if figure.is_finite() => case.documented(Metric::Cpu, figure),
            _ => case,
        }
    };
    WAYS.into_iter().map(case).collect()
}

fn targets() -> Vec<Target> {
    let mean = |name: &str| Row::Mean(name.into());
    let best = Against::BestOf(TYPED.iter().map(|name| mean(name)).collect());
    let saturated = Setting { producers: 8, regime: Regime::Unbounded }.name();
    let mut targets = vec![Target::lower(
        "mean of eight settings, of the best typed channel's",
        mean(OURS),
        best,
        Metric::Cpu,
        1.15,
        0.75,
    )];
    for setting in Setting::ALL {
        let name = setting.name();
        targets.push(Target::lower(
            format!("{name}, of {CROSSBEAM}"),
            Row::case(&name, OURS),
            Against::Row(Row::case(&name, CROSSBEAM)),
            Metric::Cpu,
            1.25,
            0.8,
        ));
    }
    targets.push(Target::lower(
        format!("{saturated}, of {BOXED_MUTEX}"),
        Row::case(&saturated, OURS),
        Against::Row(Row::case(&saturated, BOXED_MUTEX)),
        Metric::Cpu,
        0.25,
        0.15,
    ));
    targets.push(Target::lower(
        "allocations a task, the worst setting",
        Row::Worst(OURS.into()),
        Against::Nothing,
        Metric::Allocations,
        0.05,
        0.01,
    ));
    targets.push(Target::lower(
        format!("batches per 1,000 tasks, {saturated}"),
        Row::case(&saturated, OURS),
        Against::Nothing,
        Metric::Batches,
        5.0,
        2.0,
    ));
    targets.extend(latency::targets());
    targets
}
