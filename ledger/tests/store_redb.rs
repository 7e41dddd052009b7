//! Metadata in a file: what it keeps, and what becomes of a damaged file.
// What redb and the child processes stand on reports itself under ThreadSanitizer.
#![cfg(not(any(loom, shuttle, tsan)))]
#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "tests run on real threads")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod support_dir;

use std::sync::mpsc;

use bytes::Bytes;
use folio_ledger::store::conformance::{self, ask};
use folio_ledger::store::{
    Change, Expected, MetadataStore, OpenError, RedbMetadata, RedbOptions, Seed, StoreError, Versioned,
};
use support_dir::TempDir;

fn open(temp: &TempDir) -> Result<RedbMetadata, OpenError> {
    RedbMetadata::open(temp.path().join("metadata.redb"), &RedbOptions::default())
}

fn put(key: &str, expected: Expected, value: Bytes) -> Change {
    Change { key: key.into(), expected, value: Some(value) }
}

fn value(n: usize) -> Bytes {
    let mut value = format!("value {n} ").into_bytes();
    value.resize(value.len() + n * 37 % 900, b'v');
    value.into()
}

#[test]
fn metadata_in_a_file_conforms() {
    let (keep, kept) = mpsc::channel();
    conformance::metadata_store(&move || {
        let temp = TempDir::new("redb");
        let store = open(&temp).unwrap();
        keep.send(temp).unwrap();
        store
    });
    drop(kept);
}

fn filled(temp: &TempDir, count: usize) -> Vec<u64> {
    let store = open(temp).unwrap();
    let changes = (0..count).map(|n| put(&format!("key {n:05}"), Expected::Absent, value(n))).collect();
    let versions = ask(|done| store.commit(changes, done)).wait().unwrap();
    versions.into_iter().map(Option::unwrap).collect()
}

#[test]
fn values_and_versions_are_there_when_it_is_opened_again() {
    let temp = TempDir::new("redb-again");
    let versions = filled(&temp, 50);
    let store = open(&temp).unwrap();
    assert!(matches!(open(&temp).unwrap_err(), OpenError::Locked));
    for (n, &version) in versions.iter().enumerate() {
        let got = ask(|done| store.get(&format!("key {n:05}"), done)).wait().unwrap();
        assert_eq!(got, Some(Versioned { version, value: value(n) }));
    }
    let gone = Change { key: "key 00049".into(), expected: Expected::Any, value: None };
    ask(|done| store.commit(vec![gone], done)).wait().unwrap();
    drop(store);
    let store = open(&temp).unwrap();
    let again =
        ask(|done| store.commit(vec![put("key 00049", Expected::Absent, value(1))], done)).wait().unwrap();
    assert!(again[0] > versions.last().copied(), "no version comes again");
    drop(store);
    let report = RedbMetadata::check(temp.path().join("metadata.redb")).unwrap();
    assert_eq!((report.values, &report.damages[..]), (50, &[][..]));
    assert!(matches!(RedbMetadata::check(temp.path().join("none")), Err(OpenError::NotAStore)));
}

#[test]
fn an_answer_may_be_the_last_to_hold_it() {
    let temp = TempDir::new("redb-last");
    let store = std::sync::Arc::new(open(&temp).unwrap());
    let (tell, told) = mpsc::channel();
    let (go, gone) = mpsc::channel::<()>();
    let holds = std::sync::Arc::clone(&store);
    let done = folio_ledger::store::Done::new(move |answer: Result<_, StoreError>| {
        gone.recv().unwrap();
        drop(holds);
        tell.send(answer.is_ok()).unwrap();
    });
    store.commit(vec![put("a", Expected::Any, value(1))], done);
    drop(store);
    go.send(()).unwrap();
    assert!(told.recv().unwrap());
}

/// A damaged file gives right values or errors, whatever redb makes of it.
#[test]
fn a_damaged_file_gives_errors_and_no_wrong_values() {
    let temp = TempDir::new("redb-bad");
    let versions = filled(&temp, 300);
    let path = temp.path().join("metadata.redb");
    let whole = std::fs::read(&path).unwrap();
    let mut seed = Seed::new(3);
    let (mut refused, mut checked, mut told, mut harmless) = (0, 0, 0, 0);
    for _ in 0..120 {
        let mut bytes = whole.clone();
        for _ in 0..=seed.below(3) {
            // Most of a file is empty: where there is something a flip has more of a chance.
            let at = loop {
                let at = usize::try_from(seed.below(bytes.len() as u64)).unwrap();
                if bytes[at] != 0 || seed.happens(20) {
                    break at;
                }
            };
            bytes[at] ^= 1 << seed.below(8);
        }
        std::fs::write(&path, &bytes).unwrap();
        let store = match open(&temp) {
            Ok(store) => store,
            Err(OpenError::Damaged(_) | OpenError::Format { .. } | OpenError::Io(_)) => {
                refused += 1;
                continue;
            }
            Err(other) => panic!("{other}"),
        };
        let mut bad = 0;
        for (n, &version) in versions.iter().enumerate() {
            match ask(|done| store.get(&format!("key {n:05}"), done)).wait() {
                Ok(Some(got)) => assert_eq!(got, Versioned { version, value: value(n) }),
                Ok(None) | Err(StoreError::Damaged(_) | StoreError::ReadFailed(_)) => bad += 1,
                Err(other) => panic!("{other}"),
            }
        }
        drop(ask(|done| store.list("", done)).wait());
        drop(store);
        let sound =
            RedbMetadata::check(&path).is_ok_and(|report| report.damages.is_empty() && report.values == 300);
        match (bad > 0, sound) {
            (true, false) => told += 1,
            (false, false) => checked += 1,
            (false, true) => harmless += 1,
            (true, true) => panic!("{bad} values are missing, and the check is content"),
        }
    }
    println!(
        "{refused} refused at open, {told} told by reads, {checked} by the check alone, {harmless} harmless"
    );
    assert!(refused + told + checked > 20);
}
