//! Targets, and whether the rows meet them.

use super::ratio::geometric_mean;
use super::table::short;
use super::{Effort, Key, Metric, Report, Settings, Spread, Table};

/// What a target looks at, one value a round.
#[derive(Clone, Debug)]
pub enum Row {
    /// One case in one block.
    Case(Key),
    /// The geometric mean of a case over all blocks that have it.
    Mean(String),
    /// The greatest value of a case in any block.
    Worst(String),
}

impl Row {
    /// One case in one block.
    pub fn case(block: impl Into<String>, case: impl Into<String>) -> Self {
        Self::Case(Key::new(block, case))
    }

    /// The case it is about.
    fn label(&self) -> String {
        match self {
            Self::Case(key) => key.case.clone(),
            Self::Mean(case) | Self::Worst(case) => case.clone(),
        }
    }

    fn values(&self, report: &Report, metric: Metric) -> Option<Vec<f64>> {
        let name = match self {
            Self::Case(key) => {
                return Some(report.values(key, metric).to_vec()).filter(|values| !values.is_empty());
            }
            Self::Mean(name) | Self::Worst(name) => name,
        };
        let join = |values: Vec<f64>| match self {
            Self::Worst(_) => values.into_iter().reduce(f64::max),
            _ => geometric_mean(&values),
        };
        let all: Vec<&[f64]> = report
            .keys()
            .filter(|key| key.case == *name)
            .map(|key| report.values(key, metric))
            .filter(|values| !values.is_empty())
            .collect();
        let rounds = all.iter().map(|values| values.len()).min()?;
        (0..rounds).map(|round| join(all.iter().map(|values| values[round]).collect())).collect()
    }
}

/// What a row is divided by, round by round.
#[derive(Clone, Debug)]
pub enum Against {
    /// Nothing: the target is an absolute figure.
    Nothing,
    /// Another row.
    Row(Row),
    /// That one of these rows whose median over all rounds is the least.
    BestOf(Vec<Row>),
}

/// Which way is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// At most the value.
    Lower,
    /// At least the value.
    Higher,
}

/// What is asked of a row.
#[derive(Clone, Debug)]
pub struct Target {
    /// What the table calls it.
    pub name: String,
    /// What is judged.
    pub row: Row,
    /// What it is divided by.
    pub against: Against,
    /// The figure of both.
    pub metric: Metric,
    /// Which way is good.
    pub better: Better,
    /// Must be met.
    pub gate: Option<f64>,
    /// What we are here for.
    pub goal: Option<f64>,
}

impl Target {
    /// A target of which lower is better, with a gate and a goal.
    pub fn lower(
        name: impl Into<String>,
        row: Row,
        against: Against,
        metric: Metric,
        gate: f64,
        goal: f64,
    ) -> Self {
        let better = Better::Lower;
        Self { name: name.into(), row, against, metric, better, gate: Some(gate), goal: Some(goal) }
    }
}

/// How a row stands to a gate or a goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The median is as good as asked.
    Met,
    /// The median is not, but the gate is within 15 % of 1 and the range of the rounds reaches it: no difference that can be told.
    Overlaps,
    /// Not as good as asked.
    Missed,
    /// One of the cases did not run.
    NotMeasured,
    /// A smoke run does not judge times, nor does one of too few rounds.
    NotJudged,
}

impl Verdict {
    fn label(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::Overlaps => "met (ranges overlap)",
            Self::Missed => "MISSED",
            Self::NotMeasured => "not measured",
            Self::NotJudged => "not judged",
        }
    }
}

/// A gate or a goal of a target, judged.
#[derive(Clone, Debug)]
pub struct Judged {
    /// The target's name.
    pub name: String,
    /// Whether this is the gate.
    pub is_gate: bool,
    /// The value asked for.
    pub value: f64,
    /// What was measured.
    pub spread: Option<Spread>,
    /// How it stands.
    pub verdict: Verdict,
}

/// Ratios this far from 1 cannot be told from 1 on a shared machine.
const INDISTINCT: f64 = 0.15;

/// Judges the gate and the goal of each target.
pub fn judge(report: &Report, targets: &[Target], settings: &Settings) -> Vec<Judged> {
    let mut judged = Vec::new();
    for target in targets {
        let (name, spread) = match ratios(report, target) {
            Some((values, Some(best))) => (format!("{} ({best})", target.name), Spread::of(&values)),
            Some((values, None)) => (target.name.clone(), Spread::of(&values)),
            None => (target.name.clone(), None),
        };
        for (is_gate, value) in [(true, target.gate), (false, target.goal)] {
            let Some(value) = value else { continue };
            let verdict = verdict(target, is_gate, value, spread, settings);
            // The times of a smoke run are not worth a look.
            let spread = spread.filter(|_| verdict != Verdict::NotJudged || settings.effort == Effort::Full);
            judged.push(Judged { name: name.clone(), is_gate, value, spread, verdict });
        }
    }
    judged
}

/// The row divided by what it is judged against, round by round, and which row was the best of several.
fn ratios(report: &Report, target: &Target) -> Option<(Vec<f64>, Option<String>)> {
    let values = target.row.values(report, target.metric)?;
    let against = match &target.against {
        Against::Nothing => return Some((values, None)),
        Against::Row(row) => (row.values(report, target.metric)?, None),
        Against::BestOf(rows) => rows
            .iter()
            .filter_map(|row| {
                let values = row.values(report, target.metric)?;
                Some((Spread::of(&values)?.median, (values, Some(row.label()))))
            })
            .min_by(|(one, _), (other, _)| one.total_cmp(other))
            .map(|(_, best)| best)?,
    };
    let (against, best) = against;
    Some((values.iter().zip(&against).map(|(value, against)| value / against).collect(), best))
}

