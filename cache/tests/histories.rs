//! Histories of many threads at a few places: each place is as if its operations came one after the other, and busy is told only for a reason.
#![cfg(not(any(loom, shuttle)))]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests run on the standard library only, and their helpers unwrap as they do"
)]

mod common;
#[path = "common/history.rs"]
mod history;

use std::collections::BTreeMap;
use std::time::Instant as Wall;

use common::{LONG, Random, Scene, at, options, outcome, threads};
use folio_cache::{EvictError, Inserter, Reason};
use folio_sync::Mutex;
use history::{Clock, Did, Fault, Operation, check, overlapping, places};

/// Two pages, and two places in each.
const PLACES: [i64; 4] = [0, 1, 64, 65];

const THREADS: usize = 4;

/// Operations of a thread in a history.
const EACH: usize = 10_000;

/// Operations of a thread in a history into which faults are planted.
const EACH_PLANTED: usize = 1_000;

/// Which operations come how often, of a hundred.
#[derive(Clone, Copy)]
struct Mix {
    insert: u64,
    get: u64,
    remove: u64,
    range: u64,
    sweep: u64,
    // All others: eviction.
    /// Whether one inserter serves a thread all the while, or each insert has a fresh one.
    held: bool,
}

/// What one thread does and notes.
struct Actor<'a> {
    scene: &'a Scene,
    clock: &'a Clock,
    mix: Mix,
    random: Random,
    inserter: Inserter<common::Value>,
    noted: Vec<Operation>,
}

