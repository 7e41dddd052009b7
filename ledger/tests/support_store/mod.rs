//! A store in files, and what is asked of it.
#![allow(dead_code, reason = "each test binary uses a part")]

use bytes::Bytes;
use folio_ledger::store::conformance::ask;
use folio_ledger::store::layer::{Directory, SimDirectory};
use folio_ledger::store::{Append, FileOptions, FileStore, LogStore, ReadLimits, Stepper, StoreError};

pub(crate) const ALL: ReadLimits = ReadLimits { entries: usize::MAX, bytes: usize::MAX };

pub(crate) fn small() -> FileOptions {
    FileOptions { segment_bytes: 32 * 1024, ..FileOptions::default() }
}

pub(crate) fn read_only() -> FileOptions {
    FileOptions { read_only: true, ..small() }
}

pub(crate) fn payload(ledger: i64, entry: i64) -> Bytes {
    let size = usize::try_from((ledger * 13 + entry * 29) % 200).unwrap();
    let mut payload = format!("{ledger}:{entry} ").into_bytes();
    payload.resize(payload.len() + size, b'-');
    payload.into()
}

pub(crate) fn batch(ledger: i64, epoch: u64, first: i64, count: i64) -> Append {
    let entries = (first..first + count).map(|entry| payload(ledger, entry)).collect();
    Append { ledger, epoch, first, entries }
}

pub(crate) fn append<D: Directory>(store: &FileStore<D>, ledger: i64, first: i64, count: i64) {
    ask(|done| store.append(batch(ledger, 1, first, count), done)).wait().unwrap();
}

pub(crate) fn create<D: Directory>(store: &FileStore<D>, ledger: i64) {
    ask(|done| store.create("g", ledger, 1, done)).wait().unwrap();
}

pub(crate) fn delete<D: Directory>(store: &FileStore<D>, ledger: i64) {
    ask(|done| store.delete(ledger, 1, done)).wait().unwrap();
}

pub(crate) fn last<D: Directory>(store: &FileStore<D>, ledger: i64) -> i64 {
    ask(|done| store.last_confirmed(ledger, done)).wait().unwrap()
}

pub(crate) fn read<D: Directory>(
    store: &FileStore<D>,
    ledger: i64,
    first: i64,
) -> Result<Vec<Bytes>, StoreError> {
    ask(|done| store.read(ledger, first, ALL, done)).wait()
}

#[track_caller]
pub(crate) fn holds<D: Directory>(store: &FileStore<D>, ledger: i64, count: i64) {
    assert_eq!(last(store, ledger), count - 1);
    let expected: Vec<_> = (0..count).map(|entry| payload(ledger, entry)).collect();
    if count > 0 {
        assert_eq!(read(store, ledger, 0).unwrap(), expected);
    }
}

pub(crate) fn open<D: Directory + Clone>(directory: &D, options: FileOptions) -> FileStore<D> {
    let (store, report) = FileStore::open(directory.clone(), options).unwrap();
    assert_eq!((&report.cut, &report.damages[..]), (&None, &[][..]), "it was shut");
    store
}

pub(crate) fn stepped(directory: &SimDirectory) -> (FileStore<SimDirectory>, Stepper<SimDirectory>) {
    let (store, stepper, _) = FileStore::open_stepped(directory.clone(), small()).unwrap();
    (store, stepper)
}
