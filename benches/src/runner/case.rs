//! Cases, the blocks in which they are compared, and groups of blocks.

use std::fmt;

use super::{Mark, Metric, Sample, Target, sample_between};

/// How much a trial does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// Enough to time.
    Full,
    /// Enough to see that it runs and to count allocations.
    Smoke,
}

impl Effort {
    /// `full` operations, or a hundredth of them in a smoke run, at least one.
    pub fn scale(self, full: u64) -> u64 {
        match self {
            Self::Full => full,
            Self::Smoke => full.div_ceil(100),
        }
    }

    /// One of two numbers.
    pub fn pick<T>(self, full: T, smoke: T) -> T {
        match self {
            Self::Full => full,
            Self::Smoke => smoke,
        }
    }
}

/// One way to do the work of a block.
pub struct Case {
    name: String,
    documented: Option<(Metric, f64)>,
    body: Box<dyn FnMut(Effort) -> Sample>,
}

impl Case {
    /// A case whose body runs one trial and says what it measured.
    pub fn new(name: impl Into<String>, body: impl FnMut(Effort) -> Sample + 'static) -> Self {
        Self { name: name.into(), documented: None, body: Box::new(body) }
    }

    /// A case whose body does its operation as often as it is told, on the calling thread.
    ///
    /// An eighth more of them runs first, unmeasured, to fill the caches that other cases emptied.
    pub fn looped(name: impl Into<String>, operations: u64, mut body: impl FnMut(u64) + 'static) -> Self {
        Self::new(name, move |effort| {
            let operations = effort.scale(operations);
            body(operations.div_ceil(8));
            let start = Mark::now();
            body(operations);
            sample_between(start, Mark::now(), operations)
        })
    }

    /// Adds the figure that the performance document gives for this case on the reference machine.
    #[must_use]
    pub fn documented(mut self, metric: Metric, nanoseconds: f64) -> Self {
        self.documented = Some((metric, nanoseconds));
        self
    }

    /// What the table calls it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The documented figure, if there is one.
    pub fn documented_figure(&self) -> Option<(Metric, f64)> {
        self.documented
    }

    /// Runs one trial.
    pub fn trial(&mut self, effort: Effort) -> Sample {
        (self.body)(effort)
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Case").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Cases that are compared with each other, in one setting.
#[derive(Debug)]
pub struct Block {
    /// The setting.
    pub name: String,
    /// The ways to do the work.
    pub cases: Vec<Case>,
}

impl Block {
    /// A block of these cases.
    pub fn new(name: impl Into<String>, cases: Vec<Case>) -> Self {
        Self { name: name.into(), cases }
    }
}

/// The row by which documented nanoseconds are scaled to the machine of this run.
#[derive(Clone, Debug)]
pub struct Floor {
    /// Its block.
    pub block: String,
    /// Its case, which has a documented figure.
    pub case: String,
}

/// Blocks that run together, and the targets that their rows are judged by.
#[derive(Debug)]
pub struct Group {
    /// What the command line calls it.
    pub name: &'static str,
    /// The settings.
    pub blocks: Vec<Block>,
    /// What is asked of the rows.
    pub targets: Vec<Target>,
    /// What documented figures are scaled by.
    pub floor: Option<Floor>,
}

impl Group {
    /// Keeps only the cases whose `block/case` contains one of `wanted`; all of them when `wanted` is empty.
    pub fn keep_only(&mut self, wanted: &[String]) {
        if wanted.is_empty() {
            return;
        }
        for block in &mut self.blocks {
            let name = &block.name;
            block.cases.retain(|case| {
                let full = format!("{name}/{}", case.name());
                wanted.iter().any(|text| full.contains(text))
            });
        }
        self.blocks.retain(|block| !block.cases.is_empty());
    }
}
