//! Which entries of a ledger were deleted individually, ahead of the mark.

use std::collections::VecDeque;

/// Deleted entries: all below the mark, and single ones above it.
///
/// # Memory
/// A bit for each entry from the mark to the highest deleted one.
#[derive(Debug)]
pub(crate) struct Acks {
    /// The number of the first bit; a multiple of 64 from the first entry that was not deleted when this was made.
    base: i64,
    /// A bit an entry.
    words: VecDeque<u64>,
}

impl Acks {
    /// All entries before this one are deleted.
    pub(crate) fn new(first: i64) -> Self {
        Self { base: first, words: VecDeque::new() }
    }

    /// Deletes an entry; whether it was not before.
    pub(crate) fn delete(&mut self, entry: i64) -> bool {
        let Ok(at) = usize::try_from(entry.saturating_sub(self.base)) else { return false };
        let (word, bit) = (at / 64, 1 << (at % 64));
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        let fresh = self.words[word] & bit == 0;
        self.words[word] |= bit;
        fresh
    }

    /// Deletes all entries before this one.
    pub(crate) fn delete_before(&mut self, end: i64) {
        let Ok(count) = usize::try_from(end.saturating_sub(self.base)) else { return };
        let whole = count / 64;
        if whole >= self.words.len() {
            *self = Self::new(end);
            return;
        }
        self.words.drain(..whole);
        self.base += i64::try_from(whole * 64).expect("as many words are kept");
        self.words[0] |= (1 << (count % 64)) - 1;
    }

    /// The first entry that is not deleted.
    pub(crate) fn first_left(&mut self) -> i64 {
        while self.words.front() == Some(&u64::MAX) {
            self.words.pop_front();
            self.base += 64;
        }
        self.base + self.words.front().map_or(0, |word| i64::from(word.trailing_ones()))
    }

    /// Whether an entry is deleted.
    pub(crate) fn is_deleted(&self, entry: i64) -> bool {
        let Ok(at) = usize::try_from(entry.saturating_sub(self.base)) else { return true };
        self.words.get(at / 64).is_some_and(|word| word >> (at % 64) & 1 != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_follows_the_first_entry_that_is_left() {
        let mut acks = Acks::new(5);
        assert_eq!(acks.first_left(), 5);
        for entry in (6..200).rev() {
            assert!(acks.delete(entry));
            assert!(!acks.delete(entry), "only once");
            assert_eq!(acks.first_left(), 5);
        }
        assert!(acks.delete(5));
        assert_eq!(acks.first_left(), 200);
        assert!(!acks.delete(4) && acks.is_deleted(4) && !acks.is_deleted(200));
    }

    #[test]
    fn deleting_up_to_a_position_keeps_what_was_deleted_beyond() {
        let mut acks = Acks::new(0);
        acks.delete(150);
        acks.delete_before(140);
        assert_eq!(acks.first_left(), 140);
        (140..150).for_each(|entry| assert!(acks.delete(entry)));
        assert_eq!(acks.first_left(), 151);
        acks.delete_before(1_000);
        assert_eq!(acks.first_left(), 1_000);
        acks.delete_before(10);
        assert_eq!(acks.first_left(), 1_000, "never back");
    }
}
