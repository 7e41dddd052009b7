//! Random histories of one thread, each step held against a plain map, and eviction against a plain queue of entries.
// ThreadSanitizer has nothing to see in one thread, and does not see into the locks of what runs it.
#![cfg(not(any(loom, shuttle, tsan)))]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests run on the standard library only, and their helpers unwrap as they do"
)]

mod common;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound::{self, Excluded, Included, Unbounded};

use common::{Scene, at, evicted, options, outcome, removed};
use folio_cache::{Inserter, Position, Reason};
use proptest::prelude::*;

/// Inserters that a history has besides the fresh ones.
const INSERTERS: usize = 3;

type Bounds = (Bound<Position>, Bound<Position>);

#[derive(Clone, Debug)]
enum Step {
    Insert { by: usize, position: Position, weight: u64, expected: u32 },
    Batch { by: usize, positions: Vec<Position>, expected: u32 },
    Get(Position),
    Range(Bounds),
    Visit(Bounds),
    Remove(Bounds),
    RemoveLedger(i64),
    Clear,
    MarkRead(Position),
    MarkRange(Bounds),
    Leave(usize),
    EvictBefore(u64),
    EvictWeight(u64),
}

fn position() -> impl Strategy<Value = Position> {
    let ledger = prop_oneof![8 => 0..3_i64, 1 => Just(-1_i64), 1 => Just(i64::MIN), 1 => Just(i64::MAX)];
    let entry = prop_oneof![
        20 => 0..200_i64,
        4 => -70..70_i64,
        1 => 4_000..4_200_i64,
        1 => 131_000..131_100_i64,
        1 => prop::sample::select(vec![i64::MIN, i64::MIN + 63, i64::MIN + 64, i64::MAX - 63, i64::MAX]),
        1 => any::<i64>(),
    ];
    (ledger, entry)
}

fn bound() -> impl Strategy<Value = Bound<Position>> {
    prop_oneof![4 => position().prop_map(Included), 4 => position().prop_map(Excluded), 1 => Just(Unbounded)]
}

fn bounds() -> impl Strategy<Value = Bounds> {
    let near = (position(), 0..150_i64, 0..4_u8).prop_map(|((ledger, entry), len, kind)| {
        let end = (ledger, entry.saturating_add(len));
        match kind {
            0 => (Included((ledger, entry)), Excluded(end)),
            1 => (Included((ledger, entry)), Included(end)),
            2 => (Excluded((ledger, entry)), Excluded(end)),
            _ => (Excluded((ledger, entry)), Included(end)),
        }
    });
    prop_oneof![3 => near, 2 => (bound(), bound())]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let by = 0..=INSERTERS;
    let runs = (position(), 1..140_i64).prop_map(|((ledger, first), len)| {
        (first..first.saturating_add(len)).map(|entry| (ledger, entry)).collect()
    });
    let step = prop_oneof![
        30 => (by.clone(), position(), 0..9_u64, 0..3_u32)
            .prop_map(|(by, position, weight, expected)| Step::Insert { by, position, weight, expected }),
        6 => (by, prop_oneof![runs, prop::collection::vec(position(), 0..40)], 0..3_u32)
            .prop_map(|(by, positions, expected)| Step::Batch { by, positions, expected }),
        10 => position().prop_map(Step::Get),
        6 => bounds().prop_map(Step::Range),
        6 => bounds().prop_map(Step::Visit),
        10 => bounds().prop_map(Step::Remove),
        2 => (-1..3_i64).prop_map(Step::RemoveLedger),
        1 => Just(Step::Clear),
        4 => position().prop_map(Step::MarkRead),
        3 => bounds().prop_map(Step::MarkRange),
        4 => (0..INSERTERS).prop_map(Step::Leave),
        2 => (0..60_u64).prop_map(Step::EvictBefore),
        3 => (1..300_u64).prop_map(Step::EvictWeight),
    ];
    prop::collection::vec(step, 0..80)
}

/// A range that `BTreeMap::range` takes: it panics at inverted ones.
fn sane((start, end): Bounds) -> bool {
    match (start, end) {
        (Unbounded, _) | (_, Unbounded) => true,
        (Excluded(start), Excluded(end)) => start < end,
        (Included(start) | Excluded(start), Included(end) | Excluded(end)) => start <= end,
    }
}

#[derive(Clone, Debug)]
struct Cached {
    id: usize,
    weight: u64,
    expected: i32,
    time: u64,
}

