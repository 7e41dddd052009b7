//! B1: inserting at the tail of a log while its head is trimmed.
//!
//! An operation makes an entry and inserts it at the next position: entries 0 to 49,999 of ledger 0, then those of ledger 1, and so on.
//! Once in a hundred operations everything before the cached entries is removed, by a range from before the first ledger, and the
//! removal queue drops what it then has at its head; nothing expires. *Trimmed at every insert*: one entry is cached, as of a reader
//! that has caught up, and the range names the ledger of the entry that goes. *Two readers*: each entry is expected to be read once, and
//! two threads that follow the tail mark it, each every other entry; the figure is of the writer's thread alone.

use std::hint::{black_box, spin_loop};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use bytes::Bytes;
use crossbeam_utils::CachePadded;

use super::entry::{Cut, Run, empty, numbered};
use super::tested::{Make, Options, Tested};
use crate::runner::{Case, Effort, Mark, Sample, ThreadMark, ThreadTime, sample_between};

/// How much is cached, and how often it is trimmed to that.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting {
    /// Entries that are cached after a trim.
    pub(super) cached: u64,
    /// Inserts before each trim.
    pub(super) every: u64,
    /// Operations of a full trial.
    pub(super) operations: u64,
}

/// Where a log grows.
pub(super) struct Head<C: Tested> {
    writer: C::Writer,
    data: Bytes,
    /// Entries inserted so far.
    total: u64,
    setting: Setting,
}

impl<C: Tested> Head<C> {
    /// The number of the next entry; the cached ones are those before it.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    #[inline]
    fn insert(&mut self, cache: &C, expected: u32) {
        let position = numbered(self.total);
        let value = C::value(position, black_box(&self.data));
        cache.insert(&mut self.writer, position, value, expected, 1);
        self.total += 1;
    }

    /// Trims, and drops what was removed.
    #[inline]
    fn trim(&self, cache: &C) {
        let end = self.total - self.setting.cached;
        let count = self.setting.every.min(end);
        if count == 0 {
            return;
        }
        let found = Run { first: numbered(end - count), count: count.cast_signed() };
        let cut = if self.setting.every == 1 {
            Cut::run(found)
        } else {
            Cut { range: (-1, 0)..numbered(end), found }
        };
        cache.remove(&cut);
        cache.evict_before(0, 1);
    }

    /// As many inserts as a trim needs.
    #[inline]
    pub(super) fn insert_some(&mut self, cache: &C, expected: u32) {
        for _ in 0..self.setting.every {
            self.insert(cache, expected);
        }
    }

    /// Inserts this many, a multiple of the inserts before a trim.
    #[inline]
    pub(super) fn run(&mut self, cache: &C, operations: u64) {
        for _ in 0..operations / self.setting.every {
            self.insert_some(cache, 0);
            self.trim(cache);
        }
    }
}

/// A cache and where it grows.
pub(super) struct Tail<C: Tested> {
    pub(super) cache: C,
    pub(super) head: Head<C>,
}

impl<C: Tested> Tail<C> {
    /// Filled as after a trim.
    pub(super) fn open(setting: Setting) -> Self {
        let cache = C::open(Options::default());
        let mut head = Head { writer: cache.writer(), data: empty(), total: 0, setting };
        for _ in 0..setting.cached.div_ceil(setting.every) {
            head.insert_some(&cache, 0);
        }
        head.trim(&cache);
        Self { cache, head }
    }

    fn run(&mut self, operations: u64) {
        self.head.run(&self.cache, operations);
    }
}

/// The operations of a trial, whole trims of them.
fn whole(setting: Setting, effort: Effort) -> u64 {
    effort.scale(setting.operations).next_multiple_of(setting.every)
}

/// A case that inserts.
impl Make for Setting {
    type Made = Case;

    fn make<C: Tested>(&self, name: &'static str) -> Case {
        let setting = *self;
        let mut tail = None;
        Case::new(name, move |effort| {
            let tail: &mut Tail<C> = tail.get_or_insert_with(|| Tail::open(setting));
            let operations = whole(setting, effort);
            tail.run(operations.div_ceil(8).next_multiple_of(setting.every));
            let start = Mark::now();
            tail.run(operations);
            sample_between(start, Mark::now(), operations)
        })
    }
}

/// A reader that marks every other entry.
struct Marking<'a, C> {
    cache: &'a C,
    written: &'a AtomicU64,
    over: &'a AtomicBool,
    /// How far this reader is.
    marked: &'a AtomicU64,
    parity: u64,
}

