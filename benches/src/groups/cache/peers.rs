//! The peers: a [map](super::maps) and a [removal queue](super::queue), an `Arc` of an entry in both.
//!
//! An insert puts the entry into the map and then into the queue. A removal takes it out of the map and says so in the entry; the
//! eviction after it drops the entry from the head of the queue.

use std::sync::Arc;

use bytes::Bytes;
use crossbeam_skiplist::SkipMap;
use dashmap::DashMap;
use scc::TreeIndex;

use super::entry::{Cut, Entry, Position, Run};
use super::maps::{Hasher, Locked, Map, QuickCache};
use super::queue::{Evict, RemovalQueue};
use super::tested::{Make, Options, Tested};
use crate::runner::{Case, Metric};

pub(super) const SKIP_MAP: &str = "crossbeam SkipMap";
pub(super) const LOCKED: &str = "RwLock<BTreeMap>";
pub(super) const DASH_MAP: &str = "DashMap";
const QUICK_CACHE: &str = "quick_cache";
const PAPAYA: &str = "papaya";
const TREE_INDEX: &str = "scc TreeIndex";
const MOKA: &str = "moka";

pub(super) type Skip = Cached<SkipMap<Position, Arc<Entry>>>;
pub(super) type Tree = Cached<Locked>;
pub(super) type Dash = Cached<DashMap<Position, Arc<Entry>, Hasher>>;

/// Something of every peer; the order is that of documented figures.
pub(super) fn every_peer<K: Make>(make: &K) -> Vec<K::Made> {
    vec![
        make.make::<Skip>(SKIP_MAP),
        make.make::<Tree>(LOCKED),
        make.make::<Dash>(DASH_MAP),
        make.make::<Cached<QuickCache>>(QUICK_CACHE),
        make.make::<Cached<papaya::HashMap<Position, Arc<Entry>, Hasher>>>(PAPAYA),
        make.make::<Cached<TreeIndex<Position, Arc<Entry>>>>(TREE_INDEX),
        make.make::<Cached<moka::sync::Cache<Position, Arc<Entry>, Hasher>>>(MOKA),
    ]
}

/// The cases with the CPU nanoseconds that the reference machine has measured, where it has.
pub(super) fn documented(cases: Vec<Case>, figures: [f64; 7]) -> Vec<Case> {
    let add = |(case, figure): (Case, f64)| {
        if figure.is_finite() { case.documented(Metric::Cpu, figure) } else { case }
    };
    cases.into_iter().zip(figures).map(add).collect()
}

/// A map with a removal queue.
pub(super) struct Cached<M> {
    map: M,
    queue: RemovalQueue,
}

impl<M: Map> Cached<M> {
    fn evict(&self, evict: Evict, now: u64) -> u64 {
        self.queue.evict(evict, now, |entry| {
            let removed = self.map.remove(entry.position());
            debug_assert!(removed.is_some(), "an entry that no removal has marked is in the map");
            entry.set_removed();
        })
    }
}

impl<M: Map> Tested for Cached<M> {
    type Value = Arc<Entry>;
    type Writer = ();

    fn open(options: Options) -> Self {
        Self { map: M::new(), queue: RemovalQueue::new(options) }
    }

    fn writer(&self) {}

    #[inline]
    fn value(position: Position, data: &Bytes) -> Arc<Entry> {
        Arc::new(Entry::new(position, data.clone()))
    }

    #[inline]
    fn insert(&self, (): &mut (), position: Position, entry: Arc<Entry>, expected: u32, now: u64) {
        entry.renew(expected);
        self.map.insert(position, Arc::clone(&entry));
        self.queue.push(entry, now);
    }

    #[inline]
    fn remove(&self, cut: &Cut) {
        self.map.remove_run(cut.found, Entry::set_removed);
    }

    #[inline]
    fn get(&self, position: Position) -> Option<Arc<Entry>> {
        let found = self.map.get(position);
        if self.queue.options().extend_recently_accessed
            && let Some(entry) = &found
        {
            entry.set_accessed();
        }
        found
    }

    #[inline]
    fn owned(&self, run: Run) -> Vec<(Position, Arc<Entry>)> {
        let mut all = Vec::new();
        self.map.visit_run(run, |position, entry| all.push((position, Arc::clone(entry))));
        all
    }

    #[inline]
    fn visited(&self, run: Run, mut visit: impl FnMut(&Arc<Entry>)) {
        self.map.visit_run(run, |_, entry| visit(entry));
    }

    fn mark_read(&self, position: Position) {
        if let Some(entry) = self.map.get(position) {
            entry.mark_read();
        }
    }

    #[inline]
    fn evict_before(&self, before: u64, now: u64) -> u64 {
        self.evict(Evict::Before(before), now)
    }

    fn evict_weight(&self, weight: u64, now: u64) -> u64 {
        self.evict(Evict::Weight(weight), now)
    }

    fn is_drained(&self) -> bool {
        self.queue.is_empty()
    }
}
