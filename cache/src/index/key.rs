//! Where a page stands: its ledger and number, and the way to it.

use crate::range::Position;
use crate::size::{NODE_BITS, PAGE_BITS};

/// Bits of a head's words that name leaves; the other half of them names further heads.
const HEAD_BITS: u32 = NODE_BITS - 1;

/// The first word of a head that names another head.
pub(super) const FURTHER: usize = 1 << HEAD_BITS;

/// A ledger, and the number of a page in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PageKey {
    pub(crate) ledger: i64,
    /// The entry ids of its slots without their lowest bits; as negative as they are.
    pub(crate) number: i64,
}

/// The part of a number that picks a word, as an index.
#[expect(clippy::cast_sign_loss, clippy::cast_possible_truncation, reason = "masked to a few bits")]
const fn pick(number: i64, bits: u32) -> usize {
    (number & ((1 << bits) - 1)) as usize
}

/// A place among the words of a node, as a part of a number.
#[expect(clippy::cast_possible_wrap, reason = "a node has few words")]
const fn place(at: usize) -> i64 {
    at as i64
}

impl PageKey {
    /// The page of a position, and its slot there.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "masked to a few bits")]
    pub(crate) fn of((ledger, entry): Position) -> (Self, u32) {
        (Self { ledger, number: entry >> PAGE_BITS }, pick(entry, PAGE_BITS) as u32)
    }

    /// The position of a slot.
    #[inline]
    pub(crate) fn position(self, slot: u32) -> Position {
        (self.ledger, self.number << PAGE_BITS | i64::from(slot))
    }

    /// The region, which has a head to itself.
    #[inline]
    pub(super) fn region(self) -> i64 {
        self.number >> (NODE_BITS + HEAD_BITS)
    }

    /// Which word of the head names the leaf.
    #[inline]
    pub(super) fn leaf_at(self) -> usize {
        pick(self.number >> NODE_BITS, HEAD_BITS)
    }

    /// Which word of the leaf names the page.
    #[inline]
    pub(super) fn page_at(self) -> usize {
        pick(self.number, NODE_BITS)
    }

    /// The first page of a region, and the last.
    pub(super) fn bounds((ledger, region): (i64, i64)) -> (Self, Self) {
        let first = region << (NODE_BITS + HEAD_BITS);
        let last = first | ((1 << (NODE_BITS + HEAD_BITS)) - 1);
        (Self { ledger, number: first }, Self { ledger, number: last })
    }

    /// The page that the words at these places lead to in a region.
    pub(super) fn at((ledger, region): (i64, i64), leaf_at: usize, page_at: usize) -> Self {
        let leaf = region << HEAD_BITS | place(leaf_at);
        Self { ledger, number: leaf << NODE_BITS | place(page_at) }
    }
}

/// The way to the head of a region: which word to follow, level by level.
///
/// It depends on the ledger and the region alone, so that a region has one place where it can be.
pub(super) struct Path(u64);

/// An odd constant with well-mixed bits: the golden ratio.
const MIX: u64 = 0x9E37_79B9_7F4A_7C15;

impl Path {
    #[inline]
    #[expect(clippy::cast_sign_loss, reason = "only the bits count")]
    pub(super) fn to((ledger, region): (i64, i64)) -> Self {
        // One after the other: regions whose ledgers differ as they do have ways of their own.
        let mixed = (ledger as u64).wrapping_mul(MIX);
        let mixed = (mixed ^ mixed >> 32 ^ region as u64).wrapping_mul(MIX);
        Self((mixed ^ mixed >> 32).wrapping_mul(MIX))
    }

    /// Which word of the root.
    #[inline]
    pub(super) fn first(&self) -> usize {
        (self.0 >> (64 - NODE_BITS)) as usize
    }

    /// Which word of the next head.
    #[inline]
    pub(super) fn next(&mut self) -> usize {
        self.0 = (self.0 ^ self.0 >> 29).wrapping_mul(MIX).wrapping_add(1);
        FURTHER + (self.0 >> (64 - HEAD_BITS)) as usize
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn regions_that_differ_as_their_ledgers_do_have_ways_of_their_own() {
        let all: [fn(i64) -> (i64, i64); 6] = [
            |at| (at, 0),
            |at| (1, -at),
            |at| (at << 32, at),
            |at| (at, at << 32),
            |at| (at, at),
            |at| ((at & 31) << 32, at >> 5),
        ];
        for of in all {
            let ways: BTreeSet<_> = (0..1024)
                .map(|at| {
                    let mut path = Path::to(of(at));
                    (path.first(), path.next(), path.next())
                })
                .collect();
            assert!(ways.len() > 1000, "{} of 65536 ways for 1024 regions", ways.len());
        }
    }
}
