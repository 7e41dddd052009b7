//! B3: filling a cache and evicting all of it.
//!
//! An operation makes a new writer, inserts the entries of a batch, which were made before and have one byte each, and evicts by weight
//! as many bytes as there are entries. That must evict every entry and leave the queue empty. *Requeue*: each entry is expected to be
//! read once, so it is put off once and leaves in the second round.
//!
//! The [floor](floor::cycle) allocates as many entries and drops them, whether they are put off here or not.

use super::entry::{Position, one_byte};
use super::floor;
use super::tested::{Make, Options, Tested};
use crate::runner::{Case, Mark, sample_between};

/// How many entries, and whether they are put off once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting {
    pub(super) batch: u64,
    pub(super) requeue: bool,
}

impl Setting {
    pub(super) const ALL: [Self; 4] = [
        Self { batch: 100, requeue: false },
        Self { batch: 100, requeue: true },
        Self { batch: 1_000, requeue: false },
        Self { batch: 1_000, requeue: true },
    ];

    pub(super) fn name(self) -> String {
        format!("insert and evict {}{}", self.batch, if self.requeue { ", requeued once" } else { "" })
    }

    /// The floor, with as many entries.
    pub(super) fn floor(self, name: &str) -> Case {
        floor::cycle(name, self.batch, ENTRIES)
    }

    /// Gate and goal of ours, divided by the floor.
    pub(super) fn bounds(self) -> (f64, f64) {
        if self.requeue { (2.2, 1.8) } else { (1.2, 1.0) }
    }
}

/// Entries inserted in a full trial.
const ENTRIES: u64 = 200_000;

/// A case that fills and evicts; its operation is one entry.
impl Make for Setting {
    type Made = Case;

    fn make<C: Tested>(&self, name: &'static str) -> Case {
        let setting = *self;
        let mut opened = None;
        Case::new(name, move |effort| {
            let cycle = opened.get_or_insert_with(|| Cycle::<C>::open(setting));
            let cycles = effort.scale(ENTRIES).div_ceil(setting.batch);
            (0..cycles.div_ceil(8)).for_each(|_| cycle.run());
            let start = Mark::now();
            (0..cycles).for_each(|_| cycle.run());
            sample_between(start, Mark::now(), cycles * setting.batch)
        })
    }
}

struct Cycle<C: Tested> {
    cache: C,
    entries: Vec<(Position, C::Value)>,
    expected: u32,
}

impl<C: Tested> Cycle<C> {
    fn open(setting: Setting) -> Self {
        let data = one_byte();
        let entry = |id| ((0, id), C::value((0, id), &data));
        Self {
            cache: C::open(Options { max_requeues: 1, extend_recently_accessed: false }),
            entries: (0..setting.batch.cast_signed()).map(entry).collect(),
            expected: setting.requeue.into(),
        }
    }

    fn run(&self) {
        let mut writer = self.cache.writer();
        for (position, value) in &self.entries {
            self.cache.insert(&mut writer, *position, value.clone(), self.expected, 1);
        }
        drop(writer);
        let count = self.entries.len() as u64;
        let evicted = self.cache.evict_weight(count, 2);
        assert_eq!(evicted, count, "every entry is evicted");
        assert!(self.cache.is_drained(), "and none waits");
    }
}

#[cfg(test)]
mod tests {
    use super::super::peers::every_peer;
    use super::*;
    use crate::runner::Effort;

    #[test]
    fn every_peer_and_the_floor_go_through_the_cycle() {
        for setting in Setting::ALL {
            for mut case in every_peer(&setting) {
                case.trial(Effort::Smoke);
            }
            setting.floor("floor").trial(Effort::Smoke);
        }
    }
}