/// The cache and the map that it is held against.
struct Subject {
    scene: Scene,
    inserters: Vec<Inserter<common::Value>>,
    map: BTreeMap<Position, Cached>,
    now: u64,
}

impl Subject {
    fn new() -> Self {
        let scene = Scene::with(options(0, false), 80 * 140);
        let inserters = (0..INSERTERS).map(|_| scene.cache.inserter()).collect();
        Self { scene, inserters, map: BTreeMap::new(), now: 1 }
    }

    /// What the map has in a range.
    fn within(&self, bounds: Bounds) -> Vec<(Position, Cached)> {
        if !sane(bounds) {
            return Vec::new();
        }
        self.map.range(bounds).map(|(position, cached)| (*position, cached.clone())).collect()
    }

    /// Enters what was inserted into the map; whether it is to be taken.
    fn insert(&mut self, position: Position, id: usize, weight: u64, expected: u32) -> bool {
        let (expected, time) = (expected.cast_signed(), self.now);
        if let Some(cached) = self.map.get_mut(&position) {
            cached.expected = expected;
            return false;
        }
        self.map.insert(position, Cached { id, weight, expected, time });
        true
    }

    /// What a removal of this range has to tell; the map forgets it.
    fn remove(&mut self, bounds: Bounds) -> (u64, u64) {
        let gone = self.within(bounds);
        for (position, _) in &gone {
            self.map.remove(position);
        }
        (gone.len() as u64, gone.iter().map(|(_, cached)| cached.weight).sum())
    }

    /// What eviction took; the map forgets it.
    fn gone(&mut self) -> Vec<Cached> {
        let mut gone = Vec::new();
        self.map.retain(|position, cached| {
            let stays = self.scene.cache.contains(*position);
            gone.extend((!stays).then(|| cached.clone()));
            stays
        });
        gone
    }

    fn step(&mut self, step: Step) {
        self.now += 1;
        let now = at(self.now);
        match step {
            Step::Insert { by, position, weight, expected } => {
                let value = self.scene.value(position, weight);
                let taken = self.insert(position, value.id, weight, expected);
                let result = match self.inserters.get_mut(by) {
                    Some(inserter) => inserter.insert(position, value, expected, now),
                    None => self.scene.cache.insert(position, value, expected, now),
                };
                assert_eq!(outcome(result), (!taken).then_some(Reason::Occupied));
            }
            Step::Batch { by, positions, expected } => {
                let values: Vec<_> = positions
                    .iter()
                    .map(|&position| (position, self.scene.value(position, 1), expected))
                    .collect();
                let mut back: Vec<_> = values
                    .iter()
                    .filter(|(position, value, _)| !self.insert(*position, value.id, 1, expected))
                    .map(|(position, value, _)| (*position, value.id))
                    .collect();
                let result = match self.inserters.get_mut(by) {
                    Some(inserter) => inserter.insert_batch(values, now),
                    None => self.scene.cache.inserter().insert_batch(values, now),
                };
                assert!(result.iter().all(|given| given.reason == Reason::Occupied));
                let mut told: Vec<_> = result.iter().map(|given| (given.position, given.value.id)).collect();
                back.sort_unstable();
                told.sort_unstable();
                assert_eq!(told, back);
            }
            Step::Get(position) => {
                let cached = self.map.get(&position);
                assert_eq!(
                    self.scene.cache.get(position).map(|value| value.id),
                    cached.map(|cached| cached.id)
                );
                assert_eq!(self.scene.cache.contains(position), cached.is_some());
                assert_eq!(self.scene.cache.expected_reads(position), cached.map(|cached| cached.expected));
            }
            Step::Range(bounds) => {
                let found: Vec<_> = self
                    .scene
                    .cache
                    .range(bounds)
                    .iter()
                    .map(|(position, value)| (*position, value.id))
                    .collect();
                let there: Vec<_> =
                    self.within(bounds).iter().map(|(position, cached)| (*position, cached.id)).collect();
                assert_eq!(found, there);
            }
            Step::Visit(bounds) => {
                let mut found = Vec::new();
                self.scene
                    .cache
                    .for_each_in_range(bounds, |position, value| found.push((position, value.id)));
                let there: Vec<_> =
                    self.within(bounds).iter().map(|(position, cached)| (*position, cached.id)).collect();
                assert_eq!(found, there);
            }
            Step::Remove(bounds) => {
                assert_eq!(removed(self.scene.cache.remove_range(bounds)), self.remove(bounds));
            }
            Step::RemoveLedger(ledger) => {
                let all = (Included((ledger, i64::MIN)), Included((ledger, i64::MAX)));
                assert_eq!(removed(self.scene.cache.remove_ledger(ledger)), self.remove(all));
            }
            Step::Clear => assert_eq!(removed(self.scene.cache.clear()), self.remove((Unbounded, Unbounded))),
            Step::MarkRead(position) => {
                let cached = self.map.get_mut(&position);
                assert_eq!(self.scene.cache.mark_read(position), cached.is_some());
                if let Some(cached) = cached {
                    cached.expected -= 1;
                }
            }
            Step::MarkRange(bounds) => {
                let there = self.within(bounds);
                assert_eq!(self.scene.cache.mark_range_read(bounds), there.len() as u64);
                for (position, _) in there {
                    self.map.get_mut(&position).unwrap().expected -= 1;
                }
            }
            Step::Leave(inserter) => self.inserters[inserter].leave(),
            Step::EvictBefore(back) => self.evict_before(self.now.saturating_sub(back)),
            Step::EvictWeight(weight) => self.evict_weight(weight),
        }
        self.check();
    }

