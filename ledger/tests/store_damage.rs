//! The store in files: what it makes of damage, and of a tail that was being written.
#![cfg(not(any(loom, shuttle)))]
#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "tests run on real threads")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod support_dir;
mod support_store;

use bytes::Bytes;
use folio_ledger::Position;
use folio_ledger::store::conformance::ask;
use folio_ledger::store::layer::{Directory, Mode, RealDirectory, SimDirectory, StoreFile};
use folio_ledger::store::{
    Append, Durability, FileOptions, FileStore, LogStore, OpenError, Seed, StoreError,
};
use support_dir::TempDir;
use support_store::{append, batch, create, holds, last, open, payload, read, read_only, small, stepped};

#[test]
fn a_newer_format_is_refused_with_both_versions() {
    let directory = SimDirectory::new();
    drop(open(&directory, small()));
    let mut bytes = directory.bytes("segment-00000000");
    for copy in [0, 4096] {
        bytes[copy + 8] = 9;
        let crc = crc32c::crc32c(&bytes[copy..copy + 28]);
        bytes[copy + 28..copy + 32].copy_from_slice(&crc.to_le_bytes());
    }
    directory.put("segment-00000000", bytes);
    for options in [small(), read_only()] {
        let error = FileStore::open(directory.clone(), options).unwrap_err();
        assert!(matches!(error, OpenError::Format { found: 9, supported: 1 }), "{error}");
    }
}

/// A store with entries of two ledgers in several segments, shut; how many entries each has.
fn filled(directory: &SimDirectory) -> i64 {
    let store = open(directory, small());
    (1..3).for_each(|ledger| create(&store, ledger));
    for n in 0..60 {
        (1..3).for_each(|ledger| append(&store, ledger, n * 5, 5));
    }
    300
}

fn segments(directory: &SimDirectory) -> Vec<String> {
    let mut names = directory.list().unwrap();
    names.retain(|name| name.starts_with("segment-"));
    names
}

/// How many segments have an index beside them.
fn sealed(directory: &SimDirectory) -> usize {
    directory.list().unwrap().iter().filter(|name| name.starts_with("index-")).count()
}

/// A flipped bit anywhere in a segment, its header or its index is told or harmless; nothing wrong is ever read.
#[test]
fn a_flipped_bit_is_told_or_harmless() {
    let whole = SimDirectory::new();
    let count = filled(&whole);
    let mut seed = Seed::new(11);
    let (mut told, mut harmless, mut at_open) = (0, 0, 0);
    let mut names = whole.list().unwrap();
    names.retain(|name| name != "LOCK");
    assert!(names.len() > 5, "{names:?}");
    // A sanitizer takes its time.
    let rounds = if cfg!(tsan) { 60 } else { 600 };
    for round in 0..rounds {
        let directory = SimDirectory::new();
        for name in whole.list().unwrap() {
            directory.put(&name, whole.bytes(&name));
        }
        let name = &names[usize::try_from(seed.below(names.len() as u64)).unwrap()];
        let mut bytes = directory.bytes(name);
        let end = if round % 4 == 0 { 300.min(bytes.len()) } else { bytes.len() };
        let at = usize::try_from(seed.below(end as u64)).unwrap();
        bytes[at] ^= 1 << seed.below(8);
        directory.put(name, bytes);
        match FileStore::open(directory.clone(), small()) {
            Ok((store, report)) => {
                assert!(report.damages.is_empty());
                let (mut bad, mut cut) = (0, 0);
                for ledger in 1..3 {
                    let (good, damaged) = verify(&store, ledger, count);
                    bad += damaged;
                    cut += count - good - damaged;
                }
                assert_eq!(cut, 0, "{name} {at}: what was on disk is not cut off");
                told += i32::from(bad > 0);
                harmless += i32::from(bad == 0);
            }
            Err(OpenError::Damaged(damages)) => {
                assert!(!damages.is_empty());
                at_open += 1;
                let (store, report) = FileStore::open(directory, read_only()).unwrap();
                assert!(!report.damages.is_empty());
                assert!(report.damages.iter().any(|damage| *damage.file == **name), "{damages:?}");
                for ledger in 1..3 {
                    if ask(|done| store.last_confirmed(ledger, done)).wait().is_ok() {
                        verify(&store, ledger, count);
                    }
                }
            }
            Err(other) => panic!("{name} {at}: {other}"),
        }
    }
    assert!(cfg!(tsan) || told > 50 && harmless > 50 && at_open > 5, "{told} {harmless} {at_open}");
}

