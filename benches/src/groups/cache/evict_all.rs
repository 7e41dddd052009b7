//! B7: evicting a million entries by time.
//!
//! A trial inserts the entries of one ledger, unmeasured, then evicts round after round what was inserted, or put off, before the round
//! before began, until nothing waits. *Requeued*: each entry is expected to be read once; nine of ten are marked read, the tenth is looked
//! up and kept, so that it is put off for having been looked up and then as often as the queue allows. An operation is one entry.

use super::entry::empty;
use super::tested::{Make, Options, Tested};
use crate::runner::{Case, Effort, Mark, Sample, sample_between};

/// Whether entries are put off.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting {
    pub(super) requeue: bool,
}

impl Setting {
    pub(super) const ALL: [Self; 2] = [Self { requeue: false }, Self { requeue: true }];

    pub(super) fn name(self) -> &'static str {
        if self.requeue { "evict all, a tenth requeued" } else { "evict all" }
    }

    fn trial<C: Tested>(self, entries: u64) -> Sample {
        const ROUND: u64 = 1_000;
        let cache = C::open(Options { max_requeues: 5, extend_recently_accessed: true });
        let data = empty();
        let mut writer = cache.writer();
        let mut kept = Vec::new();
        for id in 0..entries.cast_signed() {
            let position = (0, id);
            cache.insert(&mut writer, position, C::value(position, &data), self.requeue.into(), 1);
        }
        drop(writer);
        for position in (0..entries.cast_signed()).map(|id| (0, id)).filter(|_| self.requeue) {
            if position.1 % 10 == 0 {
                kept.extend(cache.get(position));
            } else {
                cache.mark_read(position);
            }
        }
        let start = Mark::now();
        let (mut evicted, mut now) = (0, ROUND);
        while !cache.is_drained() {
            evicted += cache.evict_before(now, now + ROUND);
            now += ROUND;
            assert!(now < 100 * ROUND, "every entry leaves within a few rounds");
        }
        let end = Mark::now();
        assert_eq!(evicted, entries, "each entry is evicted once");
        sample_between(start, end, entries)
    }
}

/// A case that evicts everything.
impl Make for Setting {
    type Made = Case;

    fn make<C: Tested>(&self, name: &'static str) -> Case {
        let setting = *self;
        Case::new(name, move |effort: Effort| setting.trial::<C>(effort.pick(1_000_000, 20_000)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::peers::{Dash, Tree};
    use super::*;

    #[test]
    fn everything_leaves_whether_it_is_put_off_or_not() {
        for setting in Setting::ALL {
            setting.trial::<Tree>(1_000);
            setting.trial::<Dash>(1_000);
        }
    }
}
