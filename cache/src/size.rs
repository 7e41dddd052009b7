//! How large a page and a node are: small in models, so that those reach every edge.

/// Slots of a page, as a power of two.
pub(crate) const PAGE_BITS: u32 = if cfg!(loom) { 2 } else { 6 };

/// Slots of a page.
pub(crate) const PAGE_SLOTS: u32 = 1 << PAGE_BITS;

/// Words of a node, as a power of two.
pub(crate) const NODE_BITS: u32 = if cfg!(loom) { 2 } else { 6 };

/// Chunks of a pool.
pub(crate) const CHUNKS: usize = if cfg!(loom) { 4 } else { 104 };

/// Chunks of one size, as a power of two: after them they have twice the nodes.
pub(crate) const ALIKE_BITS: u32 = if cfg!(loom) { 0 } else { 2 };

/// A reader that finds this many in a page takes a reference of its own instead.
pub(crate) const MOST_COUNTED: u64 = if cfg!(loom) { 2 } else { 1 << 15 };
