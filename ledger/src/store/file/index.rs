//! Where the entries of each ledger are: sparse, by segment.

use std::collections::BTreeMap;

use super::codec::Reader;

/// A point is kept for entries that are so far apart.
const SPARSE: u32 = 64 * 1024;
const MAGIC: [u8; 8] = *b"FOLIOIDX";
const RUN: usize = 36;

/// The entries of a ledger in one segment, which follow each other; others may be between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// The number of the first entry.
    pub(crate) first: i64,
    /// The number after the last one.
    pub(crate) next: i64,
    /// Where the record of the last one ends.
    pub(crate) end: u32,
    /// Some entries, the first one among them: how far from that, and where.
    points: Vec<(u32, u32)>,
}

impl Run {
    pub(crate) fn new(first: i64) -> Self {
        Self { first, next: first, end: 0, points: Vec::new() }
    }

    /// Adds the next entry.
    pub(crate) fn push(&mut self, offset: u32, end: u32) {
        if self.points.last().is_none_or(|&(_, last)| offset - last >= SPARSE) {
            let distance = u32::try_from(self.next - self.first).expect("a segment has fewer entries");
            self.points.push((distance, offset));
        }
        self.next += 1;
        self.end = end;
    }

    /// Where to look for an entry of the run: the last known place that is not behind it.
    pub(crate) fn locate(&self, entry: i64) -> u32 {
        let distance = entry - self.first;
        let after = self.points.partition_point(|&(of, _)| i64::from(of) <= distance);
        self.points[after.saturating_sub(1)].1
    }

    /// Of so many entries from this one on, those after it whose places are known.
    pub(crate) fn points_after(&self, entry: i64, most: usize) -> Vec<(i64, u32)> {
        let known = self.points.iter().map(|&(distance, offset)| (self.first + i64::from(distance), offset));
        let end = entry.saturating_add(i64::try_from(most).unwrap_or(i64::MAX));
        let from = self.points.partition_point(|&(distance, _)| self.first + i64::from(distance) <= entry);
        known.skip(from).take_while(|&(of, _)| of < end).collect()
    }

    /// Where the first entry is.
    pub(crate) fn begin(&self) -> u32 {
        self.points[0].1
    }
}

/// The runs of one segment, as its records are met: one a ledger, unless entries are missing.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Runs(pub(crate) BTreeMap<i64, Vec<Run>>);

impl Runs {
    /// Adds an entry.
    pub(crate) fn push(&mut self, ledger: i64, entry: i64, offset: u32, end: u32) {
        let runs = self.0.entry(ledger).or_default();
        if runs.last().is_none_or(|run| run.next != entry) {
            runs.push(Run::new(entry));
        }
        if let Some(run) = runs.last_mut() {
            run.push(offset, end);
        }
    }

    /// Forgets a ledger that was deleted.
    pub(crate) fn forget(&mut self, ledger: i64) {
        self.0.remove(&ledger);
    }
}

/// The index of a sealed segment, as it is kept beside it. Whatever is wrong with it, the segment tells the same.
pub(crate) fn encode(generation: u64, end: u32, runs: &[(i64, &Run)]) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(generation.to_le_bytes());
    bytes.extend(end.to_le_bytes());
    bytes.extend(u32::try_from(runs.len()).expect("a segment has fewer ledgers").to_le_bytes());
    for (ledger, run) in runs {
        bytes.extend(ledger.to_le_bytes());
        bytes.extend(run.first.to_le_bytes());
        bytes.extend(run.next.to_le_bytes());
        bytes.extend(run.end.to_le_bytes());
        bytes.extend(u32::try_from(run.points.len()).expect("a segment has fewer entries").to_le_bytes());
        for (distance, offset) in &run.points {
            bytes.extend(distance.to_le_bytes());
            bytes.extend(offset.to_le_bytes());
        }
    }
    bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
    bytes
}

/// The index of this generation, if it is one; and where the segment ended when it was made.
pub(crate) fn decode(bytes: &[u8], generation: u64) -> Option<(Runs, u32)> {
    let (body, crc) = bytes.split_last_chunk::<4>()?;
    if crc32c::crc32c(body) != u32::from_le_bytes(*crc) {
        return None;
    }
    let mut reader = Reader(body);
    if reader.bytes(8)? != MAGIC || reader.u64()? != generation {
        return None;
    }
    let all_end = reader.u32()?;
    let mut runs = Runs::default();
    for _ in 0..reader.count(RUN)? {
        let ledger = reader.i64()?;
        let (first, next, end) = (reader.i64()?, reader.i64()?, reader.u32()?);
        let mut points = Vec::new();
        for _ in 0..reader.count(8)? {
            points.push((reader.u32()?, reader.u32()?));
        }
        let rising = points.windows(2).all(|pair| pair[0] < pair[1] && pair[0].1 < pair[1].1);
        let begins = points.first().is_some_and(|point| point.0 == 0);
        let ends = points.last().is_some_and(|point| point.1 < end);
        if !(rising && begins && ends && end <= all_end && first >= 0 && first < next) {
            return None;
        }
        runs.0.entry(ledger).or_default().push(Run { first, next, end, points });
    }
    reader.0.is_empty().then_some((runs, all_end))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

    use super::*;

    fn runs() -> Runs {
        let mut runs = Runs::default();
        for n in 0..3000 {
            let offset = 8192 + u32::try_from(n).unwrap() * 200;
            runs.push(n % 3, 10 + n / 3, offset, offset + 200);
        }
        runs
    }

    #[test]
    fn an_entry_is_found_from_the_nearest_point_before_it() {
        let runs = runs();
        let [run] = &runs.0[&1][..] else { panic!("one run") };
        assert_eq!((run.first, run.next, run.begin()), (10, 1010, 8392));
        for entry in 10..1010 {
            let offset = 8192 + u32::try_from((entry - 10) * 3 + 1).unwrap() * 200;
            let found = run.locate(entry);
            assert!(found <= offset && offset - found < SPARSE + 600, "{entry}");
        }
        let points = run.points_after(10, usize::MAX);
        assert_eq!(points.len(), run.points.len() - 1);
        assert!(points.iter().all(|&(entry, offset)| run.locate(entry) == offset && entry > 10));
        assert_eq!(run.points_after(points[0].0 - 1, 2), points[..1]);
        assert_eq!(run.points_after(points[0].0 - 1, 1), []);
        assert!(run.points.len() < 20, "it is sparse");
    }

    #[test]
    fn what_does_not_follow_is_another_run() {
        let mut runs = runs();
        runs.push(1, 1012, 700_000, 700_200);
        runs.push(1, 1013, 700_200, 700_400);
        assert_eq!(
            runs.0[&1].iter().map(|run| (run.first, run.next)).collect::<Vec<_>>(),
            [(10, 1010), (1012, 1014)]
        );
        runs.forget(1);
        assert!(!runs.0.contains_key(&1));
    }

    #[test]
    fn each_flipped_bit_of_a_kept_index_is_seen() {
        let runs = runs();
        let all: Vec<_> = runs.0.iter().map(|(&ledger, runs)| (ledger, &runs[0])).collect();
        let bytes = encode(4, 700_000, &all);
        assert_eq!(decode(&bytes, 4), Some((runs, 700_000)));
        assert_eq!(decode(&bytes, 5), None);
        for length in 0..bytes.len() {
            assert_eq!(decode(&bytes[..length], 4), None);
        }
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&flipped, 4), None, "bit {bit}");
        }
    }
}
