//! The floor row: what an insert costs that is none.
//!
//! An operation makes the entry object of B1, which is an allocation and a clone of the shared buffer, and writes it into a plain ring
//! of as many places as entries are cached. The entry that it overwrites is dropped there and then: its count, its buffer, its
//! memory. Nothing is found by position, nothing is removed by range, nothing waits to be evicted, and there is one thread.

use std::hint::black_box;
use std::sync::Arc;

use bytes::Bytes;

use super::entry::{Entry, empty, numbered};
use crate::runner::Case;

/// The ring and the number of the next entry.
#[derive(Debug)]
struct Ring {
    places: Vec<Option<Arc<Entry>>>,
    at: usize,
    next: u64,
    data: Bytes,
}

impl Ring {
    fn new(places: usize) -> Self {
        Self { places: vec![None; places], at: 0, next: 0, data: empty() }
    }

    #[inline]
    fn insert(&mut self) {
        let entry = Arc::new(Entry::new(numbered(self.next), self.data.clone()));
        self.next += 1;
        self.places[self.at] = Some(black_box(entry));
        self.at = if self.at + 1 == self.places.len() { 0 } else { self.at + 1 };
    }
}

/// The case with this many places.
pub(super) fn case(name: &str, places: u64, operations: u64) -> Case {
    let places = usize::try_from(places).expect("a ring fits into memory");
    let mut ring = None;
    Case::looped(name, operations, move |operations| {
        let ring = ring.get_or_insert_with(|| {
            let mut ring = Ring::new(places);
            (0..places).for_each(|_| ring.insert());
            ring
        });
        for _ in 0..operations {
            ring.insert();
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ring_drops_what_it_overwrites() {
        let mut ring = Ring::new(3);
        (0..7).for_each(|_| ring.insert());
        let weak: Vec<_> = ring.places.iter().flatten().map(Arc::downgrade).collect();
        (0..3).for_each(|_| ring.insert());
        let kept: Vec<_> = ring.places.iter().flatten().map(|entry| entry.position()).collect();
        assert_eq!(kept, [(0, 9), (0, 7), (0, 8)]);
        assert!(weak.iter().all(|entry| entry.upgrade().is_none()));
    }
}
