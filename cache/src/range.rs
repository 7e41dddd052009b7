//! Ranges of positions, whatever their bounds.

use std::ops::{Bound, RangeBounds};

use crate::bits::between;
use crate::index::PageKey;
use crate::size::PAGE_SLOTS;

/// A position: ledger and entry. All values of both are positions.
pub type Position = (i64, i64);

/// The first and the last position of a range that has some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) first: Position,
    pub(crate) last: Position,
}

impl Span {
    /// All positions.
    pub(crate) const ALL: Self = Self { first: (i64::MIN, i64::MIN), last: (i64::MAX, i64::MAX) };

    /// The positions of a ledger.
    pub(crate) const fn ledger(ledger: i64) -> Self {
        Self { first: (ledger, i64::MIN), last: (ledger, i64::MAX) }
    }

    /// The positions of a range; none if it is empty, or ends before it begins.
    #[inline]
    pub(crate) fn of(range: &impl RangeBounds<Position>) -> Option<Self> {
        let first = match range.start_bound() {
            Bound::Included(first) => *first,
            Bound::Excluded(before) => after(*before)?,
            Bound::Unbounded => Self::ALL.first,
        };
        let last = match range.end_bound() {
            Bound::Included(last) => *last,
            Bound::Excluded(end) => before(*end)?,
            Bound::Unbounded => Self::ALL.last,
        };
        (first <= last).then_some(Self { first, last })
    }

    /// The pages of the first and the last position.
    #[inline]
    pub(crate) fn pages(&self) -> (PageKey, PageKey) {
        (PageKey::of(self.first).0, PageKey::of(self.last).0)
    }

    /// Which slots of a page are in the range, of which the page has some.
    #[inline]
    pub(crate) fn slots(&self, page: PageKey) -> u64 {
        let clipped = |at: Position, whole: u32| match PageKey::of(at) {
            (key, slot) if key == page => slot,
            _ => whole,
        };
        between(clipped(self.first, 0), clipped(self.last, PAGE_SLOTS - 1))
    }
}

/// The position after this one, in the order of positions.
fn after((ledger, entry): Position) -> Option<Position> {
    match entry.checked_add(1) {
        Some(entry) => Some((ledger, entry)),
        None => Some((ledger.checked_add(1)?, i64::MIN)),
    }
}

/// The position before this one.
#[inline]
fn before((ledger, entry): Position) -> Option<Position> {
    match entry.checked_sub(1) {
        Some(entry) => Some((ledger, entry)),
        None => Some((ledger.checked_sub(1)?, i64::MAX)),
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn bounds_of_all_kinds_meet_at_the_edges_of_ledgers() {
        assert_eq!(Span::of(&..), Some(Span::ALL));
        assert_eq!(Span::of(&((1, 0)..(1, 0))), None);
        assert_eq!(Span::of(&((1, 1)..=(1, 0))), None);
        assert_eq!(Span::of(&(..(2, i64::MIN))), Some(Span { first: Span::ALL.first, last: (1, i64::MAX) }));
        let above = (Bound::Excluded((1, i64::MAX)), Bound::Unbounded);
        assert_eq!(Span::of(&above), Some(Span { first: (2, i64::MIN), last: Span::ALL.last }));
        assert_eq!(Span::of(&(Bound::Excluded(Span::ALL.last), Bound::Unbounded)), None);
        assert_eq!(Span::of(&(..Span::ALL.first)), None);
    }

    #[test]
    fn a_range_clips_its_first_and_last_page_only() {
        let span = Span { first: (1, -3), last: (1, 129) };
        let slots = |number| span.slots(PageKey { ledger: 1, number });
        assert_eq!(slots(-1), 0b111 << 61);
        assert_eq!(slots(0), u64::MAX);
        assert_eq!(slots(2), 0b11);
    }
}