/// Reads all entries; how many are right, and how many are told to be damaged.
fn verify<D: Directory>(store: &FileStore<D>, ledger: i64, count: i64) -> (i64, i64) {
    let (mut good, mut damaged, mut next) = (0, 0, 0);
    while next < count {
        match read(store, ledger, next) {
            Ok(some) => {
                for one in some {
                    assert_eq!(one, payload(ledger, next));
                    next += 1;
                    good += 1;
                }
            }
            Err(StoreError::Damaged(damage)) => {
                assert_eq!(damage.position, Some(Position { ledger, entry: next }));
                damaged += 1;
                next += 1;
            }
            Err(StoreError::NoSuchEntry(_)) => break,
            Err(other) => panic!("{other}"),
        }
    }
    (good, damaged)
}

#[test]
fn damage_in_the_middle_is_told_with_ledger_entry_file_and_offset() {
    let directory = SimDirectory::new();
    filled(&directory);
    // The payload of an entry is in one place only.
    let entry = |entry| payload(1, entry);
    for number in [3, 100, 200] {
        let name =
            segments(&directory).into_iter().find(|name| offset(&directory, name, &entry(number)).is_some());
        let name = name.unwrap();
        let at = offset(&directory, &name, &entry(number)).unwrap();
        let whole = directory.bytes(&name);
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        directory.put(&name, bytes);
        let (store, damage) = match FileStore::open(directory.clone(), small()) {
            Ok((store, _)) => {
                assert_eq!(read(&store, 1, number - 2).unwrap().len(), 2, "up to it all is well");
                let Err(StoreError::Damaged(damage)) = read(&store, 1, number) else { panic!("not told") };
                (store, damage)
            }
            Err(OpenError::Damaged(damages)) => {
                let store = FileStore::open(directory.clone(), read_only()).unwrap().0;
                (store, damages[0].clone())
            }
            Err(other) => panic!("{other}"),
        };
        assert_eq!(damage.position, Some(Position { ledger: 1, entry: number }));
        assert_eq!((&*damage.file, damage.offset), (&*name, at as u64 - 48));
        holds(&store, 2, 300);
        drop(store);
        directory.put(&name, whole);
    }
}

fn offset(directory: &SimDirectory, name: &str, payload: &[u8]) -> Option<usize> {
    directory.bytes(name).windows(payload.len()).position(|window| window == payload)
}

#[test]
fn a_segment_that_is_gone_is_told() {
    let directory = SimDirectory::new();
    filled(&directory);
    let names = segments(&directory);
    for name in &names[..names.len() - 1] {
        let bytes = directory.bytes(name);
        directory.remove(name).unwrap();
        let error = FileStore::open(directory.clone(), small()).unwrap_err();
        let OpenError::Damaged(damages) = error else { panic!("{error}") };
        assert!(damages.iter().any(|damage| damage.position.is_some()), "{damages:?}");
        directory.put(name, bytes);
    }
    drop(open(&directory, small()));
}

#[test]
fn a_lost_index_is_made_up_for_by_its_segment() {
    let directory = SimDirectory::new();
    let count = filled(&directory);
    let indexes: Vec<_> =
        directory.list().unwrap().into_iter().filter(|name| name.starts_with("index-")).collect();
    assert!(indexes.len() > 2);
    let (store, report) = FileStore::open(directory.clone(), small()).unwrap();
    assert_eq!(report.scanned, 1, "of the others the index is read");
    drop(store);
    directory.remove(&indexes[0]).unwrap();
    directory.put(&indexes[1], vec![1, 2, 3]);
    let (store, report) = FileStore::open(directory, small()).unwrap();
    assert_eq!(report.scanned, 3);
    (1..3).for_each(|ledger| holds(&store, ledger, count));
}

/// A tail that was being written is cut off and told; what is written after it is found again.
#[test]
fn a_torn_tail_is_cut_and_told() {
    let mut cuts = 0;
    for seed in 0..100 {
        let directory = SimDirectory::new();
        let (store, mut stepper) = stepped(&directory);
        let made = ask(|done| store.create("g", 1, 1, done));
        let first = ask(|done| store.append(batch(1, 1, 0, 5), done));
        stepper.step();
        made.wait().unwrap();
        first.wait().unwrap();
        directory.power_off_after(1);
        let second = ask(|done| store.append(batch(1, 1, 5, 20), done));
        stepper.step();
        assert!(second.wait().is_err());
        directory.crash(&mut Seed::new(seed));
        drop(store);
        let (store, report) = FileStore::open(directory.clone(), small()).unwrap();
        let next = last(&store, 1) + 1;
        assert!((5..=25).contains(&next));
        cuts += i32::from(report.cut.is_some());
        holds(&store, 1, next);
        append(&store, 1, next, 3);
        drop(store);
        let store = open(&directory, small());
        holds(&store, 1, next + 3);
    }
    assert!(cuts > 30, "{cuts}");
}

