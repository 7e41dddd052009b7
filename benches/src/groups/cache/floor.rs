//! The floor rows: what an insert costs that is none.
//!
//! An operation makes the entry object of B1, which is an allocation and a clone of the shared buffer, and writes it into a plain ring
//! of as many places as entries are cached. The entry that it overwrites is dropped there and then: its count, its buffer, its
//! memory. Nothing is found by position, nothing is removed by range, nothing waits to be evicted, and there is one thread.
//!
//! The [cycle] of B3 fills the ring with entries of one byte, and takes all of them out again, in that order.

use std::hint::black_box;
use std::sync::Arc;

use bytes::Bytes;

use super::entry::{Entry, empty, numbered, one_byte};
use crate::runner::{Case, Mark, sample_between};

/// The ring and the number of the next entry.
#[derive(Debug)]
struct Ring {
    places: Vec<Option<Arc<Entry>>>,
    at: usize,
    next: u64,
    data: Bytes,
}

impl Ring {
    fn new(places: u64, data: Bytes) -> Self {
        let places = usize::try_from(places).expect("a ring fits into memory");
        Self { places: vec![None; places], at: 0, next: 0, data }
    }

    #[inline]
    fn insert(&mut self) {
        let entry = Arc::new(Entry::new(numbered(self.next), self.data.clone()));
        self.next += 1;
        self.places[self.at] = Some(black_box(entry));
        self.at = if self.at + 1 == self.places.len() { 0 } else { self.at + 1 };
    }

    /// Takes out what is in the place of the next entry, which is the oldest of a full ring.
    #[inline]
    fn take(&mut self) -> Option<Arc<Entry>> {
        let taken = self.places[self.at].take();
        self.at = if self.at + 1 == self.places.len() { 0 } else { self.at + 1 };
        taken
    }
}

/// The case with this many places.
pub(super) fn case(name: &str, places: u64, operations: u64) -> Case {
    let mut ring = None;
    Case::looped(name, operations, move |operations| {
        let ring = ring.get_or_insert_with(|| {
            let mut ring = Ring::new(places, empty());
            (0..places).for_each(|_| ring.insert());
            ring
        });
        for _ in 0..operations {
            ring.insert();
        }
    })
}

/// The case that fills a ring of so many places and empties it; its operation is one entry, and it does whole rings.
pub(super) fn cycle(name: &str, places: u64, entries: u64) -> Case {
    let mut ring = None;
    Case::new(name, move |effort| {
        let ring = ring.get_or_insert_with(|| Ring::new(places, one_byte()));
        let mut run = || {
            (0..places).for_each(|_| ring.insert());
            (0..places).for_each(|_| drop(black_box(ring.take())));
        };
        let cycles = effort.scale(entries).div_ceil(places);
        (0..cycles.div_ceil(8)).for_each(|_| run());
        let start = Mark::now();
        (0..cycles).for_each(|_| run());
        sample_between(start, Mark::now(), cycles * places)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ring_drops_what_it_overwrites() {
        let mut ring = Ring::new(3, empty());
        (0..7).for_each(|_| ring.insert());
        let weak: Vec<_> = ring.places.iter().flatten().map(Arc::downgrade).collect();
        (0..3).for_each(|_| ring.insert());
        let kept: Vec<_> = ring.places.iter().flatten().map(|entry| entry.position()).collect();
        assert_eq!(kept, [(0, 9), (0, 7), (0, 8)]);
        assert!(weak.iter().all(|entry| entry.upgrade().is_none()));
    }
    #[test]
    fn a_full_ring_is_emptied_in_order() {
        let mut ring = Ring::new(3, one_byte());
        for first in [0, 3] {
            (0..3).for_each(|_| ring.insert());
            let taken: Vec<_> = (0..3).map(|_| ring.take().expect("it is full")).collect();
            let positions = taken.iter().map(|entry| entry.position());
            assert!(positions.eq([(0, first), (0, first + 1), (0, first + 2)]));
            assert!(taken.iter().all(|entry| Arc::strong_count(entry) == 1 && entry.weight() == 1));
        }
        assert!(ring.places.iter().all(Option::is_none));
    }
}
