//! Judging rows.

use super::super::{Block, Case, Floor, Group, Sample};
use super::*;

/// A group of two blocks, with a floor that is documented as 2.
fn group() -> Group {
    let case = |name: &str| Case::new(name, |_| Sample::new());
    let floor = Case::new("floor", |_| Sample::new()).documented(Metric::Cpu, 2.0);
    Group {
        name: "planted",
        blocks: vec![
            Block::new("one", vec![case("ours"), case("peer"), case("other"), floor]),
            Block::new("two", vec![case("ours"), case("peer")]),
        ],
        targets: Vec::new(),
        floor: Some(Floor { block: "one".into(), case: "floor".into() }),
    }
}

/// A report with these CPU times, a round each.
fn report(rows: &[(usize, usize, &[f64])]) -> Report {
    let mut report = Report::new(&group());
    for &(block, case, values) in rows {
        for &value in values {
            report.add(block, case, &Sample::new().with(Metric::Cpu, value), false);
        }
    }
    report
}

fn target(row: Row, against: Against, gate: f64) -> Target {
    Target::lower("planted", row, against, Metric::Cpu, gate, gate / 2.0)
}

fn gate_of(report: &Report, target: Target) -> Judged {
    judge(report, &[target], &Settings::full()).remove(0)
}

fn ours_of_peer(gate: f64) -> Target {
    target(Row::case("one", "ours"), Against::Row(Row::case("one", "peer")), gate)
}

#[test]
fn ratios_are_taken_round_by_round() {
    // The machine was slow in the second round: the ratio of the medians would be 2.
    let report = report(&[(0, 0, &[10.0, 100.0, 30.0]), (0, 1, &[20.0, 200.0, 15.0])]);
    let judged = gate_of(&report, ours_of_peer(0.6));
    assert_eq!(judged.spread, Some(Spread { median: 0.5, min: 0.5, max: 2.0 }));
    assert_eq!(judged.verdict, Verdict::Met);
}

#[test]
fn a_median_above_the_gate_misses_it() {
    let report = report(&[(0, 0, &[7.0, 7.0, 1.0]), (0, 1, &[10.0, 10.0, 10.0])]);
    let rows = judge(&report, &[ours_of_peer(0.6)], &Settings::full());
    assert_eq!((rows[0].verdict, rows[1].verdict), (Verdict::Missed, Verdict::Missed));
    assert!(any_gate_missed(&rows, true));
}

#[test]
fn a_missed_goal_alone_is_no_failure() {
    let report = report(&[(0, 0, &[5.0]), (0, 1, &[10.0])]);
    let rows = judge(&report, &[ours_of_peer(0.6)], &Settings::full());
    assert_eq!((rows[0].verdict, rows[1].verdict), (Verdict::Met, Verdict::Missed));
    assert!(!any_gate_missed(&rows, true));
}

#[test]
fn near_one_a_gate_is_met_when_the_range_reaches_it() {
    let report = report(&[(0, 0, &[10.5, 12.0, 12.0]), (0, 1, &[10.0, 10.0, 10.0])]);
    assert_eq!(gate_of(&report, ours_of_peer(1.15)).verdict, Verdict::Overlaps);
    assert_eq!(gate_of(&report, ours_of_peer(1.0)).verdict, Verdict::Missed, "the range stays above it");
    let goal = &judge(&report, &[ours_of_peer(2.3)], &Settings::full())[1];
    assert_eq!(goal.verdict, Verdict::Missed, "a goal goes by its median");
}

#[test]
fn far_from_one_only_the_median_counts() {
    let report = report(&[(0, 0, &[1.0, 9.0, 9.0]), (0, 1, &[10.0, 10.0, 10.0])]);
    assert_eq!(gate_of(&report, ours_of_peer(0.5)).verdict, Verdict::Missed);
}

#[test]
fn the_mean_is_over_all_blocks_that_have_the_case() {
    let report =
        report(&[(0, 0, &[1.0, 1.0]), (1, 0, &[16.0, 16.0]), (0, 1, &[2.0, 2.0]), (1, 1, &[8.0, 8.0])]);
    let mean = target(Row::Mean("ours".into()), Against::Row(Row::Mean("peer".into())), 1.0);
    let median = gate_of(&report, mean).spread.unwrap().median;
    assert!((median - 1.0).abs() < 1e-9, "{median}");
    let worst = target(Row::Worst("ours".into()), Against::Nothing, 15.0);
    assert_eq!(gate_of(&report, worst).verdict, Verdict::Missed);
}

#[test]
fn the_best_peer_is_the_one_with_the_least_median() {
    let report = report(&[(0, 0, &[6.0, 6.0, 6.0]), (0, 1, &[4.0, 4.0, 9.0]), (0, 2, &[5.0, 5.0, 1.0])]);
    let peers = vec![Row::case("one", "other"), Row::case("one", "peer")];
    let judged = gate_of(&report, target(Row::case("one", "ours"), Against::BestOf(peers), 1.6));
    assert_eq!(judged.spread.unwrap(), Spread { median: 1.5, min: 6.0 / 9.0, max: 1.5 });
    assert_eq!(judged.name, "planted (peer)");
}

#[test]
fn higher_is_better_where_the_target_says_so() {
    let report = report(&[(0, 0, &[9.0]), (0, 1, &[10.0])]);
    let wanted = |gate| Target { better: Better::Higher, ..ours_of_peer(gate) };
    assert_eq!(gate_of(&report, wanted(0.5)).verdict, Verdict::Met);
    assert_eq!(gate_of(&report, wanted(2.0)).verdict, Verdict::Missed);
}

