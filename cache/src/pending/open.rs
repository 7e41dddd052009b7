//! The reads that can be joined, and how a range is covered by them.

use std::collections::BTreeMap;
use std::ops::Range;

use super::Done;

/// Ledger, first and last entry.
type Extent = (i64, i64, i64);

/// Who waits for a part of a read.
pub(super) struct Reader<V> {
    /// How many entries of the read come before the part.
    skip: usize,
    count: usize,
    pub(super) done: Done<V>,
}

impl<V> Reader<V> {
    /// The reader's part of so many entries that there are.
    pub(super) fn part(&self, there: usize) -> Range<usize> {
        self.skip.min(there)..self.skip.saturating_add(self.count).min(there)
    }
}

/// A read that storage has not answered yet.
struct Read<V> {
    extent: Extent,
    readers: Vec<Reader<V>>,
}

/// A part of a range, and the read that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) read: u64,
    pub(super) first: i64,
    pub(super) last: i64,
    /// Whether the read was opened for it.
    pub(super) is_new: bool,
}

impl Segment {
    /// How many entries it has.
    pub(super) fn count(&self) -> usize {
        count(self.first, self.last)
    }
}

/// How many entries there are from the first to the last.
fn count(first: i64, last: i64) -> usize {
    usize::try_from(last.abs_diff(first)).unwrap_or(usize::MAX).saturating_add(1)
}

/// What is under way.
pub(super) struct Open<V> {
    /// All reads by number, detached ones among them.
    reads: BTreeMap<u64, Read<V>>,
    /// Those that can be joined: no two of the same extent.
    joinable: BTreeMap<Extent, u64>,
    /// No open read has more entries than one more than this.
    longest: u64,
    next: u64,
}

impl<V> Default for Open<V> {
    fn default() -> Self {
        Self { reads: BTreeMap::new(), joinable: BTreeMap::new(), longest: 0, next: 0 }
    }
}

impl<V> Open<V> {
    /// Cuts a range into parts that follow each other, of reads that are open or are opened for it.
    pub(super) fn cover(&mut self, ledger: i64, first: i64, last: i64) -> Vec<Segment> {
        if let Some(&read) = self.joinable.get(&(ledger, first, last)) {
            return vec![Segment { read, first, last, is_new: false }];
        }
        let mut segments = Vec::new();
        let mut at = first;
        loop {
            let segment = match self.reaching(ledger, at) {
                Some((read, to)) => Segment { read, first: at, last: to.min(last), is_new: false },
                None => self.begin(ledger, at, self.gap_end(ledger, at, last)),
            };
            segments.push(segment);
            if segment.last == last {
                return segments;
            }
            at = segment.last + 1;
        }
    }

    /// The open read that has this entry and goes on the furthest, and its last entry.
    fn reaching(&self, ledger: i64, at: i64) -> Option<(u64, i64)> {
        let from = at.saturating_sub_unsigned(self.longest);
        let nearby = self.joinable.range((ledger, from, i64::MIN)..=(ledger, at, i64::MAX));
        nearby
            .filter(|((.., last), _)| *last >= at)
            .map(|((.., last), read)| (*read, *last))
            .max_by_key(|(_, last)| *last)
    }

    /// The last entry before the next open read.
    fn gap_end(&self, ledger: i64, at: i64, last: i64) -> i64 {
        let mut later = self.joinable.range((ledger, at, i64::MAX)..=(ledger, last, i64::MAX));
        later.next().map_or(last, |((_, next, _), _)| next - 1)
    }

    /// Opens a read.
    fn begin(&mut self, ledger: i64, first: i64, last: i64) -> Segment {
        let (read, extent) = (self.next, (ledger, first, last));
        self.next += 1;
        self.longest = self.longest.max(last.abs_diff(first));
        self.reads.insert(read, Read { extent, readers: Vec::new() });
        self.joinable.insert(extent, read);
        Segment { read, first, last, is_new: true }
    }

    /// Has a reader wait for a segment, which was found under this lock.
    pub(super) fn join(&mut self, segment: Segment, done: Done<V>) {
        let read = self.reads.get_mut(&segment.read).expect("what is open has no answer yet");
        let (_, first, _) = read.extent;
        let skip = usize::try_from(segment.first.abs_diff(first)).unwrap_or(usize::MAX);
        read.readers.push(Reader { skip, count: segment.count(), done });
    }

    /// Takes a read out; its readers. If it has failed, nobody joins another one of its ledger: they may fail alike.
    pub(super) fn take(&mut self, read: u64, failed: bool) -> Option<Vec<Reader<V>>> {
        let Read { extent, readers } = self.reads.remove(&read)?;
        if failed {
            self.detach(extent.0);
        }
        if self.joinable.get(&extent) == Some(&read) {
            self.joinable.remove(&extent);
            self.forget_longest();
        }
        Some(readers)
    }

    /// Nobody joins a ledger's reads any more.
    pub(super) fn detach(&mut self, ledger: i64) {
        self.joinable.retain(|(other, ..), _| *other != ledger);
        self.forget_longest();
    }

    /// Nobody joins any of the reads any more.
    pub(super) fn detach_all(&mut self) {
        self.joinable.clear();
        self.forget_longest();
    }

    /// One long read shall not make the look-ups of all later ones long.
    fn forget_longest(&mut self) {
        if self.joinable.is_empty() {
            self.longest = 0;
        }
    }
}