fn verdict(
    target: &Target,
    is_gate: bool,
    value: f64,
    spread: Option<Spread>,
    settings: &Settings,
) -> Verdict {
    let Some(spread) = spread else { return Verdict::NotMeasured };
    if !settings.judges_times() && !target.metric.is_counted() {
        return Verdict::NotJudged;
    }
    let (met, reached) = match target.better {
        Better::Lower => (spread.median <= value, spread.min <= value),
        Better::Higher => (spread.median >= value, spread.max >= value),
    };
    let is_ratio = !matches!(target.against, Against::Nothing);
    let near_one = (1.0 - INDISTINCT..=1.0 + INDISTINCT).contains(&value);
    if met {
        Verdict::Met
    } else if is_gate && is_ratio && near_one && reached {
        Verdict::Overlaps
    } else {
        Verdict::Missed
    }
}

/// Whether the command has to fail: a gate is missed, or was not measured although `complete` says that every case ran.
pub fn any_gate_missed(judged: &[Judged], complete: bool) -> bool {
    judged.iter().any(|row| {
        let unmeasured = complete && row.verdict == Verdict::NotMeasured;
        row.is_gate && (row.verdict == Verdict::Missed || unmeasured)
    })
}

/// The table of targets.
pub fn verdicts(judged: &[Judged]) -> Table {
    let mut table = Table::new(&["target", "kind", "value", "median", "min", "max", "verdict"]);
    for row in judged {
        let shown =
            |pick: fn(Spread) -> f64| row.spread.map_or_else(|| "-".into(), |spread| short(pick(spread)));
        table.row(vec![
            row.name.clone(),
            if row.is_gate { "gate" } else { "goal" }.into(),
            short(row.value),
            shown(|spread| spread.median),
            shown(|spread| spread.min),
            shown(|spread| spread.max),
            row.verdict.label().into(),
        ]);
    }
    table
}

/// The table of allocations an operation, which is all that a smoke run has to show.
pub fn allocations(report: &Report) -> Table {
    let mut table = Table::new(&["case", "allocations", "bytes"]);
    for key in report.keys() {
        let shown =
            |metric| report.spread(key, metric).map_or_else(|| "-".into(), |spread| short(spread.median));
        table.row(vec![
            format!("{}/{}", key.block, key.case),
            shown(Metric::Allocations),
            shown(Metric::AllocatedBytes),
        ]);
    }
    table
}

/// What the table of absolute figures shows.
const FIGURES: [Metric; 6] =
    [Metric::Cpu, Metric::Wall, Metric::P50, Metric::P99, Metric::P999, Metric::Batches];

/// Further than this from the documented figure a case is marked.
const REPRODUCED: f64 = 0.4;

/// Whether a figure is near the documented one, as it stands or scaled to this machine, or between the two.
///
/// No one factor turns one machine into another: what the floor row measures may be dear here, and everything else cheap.
fn is_reproduced(measured: f64, documented: f64, scale: f64) -> bool {
    let scaled = documented * scale;
    let (low, high) = (documented.min(scaled), documented.max(scaled));
    (low * (1.0 - REPRODUCED)..=high * (1.0 + REPRODUCED)).contains(&measured)
}

/// Whether the documented figure of a case is one of this metric that this machine does not reproduce.
fn differs(report: &Report, key: &Key, metric: Metric) -> bool {
    let documented = report.documented(key).filter(|(of, _)| *of == metric);
    documented
        .zip(report.spread(key, metric))
        .is_some_and(|((_, documented), spread)| !is_reproduced(spread.median, documented, report.scale()))
}

/// Why rows of the figures are marked, in one line; none if no row is.
pub fn why_marked(report: &Report) -> Option<String> {
    report.keys().find(|key| FIGURES.iter().any(|metric| differs(report, key, *metric)))?;
    let scale = report.scale();
    let how = if scale > 1.0 + REPRODUCED {
        format!("locked operations cost {scale:.1} times as much, malloc less")
    } else {
        "no one factor turns the one into the other".to_owned()
    };
    Some(format!("differs: this machine is another one than the documented: {how}"))
}

/// The table of absolute figures, beside the documented ones: as they are, and scaled by the floor row of this run.
pub fn figures(report: &Report) -> Table {
    let titles =
        ["case", "figure", "median", "min", "max", "allocations", "documented", "scaled", "of scaled", ""];
    let mut table = Table::new(&titles);
    let scale = report.scale();
    for key in report.keys() {
        let allocations = report.spread(key, Metric::Allocations);
        for metric in FIGURES {
            let Some(spread) = report.spread(key, metric) else { continue };
            let documented = report.documented(key).filter(|(of, _)| *of == metric).map(|(_, value)| value);
            let optional = |value: Option<f64>| value.map_or_else(String::new, short);
            table.row(vec![
                format!("{}/{}", key.block, key.case),
                metric.label().into(),
                short(spread.median),
                short(spread.min),
                short(spread.max),
                optional(allocations.map(|spread| spread.median)),
                optional(documented),
                optional(documented.map(|value| value * scale)),
                optional(documented.map(|value| spread.median / (value * scale))),
                if differs(report, key, metric) { "differs" } else { "" }.into(),
            ]);
        }
    }
    table
}

#[cfg(test)]
mod tests;
