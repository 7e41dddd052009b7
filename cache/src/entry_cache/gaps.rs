//! What is missing of a range, and how it is put in.

use crate::pending::drop_all;

/// A part of a range that was not found: the longest there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gap {
    pub(super) first: i64,
    pub(super) count: u32,
    /// How many entries before it were found.
    at: usize,
}

/// The gaps of a range between the entries that were found, which are in order.
pub(super) fn gaps(first: i64, count: u32, found: impl Iterator<Item = i64>) -> Vec<Gap> {
    let mut gaps = Vec::new();
    // How much of the range is looked at.
    let (mut done, mut at) = (0, 0);
    let mut gap_to = |done: u32, to: u32, at: usize| {
        if to > done {
            gaps.push(Gap { first: first.saturating_add(done.into()), count: to - done, at });
        }
    };
    for entry in found {
        let offset = u32::try_from(entry.abs_diff(first)).expect("what was found is in the range");
        gap_to(done, offset, at);
        (done, at) = (offset + 1, at + 1);
    }
    gap_to(done, count, at);
    gaps
}

/// What was found, with the parts that were missing, as far as there is no gap: what comes after a missing entry cannot be told, and is dropped.
pub(super) fn merge<T>(found: Vec<T>, gaps: &[Gap], parts: impl IntoIterator<Item = Vec<T>>) -> Vec<T> {
    let mut all = Vec::with_capacity(found.len() + gaps.len());
    let mut found = found.into_iter();
    let mut parts = gaps.iter().zip(parts);
    let mut before = 0;
    for (gap, mut part) in parts.by_ref() {
        all.extend(found.by_ref().take(gap.at - before));
        before = gap.at;
        if part.len() > gap.count as usize {
            drop_all(part.split_off(gap.count as usize));
        }
        let is_short = part.len() < gap.count as usize;
        all.extend(part);
        if is_short {
            drop_all(found);
            drop_all(parts.flat_map(|(_, part)| part));
            return all;
        }
    }
    all.extend(found);
    all
}
