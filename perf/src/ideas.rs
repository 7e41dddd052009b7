//! The ideas of the project, switched on and off in turns.

use std::fmt;

use crate::report::Report;
use crate::run::{RunError, run};
use crate::settings::{Cache, Completion, Handover, Settings};

/// One way to run the scenario.
#[derive(Clone, Debug)]
pub struct Variant {
    /// What is different in it.
    pub name: &'static str,
    settings: Settings,
    /// Its runs.
    pub reports: Vec<Report>,
}

/// The variants, and how often each ran.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The first is the one with all ideas.
    pub variants: Vec<Variant>,
}

impl Comparison {
    /// With all ideas, without each of them, and as brokers did before: affine, single and uncached.
    ///
    /// Producers never hold back: who cannot keep up is to be seen.
    pub fn new(base: &Settings) -> Self {
        let variant = |name, change: fn(&mut Settings)| {
            let mut settings = Settings { max_unread: 0, ..base.clone() };
            change(&mut settings);
            Variant { name, settings, reports: Vec::new() }
        };
        Self {
            variants: vec![
                variant("all three", |_| {}),
                variant("affine completion", |settings| settings.completion = Completion::Affine),
                variant("single hand-over", |settings| settings.handover = Handover::Single),
                variant("no cache", |settings| settings.cache = Cache::None),
                variant("affine, single hand-over", |settings| {
                    settings.completion = Completion::Affine;
                    settings.handover = Handover::Single;
                }),
                variant("none of them", |settings| {
                    settings.completion = Completion::Affine;
                    settings.handover = Handover::Single;
                    settings.cache = Cache::None;
                }),
            ],
        }
    }

    /// Runs all variants once more, in an order that starts elsewhere each time; `told` hears of each before it runs.
    ///
    /// # Errors
    /// As [`run`].
    pub fn round(&mut self, number: usize, told: impl Fn(&str)) -> Result<(), RunError> {
        let count = self.variants.len();
        for at in 0..count {
            let variant = &mut self.variants[(at + number) % count];
            told(variant.name);
            variant.reports.push(run(&variant.settings)?);
        }
        Ok(())
    }

    /// Whether every run was correct.
    pub fn is_good(&self) -> bool {
        self.variants.iter().flat_map(|variant| &variant.reports).all(|report| report.verdict.is_good())
    }
}

/// Median, least and greatest.
fn spread(mut values: Vec<f64>) -> Option<(f64, f64, f64)> {
    values.sort_by(f64::total_cmp);
    let (first, last) = (*values.first()?, *values.last()?);
    let middle = values.len() / 2;
    let median = if values.len().is_multiple_of(2) {
        f64::midpoint(values[middle - 1], values[middle])
    } else {
        values[middle]
    };
    Some((median, first, last))
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<26} {:>32} {:>10} {:>24} {:>18}",
            "variant", "egress, thousand/s (range)", "of first", "most backlog (range)", "CPU ns a message"
        )?;
        let median =
            |variant: &Variant, of: fn(&Report) -> f64| spread(variant.reports.iter().map(of).collect());
        let first = self.variants.first().and_then(|variant| median(variant, Report::egress));
        let mut unsteady = false;
        for variant in &self.variants {
            let Some((egress, least, most)) = median(variant, Report::egress) else { continue };
            let without = variant.reports.iter().filter(|report| report.window.is_none()).count();
            unsteady |= without > 0;
            let backlog = median(variant, |report| report.most_backlog as f64).unwrap_or_default();
            let cpu = median(variant, |report| report.cpu_nanos).unwrap_or_default();
            writeln!(
                f,
                "{:<26} {:>32} {:>10.2} {:>24} {:>18.0}",
                variant.name,
                format!(
                    "{}{:.0} ({:.0} to {:.0})",
                    if without > 0 { "* " } else { "" },
                    egress / 1e3,
                    least / 1e3,
                    most / 1e3
                ),
                egress / first.unwrap_or_default().0,
                format!("{:.0} ({:.0} to {:.0})", backlog.0, backlog.1, backlog.2),
                cpu.0
            )?;
        }
        if unsteady {
            f.write_str("* A run was too short for a steady window: its egress is that of the whole run, begin and end included.\n")?;
        }
        for report in self.variants.iter().flat_map(|variant| &variant.reports) {
            if !report.verdict.is_good() {
                writeln!(f, "{}", report.verdict)?;
            }
        }
        f.write_str(if self.is_good() { "Correct: every run." } else { "WRONG: see above." })
    }
}