#[test]
fn a_case_that_did_not_run_fails_a_complete_run_only() {
    let report = report(&[(0, 0, &[9.0])]);
    let rows = judge(&report, &[ours_of_peer(0.5)], &Settings::full());
    assert_eq!(rows[0].verdict, Verdict::NotMeasured);
    assert!(any_gate_missed(&rows, true));
    assert!(!any_gate_missed(&rows, false));
}

#[test]
fn a_smoke_run_judges_allocations_and_no_times() {
    let mut report = report(&[(0, 0, &[90.0]), (0, 1, &[10.0])]);
    report.add(0, 0, &Sample::new().with(Metric::Allocations, 1.0), true);
    let allocations = Target::lower(
        "allocations",
        Row::case("one", "ours"),
        Against::Nothing,
        Metric::Allocations,
        0.05,
        0.01,
    );
    let rows = judge(&report, &[ours_of_peer(0.5), allocations], &Settings::smoke());
    let verdicts: Vec<_> = rows.iter().map(|row| row.verdict).collect();
    assert_eq!(verdicts, [Verdict::NotJudged, Verdict::NotJudged, Verdict::Missed, Verdict::Missed]);
    assert!(any_gate_missed(&rows, true));
}

#[test]
fn a_run_of_too_few_rounds_judges_allocations_and_no_times() {
    let mut report = report(&[(0, 0, &[90.0]), (0, 1, &[10.0])]);
    report.add(0, 0, &Sample::new().with(Metric::Allocations, 1.0), true);
    let row = Row::case("one", "ours");
    let allocations = Target::lower("allocations", row, Against::Nothing, Metric::Allocations, 0.05, 0.01);
    let targets = [ours_of_peer(0.5), allocations];
    let verdicts_of = |rounds| -> Vec<_> {
        let settings = Settings { rounds, ..Settings::full() };
        judge(&report, &targets, &settings).iter().map(|row| row.verdict).collect()
    };
    assert_eq!(
        verdicts_of(Settings::FULL_ROUNDS - 1),
        [Verdict::NotJudged, Verdict::NotJudged, Verdict::Missed, Verdict::Missed]
    );
    assert_eq!(verdicts_of(Settings::FULL_ROUNDS), [Verdict::Missed; 4]);

    let few = Settings { rounds: 3, ..Settings::full() };
    let times = judge(&report, &targets[..1], &few);
    assert!(!any_gate_missed(&times, true), "a time that is not judged fails nothing");
    assert!(times[0].spread.is_some(), "and is shown all the same");
    assert_eq!(judge(&report, &targets[..1], &Settings::smoke())[0].spread, None);
}

#[test]
fn marked_figures_say_why() {
    let same = report(&[(0, 3, &[2.0, 2.0, 2.0])]);
    assert_eq!(why_marked(&same), None);
    let mut group = group();
    let body = |_| Sample::new();
    group.blocks[1].cases[0] = Case::new("ours", body).documented(Metric::Cpu, 10.0);
    let report_of = |floor: f64, ours: f64| {
        let mut report = Report::new(&group);
        report.add(0, 3, &Sample::new().with(Metric::Cpu, floor), false);
        report.add(1, 0, &Sample::new().with(Metric::Cpu, ours), false);
        report
    };
    assert_eq!(why_marked(&report_of(6.0, 30.0)), None, "within what both machines allow");
    let why = why_marked(&report_of(6.0, 1.0)).unwrap();
    assert!(why.starts_with("differs: ") && why.contains("cost 3.0 times as much"), "{why}");
    assert!(!why_marked(&report_of(2.0, 1.0)).unwrap().contains("times as much"));
}

#[test]
fn documented_figures_are_scaled_by_the_floor_row() {
    let mut report = report(&[(0, 3, &[3.0, 3.0, 3.0])]);
    assert!((report.scale() - 1.5).abs() < 1e-9);
    report.add(1, 0, &Sample::new().with(Metric::Cpu, 7.0), false);
    let text = figures(&report).to_string();
    let floor = text.lines().find(|line| line.contains("one/floor")).unwrap();
    assert!(floor.contains("3.00") && floor.contains("1.00"), "{floor}");
}

#[test]
fn a_figure_is_marked_when_neither_the_documented_one_nor_the_scaled_one_is_near() {
    let near = [3.0, 5.0, 10.0, 20.0, 27.0].map(|measured| is_reproduced(measured, 5.0, 4.0));
    assert_eq!(near, [true; 5]);
    assert!(!is_reproduced(2.9, 5.0, 4.0) && !is_reproduced(28.1, 5.0, 4.0));
    assert!(is_reproduced(3.0, 20.0, 0.25), "a scale below 1 widens the range downwards");
}

#[test]
fn the_table_says_target_kind_value_range_and_verdict() {
    let report = report(&[(0, 0, &[7.0, 8.0, 9.0]), (0, 1, &[10.0, 10.0, 10.0])]);
    let text = verdicts(&judge(&report, &[ours_of_peer(0.6)], &Settings::full())).to_string();
    let row = text.lines().nth(2).unwrap().split_whitespace().collect::<Vec<_>>();
    assert_eq!(row, ["planted", "gate", "0.60", "0.80", "0.70", "0.90", "MISSED"]);
}
