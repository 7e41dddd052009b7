//! The maps of the peers, an `Arc` of an entry a position.
//!
//! A map without order finds a range by looking for each position of it. Maps with a hasher have that of the standard library, with fixed
//! keys so that every run is the same. Caches have room for everything: what leaves them was removed.

use std::collections::BTreeMap;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crossbeam_skiplist::SkipMap;
use dashmap::DashMap;
use quick_cache::UnitWeighter;
use quick_cache::sync::DefaultLifecycle;
use scc::{Guard, TreeIndex};

use super::entry::{Entry, Position, Run};

pub(super) type Hasher = BuildHasherDefault<DefaultHasher>;

/// What a peer keeps its entries in.
///
/// Nothing here is inserted twice at one position, so no map is asked to look before it inserts.
pub(super) trait Map: Send + Sync + 'static {
    fn new() -> Self;

    fn insert(&self, position: Position, entry: Arc<Entry>);

    fn get(&self, position: Position) -> Option<Arc<Entry>>;

    fn remove(&self, position: Position) -> Option<Arc<Entry>>;

    /// Visits the entries of a run, in order.
    #[inline]
    fn visit_run(&self, run: Run, mut visit: impl FnMut(Position, &Arc<Entry>)) {
        for position in run.positions() {
            if let Some(entry) = self.get(position) {
                visit(position, &entry);
            }
        }
    }

    /// Removes the entries of a run.
    #[inline]
    fn remove_run(&self, run: Run, mut removed: impl FnMut(&Entry)) {
        for position in run.positions() {
            if let Some(entry) = self.remove(position) {
                removed(&entry);
            }
        }
    }
}

/// A lock-free ordered map, one node an entry.
impl Map for SkipMap<Position, Arc<Entry>> {
    fn new() -> Self {
        Self::new()
    }

    #[inline]
    fn insert(&self, position: Position, entry: Arc<Entry>) {
        self.insert(position, entry);
    }

    #[inline]
    fn get(&self, position: Position) -> Option<Arc<Entry>> {
        self.get(&position).map(|found| Arc::clone(found.value()))
    }

    #[inline]
    fn remove(&self, position: Position) -> Option<Arc<Entry>> {
        self.remove(&position).map(|found| Arc::clone(found.value()))
    }

    #[inline]
    fn visit_run(&self, run: Run, mut visit: impl FnMut(Position, &Arc<Entry>)) {
        for found in self.range(run.range()) {
            visit(*found.key(), found.value());
        }
    }

    #[inline]
    fn remove_run(&self, run: Run, mut removed: impl FnMut(&Entry)) {
        for found in self.range(run.range()) {
            if found.remove() {
                removed(found.value());
            }
        }
    }
}

/// The plain way: an ordered map behind a lock.
#[derive(Debug, Default)]
pub(super) struct Locked(RwLock<BTreeMap<Position, Arc<Entry>>>);

impl Locked {
    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<Position, Arc<Entry>>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, BTreeMap<Position, Arc<Entry>>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Map for Locked {
    fn new() -> Self {
        Self::default()
    }

    #[inline]
    fn insert(&self, position: Position, entry: Arc<Entry>) {
        self.write().insert(position, entry);
    }

    #[inline]
    fn get(&self, position: Position) -> Option<Arc<Entry>> {
        self.read().get(&position).cloned()
    }

    #[inline]
    fn remove(&self, position: Position) -> Option<Arc<Entry>> {
        self.write().remove(&position)
    }

    #[inline]
    fn visit_run(&self, run: Run, mut visit: impl FnMut(Position, &Arc<Entry>)) {
        for (position, entry) in self.read().range(run.range()) {
            visit(*position, entry);
        }
    }

    /// What is removed is nearly always the beginning of the map, which needs no search.
    #[inline]
    fn remove_run(&self, run: Run, mut removed: impl FnMut(&Entry)) {
        let mut map = self.write();
        while let Some(first) = map.first_entry().filter(|first| run.range().contains(first.key())) {
            removed(&first.remove());
        }
        let rest: Vec<Position> = map.range(run.range()).map(|(position, _)| *position).collect();
        for entry in rest.iter().filter_map(|position| map.remove(position)) {
            removed(&entry);
        }
    }
}

impl Map for DashMap<Position, Arc<Entry>, Hasher> {
    fn new() -> Self {
        Self::default()
    }

    #[inline]
    fn insert(&self, position: Position, entry: Arc<Entry>) {
        self.insert(position, entry);
    }

    #[inline]
    fn get(&self, position: Position) -> Option<Arc<Entry>> {
        self.get(&position).map(|found| Arc::clone(&found))
    }

    #[inline]
    fn remove(&self, position: Position) -> Option<Arc<Entry>> {
        self.remove(&position).map(|(_, entry)| entry)
    }
}

/// A cache by S3-FIFO, of a capacity that is never reached.
pub(super) struct QuickCache(quick_cache::sync::Cache<Position, Arc<Entry>, UnitWeighter, Hasher>);

impl Map for QuickCache {
    fn new() -> Self {
        const UNREACHED: u64 = 1 << 32;
        let lifecycle = DefaultLifecycle::default();
        Self(quick_cache::sync::Cache::with(1_000, UNREACHED, UnitWeighter, Hasher::default(), lifecycle))
    }

    #[inline]
    fn insert(&self, position: Position, entry: Arc<Entry>) {
        self.0.insert(position, entry);
    }

    #[inline]
    fn get(&self, position: Position) -> Option<Arc<Entry>> {
        self.0.get(&position)
    }

