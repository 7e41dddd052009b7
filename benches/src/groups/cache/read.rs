//! B4: reading a range.
//!
//! There are 16 ledgers with the entries of a range each; of every hundred entries the first so many are cached. An operation reads the
//! whole range of the next ledger. *Owned*: into a vector of positions and clones, which is dropped. *Visited*: each value in its place,
//! without a clone; the map behind a lock holds the lock meanwhile, which no cache could allow its callers. So ours is judged against
//! the owned range of that map either way. *Copied*: owned, and then a list with a place for every entry, with a copy of each that was
//! found, as the answer of a read has it; both are dropped.
//!
//! All values are an `Arc` of an entry.

use std::hint::black_box;

use super::entry::{Run, empty};
use super::peers::{LOCKED, SKIP_MAP, Skip, Tree, documented, every_peer};
use super::tested::{Make, Options, Tested};
use crate::runner::{Block, Case, Mark, Metric, sample_between};

pub(super) const VISITED: &str = ", visited";
const COPIED: &str = ", copied";

const LEDGERS: i64 = 16;

/// Documented CPU nanoseconds of the peers, of a range of 100 with all hits.
const DOCUMENTED: [f64; 7] = [3310.0, 1083.0, 5568.0, 2524.0, 6913.0, 6417.0, 24_885.0];

/// A length of ranges, and how much of each hundred entries is there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting {
    pub(super) batch: i64,
    pub(super) hits: i64,
}

impl Setting {
    pub(super) const ALL: [Self; 6] = [
        Self { batch: 100, hits: 100 },
        Self { batch: 100, hits: 10 },
        Self { batch: 100, hits: 0 },
        Self { batch: 1_000, hits: 100 },
        Self { batch: 1_000, hits: 10 },
        Self { batch: 1_000, hits: 0 },
    ];

    pub(super) fn name(self) -> String {
        let hits = match self.hits {
            0 => "no hits".to_owned(),
            100 => "all hits".to_owned(),
            some => format!("{some} % hits"),
        };
        format!("range of {}, {hits}", self.batch)
    }

    /// Ranges read in a full trial.
    fn operations(self) -> u64 {
        let hundreds = self.batch.unsigned_abs() / 100;
        match self.hits {
            0 => 200_000,
            100 => 20_000 / hundreds,
            _ => 100_000 / hundreds,
        }
    }

    fn fill<C: Tested>(self) -> C {
        let cache = C::open(Options::default());
        let data = empty();
        for ledger in 0..LEDGERS {
            let mut writer = cache.writer();
            for id in (0..self.batch).filter(|id| id % 100 < self.hits) {
                let position = (ledger, id);
                cache.insert(&mut writer, position, C::value(position, &data), 0, 1);
            }
        }
        cache
    }

    /// A case that reads all ranges in turn; `read` says how many entries it found.
    fn case<C: Tested>(self, name: String, mut read: impl FnMut(&C, Run) -> u64 + 'static) -> Case {
        let found = self.batch.unsigned_abs() * self.hits.unsigned_abs() / 100;
        let mut cache = None;
        Case::new(name, move |effort| {
            let cache = cache.get_or_insert_with(|| self.fill::<C>());
            let operations = effort.scale(self.operations());
            let mut run = |operations: u64| {
                let ledgers = (0..LEDGERS).cycle();
                for (_, ledger) in (0..operations).zip(ledgers) {
                    let count = read(cache, black_box(Run { first: (ledger, 0), count: self.batch }));
                    assert_eq!(count, found, "every entry is found once");
                }
            };
            run(operations.div_ceil(8));
            let start = Mark::now();
            run(operations);
            sample_between(start, Mark::now(), operations)
        })
    }

    pub(super) fn visited<C: Tested>(self, name: &str) -> Case {
        self.case(format!("{name}{VISITED}"), |cache: &C, run| {
            let mut count = 0;
            cache.visited(run, |value| {
                black_box(value);
                count += 1;
            });
            count
        })
    }

    /// Into a list with a place for every entry.
    pub(super) fn copied<C: Tested>(self, name: &str) -> Case {
        self.case(format!("{name}{COPIED}"), |cache: &C, run| {
            let mut list: Vec<Option<C::Value>> = Vec::new();
            list.resize_with(usize::try_from(run.count).unwrap_or(0), || None);
            let found = cache.owned(run);
            for (position, value) in &found {
                list[usize::try_from(position.1 - run.first.1).unwrap_or(0)] = Some(value.clone());
            }
            drop(black_box(list));
            found.len() as u64
        })
    }

    /// The block with these cases of ours in front.
    pub(super) fn block(self, ours: Vec<Case>) -> Block {
        let mut cases = ours;
        match (self.batch, self.hits) {
            (_, 100) => {
                let figures = if self.batch == 100 { DOCUMENTED } else { [f64::NAN; 7] };
                cases.extend(documented(every_peer(&self), figures));
            }
            (batch, hits) => {
                // A map without order looks for a hundred positions to find ten or none: nobody would use it so.
                let (skip, tree) = match (batch, hits) {
                    (100, 0) => (Some(35.0), Some(21.0)),
                    (100, _) => (Some(333.0), Some(136.0)),
                    _ => (None, None),
                };
                let add = |case: Case, figure: Option<f64>| match figure {
                    Some(figure) => case.documented(Metric::Cpu, figure),
                    None => case,
                };
                cases.push(add(self.make::<Skip>(SKIP_MAP), skip));
                cases.push(add(self.make::<Tree>(LOCKED), tree));
            }
        }
        cases.push(self.visited::<Tree>(LOCKED));
        cases.push(self.copied::<Tree>(LOCKED));
        Block::new(self.name(), cases)
    }
}

/// A case that collects.
impl Make for Setting {
    type Made = Case;

    fn make<C: Tested>(&self, name: &'static str) -> Case {
        self.case(name.to_owned(), |cache: &C, run| black_box(cache.owned(run)).len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::Effort;

    #[test]
    fn every_peer_finds_every_range() {
        for setting in Setting::ALL {
            for case in &mut setting.block(Vec::new()).cases {
                case.trial(Effort::Smoke);
            }
        }
    }
}
