//! Nodes that stay where they are: used again, and freed only with the pool.

use std::ptr;

use folio_sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use folio_sync::step;

use crate::size::{ALIKE_BITS, CHUNKS};

/// What a pool holds: it can be linked to another one while it is not in use.
pub(crate) trait Pooled: Default + Sync {
    /// The number of the next one that is not in use.
    fn next(&self) -> &AtomicU32;
}

/// Nodes, known by numbers from 1 on.
///
/// A further chunk is allocated when no node is left, so that pointers to nodes hold as long as the pool. Its size is about a quarter of what is
/// there.
pub(crate) struct Pool<N> {
    /// Each allocated by who first needs a node of it, and set once.
    chunks: [AtomicPtr<N>; CHUNKS],
    /// How many nodes were ever taken; only grows.
    used: AtomicU32,
    /// The number of the first node that is not in use, 0 for none, and above it a count that changes with every take, so that a stale
    /// compare-and-set fails.
    free: AtomicU64,
}

/// The lower half of a word.
#[expect(clippy::cast_possible_truncation, reason = "the lower half is what is wanted")]
pub(crate) const fn low(word: u64) -> u32 {
    word as u32
}

/// The upper half of a word.
pub(crate) const fn high(word: u64) -> u32 {
    low(word >> 32)
}

/// A word of two halves.
pub(crate) const fn halves(high: u32, low: u32) -> u64 {
    (high as u64) << 32 | low as u64
}

/// Which chunk a node is in, and where.
#[inline]
const fn place(number: u32) -> (usize, usize) {
    let shifted = number - 1 + (1 << ALIKE_BITS);
    let len_bits = shifted.ilog2() - ALIKE_BITS;
    let chunk = (len_bits << ALIKE_BITS) + (shifted >> len_bits) - (1 << ALIKE_BITS);
    (chunk as usize, (shifted & ((1 << len_bits) - 1)) as usize)
}

/// How many nodes a chunk has.
const fn chunk_len(chunk: usize) -> usize {
    1 << (chunk >> ALIKE_BITS)
}

impl<N: Pooled> Pool<N> {
    pub(crate) fn new() -> Self {
        Self {
            chunks: std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
            used: AtomicU32::new(0),
            free: AtomicU64::new(0),
        }
    }

    /// The node of this number, which was taken before.
    #[inline]
    pub(crate) fn get(&self, number: u32) -> &N {
        let (chunk, at) = place(number);
        // Acquire: the nodes are built before they are reached; pairs with the Release of `chunk`.
        let chunk = self.chunks[chunk].load(Ordering::Acquire);
        // SAFETY: whoever knows a number got it from `take`, which allocated the chunk; `at` is below its length.
        let node = unsafe { chunk.add(at) };
        // SAFETY: nodes live as long as the pool, and are only shared.
        unsafe { &*node }
    }

    /// A node that nobody uses, as the last user left it.
    pub(crate) fn take(&self) -> u32 {
        // Acquire: what the last user wrote, and the link to the next one; pairs with the Release of `put`.
        let mut free = self.free.load(Ordering::Acquire);
        while low(free) != 0 {
            // Relaxed: if somebody took the node meanwhile, the compare-and-set below fails, whatever was read.
            let next = self.get(low(free)).next().load(Ordering::Relaxed);
            // Acquire: as above.
            match step!(
                "index.take_node",
                self.free.compare_exchange_weak(
                    free,
                    halves(high(free).wrapping_add(1), next),
                    Ordering::Acquire,
                    Ordering::Acquire,
                )
            ) {
                Ok(_) => return low(free),
                Err(now) => free = now,
            }
        }
        // Relaxed: a number for one caller alone; what is there is published by `chunk`.
        let number = self.used.fetch_add(1, Ordering::Relaxed) + 1;
        self.grow(place(number).0);
        number
    }