impl Actor<'_> {
    fn note(&mut self, began: u64, ended: u64, did: impl IntoIterator<Item = (i64, Did)>) {
        self.noted.extend(did.into_iter().map(|(place, did)| Operation { place, began, ended, did }));
    }

    fn act(&mut self) {
        let place = self.random.entry(2) << 6 | self.random.entry(2);
        let position = (1, place);
        let cache = &self.scene.cache;
        let Mix { insert, get, remove, range, sweep, .. } = self.mix;
        let kind = self.random.below(100);
        if kind < insert {
            let value = self.scene.value(position, 1);
            let id = value.id;
            let inserter = if self.mix.held { &mut self.inserter } else { &mut cache.inserter() };
            let (result, began, ended) = self.clock.time(|| inserter.insert(position, value, 0, at(1)));
            let did = match outcome(result) {
                None => Did::Inserted(id),
                Some(Reason::Occupied) => Did::Occupied,
                Some(Reason::Busy) => Did::Busy,
                Some(reason) => panic!("{reason:?}"),
            };
            self.note(began, ended, [(place, did)]);
        } else if kind < insert + get {
            let (value, began, ended) = self.clock.time(|| cache.get(position).map(|value| value.id));
            self.note(began, ended, [(place, Did::Got(value))]);
        } else if kind < insert + get + remove {
            let (removed, began, ended) = self.clock.time(|| cache.remove_range(position..=position));
            self.note(began, ended, [(place, Did::Removed(removed.entries == 1))]);
        } else if kind < insert + get + remove + range {
            let mut found = BTreeMap::new();
            let visit = || cache.for_each_in_range(.., |(_, place), value| _ = found.insert(place, value.id));
            let ((), began, ended) = self.clock.time(visit);
            self.note(began, ended, PLACES.map(|place| (place, Did::Got(found.get(&place).copied()))));
        } else if kind < insert + get + remove + range + sweep {
            let (_, began, ended) = self.clock.time(|| cache.clear());
            self.note(began, ended, PLACES.map(|place| (place, Did::Swept)));
        } else {
            let weight = 1 + self.random.below(4);
            let (result, began, ended) = self.clock.time(|| self.scene.queue.evict_weight(weight, at(2)));
            match result {
                Ok(_) => self.note(began, ended, PLACES.map(|place| (place, Did::Evicted))),
                // Somebody else is the evictor, and notes it.
                Err(EvictError::Busy) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }
}

/// One history; at its end, when all threads are joined, each place is looked at once more.
fn history(mix: Mix, seed: usize, each: usize) -> Vec<Operation> {
    let scene = Scene::with(options(0, false), THREADS * each);
    if seed.is_multiple_of(2) {
        // So that operations overlap also where threads take turns on one processor.
        scene.tally.let_others_run();
    }
    let (clock, all) = (Clock::new(), Mutex::new(Vec::new()));
    threads(THREADS, |thread| {
        let (random, inserter) = (Random::new(seed * THREADS + thread), scene.cache.inserter());
        let mut actor = Actor { scene: &scene, clock: &clock, mix, random, inserter, noted: Vec::new() };
        (0..each).for_each(|_| actor.act());
        all.lock().append(&mut actor.noted);
    });
    let mut all = std::mem::take(&mut *all.lock());
    for place in PLACES {
        let (value, began, ended) = clock.time(|| scene.cache.get((1, place)).map(|value| value.id));
        all.push(Operation { place, began, ended, did: Did::Got(value) });
    }
    assert_eq!(scene.cache.retired_weight(), 0, "nobody is inside");
    scene.end();
    all
}

/// Splits a history by pages, which are independent.
fn pages(history: &[Operation]) -> [Vec<Operation>; 2] {
    [0, 1].map(|page| history.iter().filter(|operation| operation.place >> 6 == page).copied().collect())
}

/// Runs histories until enough operations have overlapped, and checks each.
fn are_linearizable(mix: Mix) {
    for page in pages(&history(mix, 0, EACH_PLANTED)) {
        assert_eq!(check(&page), Ok(()));
        rejects_stale_results(&page);
        rejects_a_busy_insert_without_reason(&page);
    }
    let (start, mut overlapped, mut noted, mut busy, mut seed) = (Wall::now(), 0, 0, 0, 0);
    while (overlapped < 10_000 || seed < 4) && start.elapsed() < LONG {
        let history = history(mix, seed, EACH);
        for page in pages(&history) {
            assert_eq!(check(&page), Ok(()));
        }
        overlapped += overlapping(&history);
        noted += history.len();
        busy += history.iter().filter(|operation| operation.did == Did::Busy).count();
        seed += 1;
    }
    println!(
        "{overlapped} of {noted} operations overlapped another at their place, each one of its own; {busy} were told busy"
    );
    assert!(overlapped >= 10_000, "the threads did not get in each other's way");
    assert!(busy > 0, "no insert was told busy");
}

/// Plants the value before the last one into some reads: the check must see each.
#[track_caller]
fn rejects_stale_results(history: &[Operation]) {
    let mut planted = 0;
    for place in places(history) {
        let mut inserted: Vec<_> = history
            .iter()
            .filter(|operation| operation.place == place && matches!(operation.did, Did::Inserted(_)))
            .collect();
        inserted.sort_unstable_by_key(|operation| operation.ended);
        let reads: Vec<_> = (0..history.len())
            .filter(|&at| history[at].place == place && matches!(history[at].did, Did::Got(_)))
            .collect();
        for &at in reads.iter().step_by(reads.len() / 8 + 1) {
            // The last insert before the read came when the one before that had gone: the fault that shows least.
            let before =
                &inserted[..inserted.partition_point(|operation| operation.ended < history[at].began)];
            let Some(last) = before.iter().map(|operation| operation.began).max() else { continue };
            let stale = before.partition_point(|operation| operation.ended < last);
            let Some(Operation { did: Did::Inserted(value), .. }) = before[..stale].last() else { continue };
            let mut faulty = history.to_vec();
            faulty[at].did = Did::Got(Some(*value));
            assert!(
                matches!(check(&faulty), Err(Fault::NoOrder(_))),
                "the stale read of {:?} is not seen",
                history[at]
            );
            planted += 1;
        }
    }
    assert!(planted >= 8, "only {planted} stale reads were planted");
}

/// Plants busy inserts where nobody is in the way: the check must see each.
#[track_caller]
fn rejects_a_busy_insert_without_reason(history: &[Operation]) {
    let mut faulty = history.to_vec();
    let last = history.iter().map(|operation| operation.ended).max().unwrap();
    let busy = Operation { place: history[0].place, began: last + 1, ended: last + 2, did: Did::Busy };
    faulty.push(busy);
    assert_eq!(check(&faulty), Err(Fault::NobodyInTheWay(busy)));
    // All others are gone from around one that was told busy.
    for told in history.iter().filter(|operation| operation.did == Did::Busy).take(5) {
        let around = |operation: &&Operation| operation.ended < told.began || operation.began > told.ended;
        let mut alone: Vec<_> = history.iter().filter(around).copied().collect();
        alone.retain(|operation| operation.did == Did::Busy);
        alone.push(*told);
        assert!(matches!(check(&alone), Err(Fault::NobodyInTheWay(_))), "{told:?}");
    }
}

/// I9, I10, I11, I12, I13, I14: inserts, reads and removals of single entries, each with an inserter of its own that stays.
#[test]
fn each_place_is_as_if_one_operation_came_after_the_other() {
    are_linearizable(Mix { insert: 45, get: 25, remove: 30, range: 0, sweep: 0, held: true });
}

/// I9, I10, I11, I12, I13, I14: with fresh inserters, so that pages come and go, range reads, clears and eviction.
#[test]
fn each_place_is_so_while_pages_come_and_go() {
    are_linearizable(Mix { insert: 50, get: 15, remove: 20, range: 5, sweep: 5, held: false });
}

/// The check takes what overlapping operations may do, and rejects what they may not.
#[test]
fn planted_faults_in_a_history_are_rejected() {
    let at = |began, ended, did| Operation { place: 3, began, ended, did };
    let elsewhere = |began, ended, did| Operation { place: 4, began, ended, did };
    let inserted = at(1, 2, Did::Inserted(7));
    let again = at(7, 8, Did::Inserted(8));
    let removed = |began, ended| at(began, ended, Did::Removed(true));
    let good: [&[Operation]; 10] = [
        &[],
        &[inserted, at(3, 4, Did::Got(Some(7))), removed(5, 6), again, at(9, 10, Did::Got(Some(8)))],
        // A read during the removal may have either; two that overlap it may disagree, in either order of their begins.
        &[inserted, removed(3, 8), at(4, 6, Did::Got(None)), at(5, 7, Did::Got(Some(7)))],
        &[inserted, at(3, 9, Did::Removed(false)), removed(4, 5)],
        &[at(1, 10, Did::Inserted(1)), at(2, 9, Did::Inserted(2)), at(3, 8, Did::Removed(true))],
        &[inserted, at(3, 4, Did::Swept), at(5, 6, Did::Got(None)), again],
        &[
            inserted,
            at(3, 4, Did::Evicted),
            at(5, 6, Did::Got(Some(7))),
            at(9, 10, Did::Evicted),
            at(11, 12, Did::Got(None)),
        ],
        // One pass may take two values of a place, one after the other.
        &[
            inserted,
            at(3, 20, Did::Evicted),
            again,
            at(9, 10, Did::Inserted(9)),
            at(11, 12, Did::Got(Some(9))),
        ],
        // Busy: an insert at the place, a removal elsewhere in the page, a read there.
        &[at(1, 4, Did::Inserted(7)), at(2, 3, Did::Busy), at(5, 6, Did::Got(Some(7)))],
        &[
            elsewhere(1, 4, Did::Removed(false)),
            at(2, 3, Did::Busy),
            elsewhere(5, 8, Did::Got(None)),
            at(6, 9, Did::Busy),
        ],
    ];
    for history in good {
        assert_eq!(check(history), Ok(()), "{history:?}");
    }
    let stale = at(9, 10, Did::Got(Some(7)));
    let order: [(&[Operation], Operation); 9] = [
        (&[inserted, removed(3, 4), again, stale], stale),
        (&[inserted, removed(3, 4), stale], stale),
        (&[inserted, at(3, 4, Did::Got(None))], at(3, 4, Did::Got(None))),
        (&[inserted, removed(3, 4), removed(5, 6)], removed(5, 6)),
        (&[inserted, at(3, 4, Did::Removed(false))], at(3, 4, Did::Removed(false))),
        (&[at(1, 2, Did::Occupied)], at(1, 2, Did::Occupied)),
        (&[inserted, again], again),
        // The pass ended before.
        (
            &[inserted, at(3, 4, Did::Evicted), again, at(9, 10, Did::Inserted(9))],
            at(9, 10, Did::Inserted(9)),
        ),
        // Two reads after one another that saw the removal and then did not.
        (&[inserted, removed(3, 20), at(4, 5, Did::Got(None)), stale], stale),
    ];
    for (history, fault) in order {
        assert_eq!(check(history), Err(Fault::NoOrder(fault)), "{history:?}");
    }
    let busy = at(5, 6, Did::Busy);
    let alone: [&[Operation]; 4] = [
        &[busy],
        &[inserted, removed(3, 4), busy, again],
        // It was inserted elsewhere, which is no reason.
        &[elsewhere(3, 8, Did::Inserted(1)), busy],
        &[elsewhere(1, 4, Did::Removed(false)), elsewhere(7, 8, Did::Got(None)), busy],
    ];
    for history in alone {
        assert_eq!(check(history), Err(Fault::NobodyInTheWay(busy)), "{history:?}");
    }
    let pair = [at(1, 4, Did::Got(None)), at(2, 3, Did::Got(None))];
    assert_eq!((overlapping(&pair), overlapping(&[inserted, again])), (2, 0));
    assert_eq!(overlapping(&[pair[0], elsewhere(2, 3, Did::Got(None))]), 0, "at different places");
    let long = at(0, 100, Did::Got(None));
    assert_eq!(overlapping(&[long, inserted, again, stale]), 2, "one that stands still counts once");
}
