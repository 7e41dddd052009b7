//! Who still has to read an entry.

use crate::active::ActiveCursors;
use crate::range::Position;

/// Tells how many readers still have to read an entry; what nobody has to read is not cached.
///
/// Asked when storage has read the entry. Its panic ends there, and the entry is not cached.
pub trait ExpectedReads: Send + Sync + 'static {
    /// How many.
    fn expected_reads(&self, position: Position) -> u32;
}

impl ExpectedReads for ActiveCursors {
    fn expected_reads(&self, position: Position) -> u32 {
        self.at_or_before(position)
    }
}

impl<F: Fn(Position) -> u32 + Send + Sync + 'static> ExpectedReads for F {
    fn expected_reads(&self, position: Position) -> u32 {
        self(position)
    }
}
