//! B2: inserting at the tail while another thread inserts and removes what a reader behind it needs.
//!
//! *Tail*: 10,000 entries of ledger 2 are cached; an operation inserts the next one by a writer that lives as long as the trial, and
//! once in a hundred the head is trimmed and the removal queue drops what it has at its head. *Run*: an operation chooses a place below
//! 49,900 at random, inserts 100 consecutive entries of ledger 1 by a writer of its own, and removes them. The two go on until the
//! time is over and have a figure each, of the CPU time of its own thread. *Alone*: the same without the other thread.
//!
//! Both figures come from one trial: whichever case of the two comes first in a round runs it, the other one takes what it left.

use std::cell::Cell;
use std::hint::black_box;
use std::rc::Rc;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use bytes::Bytes;

use super::entry::{Cut, Random, Run, empty};
use super::peers::{documented, every_peer};
use super::tested::{Make, Options, Tested};
use crate::runner::{Case, Effort, Mark, Sample, ThreadMark, sample_between};

pub(super) const TAIL: &str = "catch-up: tail";
pub(super) const RUN: &str = "catch-up: run of 100";

const TAIL_LEDGER: i64 = 2;
const RUN_LEDGER: i64 = 1;
const CACHED: i64 = 10_000;
const EVERY: i64 = 100;
const COUNT: i64 = 100;

/// Documented CPU nanoseconds of the peers.
const TAIL_DOCUMENTED: [f64; 7] = [603.0, 391.0, 263.0, 282.0, 699.0, 1001.0, 3159.0];
const RUN_DOCUMENTED: [f64; 7] = [79_600.0, 31_300.0, 24_000.0, 25_000.0, 52_000.0, 70_000.0, 231_000.0];

/// Tail operations of a full trial without the other thread, and runs.
const TAIL_ALONE: u64 = 500_000;
const RUNS_ALONE: u64 = 5_000;

/// Inserts at the tail.
struct TailWriter<'a, C: Tested> {
    cache: &'a C,
    writer: C::Writer,
    data: Bytes,
    next: i64,
}

impl<'a, C: Tested> TailWriter<'a, C> {
    fn open(cache: &'a C) -> Self {
        let mut tail = Self { cache, writer: cache.writer(), data: empty(), next: 0 };
        for _ in 0..CACHED {
            tail.insert();
        }
        tail
    }

    #[inline]
    fn insert(&mut self) {
        let position = (TAIL_LEDGER, self.next);
        let value = C::value(position, black_box(&self.data));
        self.cache.insert(&mut self.writer, position, value, 0, 1);
        self.next += 1;
    }

    /// A hundred operations.
    #[inline]
    fn hundred(&mut self) {
        for _ in 0..EVERY {
            self.insert();
        }
        let end = self.next - CACHED;
        let found = Run { first: (TAIL_LEDGER, end - EVERY), count: EVERY };
        self.cache.remove(&Cut { range: (TAIL_LEDGER, 0)..(TAIL_LEDGER, end), found });
        self.cache.evict_before(0, 1);
    }
}

/// Inserts and removes runs.
struct RunWriter<'a, C: Tested> {
    cache: &'a C,
    data: Bytes,
    random: Random,
}

impl<'a, C: Tested> RunWriter<'a, C> {
    fn open(cache: &'a C) -> Self {
        Self { cache, data: empty(), random: Random::new(2) }
    }

    #[inline]
    fn run(&mut self) {
        let first = (RUN_LEDGER, self.random.below(49_900).cast_signed());
        let run = Run { first, count: COUNT };
        let mut writer = self.cache.writer();
        for position in run.positions() {
            let value = C::value(position, black_box(&self.data));
            self.cache.insert(&mut writer, position, value, 0, 1);
        }
        self.cache.remove(&Cut::run(run));
    }
}

/// Both at once, for this long; the figures of the tail and of the run.
fn together<C: Tested>(time: Duration) -> (Sample, Sample) {
    let cache = C::open(Options::default());
    let (start_line, over) = (Barrier::new(3), AtomicBool::new(false));
    let mut tail = TailWriter::open(&cache);
    let mut runs = RunWriter::open(&cache);
    // Relaxed: nothing is read after the end.
    let is_over = || over.load(Ordering::Relaxed);
    thread::scope(|scope| {
        let tail = scope.spawn(|| {
            start_line.wait();
            let start = ThreadMark::now();
            let mut operations = 0;
            while operations == 0 || !is_over() {
                tail.hundred();
                operations += EVERY.unsigned_abs();
            }
            start.elapsed().sample(operations)
        });
        let runs = scope.spawn(|| {
            start_line.wait();
            let start = ThreadMark::now();
            let mut operations = 0;
            while operations == 0 || !is_over() {
                runs.run();
                operations += 1;
            }
            start.elapsed().sample(operations)
        });
        start_line.wait();
        thread::sleep(time);
        // Relaxed: as `is_over`.
        over.store(true, Ordering::Relaxed);
        (tail.join().expect("the tail does not panic"), runs.join().expect("the runs do not panic"))
    })
}