    /// Puts a node back.
    pub(crate) fn put(&self, number: u32) {
        let node = self.get(number);
        // Relaxed: only a first guess.
        let mut free = self.free.load(Ordering::Relaxed);
        loop {
            // Relaxed: published by the compare-and-set below.
            node.next().store(low(free), Ordering::Relaxed);
            // Release: what this user wrote and the link; pairs with the Acquire of `take`.
            match step!(
                "index.put_node",
                self.free.compare_exchange_weak(
                    free,
                    halves(high(free), number),
                    Ordering::Release,
                    Ordering::Relaxed,
                )
            ) {
                Ok(_) => return,
                Err(now) => free = now,
            }
        }
    }

    /// Sees to it that a chunk is there.
    fn grow(&self, chunk: usize) {
        let place = &self.chunks[chunk];
        // Relaxed: only whether it is there; who wants a node of it looks again, in `get`.
        if !place.load(Ordering::Relaxed).is_null() {
            return;
        }
        let nodes: Box<[N]> = (0..chunk_len(chunk)).map(|_| N::default()).collect();
        let fresh = Box::into_raw(nodes).cast::<N>();
        // Release: the nodes are built; pairs with the Acquire of `get`.
        let set = step!(
            "index.grow",
            place.compare_exchange(ptr::null_mut(), fresh, Ordering::Release, Ordering::Relaxed)
        );
        if set.is_err() {
            // SAFETY: the chunk was made above and not published.
            unsafe { free_chunk(fresh, chunk) };
        }
    }

    /// Bytes of all nodes, in use or not.
    pub(crate) fn bytes(&self) -> usize {
        let allocated = |chunk: &usize| {
            // Relaxed: only whether it is there.
            !self.chunks[*chunk].load(Ordering::Relaxed).is_null()
        };
        (0..CHUNKS).filter(allocated).map(|chunk| chunk_len(chunk) * size_of::<N>()).sum()
    }
}

/// Frees the nodes of a chunk.
///
/// # Safety
/// The chunk was allocated by `grow` with this number, and nobody can reach it any more.
unsafe fn free_chunk<N>(nodes: *mut N, chunk: usize) {
    let nodes = ptr::slice_from_raw_parts_mut(nodes, chunk_len(chunk));
    // SAFETY: the caller's obligation; the length is the one it was allocated with.
    drop(unsafe { Box::from_raw(nodes) });
}

impl<N> Drop for Pool<N> {
    fn drop(&mut self) {
        for (number, chunk) in self.chunks.iter().enumerate() {
            // Acquire: the nodes, whoever made them.
            let nodes = chunk.load(Ordering::Acquire);
            if !nodes.is_null() {
                // SAFETY: the pool is dropped, so that nobody can reach its nodes.
                unsafe { free_chunk(nodes, number) };
            }
        }
    }
}

#[cfg(all(test, loom))]
impl<N: Pooled> Pool<N> {
    /// The numbers that are not in use, the next one to be taken first, and how many were ever taken.
    pub(super) fn unused(&self) -> (Vec<u32>, u32) {
        // Relaxed, all: a model looks at them when nobody else does.
        let used = self.used.load(Ordering::Relaxed);
        let mut unused = Vec::new();
        let mut number = low(self.free.load(Ordering::Relaxed));
        while number != 0 {
            assert!(!unused.contains(&number), "node {number} was put back twice");
            unused.push(number);
            number = self.get(number).next().load(Ordering::Relaxed);
        }
        (unused, used)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn nodes_fill_one_chunk_after_the_other_and_chunks_grow_with_what_is_there() {
        let (mut chunk, mut at, mut before) = (0, 0, 0);
        for number in 1..=100_000 {
            if at == chunk_len(chunk) {
                before += chunk_len(chunk);
                (chunk, at) = (chunk + 1, 0);
                assert!(chunk_len(chunk) * 4 <= before + 4, "chunk {chunk}");
            }
            assert_eq!(place(number), (chunk, at));
            at += 1;
        }
    }
}
