//! The stores in memory, and the one that misbehaves from a seed.
#![cfg(not(any(loom, shuttle)))]
#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "tests run on real threads")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::time::Duration;

use bytes::Bytes;
use folio_ledger::store::{
    Append, Faults, FaultyStore, LogStore, MemoryMetadata, MemoryStore, ReadLimits, StoreError, conformance,
};
use folio_sync::test_util::{ManualClock, ManualTimers};
use folio_sync::timers::ThreadTimers;

const ALL: ReadLimits = ReadLimits { entries: usize::MAX, bytes: usize::MAX };

fn entry(n: i64) -> Bytes {
    n.to_string().into()
}

fn batch(epoch: u64, first: i64, count: i64) -> Append {
    Append { ledger: 1, epoch, first, entries: (first..first + count).map(entry).collect() }
}

/// 1.15: memory does what a store of ledgers does.
#[test]
fn memory_conforms() {
    conformance::log_store(&MemoryStore::new);
}

#[test]
fn metadata_in_memory_conforms() {
    conformance::metadata_store(&MemoryMetadata::new);
}

#[test]
fn slow_answers_that_overtake_each_other_conform() {
    let faults = Faults {
        latency: Duration::ZERO..Duration::from_micros(300),
        failed_appends: 0,
        torn_appends: 0,
        lost_answers: 0,
        failed_reads: 0,
    };
    conformance::log_store(&|| FaultyStore::new(7, faults.clone(), ThreadTimers::new()));
}

#[test]
fn a_full_memory_refuses_appends_reads_on_and_resumes() {
    let store = MemoryStore::with_max_bytes(300);
    conformance::ask(|done| store.create("g", 1, 1, done)).wait().unwrap();
    conformance::ask(|done| store.append(batch(1, 0, 4), done)).wait().unwrap();
    let full = conformance::ask(|done| store.append(batch(1, 4, 1), done)).wait();
    assert_eq!(full, Err(StoreError::Full));
    assert_eq!(conformance::ask(|done| store.read(1, 0, ALL, done)).wait().unwrap().len(), 4);
    conformance::ask(|done| store.delete(1, 1, done)).wait().unwrap();
    conformance::ask(|done| store.create("g", 1, 1, done)).wait().unwrap();
    conformance::ask(|done| store.append(batch(1, 0, 4), done)).wait().unwrap();
}

/// What one seed comes to: which appends were told what, and what is there in the end.
fn run(seed: u64) -> (Vec<Result<i64, StoreError>>, Vec<Bytes>) {
    let clock = ManualClock::new();
    let timers = ManualTimers::new(&clock);
    let faults = Faults {
        latency: Duration::from_millis(1)..Duration::from_millis(9),
        failed_appends: 20,
        torn_appends: 20,
        lost_answers: 20,
        failed_reads: 100,
    };
    let store = FaultyStore::new(seed, faults, timers.clone());
    let created = conformance::ask(|done| store.create("g", 1, 1, done));
    assert_eq!(created.now(), None, "not at once");
    timers.advance(Duration::from_millis(10));
    created.wait().unwrap();
    let mut asked = Vec::new();
    for round in 0..40 {
        asked.push(conformance::ask(|done| store.append(batch(1, round * 3, 3), done)));
        timers.advance(Duration::from_micros(700));
    }
    timers.advance(Duration::from_millis(10));
    let told: Vec<_> = asked.into_iter().map(|answer| answer.wait().map(|appended| appended.last)).collect();
    let recovered = conformance::ask(|done| store.recover(1, 2, done));
    timers.advance(Duration::from_millis(10));
    let last = recovered.wait().unwrap();
    let mut all = Vec::new();
    while last >= i64::try_from(all.len()).unwrap() {
        let first = i64::try_from(all.len()).unwrap();
        let read = conformance::ask(|done| store.read(1, first, ALL, done));
        timers.advance(Duration::from_millis(10));
        match read.wait() {
            Ok(some) => all.extend(some),
            Err(StoreError::ReadFailed(_)) => {}
            Err(other) => panic!("{other}"),
        }
    }
    (told, all)
}

#[test]
fn a_failed_append_is_there_in_part_or_not_and_none_follows_it() {
    let (mut torn, mut none, mut whole, mut well) = (0, 0, 0, 0);
    for seed in 0..200 {
        let (told, all) = run(seed);
        assert_eq!((&told, &all), (&run(seed).0, &run(seed).1), "the same seed comes to the same");
        let good = told.iter().take_while(|answer| answer.is_ok()).count();
        assert!(told[good..].iter().all(Result::is_err));
        assert_eq!(all, (0..i64::try_from(all.len()).unwrap()).map(entry).collect::<Vec<_>>());
        match all.len().checked_sub(good * 3) {
            _ if good == told.len() => well += 1,
            Some(0) => none += 1,
            Some(1 | 2) => torn += 1,
            Some(3) => whole += 1,
            other => panic!("{other:?} of a failed batch"),
        }
    }
    assert!(torn > 10 && none > 10 && whole > 10 && well > 5, "{torn} {none} {whole} {well}");
}
