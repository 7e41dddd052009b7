//! What the fuzz targets run: bytes of any kind as a record, and as edits of a store.

use super::conformance::ask;
use super::faulty::Seed;
use super::file::{FileOptions, FileStore, OpenError, check_record, seal_record};
use super::inspect::inspect_log;
use super::layer::{Directory, SimDirectory};
use super::log::{Append, LogStore, ReadLimits};

/// Takes bytes for a record; what is one is written again as it was.
///
/// # Panics
/// When it is not, or is read wrongly.
pub fn record(data: &[u8]) {
    check_record(data);
}

/// Edits the files of a sound store, and opens it.
///
/// The bytes are edits of seven: a file, an offset, what to write there, and whether the record that begins before is given a right checksum again.
///
/// # Panics
/// When the store does.
pub fn recovery(data: &[u8]) {
    let directory = sound();
    let mut names = directory.list().unwrap_or_default();
    names.retain(|name| name != "LOCK");
    for edit in data.chunks_exact(7) {
        let [file, a, b, c, value, kind, length] = *edit else { continue };
        let name = &names[usize::from(file) % names.len()];
        let mut bytes = directory.bytes(name);
        if bytes.is_empty() {
            continue;
        }
        let at = u32::from_le_bytes([a, b, c, 0]) as usize % bytes.len();
        match kind % 4 {
            0 => bytes[at] = value,
            1 => bytes[at] ^= 1 << (value % 8),
            2 => bytes.truncate(at),
            _ => {
                // Near a record, and with its checksum right: what is in it is read.
                let generation =
                    bytes.get(12..20).and_then(|eight| eight.try_into().ok()).map_or(0, u64::from_le_bytes);
                seal_record(&mut bytes, at, generation, usize::from(length) % 64, value);
            }
        }
        directory.put(name, bytes);
    }
    look(&directory);
}

/// Opens a store whatever it is, and reads all that it says it has.
fn look(directory: &SimDirectory) {
    match FileStore::open_stepped(
        directory.clone(),
        FileOptions { segment_bytes: SEGMENT, ..FileOptions::default() },
    ) {
        Ok((store, mut stepper, _)) => {
            for info in ask(|done| store.list("g", done)).wait().unwrap_or_default() {
                let limits = ReadLimits { entries: 64, bytes: 1 << 16 };
                drop(ask(|done| store.read(info.ledger, 0, limits, done)).wait());
                drop(ask(|done| store.read(info.ledger, info.last, limits, done)).wait());
                let entries = vec!["more".into(); 3];
                let append = Append {
                    ledger: info.ledger,
                    epoch: info.epoch,
                    first: info.last.wrapping_add(1),
                    entries,
                };
                let asked = ask(|done| store.append(append, done));
                let recovered = ask(|done| store.recover(info.ledger, u64::MAX, done));
                stepper.step();
                drop((asked.wait(), recovered.wait()));
            }
            drop(store);
            stepper.finish();
        }
        Err(OpenError::Damaged(damages)) => assert!(!damages.is_empty()),
        Err(_) => {}
    }
    if let Ok(inspection) = inspect_log(directory.clone()) {
        assert!(!inspection.to_json().is_empty());
    }
}

const SEGMENT: u32 = 32 * 1024;

/// A store with two ledgers in several segments.
fn sound() -> SimDirectory {
    let directory = SimDirectory::new();
    let options = FileOptions { segment_bytes: SEGMENT, ..FileOptions::default() };
    let (store, mut stepper, _) =
        FileStore::open_stepped(directory.clone(), options).expect("a new directory is not damaged");
    let mut step = |answer: super::conformance::Answer<()>| {
        stepper.step();
        answer.wait().expect("nothing fails");
    };
    for ledger in 1..3 {
        step(ask(|done| store.create("g", ledger, 1, done)));
    }
    let mut seed = Seed::new(1);
    for n in 0..20 {
        for ledger in 1..3 {
            let size = usize::try_from(seed.below(700)).unwrap_or(0);
            let entries = vec![vec![7; size].into(); 3];
            let append = Append { ledger, epoch: 1, first: n * 3, entries };
            let asked = ask(|done| store.append(append, done));
            stepper.step();
            asked.wait().expect("nothing fails");
        }
    }
    drop(store);
    stepper.finish();
    directory.kill();
    directory
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the fuzzer does at length, shortly.
    #[test]
    fn any_bytes_are_no_record_or_one() {
        let mut seed = Seed::new(2);
        for _ in 0..2000 {
            let length = usize::try_from(seed.below(120)).unwrap_or(0);
            let bytes: Vec<u8> = (0..length).map(|_| seed.draw().to_le_bytes()[0]).collect();
            record(&bytes);
        }
    }

    /// An entry's number may be any, and nobody counts up to it.
    #[test]
    fn a_number_far_away_is_no_reason_to_count() {
        recovery(&[0x77, 0xA2, 0x67, 0xA4, 0x01, 0x67, 0x5B]);
    }

    #[test]
    fn any_edits_of_a_store_are_survived() {
        let mut seed = Seed::new(4);
        for round in 0..if cfg!(tsan) { 40 } else { 400 } {
            let mut edits = Vec::new();
            for _ in 0..=seed.below(4) {
                let mut edit = seed.draw().to_le_bytes();
                if round % 2 == 0 {
                    edit[5] = 3;
                }
                edits.extend_from_slice(&edit[..7]);
            }
            recovery(&edits);
        }
    }
}
