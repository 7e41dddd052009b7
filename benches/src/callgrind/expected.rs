//! The committed figures, and how those of a run compare.
//!
//! A build with debug assertions executes more than one without: each of the two has figures of its own.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Above its figure by more than this a kernel fails.
const TOLERANCE: f64 = 0.03;

/// What was counted of one kernel.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Figure {
    name: String,
    instructions: f64,
    ratio: f64,
}

impl Figure {
    pub(super) fn new(name: &str, instructions: f64, ratio: f64) -> Self {
        Self { name: name.to_owned(), instructions, ratio }
    }
}

/// The kinds of build that have figures.
pub(super) const BUILDS: [&str; 2] = ["release", "checked"];

/// Which of [`BUILDS`] this is.
pub(super) fn this_build() -> &'static str {
    BUILDS[usize::from(cfg!(debug_assertions))]
}

/// The committed figures, by build and kernel.
#[derive(Clone, Debug, Default)]
pub(super) struct Expected(BTreeMap<(String, String), Figure>);

impl Expected {
    /// Reads the file: a build, a kernel, instructions and a ratio a line.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let lines = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
        let parse = |line: &str| {
            let cells: Vec<&str> = line.split_whitespace().collect();
            let [build, name, instructions, ratio] = cells[..] else { return None };
            let figure = Figure::new(name, instructions.parse().ok()?, ratio.parse().ok()?);
            Some(((build.to_owned(), name.to_owned()), figure))
        };
        lines
            .map(|line| parse(line).ok_or_else(|| format!("not a figure: {line:?}")))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Replaces the figures of a build.
    pub(super) fn bless(&mut self, build: &str, figures: &[Figure]) {
        self.0.retain(|(of, _), _| of != build);
        self.0.extend(figures.iter().map(|figure| ((build.to_owned(), figure.name.clone()), figure.clone())));
    }

    /// What is committed.
    pub(super) fn to_text(&self) -> String {
        let mut text = String::from(
            "# Instructions an operation, and their ratio to the reference kernel of the same run; the ratio is compared.\n\
             # release: cargo run --release    -p folio-benches -- callgrind --bless\n\
             # checked: cargo run --profile ci -p folio-benches -- callgrind --bless\n",
        );
        for ((build, name), Figure { instructions, ratio, .. }) in &self.0 {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{build} {name} {instructions:.1} {ratio:.4}");
        }
        text
    }

    /// The kernels that have a figure of a build.
    #[cfg(test)]
    pub(super) fn names(&self, build: &str) -> impl Iterator<Item = &str> {
        self.0.keys().filter(move |(of, _)| of == build).map(|(_, name)| name.as_str())
    }

    /// Compares the figures of a run of this build; a committed kernel that was not counted fails as well.
    pub(super) fn compare(&self, build: &str, figures: &[Figure]) -> Vec<Compared> {
        let mut compared: Vec<Compared> = figures
            .iter()
            .map(|figure| {
                let key = (build.to_owned(), figure.name.clone());
                let expected = self.0.get(&key).map(|expected| expected.ratio);
                let outcome = match expected {
                    None => Outcome::Unknown,
                    Some(expected) if figure.ratio > expected * (1.0 + TOLERANCE) => Outcome::Worse,
                    Some(expected) if figure.ratio < expected * (1.0 - TOLERANCE) => Outcome::Better,
                    Some(_) => Outcome::Same,
                };
                Compared { figure: figure.clone(), expected, outcome }
            })
            .collect();
        for ((_, name), expected) in self.0.iter().filter(|((of, _), _)| of == build) {
            if !figures.iter().any(|figure| figure.name == *name) {
                let figure = Figure::new(name, f64::NAN, f64::NAN);
                compared.push(Compared {
                    figure,
                    expected: Some(expected.ratio),
                    outcome: Outcome::NotCounted,
                });
            }
        }
        compared
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Same,
    Better,
    Worse,
    Unknown,
    NotCounted,
}

/// One kernel of a run beside its committed figure.
#[derive(Debug)]
pub(super) struct Compared {
    figure: Figure,
    expected: Option<f64>,
    outcome: Outcome,
}

impl Compared {
    /// Whether the run may pass.
    pub(super) fn is_good(&self) -> bool {
        matches!(self.outcome, Outcome::Same | Outcome::Better)
    }

    /// The row of the table.
    pub(super) fn cells(&self) -> Vec<String> {
        let verdict = match self.outcome {
            Outcome::Same => "as expected",
            Outcome::Better => "better: bless it",
            Outcome::Worse => "WORSE by more than 3 %",
            Outcome::Unknown => "NO FIGURE: bless it",
            Outcome::NotCounted => "NOT COUNTED",
        };
        vec![
            self.figure.name.clone(),
            format!("{:.1}", self.figure.instructions),
            format!("{:.4}", self.figure.ratio),
            self.expected.map_or_else(|| "-".into(), |ratio| format!("{ratio:.4}")),
            verdict.into(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcomes(committed: &str, figures: &[Figure]) -> Vec<Outcome> {
        Expected::parse(committed)
            .unwrap()
            .compare("b", figures)
            .iter()
            .map(|compared| compared.outcome)
            .collect()
    }

    #[test]
    fn three_per_cent_more_is_tolerated_and_not_a_bit_beyond() {
        let figures =
            [Figure::new("a", 103.0, 1.029), Figure::new("b", 104.0, 1.031), Figure::new("c", 90.0, 0.9)];
        let committed = "b a 100 1.0\nb b 100 1.0\nb c 100 1.0\n";
        assert_eq!(outcomes(committed, &figures), [Outcome::Same, Outcome::Worse, Outcome::Better]);
        let compared = Expected::parse(committed).unwrap().compare("b", &figures);
        assert_eq!(compared.iter().map(Compared::is_good).collect::<Vec<_>>(), [true, false, true]);
    }

    #[test]
    fn a_kernel_without_a_figure_fails_and_so_does_a_figure_without_a_kernel() {
        let outcomes = outcomes("b gone 100 1.0\nother new 100 1.0\n", &[Figure::new("new", 100.0, 1.0)]);
        assert_eq!(outcomes, [Outcome::Unknown, Outcome::NotCounted]);
    }

    #[test]
    fn what_is_blessed_is_read_back_and_other_builds_are_kept() {
        let figures = [Figure::new("a", 123.4, 1.5), Figure::new("b", 10.0, 0.125)];
        let mut expected = Expected::parse("b gone 1 1.0\nother kept 2 2.0\n").unwrap();
        expected.bless("b", &figures);
        let text = expected.to_text();
        assert_eq!(outcomes(&text, &figures), [Outcome::Same, Outcome::Same]);
        assert!(text.contains("\nother kept 2.0 2.0000\n"), "{text}");
    }

    #[test]
    fn a_line_that_is_no_figure_is_an_error() {
        assert!(Expected::parse("b a 100\n").is_err());
        assert!(Expected::parse("b a 100 many\n").is_err());
    }
}
