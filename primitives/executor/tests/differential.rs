//! Random histories, each step held against a plain model of what the executor promises.
#![cfg(not(any(loom, shuttle)))]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests run on the standard library only, and their helpers unwrap as they do"
)]

mod support;

use std::collections::VecDeque;

use folio_executor::{BatchingExecutor, Builder, Flush};
use folio_sync::RejectReason;
use folio_sync::test_util::ManualExecutor;
use proptest::prelude::*;
use support::Log;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Submit a task of this weight.
    Submit(u64),
    /// The delegate runs its next job.
    Run,
    /// The delegate drops its next job unrun.
    Drop,
    /// The delegate refuses the next job that it is offered.
    Refuse,
    Flush,
    Close,
    Shutdown,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        60 => (0..6_u64).prop_map(Step::Submit),
        20 => Just(Step::Run),
        2 => Just(Step::Drop),
        3 => Just(Step::Refuse),
        6 => Just(Step::Flush),
        1 => Just(Step::Close),
        1 => Just(Step::Shutdown),
    ];
    prop::collection::vec(step, 0..120)
}

#[derive(Clone, Copy, Debug)]
struct Limits {
    batch_items: usize,
    batch_weight: u64,
    queued: usize,
    queued_weight: u64,
}

fn limits() -> impl Strategy<Value = Limits> {
    (0..6_usize, 0..12_u64, prop_oneof![Just(1_000_usize), 1..12_usize], prop_oneof![Just(0_u64), 1..20_u64])
        .prop_map(|(batch_items, batch_weight, queued, queued_weight)| Limits {
            batch_items,
            batch_weight,
            queued,
            queued_weight,
        })
}

/// A task: its number and its weight.
type Task = (u32, u64);

/// What the executor promises, by a `VecDeque`.
struct Oracle {
    limits: Limits,
    queue: VecDeque<Task>,
    /// Jobs at the delegate: whether each still stands for a batch.
    jobs: VecDeque<bool>,
    refusing: bool,
    closed: bool,
    ran: Vec<u32>,
    handed: Vec<u32>,
    /// For each flush, how many tasks are before it that are not done with.
    flushes: Vec<usize>,
}

impl Oracle {
    fn weight(&self) -> u64 {
        self.queue.iter().map(|task| task.1).sum()
    }

    fn offer(&mut self) -> bool {
        let taken = !std::mem::take(&mut self.refusing);
        if taken {
            self.jobs.push_back(true);
        }
        taken
    }

    fn done(&mut self, tasks: usize) {
        for flush in &mut self.flushes {
            *flush = flush.saturating_sub(tasks);
        }
    }

    fn hand_all(&mut self) {
        self.done(self.queue.len());
        self.handed.extend(self.queue.drain(..).map(|task| task.0));
        // The job that stood for them stands for nothing any more.
        self.jobs.iter_mut().for_each(|stands| *stands = false);
    }

    fn submit(&mut self, task: Task) -> Result<(), RejectReason> {
        let most = self.limits.queued_weight;
        let heavy = most > 0 && self.weight() > 0 && self.weight() + task.1 > most;
        if self.closed {
            return Err(RejectReason::Closed);
        }
        if heavy || self.queue.len() >= self.limits.queued {
            return Err(RejectReason::Full);
        }
        self.queue.push_back(task);
        if self.queue.len() == 1 && !self.offer() {
            self.queue.pop_back();
            return Err(RejectReason::Refused);
        }
        Ok(())
    }

    fn run(&mut self) {
        if self.jobs.pop_front() != Some(true) {
            return;
        }
        let (mut items, mut weight) = (0, 0);
        let most = if self.limits.batch_weight == 0 { u64::MAX } else { self.limits.batch_weight };
        while items < self.limits.batch_items.max(1) && (weight < most || items == 0) {
            let Some((task, heavy)) = self.queue.pop_front() else { break };
            items += 1;
            weight += heavy;
            self.ran.push(task);
        }
        self.done(items);
        if !self.queue.is_empty() && !self.offer() {
            self.hand_all();
        }
    }
}

struct Subject {
    executor: BatchingExecutor<Task, 4>,
    delegate: ManualExecutor,
    ran: Log<u32>,
    handed: Log<u32>,
    flushes: Vec<Flush>,
}

fn subject(limits: Limits) -> Subject {
    let (delegate, ran, handed) = (ManualExecutor::new(), Log::new(), Log::new());
    let (noted, back) = (ran.clone(), handed.clone());
    let executor = Builder::<Task, 4>::new(move |task| noted.push(task.0))
        .weigh(|task| task.1)
        .max_items(limits.batch_items)
        .max_weight(limits.batch_weight)
        .max_queued(limits.queued)
        .max_queued_weight(limits.queued_weight)
        .on_rejected(move |rejected| back.push(rejected.value.0))
        .build(delegate.clone())
        .unwrap();
    Subject { executor, delegate, ran, handed, flushes: Vec::new() }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// 1.2, I1, I2, I5, I7: every step of a random history has the effect that a plain queue says.
    #[test]
    fn random_histories_are_those_of_a_plain_queue(limits in limits(), steps in steps()) {
        let mut subject = subject(limits);
        let mut oracle = Oracle {
            limits,
            queue: VecDeque::new(),
            jobs: VecDeque::new(),
            refusing: false,
            closed: false,
            ran: Vec::new(),
            handed: Vec::new(),
            flushes: Vec::new(),
        };
        for (number, step) in (0..).zip(steps) {
            match step {
                Step::Submit(weight) => {
                    let result = subject.executor.submit((number, weight));
                    let expected = oracle.submit((number, weight));
                    if let Err(rejected) = &result {
                        prop_assert_eq!(rejected.value, (number, weight));
                    }
                    prop_assert_eq!(result.map_err(|rejected| rejected.reason), expected);
                }
                Step::Run => {
                    subject.delegate.run_next();
                    oracle.run();
                }
                Step::Drop => {
                    drop(subject.delegate.take_next());
                    if oracle.jobs.pop_front() == Some(true) {
                        oracle.hand_all();
                    }
                }
                Step::Refuse => {
                    subject.delegate.refuse_next(1);
                    oracle.refusing = true;
                }
                Step::Flush => {
                    subject.flushes.push(subject.executor.flush());
                    oracle.flushes.push(oracle.queue.len());
                }
                Step::Close => {
                    subject.executor.close();
                    oracle.closed = true;
                }
                Step::Shutdown => {
                    subject.executor.shutdown_now();
                    oracle.closed = true;
                    oracle.hand_all();
                }
            }
            prop_assert_eq!(subject.executor.queued(), oracle.queue.len());
            prop_assert_eq!(subject.delegate.queued(), oracle.jobs.len());
            prop_assert_eq!(subject.executor.is_closed(), oracle.closed);
            if limits.queued_weight > 0 {
                prop_assert_eq!(subject.executor.queued_weight(), oracle.weight());
            }
            prop_assert_eq!(&subject.ran.take(), &std::mem::take(&mut oracle.ran));
            prop_assert_eq!(&subject.handed.take(), &std::mem::take(&mut oracle.handed));
            let done: Vec<_> = subject.flushes.iter().map(Flush::is_done).collect();
            let expected: Vec<_> = oracle.flushes.iter().map(|left| *left == 0).collect();
            prop_assert_eq!(done, expected);
        }
        let Subject { executor, delegate, handed, .. } = subject;
        drop(executor);
        oracle.hand_all();
        prop_assert_eq!(handed.take(), oracle.handed);
        delegate.run_all();
    }
}
