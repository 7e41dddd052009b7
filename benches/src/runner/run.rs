//! Running the rounds of a group.

use folio_sync::test_util::alloc;

use super::{Effort, Group, Report, Watchdog};

/// How a group runs.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How much each trial does.
    pub effort: Effort,
    /// Rounds that are timed, after the one that is thrown away.
    pub rounds: usize,
    /// Rounds after these, in which allocations are counted and no time is taken.
    pub counted_rounds: usize,
}

impl Settings {
    /// Timed rounds of a full run unless the caller says otherwise; fewer are not judged.
    pub const FULL_ROUNDS: usize = 15;

    /// A run whose times are judged.
    pub fn full() -> Self {
        Self { effort: Effort::Full, rounds: Self::FULL_ROUNDS, counted_rounds: 3 }
    }

    /// A run that shows that everything runs, and counts allocations.
    pub fn smoke() -> Self {
        Self { effort: Effort::Smoke, rounds: 1, counted_rounds: 1 }
    }

    /// Whether times are judged; allocations always are.
    pub fn judges_times(&self) -> bool {
        self.effort == Effort::Full && self.rounds >= Self::FULL_ROUNDS
    }
}

/// The order in which `count` things run in a round: the one that starts changes every round.
pub fn rotated(count: usize, round: usize) -> impl Iterator<Item = usize> {
    (0..count).map(move |step| (round + step) % count)
}

/// Which kind a round is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Round {
    WarmUp,
    Timed,
    Counted,
}

/// Runs all rounds of a group.
///
/// `progress` hears of each round before it begins.
pub fn run(
    group: &mut Group,
    settings: &Settings,
    watchdog: &Watchdog,
    mut progress: impl FnMut(usize, usize),
) -> Report {
    let mut report = Report::new(group);
    let total = 1 + settings.rounds + settings.counted_rounds;
    for round in 0..total {
        progress(round, total);
        let kind = match round {
            0 => Round::WarmUp,
            _ if round <= settings.rounds => Round::Timed,
            _ => Round::Counted,
        };
        if kind == Round::Counted {
            alloc::resume();
        } else {
            alloc::pause();
        }
        run_round(group, settings.effort, round, kind, watchdog, &mut report);
    }
    alloc::resume();
    report
}

fn run_round(
    group: &mut Group,
    effort: Effort,
    round: usize,
    kind: Round,
    watchdog: &Watchdog,
    report: &mut Report,
) {
    for block in rotated(group.blocks.len(), round) {
        let cases = group.blocks[block].cases.len();
        for case in rotated(cases, round) {
            let name = format!(
                "{}/{}/{}",
                group.name,
                group.blocks[block].name,
                group.blocks[block].cases[case].name()
            );
            let watched = watchdog.watch(name);
            let sample = group.blocks[block].cases[case].trial(effort);
            drop(watched);
            if kind != Round::WarmUp {
                report.add(block, case, &sample, kind == Round::Counted);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;
    use std::time::Duration;

    use super::super::{Block, Case, Key, Metric, Sample};
    use super::*;

    #[test]
    fn every_round_begins_with_another_case_and_runs_each_once() {
        let rounds: Vec<Vec<usize>> = (0..4).map(|round| rotated(3, round).collect()).collect();
        assert_eq!(rounds, [[0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 1, 2]]);
        assert_eq!(rotated(0, 5).count(), 0);
    }

    fn logged(name: &'static str, log: &Rc<RefCell<Vec<&'static str>>>) -> Case {
        let log = Rc::clone(log);
        let mut trial = 0.0;
        Case::new(name, move |_| {
            log.borrow_mut().push(name);
            trial += 1.0;
            Sample::new().with(Metric::Cpu, trial).with(Metric::Allocations, trial)
        })
    }

    #[test]
    fn cases_take_turns_and_the_first_round_is_thrown_away() {
        let log = Rc::new(RefCell::new(Vec::new()));
        let cases = vec![logged("a", &log), logged("b", &log)];
        let mut group = Group {
            name: "planted",
            blocks: vec![Block::new("one", cases)],
            targets: Vec::new(),
            floor: None,
        };
        let settings = Settings { effort: Effort::Smoke, rounds: 2, counted_rounds: 1 };
        let watchdog = Watchdog::exiting(Duration::from_mins(1));
        let mut seen = Vec::new();
        let report = run(&mut group, &settings, &watchdog, |round, total| seen.push((round, total)));

        assert_eq!(*log.borrow(), ["a", "b", "b", "a", "a", "b", "b", "a"]);
        assert_eq!(seen, [(0, 4), (1, 4), (2, 4), (3, 4)]);
        let key = Key::new("one", "a");
        assert_eq!(report.values(&key, Metric::Cpu), [2.0, 3.0], "times: the timed rounds only");
        assert_eq!(report.values(&key, Metric::Allocations), [4.0], "allocations: the counted round only");
    }
}