impl<C: Tested> Marking<'_, C> {
    fn run(&self, from: u64) {
        let mut next = from;
        let mut idle = 0_u32;
        // Relaxed: nothing is read after the end.
        while !self.over.load(Ordering::Relaxed) {
            // Acquire: the entries below were inserted; pairs with the writer's Release.
            let end = self.written.load(Ordering::Acquire);
            if next == end {
                idle += 1;
                if idle.is_multiple_of(64) {
                    thread::yield_now();
                } else {
                    spin_loop();
                }
                continue;
            }
            (next..end)
                .filter(|number| number % 2 == self.parity)
                .for_each(|number| self.cache.mark_read(numbered(number)));
            next = end;
            // Release: the writer may remove these; pairs with its Acquire.
            self.marked.store(next, Ordering::Release);
        }
    }
}

/// A case that inserts entries which two readers mark.
///
/// The writer waits, unmeasured, for a reader that is half of the cached entries behind, so that each entry is marked before it goes.
pub(super) fn read_by_two<C: Tested>(name: &'static str, setting: Setting) -> Case {
    let mut tail = None;
    Case::new(name, move |effort| {
        let tail: &mut Tail<C> = tail.get_or_insert_with(|| Tail::open(setting));
        trial_with_readers(tail, whole(setting, effort))
    })
}

fn trial_with_readers<C: Tested>(tail: &mut Tail<C>, operations: u64) -> Sample {
    let Tail { cache, head } = tail;
    let (cache, from, half, every) = (&*cache, head.total, head.setting.cached / 2, head.setting.every);
    let written = CachePadded::new(AtomicU64::new(from));
    let over = AtomicBool::new(false);
    let marked = [(); 2].map(|()| CachePadded::new(AtomicU64::new(from)));
    let start_line = Barrier::new(3);
    thread::scope(|scope| {
        for (parity, marked) in (0..).zip(&marked) {
            let reader = Marking { cache, written: &written, over: &over, marked, parity };
            let start_line = &start_line;
            scope.spawn(move || {
                start_line.wait();
                reader.run(from);
            });
        }
        start_line.wait();
        let mut waited = ThreadTime::default();
        let counted = Mark::now();
        let start = ThreadMark::now();
        for _ in 0..operations / every {
            head.insert_some(cache, 1);
            // Release: readers may look for these; pairs with their Acquire.
            written.store(head.total, Ordering::Release);
            head.trim(cache);
            // Acquire: pairs with the readers' Release.
            let is_behind =
                |marked: &CachePadded<AtomicU64>| marked.load(Ordering::Acquire) + half < head.total;
            if marked.iter().any(is_behind) {
                let since = ThreadMark::now();
                while marked.iter().any(is_behind) {
                    thread::yield_now();
                }
                waited = waited.and(since.elapsed());
            }
        }
        let used = start.elapsed().without(waited).sample(operations);
        let counted = sample_between(counted, Mark::now(), operations);
        // Relaxed: as the reader's load.
        over.store(true, Ordering::Relaxed);
        let counted = counted.iter().filter(|(metric, _)| metric.is_counted());
        counted.fold(used, |sample, (metric, value)| sample.with(metric, value))
    })
}

#[cfg(test)]
mod tests {
    use super::super::peers::{Dash, Skip, Tree};
    use super::*;

    fn trims_to_what_is_cached<C: Tested>() {
        // A map without order is told of one ledger's entries, so only whole hundreds may go on into the next.
        for (cached, every, operations) in
            [(1_000, 100, 51_300), (1, 100, 700), (63, 100, 700), (1, 1, 51_300)]
        {
            let mut tail = Tail::<C>::open(Setting { cached, every, operations: 0 });
            tail.run(operations);
            let ledgers = 0..=numbered(tail.head.total).0;
            let found = ledgers
                .map(|ledger| tail.cache.owned(Run { first: (ledger, 0), count: 50_000 }).len() as u64);
            assert_eq!(found.sum::<u64>(), cached, "trimmed after {every}");
        }
    }

    #[test]
    fn the_tail_is_trimmed_to_what_is_cached() {
        trims_to_what_is_cached::<Tree>();
        trims_to_what_is_cached::<Skip>();
        trims_to_what_is_cached::<Dash>();
    }

    #[test]
    fn readers_mark_what_they_follow() {
        let setting = Setting { cached: 1_000, every: 100, operations: 0 };
        let mut tail = Tail::<Tree>::open(setting);
        trial_with_readers(&mut tail, 10_000);
        let run = Run { first: numbered(tail.head.total - 1_000), count: 500 };
        let left = tail.cache.owned(run).iter().filter(|(_, entry)| entry.is_expected()).count();
        assert_eq!(left, 0, "the writer waited for the readers to be at most 500 behind");
    }
}