    #[inline]
    fn remove(&self, position: Position) -> Option<Arc<Entry>> {
        self.0.remove(&position).map(|(_, entry)| entry)
    }
}

impl Map for papaya::HashMap<Position, Arc<Entry>, Hasher> {
    fn new() -> Self {
        Self::default()
    }

    #[inline]
    fn insert(&self, position: Position, entry: Arc<Entry>) {
        self.pin().insert(position, entry);
    }

    #[inline]
    fn get(&self, position: Position) -> Option<Arc<Entry>> {
        self.pin().get(&position).cloned()
    }

    #[inline]
    fn remove(&self, position: Position) -> Option<Arc<Entry>> {
        self.pin().remove(&position).cloned()
    }

    #[inline]
    fn visit_run(&self, run: Run, mut visit: impl FnMut(Position, &Arc<Entry>)) {
        let pinned = self.pin();
        for position in run.positions() {
            if let Some(entry) = pinned.get(&position) {
                visit(position, entry);
            }
        }
    }

    #[inline]
    fn remove_run(&self, run: Run, mut removed: impl FnMut(&Entry)) {
        let pinned = self.pin();
        for entry in run.positions().filter_map(|position| pinned.remove(&position)) {
            removed(entry);
        }
    }
}

/// An ordered tree whose readers take no lock.
///
/// A removal tells whether there was an entry, not which, so it is looked up first. Its removal of a whole range is not used: ranges that
/// begin in what it removed come out empty afterwards.
impl Map for TreeIndex<Position, Arc<Entry>> {
    fn new() -> Self {
        Self::new()
    }

    #[inline]
    fn insert(&self, position: Position, entry: Arc<Entry>) {
        assert!(self.insert_sync(position, entry).is_ok(), "nothing is inserted twice");
    }

    #[inline]
    fn get(&self, position: Position) -> Option<Arc<Entry>> {
        self.peek_with(&position, |_, entry| Arc::clone(entry))
    }

    #[inline]
    fn remove(&self, position: Position) -> Option<Arc<Entry>> {
        let entry = Map::get(self, position)?;
        self.remove_sync(&position).then_some(entry)
    }

    #[inline]
    fn visit_run(&self, run: Run, mut visit: impl FnMut(Position, &Arc<Entry>)) {
        let guard = Guard::new();
        for (position, entry) in self.range(run.range(), &guard) {
            visit(*position, entry);
        }
    }

    #[inline]
    fn remove_run(&self, run: Run, mut removed: impl FnMut(&Entry)) {
        let guard = Guard::new();
        for (position, entry) in self.range(run.range(), &guard) {
            if self.remove_sync(position) {
                removed(entry);
            }
        }
    }
}

impl Map for moka::sync::Cache<Position, Arc<Entry>, Hasher> {
    fn new() -> Self {
        moka::sync::Cache::builder().build_with_hasher(Hasher::default())
    }

    #[inline]
    fn insert(&self, position: Position, entry: Arc<Entry>) {
        self.insert(position, entry);
    }

    #[inline]
    fn get(&self, position: Position) -> Option<Arc<Entry>> {
        self.get(&position)
    }

    #[inline]
    fn remove(&self, position: Position) -> Option<Arc<Entry>> {
        self.remove(&position)
    }
}

#[cfg(test)]
mod tests {
    use super::super::entry::empty;
    use super::*;

    fn keeps_the_order_and_removes_what_it_was_told<M: Map>() {
        let map = M::new();
        let put = |position| map.insert(position, Arc::new(Entry::new(position, empty())));
        (0..300).for_each(|id| put((1, id)));
        (0..10).for_each(|id| put((2, id)));
        let seen = |first, count| {
            let mut seen = Vec::new();
            map.visit_run(Run { first, count }, |position, entry| {
                assert_eq!(position, entry.position());
                seen.push(position.1);
            });
            seen
        };
        assert_eq!(seen((1, 0), 300), (0..300).collect::<Vec<_>>());

        let mut removed = Vec::new();
        map.remove_run(Run { first: (1, 0), count: 100 }, |entry| removed.push(entry.position()));
        map.remove_run(Run { first: (1, 150), count: 50 }, |entry| removed.push(entry.position()));
        removed.sort_unstable();
        assert!(removed.into_iter().eq((0..100).chain(150..200).map(|id| (1, id))));
        assert!(map.remove((2, 3)).is_some() && map.remove((2, 3)).is_none());

        assert_eq!(seen((1, 90), 70), (100..150).collect::<Vec<_>>());
        assert_eq!(seen((2, 0), 10), [0, 1, 2, 4, 5, 6, 7, 8, 9]);
        assert!(map.get((1, 99)).is_none() && map.get((2, 3)).is_none());
        assert_eq!(map.get((1, 200)).map(|entry| entry.position()), Some((1, 200)));
    }

    #[test]
    fn every_map_keeps_the_order_and_removes_what_it_was_told() {
        keeps_the_order_and_removes_what_it_was_told::<SkipMap<Position, Arc<Entry>>>();
        keeps_the_order_and_removes_what_it_was_told::<Locked>();
        keeps_the_order_and_removes_what_it_was_told::<DashMap<Position, Arc<Entry>, Hasher>>();
        keeps_the_order_and_removes_what_it_was_told::<QuickCache>();
        keeps_the_order_and_removes_what_it_was_told::<papaya::HashMap<Position, Arc<Entry>, Hasher>>();
        keeps_the_order_and_removes_what_it_was_told::<TreeIndex<Position, Arc<Entry>>>();
        keeps_the_order_and_removes_what_it_was_told::<moka::sync::Cache<Position, Arc<Entry>, Hasher>>();
    }
}
