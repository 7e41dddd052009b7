//! Looking at a store as a whole.
// What redb and the child processes stand on reports itself under ThreadSanitizer.
#![cfg(not(any(loom, shuttle, tsan)))]
#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "tests run on real threads")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod support_dir;

use bytes::Bytes;
use folio_ledger::Position;
use folio_ledger::store::conformance::ask;
use folio_ledger::store::layer::{Directory, RealDirectory, SimDirectory};
use folio_ledger::store::{
    Append, Change, Expected, FileOptions, FileStore, LogStore, METADATA_FILE, MetadataStore, OpenError,
    RedbMetadata, RedbOptions, Seed, inspect, inspect_log,
};
use support_dir::TempDir;

fn options() -> FileOptions {
    FileOptions { segment_bytes: 32 * 1024, ..FileOptions::default() }
}

fn payload(ledger: i64, entry: i64) -> Bytes {
    format!("{ledger}:{entry} {}", "x".repeat(150)).into()
}

/// Two ledgers of a hundred entries each, and one that is deleted.
fn fill<D: Directory>(directory: D) {
    let store = FileStore::open(directory, options()).unwrap().0;
    for (ledger, group) in [(1, "a"), (2, "b \"quoted\""), (3, "a")] {
        ask(|done| store.create(group, ledger, 1, done)).wait().unwrap();
    }
    for n in 0..20 {
        for ledger in 1..4 {
            let entries = (n * 5..n * 5 + 5).map(|entry| payload(ledger, entry)).collect();
            ask(|done| store.append(Append { ledger, epoch: 1, first: n * 5, entries }, done))
                .wait()
                .unwrap();
        }
    }
    ask(|done| store.close(2, 1, done)).wait().unwrap();
    ask(|done| store.delete(3, 1, done)).wait().unwrap();
}

#[test]
fn a_sound_store_is_told_with_its_ledgers_and_its_metadata() {
    let temp = TempDir::new("inspect");
    assert!(matches!(inspect(temp.path()).unwrap_err(), OpenError::NotAStore));
    fill(RealDirectory::new(temp.path()));
    let metadata = RedbMetadata::open(temp.path().join(METADATA_FILE), &RedbOptions::default()).unwrap();
    let change = Change { key: "k".into(), expected: Expected::Absent, value: Some("v".into()) };
    ask(|done| metadata.commit(vec![change], done)).wait().unwrap();
    drop(metadata);
    let report = inspect(temp.path()).unwrap();
    assert!(report.is_sound(), "{report}");
    let bytes = |ledger| (0..100).map(|entry| payload(ledger, entry).len() as u64).sum::<u64>();
    let ledgers: Vec<_> = report
        .ledgers
        .iter()
        .map(|one| {
            (one.info.ledger, one.group.as_str(), one.info.last, one.info.closed, one.entries, one.bytes)
        })
        .collect();
    assert_eq!(ledgers, [(1, "a", 99, false, 100, bytes(1)), (2, "b \"quoted\"", 99, true, 100, bytes(2))]);
    assert!(report.records >= 300 && report.segments >= 2);
    assert_eq!(report.metadata.as_ref().map(|metadata| metadata.values), Some(1));
    let json = report.to_json();
    assert!(json.starts_with("{\"sound\":true,"), "{json}");
    assert!(json.contains("\"group\":\"b \\\"quoted\\\"\""), "{json}");
    assert!(json.ends_with("\"damages\":[]}\n"), "{json}");
    let text = report.to_string();
    assert!(text.contains("ledger 1 of a: 0..=99, 100 sound entries"), "{text}");
    assert!(text.ends_with("\nsound"), "{text}");
    let store = FileStore::open(RealDirectory::new(temp.path()), options()).unwrap();
    assert!(matches!(inspect(temp.path()).unwrap_err(), OpenError::Locked));
    drop(store);
    inspect(temp.path()).unwrap();
}

#[test]
fn what_is_no_store_is_told() {
    let directory = SimDirectory::new();
    directory.put("letters", vec![1]);
    assert!(matches!(inspect_log(directory).unwrap_err(), OpenError::NotAStore));
}

/// Every flipped bit of an entry that is there is found, with its place.
#[test]
fn damage_is_told_with_its_place() {
    let whole = SimDirectory::new();
    fill(whole.clone());
    let mut seed = Seed::new(9);
    for _ in 0..60 {
        let directory = SimDirectory::new();
        let (ledger, entry) = (1 + seed.below(2).cast_signed(), seed.below(100).cast_signed());
        let payload = payload(ledger, entry);
        let mut place = None;
        for name in whole.list().unwrap() {
            let mut bytes = whole.bytes(&name);
            let here = bytes.windows(payload.len()).position(|window| window == payload);
            if let Some(at) = here {
                let bit = usize::try_from(seed.below((payload.len() as u64 + 48) * 8)).unwrap();
                bytes[at - 48 + bit / 8] ^= 1 << (bit % 8);
                place = Some((name.clone(), at as u64 - 48));
            }
            directory.put(&name, bytes);
        }
        let (file, offset) = place.unwrap();
        let report = inspect_log(directory).unwrap();
        assert!(!report.is_sound());
        let told = report.damages.iter().find(|damage| damage.position == Some(Position { ledger, entry }));
        let told = told.unwrap_or_else(|| panic!("{ledger}:{entry} in {file} at {offset}: {report}"));
        assert_eq!((&*told.file, told.offset), (&*file, offset));
        assert_eq!(report.ledgers.iter().map(|one| one.entries).sum::<u64>(), 199, "{report}");
        assert!(
            report.to_json().contains(&format!("\"ledger\":{ledger},\"entry\":{entry},\"file\":\"{file}\""))
        );
        assert!(report.to_string().ends_with("DAMAGED"));
    }
}
