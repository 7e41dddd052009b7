//! What one trial measured.

use std::collections::BTreeMap;

/// A quantity that a trial reports, an operation unless said otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Metric {
    /// CPU time of all threads of the process, in nanoseconds.
    Cpu,
    /// Elapsed time, in nanoseconds.
    Wall,
    /// Blocks allocated.
    Allocations,
    /// Bytes allocated.
    AllocatedBytes,
    /// Submissions to the delegate for every thousand operations.
    Batches,
    /// Median of the times of single operations, in nanoseconds.
    P50,
    /// 99th percentile of the times of single operations, in nanoseconds.
    P99,
    /// The time that one single operation in a thousand exceeds, in nanoseconds.
    P999,
}

impl Metric {
    /// Whether the figure comes from the rounds in which allocations are counted, and so does not depend on time.
    pub fn is_counted(self) -> bool {
        matches!(self, Self::Allocations | Self::AllocatedBytes)
    }

    /// What the table calls it.
    pub fn label(self) -> &'static str {
        match self {
            Self::Cpu => "CPU ns",
            Self::Wall => "wall ns",
            Self::Allocations => "allocations",
            Self::AllocatedBytes => "bytes",
            Self::Batches => "batches/1000",
            Self::P50 => "p50 ns",
            Self::P99 => "p99 ns",
            Self::P999 => "p99.9 ns",
        }
    }
}

/// The figures of one trial of one case.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample(BTreeMap<Metric, f64>);

impl Sample {
    /// No figure yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same with one more figure.
    #[must_use]
    pub fn with(mut self, metric: Metric, value: f64) -> Self {
        self.0.insert(metric, value);
        self
    }

    /// The figure, if the trial reported it.
    pub fn get(&self, metric: Metric) -> Option<f64> {
        self.0.get(&metric).copied()
    }

    /// All figures.
    pub fn iter(&self) -> impl Iterator<Item = (Metric, f64)> + '_ {
        self.0.iter().map(|(&metric, &value)| (metric, value))
    }
}
