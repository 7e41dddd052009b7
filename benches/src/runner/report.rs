//! What all rounds of a group measured.

use std::collections::BTreeMap;

use super::{Floor, Group, Metric, Sample, Spread};

/// A case in its block.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The block's name.
    pub block: String,
    /// The case's name.
    pub case: String,
}

impl Key {
    /// The key of these names.
    pub fn new(block: impl Into<String>, case: impl Into<String>) -> Self {
        Self { block: block.into(), case: case.into() }
    }
}

/// The figures of every round.
#[derive(Debug)]
pub struct Report {
    /// Keys in the order of the group, by block and case.
    keys: Vec<Vec<Key>>,
    documented: BTreeMap<Key, (Metric, f64)>,
    floor: Option<Floor>,
    /// A value a round; a metric that is counted has its counted rounds only, any other its timed rounds only.
    values: BTreeMap<(Key, Metric), Vec<f64>>,
}

impl Report {
    /// Nothing measured yet.
    pub fn new(group: &Group) -> Self {
        let mut documented = BTreeMap::new();
        let mut keys = Vec::new();
        for block in &group.blocks {
            let mut row = Vec::new();
            for case in &block.cases {
                let key = Key::new(&block.name, case.name());
                if let Some(figure) = case.documented_figure() {
                    documented.insert(key.clone(), figure);
                }
                row.push(key);
            }
            keys.push(row);
        }
        Self { keys, documented, floor: group.floor.clone(), values: BTreeMap::new() }
    }

    /// Adds a round's figures of the case at this place of the group.
    pub fn add(&mut self, block: usize, case: usize, sample: &Sample, counted: bool) {
        for (metric, value) in sample.iter() {
            if metric.is_counted() == counted {
                self.values.entry((self.keys[block][case].clone(), metric)).or_default().push(value);
            }
        }
    }

    /// All cases.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.keys.iter().flatten()
    }

    /// The figures of a case, a round each; none if it was not run or does not report them.
    pub fn values(&self, key: &Key, metric: Metric) -> &[f64] {
        self.values.get(&(key.clone(), metric)).map_or(&[], Vec::as_slice)
    }

    /// Median and range of a case's figures.
    pub fn spread(&self, key: &Key, metric: Metric) -> Option<Spread> {
        Spread::of(self.values(key, metric))
    }

    /// The documented figure of a case.
    pub fn documented(&self, key: &Key) -> Option<(Metric, f64)> {
        self.documented.get(key).copied()
    }

    /// By how much this machine is slower than the documented one, by the floor row; 1 without one.
    pub fn scale(&self) -> f64 {
        let scale = self.floor.as_ref().and_then(|floor| {
            let key = Key::new(&floor.block, &floor.case);
            let (metric, documented) = self.documented(&key)?;
            Some(self.spread(&key, metric)?.median / documented)
        });
        scale.unwrap_or(1.0)
    }
}
