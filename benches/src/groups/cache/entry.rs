//! What is cached, and where.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use bytes::Bytes;

/// A ledger and an entry of it.
pub(super) type Position = (i64, i64);

/// Entries of a ledger before the next one begins.
const LEDGER: u64 = 50_000;

/// The position of the entry that is inserted as this number, from 0.
#[inline]
pub(super) fn numbered(number: u64) -> Position {
    ((number / LEDGER).cast_signed(), (number % LEDGER).cast_signed())
}

/// Consecutive entries of one ledger.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    /// The first of them.
    pub(super) first: Position,
    /// How many there are.
    pub(super) count: i64,
}

impl Run {
    /// What follows the last one.
    pub(super) fn end(self) -> Position {
        (self.first.0, self.first.1 + self.count)
    }

    pub(super) fn range(self) -> Range<Position> {
        self.first..self.end()
    }

    pub(super) fn positions(self) -> impl Iterator<Item = Position> {
        (self.first.1..self.end().1).map(move |entry| (self.first.0, entry))
    }
}

/// What is removed.
#[derive(Clone, Debug)]
pub(super) struct Cut {
    /// What is named.
    pub(super) range: Range<Position>,
    /// What there is in it: a map without order has to be told.
    pub(super) found: Run,
}

impl Cut {
    /// Names what there is.
    pub(super) fn run(run: Run) -> Self {
        Self { range: run.range(), found: run }
    }
}

/// An entry as an object of its own: its position, its data, and how often it will be read.
#[derive(Debug)]
pub(super) struct Entry {
    position: Position,
    data: Bytes,
    expected: AtomicI32,
    removed: AtomicBool,
    accessed: AtomicBool,
}

impl Entry {
    #[inline]
    pub(super) fn new(position: Position, data: Bytes) -> Self {
        Self {
            position,
            data,
            expected: AtomicI32::new(0),
            removed: AtomicBool::new(false),
            accessed: AtomicBool::new(false),
        }
    }

    pub(super) fn position(&self) -> Position {
        self.position
    }

    pub(super) fn weight(&self) -> u64 {
        self.data.len() as u64
    }

    /// Makes it ready to be inserted, with so many reads expected.
    pub(super) fn renew(&self, expected: u32) {
        // Relaxed: the map publishes the entry afterwards.
        self.expected.store(expected.cast_signed(), Ordering::Relaxed);
        self.removed.store(false, Ordering::Relaxed);
        self.accessed.store(false, Ordering::Relaxed);
    }

    /// Counts one read.
    pub(super) fn mark_read(&self) {
        // Relaxed: a count that publishes nothing.
        self.expected.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn is_expected(&self) -> bool {
        // Relaxed: as in `mark_read`.
        self.expected.load(Ordering::Relaxed) > 0
    }

    /// Says that the entry is in no map any more.
    pub(super) fn set_removed(&self) {
        // Relaxed: the removal queue may learn of it late.
        self.removed.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_removed(&self) -> bool {
        // Relaxed: as in `set_removed`.
        self.removed.load(Ordering::Relaxed)
    }

    /// Says that the entry was looked up.
    pub(super) fn set_accessed(&self) {
        // Relaxed: a hint.
        self.accessed.store(true, Ordering::Relaxed);
    }

    /// Whether it was looked up since the last call.
    pub(super) fn take_accessed(&self) -> bool {
        // Relaxed: as in `set_accessed`.
        self.accessed.load(Ordering::Relaxed) && self.accessed.swap(false, Ordering::Relaxed)
    }
}

/// The owner of a buffer of no bytes, whose count has a cache line to itself: two threads that each have a buffer share nothing by it.
#[derive(Debug)]
#[repr(align(128))]
struct Nothing;

impl AsRef<[u8]> for Nothing {
    fn as_ref(&self) -> &[u8] {
        &[]
    }
}

/// An empty buffer that is counted all the same: a clone of it costs what a clone of any shared buffer costs.
pub(super) fn empty() -> Bytes {
    Bytes::from_owner(Nothing)
}

/// A shared buffer of one byte.
pub(super) fn one_byte() -> Bytes {
    Bytes::from(vec![7_u8]).clone()
}

/// A seeded generator.
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// A number below this one, which is far below 2^32.
    #[inline]
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 32) * limit) >> 32
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// An owner whose end is seen.
    struct Told {
        _count: Arc<()>,
    }

    impl AsRef<[u8]> for Told {
        fn as_ref(&self) -> &[u8] {
            Nothing.as_ref()
        }
    }

    #[test]
    fn a_clone_of_an_empty_buffer_with_an_owner_retains_it() {
        let count = Arc::new(());
        let buffer = Bytes::from_owner(Told { _count: Arc::clone(&count) });
        let clone = buffer.clone();
        assert!(buffer.is_empty());
        drop(buffer);
        assert_eq!(Arc::strong_count(&count), 2, "the clone retains the owner");
        drop(clone);
        assert_eq!(Arc::strong_count(&count), 1);
    }

    #[test]
    fn a_ledger_ends_after_fifty_thousand_entries() {
        assert_eq!([numbered(0), numbered(49_999), numbered(50_000)], [(0, 0), (0, 49_999), (1, 0)]);
        let run = Run { first: numbered(49_998), count: 2 };
        assert!(run.positions().eq([(0, 49_998), (0, 49_999)]));
        assert!(run.range().contains(&(0, 49_999)) && !run.range().contains(&(1, 0)));
    }

    #[test]
    fn random_numbers_are_below_the_limit_and_the_same_for_a_seed() {
        let draw = |seed| {
            let mut random = Random::new(seed);
            (0..1_000).map(|_| random.below(100)).collect::<Vec<_>>()
        };
        let (one, other) = (draw(1), draw(2));
        assert!(one.iter().all(|number| *number < 100) && one.contains(&0) && one.contains(&99));
        assert!(one == draw(1) && one != other);
    }
}
