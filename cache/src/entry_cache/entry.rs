//! What a read gives.

use std::fmt;

use folio_sync::Arc;

use crate::permits::Permit;
use crate::range::Position;

/// An entry that was read.
///
/// All entries of one read share its permit for bytes in flight: it is given back as the last of them is dropped, or taken apart.
pub struct ReadEntry<V> {
    /// Where it is.
    pub position: Position,
    /// What the cache or storage has there.
    pub value: V,
    /// The read's permit.
    pub(super) permit: Option<Arc<Permit>>,
}

impl<V> ReadEntry<V> {
    /// The value alone, which counts no more as in flight.
    pub fn into_value(self) -> V {
        self.value
    }
}

impl<V> ReadEntry<V> {
    /// The position, the value, and what keeps it counted as in flight.
    pub fn into_parts(self) -> (Position, V, InFlight) {
        (self.position, self.value, InFlight(self.permit))
    }
}

/// Keeps an entry counted as in flight, until it is dropped.
#[derive(Clone, Default)]
pub struct InFlight(#[expect(dead_code, reason = "kept, not looked at")] Option<Arc<Permit>>);

impl fmt::Debug for InFlight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InFlight")
    }
}

impl<V: Clone> Clone for ReadEntry<V> {
    fn clone(&self) -> Self {
        Self { position: self.position, value: self.value.clone(), permit: self.permit.clone() }
    }
}

impl<V: fmt::Debug> fmt::Debug for ReadEntry<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadEntry")
            .field("position", &self.position)
            .field("value", &self.value)
            .finish_non_exhaustive()
    }
}