    /// Nothing goes that has not expired, and if all has, all goes.
    fn evict_before(&mut self, before: u64) {
        let told = evicted(self.scene.queue.evict_before(at(before), at(self.now)).unwrap());
        let expired = self.map.values().filter(|cached| cached.time < before).count();
        let (all, gone) = (self.map.len(), self.gone());
        assert_eq!(told, (gone.len() as u64, gone.iter().map(|cached| cached.weight).sum()));
        assert!(gone.iter().all(|cached| cached.time < before), "{gone:?} before {before}");
        assert!(expired < all || self.map.is_empty(), "{} of {all} stay", self.map.len());
    }

    /// Enough goes, or all; and nothing after there was enough.
    fn evict_weight(&mut self, weight: u64) {
        let told = evicted(self.scene.queue.evict_weight(weight, at(self.now)).unwrap());
        let gone = self.gone();
        let freed = gone.iter().map(|cached| cached.weight).sum();
        assert_eq!(told, (gone.len() as u64, freed));
        assert!(freed >= weight || self.map.is_empty(), "{freed} of {weight} went");
        let heaviest = gone.iter().map(|cached| cached.weight).max().unwrap_or(0);
        assert!(freed - heaviest < weight, "{freed} went for {weight}");
    }

    /// The counters are the map's, but for what inserters hold.
    fn check(&self) {
        let cache = &self.scene.cache;
        let weight: u64 = self.map.values().map(|cached| cached.weight).sum();
        assert_eq!(
            (cache.len(), cache.is_empty(), cache.retired_weight()),
            (self.map.len(), self.map.is_empty(), 0)
        );
        assert!((weight..=weight + (INSERTERS as u64 * (64 << 10))).contains(&cache.weight()));
        assert_eq!(cache.weight(), self.scene.queue.charged_weight());
        let mut pages: Vec<_> = self.map.keys().map(|(ledger, entry)| (ledger, entry >> 6)).collect();
        pages.dedup();
        assert!((pages.len()..=pages.len() + INSERTERS).contains(&usize::try_from(cache.pages()).unwrap()));
        let needed: u64 =
            self.map.values().filter(|cached| cached.expected > 0).map(|cached| cached.weight).sum();
        assert_eq!(cache.expected_weight(), needed);
    }

    fn end(mut self) {
        self.inserters.clear();
        let weight: u64 = self.map.values().map(|cached| cached.weight).sum();
        assert_eq!(self.scene.cache.weight(), weight, "exact, once inserters have left");
        let ids: Vec<_> = self.scene.cache.range(..).iter().map(|(_, value)| value.id).collect();
        assert!(ids.iter().eq(self.map.values().map(|cached| &cached.id)));
        self.scene.end();
    }
}

/// One entry of the queue that eviction is held against.
#[derive(Clone, Debug)]
struct Queued {
    entry: i64,
    weight: u64,
    expected: i32,
    accessed: bool,
    requeues: u32,
    time: u64,
}

#[derive(Clone, Debug)]
enum Turn {
    Insert { weight: u64, expected: u32 },
    Get(prop::sample::Index),
    MarkRead(prop::sample::Index),
    Remove(prop::sample::Index),
    EvictBefore { back: u64 },
    EvictWeight(u64),
}