/// What lies behind a tail that was cut off fits exactly behind what is written there next, and yet does not come back.
#[test]
fn what_was_behind_a_cut_does_not_come_back() {
    let directory = SimDirectory::new();
    let (store, mut stepper) = stepped(&directory);
    let made = ask(|done| store.create("g", 1, 1, done));
    stepper.step();
    made.wait().unwrap();
    let three =
        |text: [&'static str; 3]| Append { entries: text.map(Bytes::from).into(), ..batch(1, 1, 0, 0) };
    directory.power_off_after(1);
    let asked = ask(|done| store.append(three(["lost a", "lost b", "lost c"]), done));
    stepper.step();
    assert!(asked.wait().is_err());
    directory.kill();
    drop(store);
    // The first of the three did not get to the disk.
    let name = "segment-00000000";
    let at = offset(&directory, name, b"lost a").unwrap();
    let mut bytes = directory.bytes(name);
    bytes[at - 48..at].fill(0);
    directory.put(name, bytes);
    let (store, mut stepper, report) = FileStore::open_stepped(directory.clone(), small()).unwrap();
    assert_eq!(report.cut.unwrap().offset, at as u64 - 48);
    let one = Append { entries: vec!["sure a".into()], ..batch(1, 1, 0, 0) };
    let asked = ask(|done| store.append(one, done));
    stepper.step();
    asked.wait().unwrap();
    directory.kill();
    drop(store);
    let store = FileStore::open(directory, small()).unwrap().0;
    assert_eq!(last(&store, 1), 0);
    assert_eq!(read(&store, 1, 0).unwrap(), ["sure a"]);
}

/// Only the newest segment may lose anything, even if appends are only written.
#[test]
fn a_sealed_segment_is_on_disk_whatever_the_durability() {
    for seed in 0..20 {
        let directory = SimDirectory::new();
        let options = FileOptions { durability: Durability::Written, ..small() };
        let store = FileStore::open(directory.clone(), options).unwrap().0;
        create(&store, 1);
        let mut next = 0;
        while sealed(&directory) < 2 {
            append(&store, 1, next, 5);
            next += 5;
        }
        directory.crash(&mut Seed::new(seed));
        drop(store);
        let store = FileStore::open(directory, small()).unwrap().0;
        let there = last(&store, 1) + 1;
        assert!(there >= next - 5, "{there} of {next}");
        holds(&store, 1, there);
    }
}

/// A segment may be taken up again after its index was written: the next one may not have come to be.
#[test]
fn an_index_that_is_older_than_its_segment_is_not_taken() {
    let directory = SimDirectory::new();
    let store = open(&directory, small());
    create(&store, 1);
    let mut next = 0;
    while sealed(&directory) < 1 {
        append(&store, 1, next, 1);
        next += 1;
    }
    let early = directory.bytes("index-00000000");
    drop(store);
    // As if the power had gone as the second segment began.
    let mut bytes = directory.bytes("segment-00000001");
    bytes[8192..].fill(0);
    directory.put("segment-00000001", bytes);
    let store = FileStore::open(directory.clone(), small()).unwrap().0;
    next = last(&store, 1) + 1;
    ask(|done| store.create("other", 2, 1, done)).wait().unwrap();
    ask(|done| store.append(batch(2, 1, 0, 1), done)).wait().unwrap();
    append(&store, 1, next, 4);
    next += 4;
    directory.remove("index-00000000").unwrap();
    while sealed(&directory) < 1 {
        append(&store, 1, next, 1);
        next += 1;
    }
    drop(store);
    directory.put("index-00000000", early);
    let store = open(&directory, small());
    holds(&store, 1, next);
    holds(&store, 2, 1);
}

#[test]
fn a_file_of_the_real_system_is_as_long_as_its_segment() {
    let temp = TempDir::new("size");
    let directory = RealDirectory::new(temp.path());
    drop(open(&directory, small()));
    let file = directory.open("segment-00000000", Mode::Read).unwrap();
    assert_eq!(file.size().unwrap(), 32 * 1024);
}
