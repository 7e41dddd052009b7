//! The files of a store, real and simulated.
#![cfg(not(any(loom, shuttle)))]
#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "tests run on real threads")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod support_dir;

use std::io::ErrorKind;

use folio_ledger::store::Seed;
use folio_ledger::store::layer::{Directory, Hold, Mode, Op, RealDirectory, SimDirectory, StoreFile};
use support_dir::TempDir;

fn behaves<D: Directory>(directory: &D) {
    assert_eq!(directory.open("a", Mode::Write).err().unwrap().kind(), ErrorKind::NotFound);
    let file = directory.open("a", Mode::Create).unwrap();
    file.preallocate(3_000_000).unwrap();
    assert_eq!(file.size().unwrap(), 3_000_000);
    file.write_at(2_999_990, b"0123456789").unwrap();
    file.sync().unwrap();
    directory.sync().unwrap();
    let again = directory.open("a", Mode::Read).unwrap();
    let mut ten = [7; 10];
    again.read_at(100, &mut ten).unwrap();
    assert_eq!(ten, [0; 10]);
    again.read_at(2_999_990, &mut ten).unwrap();
    assert_eq!(&ten, b"0123456789");
    assert_eq!(again.read_at(2_999_991, &mut ten).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    assert!(again.write_at(0, b"x").is_err(), "opened to be read");
    assert_eq!(directory.list().unwrap(), ["a"]);
    assert_eq!(directory.open("a", Mode::Create).unwrap().size().unwrap(), 0);
    directory.remove("a").unwrap();
    assert_eq!(directory.remove("a").unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(directory.lock("LOCK", Hold::Shared).err().unwrap().kind(), ErrorKind::NotFound);
    let alone = directory.lock("LOCK", Hold::Alone).unwrap();
    for how in [Hold::Alone, Hold::Shared] {
        assert_eq!(directory.lock("LOCK", how).err().unwrap().kind(), ErrorKind::WouldBlock);
    }
    drop(alone);
    let shared = [(); 2].map(|()| directory.lock("LOCK", Hold::Shared).unwrap());
    assert_eq!(directory.lock("LOCK", Hold::Alone).err().unwrap().kind(), ErrorKind::WouldBlock);
    drop(shared);
    directory.lock("LOCK", Hold::Alone).unwrap();
}

#[test]
fn a_real_directory_does_what_a_store_needs() {
    let temp = TempDir::new("layer");
    behaves(&RealDirectory::new(temp.path()));
}

#[test]
fn a_simulated_directory_does_the_same() {
    behaves(&SimDirectory::new());
}

#[test]
fn a_crash_loses_only_what_was_not_synced() {
    let (mut lost, mut torn, mut names) = (0, 0, 0);
    for seed in 0..100 {
        let sim = SimDirectory::new();
        let file = sim.open("a", Mode::Create).unwrap();
        file.write_at(0, &[1; 4096]).unwrap();
        file.sync().unwrap();
        sim.sync().unwrap();
        file.write_at(1024, &[2; 2048]).unwrap();
        sim.open("b", Mode::Create).unwrap();
        let crash = sim.crash(&mut Seed::new(seed));
        (lost, torn, names) = (lost + crash.lost, torn + crash.torn, names + crash.names);
        let bytes = sim.bytes("a");
        assert!(bytes[..1024].iter().chain(&bytes[3072..]).all(|&byte| byte == 1));
        assert!(bytes[1024..3072].iter().all(|&byte| byte == 1 || byte == 2));
        assert_eq!(bytes[1024..3072].contains(&1), crash.lost > 0);
        assert!(file.sync().is_err(), "the handle is of a dead process");
    }
    assert!(lost > 50 && torn > 2 && names > 20, "{lost} {torn} {names}");
}

#[test]
fn what_a_failed_sync_did_not_write_is_never_written() {
    let sim = SimDirectory::new();
    let file = sim.open("a", Mode::Create).unwrap();
    sim.sync().unwrap();
    file.write_at(0, &[1; 512]).unwrap();
    file.sync().unwrap();
    file.write_at(0, &[2; 512]).unwrap();
    sim.fail(Op::Sync, 0, ErrorKind::Other);
    assert!(file.sync().is_err());
    file.sync().unwrap();
    sim.crash(&mut Seed::new(1));
    assert_eq!(sim.bytes("a"), [1; 512]);
}

#[test]
fn a_full_disk_takes_what_has_its_place_already() {
    let sim = SimDirectory::new();
    let file = sim.open("a", Mode::Create).unwrap();
    file.preallocate(1000).unwrap();
    sim.set_room(Some(1000));
    file.write_at(0, &[1; 1000]).unwrap();
    assert_eq!(file.write_at(900, &[1; 101]).unwrap_err().kind(), ErrorKind::StorageFull);
    let other = sim.open("b", Mode::Create).unwrap();
    assert_eq!(other.preallocate(1).unwrap_err().kind(), ErrorKind::StorageFull);
    sim.remove("a").unwrap();
    other.preallocate(1000).unwrap();
}