fn turns() -> impl Strategy<Value = Vec<Turn>> {
    let turn = prop_oneof![
        10 => (1..50_u64, 0..3_u32).prop_map(|(weight, expected)| Turn::Insert { weight, expected }),
        3 => any::<prop::sample::Index>().prop_map(Turn::Get),
        3 => any::<prop::sample::Index>().prop_map(Turn::MarkRead),
        1 => any::<prop::sample::Index>().prop_map(Turn::Remove),
        3 => (0..12_u64).prop_map(|back| Turn::EvictBefore { back }),
        2 => (1..150_u64).prop_map(Turn::EvictWeight),
    ];
    prop::collection::vec(turn, 0..120)
}

/// The queue of 1.6, entry by entry.
struct Fifo {
    max_requeues: u32,
    extend: bool,
    queue: VecDeque<Queued>,
}

impl Fifo {
    /// Removes or requeues from the head, until `done` says so of the head and of what went.
    fn evict(&mut self, now: u64, done: impl Fn(&Queued, u64) -> bool) -> (u64, u64) {
        let (mut entries, mut weight) = (0, 0);
        while let Some(mut head) = self.queue.pop_front() {
            if done(&head, weight) {
                self.queue.push_front(head);
                break;
            }
            if (self.extend && head.accessed) || (head.expected > 0 && head.requeues < self.max_requeues) {
                (head.time, head.accessed) = (now, false);
                head.requeues += 1;
                self.queue.push_back(head);
            } else {
                entries += 1;
                weight += head.weight;
            }
        }
        (entries, weight)
    }
}

/// Entries that each have a page to themselves: then the order of pages is that of entries.
fn evicts_as_a_queue_of_entries(turns: Vec<Turn>, max_requeues: u32, extend: bool) {
    let scene = Scene::with(options(max_requeues, extend), 200);
    let mut fifo = Fifo { max_requeues, extend, queue: VecDeque::new() };
    for (turn, time) in turns.into_iter().zip(1..) {
        let len = fifo.queue.len();
        match turn {
            Turn::Insert { weight, expected } => {
                let entry = 64 * i64::try_from(time).unwrap();
                scene.put_at((1, entry), weight, expected, time);
                let expected = expected.cast_signed();
                fifo.queue.push_back(Queued { entry, weight, expected, accessed: false, requeues: 0, time });
            }
            Turn::Get(_) | Turn::MarkRead(_) | Turn::Remove(_) if len == 0 => {}
            Turn::Get(index) => {
                let queued = &mut fifo.queue[index.index(len)];
                queued.accessed = true;
                assert!(scene.cache.get((1, queued.entry)).is_some());
            }
            Turn::MarkRead(index) => {
                let queued = &mut fifo.queue[index.index(len)];
                queued.expected -= 1;
                assert!(scene.cache.mark_read((1, queued.entry)));
            }
            Turn::Remove(index) => {
                let entry = fifo.queue.remove(index.index(len)).unwrap().entry;
                assert_eq!(scene.cache.remove_range((1, entry)..=(1, entry)).entries, 1);
            }
            Turn::EvictBefore { back } => {
                let before = (time + 1).saturating_sub(back);
                assert_eq!(scene.evict_before(before, time), fifo.evict(time, |head, _| head.time >= before));
            }
            Turn::EvictWeight(least) => {
                assert_eq!(scene.evict_weight(least, time), fifo.evict(time, |_, freed| freed >= least));
            }
        }
        // By asking for each: a range would be an access.
        for queued in &fifo.queue {
            assert!(scene.cache.contains((1, queued.entry)), "{queued:?} should be there");
        }
        assert_eq!(scene.cache.len(), fifo.queue.len());
    }
    scene.end();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// I10, I11, I13, I14, I15, I17: every step of a random history does what a plain map says.
    #[test]
    fn random_histories_are_those_of_a_plain_map(steps in steps()) {
        let mut subject = Subject::new();
        for step in steps {
            subject.step(step);
        }
        subject.end();
    }

    /// 4.3, I19, I20, I23: eviction takes and keeps what a plain queue of entries says.
    #[test]
    fn eviction_is_that_of_a_plain_queue(turns in turns(), max_requeues in 1..4_u32, extend in any::<bool>()) {
        evicts_as_a_queue_of_entries(turns, max_requeues, extend);
    }
}