fn time(effort: Effort) -> Duration {
    effort.pick(Duration::from_millis(60), Duration::from_millis(2))
}

/// What one case of a pair has left for the other.
type Left = Rc<Cell<Option<Sample>>>;

/// The two cases of one trial.
pub(super) fn pair<C: Tested>(name: &'static str) -> (Case, Case) {
    let (for_tail, for_run) = (Left::default(), Left::default());
    let case = |own: &Left, other: &Left, pick: fn((Sample, Sample)) -> (Sample, Sample)| {
        let (own, other) = (Rc::clone(own), Rc::clone(other));
        Case::new(name, move |effort| {
            own.take().unwrap_or_else(|| {
                let (mine, theirs) = pick(together::<C>(time(effort)));
                other.set(Some(theirs));
                mine
            })
        })
    };
    let tail = case(&for_tail, &for_run, |both| both);
    let run = case(&for_run, &for_tail, |(tail, run)| (run, tail));
    (tail, run)
}

/// A pair of cases.
struct Pair;

impl Make for Pair {
    type Made = (Case, Case);

    fn make<C: Tested>(&self, name: &'static str) -> (Case, Case) {
        pair::<C>(name)
    }
}

/// The blocks of both roles, of the peers, with room for ours in front.
pub(super) fn of_peers() -> (Vec<Case>, Vec<Case>) {
    let (tails, runs) = every_peer(&Pair).into_iter().unzip();
    (documented(tails, TAIL_DOCUMENTED), documented(runs, RUN_DOCUMENTED))
}

/// The tail without the other thread.
pub(super) fn tail_alone<C: Tested>(name: &'static str) -> Case {
    Case::new(name, move |effort| {
        let cache = C::open(Options::default());
        let mut tail = TailWriter::open(&cache);
        let hundreds = effort.scale(TAIL_ALONE).div_ceil(EVERY.unsigned_abs());
        (0..hundreds.div_ceil(8)).for_each(|_| tail.hundred());
        let start = Mark::now();
        (0..hundreds).for_each(|_| tail.hundred());
        sample_between(start, Mark::now(), hundreds * EVERY.unsigned_abs())
    })
}

/// Runs without the other thread, drained by themselves; an operation is an insert here, not a run.
pub(super) fn runs_alone<C: Tested>(name: &'static str) -> Case {
    Case::new(name, move |effort| {
        let cache = C::open(Options::default());
        let mut runs = RunWriter::open(&cache);
        let count = effort.scale(RUNS_ALONE);
        let mut run = || {
            runs.run();
            cache.evict_before(0, 1);
        };
        (0..count.div_ceil(8)).for_each(|_| run());
        let start = Mark::now();
        (0..count).for_each(|_| run());
        sample_between(start, Mark::now(), count * COUNT.unsigned_abs())
    })
}

#[cfg(test)]
mod tests {
    use super::super::peers::Tree;
    use super::*;
    use crate::runner::Metric;

    #[test]
    fn one_trial_serves_both_cases_whichever_comes_first() {
        let (mut tail, mut run) = pair::<Tree>("tree");
        for _ in 0..2 {
            let (one, other) = (tail.trial(Effort::Smoke), run.trial(Effort::Smoke));
            assert!(one.get(Metric::Cpu) < other.get(Metric::Cpu), "a run is a hundred inserts");
            let (other, one) = (run.trial(Effort::Smoke), tail.trial(Effort::Smoke));
            assert!(one.get(Metric::Cpu) < other.get(Metric::Cpu), "a run is a hundred inserts");
        }
    }

    #[test]
    fn a_run_leaves_nothing_behind_and_the_tail_what_is_cached() {
        let cache = Tree::open(Options::default());
        let mut tail = TailWriter::open(&cache);
        let mut runs = RunWriter::open(&cache);
        for _ in 0..30 {
            tail.hundred();
            runs.run();
        }
        assert!(cache.owned(Run { first: (RUN_LEDGER, 0), count: 50_000 }).is_empty());
        let left = cache.owned(Run { first: (TAIL_LEDGER, 0), count: 50_000 });
        assert_eq!((left.len(), left[0].0), (10_000, (TAIL_LEDGER, 3_000)));
    }
}
