//! The set bits of a word, in order.

/// Gives the positions of the set bits, lowest first.
pub(crate) struct Bits(pub(crate) u64);

impl Iterator for Bits {
    type Item = u32;

    #[inline]
    fn next(&mut self) -> Option<u32> {
        if self.0 == 0 {
            return None;
        }
        let lowest = self.0.trailing_zeros();
        self.0 &= self.0 - 1;
        Some(lowest)
    }
}

/// The bits from `first` to `last`, both among them.
pub(crate) const fn between(first: u32, last: u32) -> u64 {
    (u64::MAX << first) & (u64::MAX >> (63 - last))
}
