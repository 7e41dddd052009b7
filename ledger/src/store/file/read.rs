//! Reading entries: from the index to the file, on the thread that asks.

use std::io;

use bytes::Bytes;
use folio_sync::Arc;

use super::record::{Flaw, Kind, Record};
use super::segment::{Segment, find};
use super::{Located, Shared};
use crate::position::Position;
use crate::store::error::{Damage, StoreError};
use crate::store::layer::{Directory, StoreFile};
use crate::store::log::ReadLimits;

/// How much is read at once: at first, and in the end. A larger record is read whole.
const WINDOW: (usize, usize) = (8 * 1024, 128 * 1024);

/// A part of a run that is to be read.
struct Leg<F> {
    segment: Arc<Segment<F>>,
    generation: u64,
    /// Where to begin, places of some entries beyond, and where the run ends.
    at: u32,
    points: Vec<(i64, u32)>,
    end: u32,
    /// The number after the last entry of it.
    next: i64,
    /// Which of the ledgers that had this number, one after the other.
    created: (u64, u64),
}

impl<D: Directory> Shared<D> {
    pub(super) fn read(&self, ledger: i64, first: i64, limits: ReadLimits) -> Result<Vec<Bytes>, StoreError> {
        if limits.entries == 0 {
            return Err(StoreError::Invalid("a read of no entries"));
        }
        let mut into = Entries { ledger, next: first, limits, bytes: 0, read: Vec::new() };
        let mut leg = self.leg(ledger, first, limits.entries)?;
        let created = leg.created;
        let is_deleted = || match self.state.lock().table.row(ledger) {
            Ok(row) if row.created == created => Ok(()),
            _ => Err(StoreError::NoSuchLedger(ledger)),
        };
        loop {
            let read = leg.read(&mut into);
            // The segment of a ledger that was deleted meanwhile may be another's.
            is_deleted()?;
            match read {
                // What was read before is good.
                Err(error) if into.read.is_empty() => return Err(error),
                Ok(()) if !into.full() => match self.leg(ledger, into.next, limits.entries) {
                    Ok(next) => leg = next,
                    Err(_) => return Ok(into.read),
                },
                _ => return Ok(into.read),
            }
        }
    }

    /// Where an entry is, if it is there.
    fn leg(&self, ledger: i64, entry: i64, entries: usize) -> Result<Leg<D::File>, StoreError> {
        let position = Position { ledger, entry };
        let state = self.state.lock();
        let row = state.table.row(ledger)?;
        if entry < 0 || entry >= row.next {
            return Err(StoreError::NoSuchEntry(position));
        }
        let runs = state.index.get(&ledger).map_or(&[][..], Vec::as_slice);
        let at = runs.partition_point(|located| located.run.next <= entry);
        let missing = |file: String, offset: u32| {
            let what = "the entry is not where it was";
            Err(StoreError::Damaged(Damage { position: Some(position), file, offset: offset.into(), what }))
        };
        match runs.get(at) {
            Some(Located { segment, generation, run }) if run.first <= entry => Ok(Leg {
                segment: Arc::clone(segment),
                generation: *generation,
                at: run.locate(entry),
                points: run.points_after(entry, entries),
                end: run.end,
                next: run.next,
                created: row.created,
            }),
            Some(after) => missing(after.segment.name.clone(), after.run.begin()),
            None => missing(String::new(), 0),
        }
    }
}

impl<F: StoreFile> Leg<F> {
    fn read(&self, into: &mut Entries) -> Result<(), StoreError> {
        let mut at = self.at;
        let mut bytes = Vec::new();
        // How far into the bytes.
        let mut done = 0;
        let mut window = WINDOW.0;
        let mut points = self.points.iter().peekable();
        while into.next < self.next && !into.full() {
            match Record::decode(bytes.get(done..).unwrap_or_default(), self.generation) {
                Ok((record, size)) => {
                    into.take(&record);
                    done += size;
                    // Many others' entries may be between this one and the next.
                    while let Some(&(_, offset)) = points.next_if(|&&(entry, _)| entry <= into.next) {
                        let ahead = (offset as usize).saturating_sub(at as usize);
                        if ahead > bytes.len() {
                            (at, done, window) = (offset, 0, WINDOW.0);
                            bytes.clear();
                        } else {
                            done = done.max(ahead);
                        }
                    }
                }
                Err(Flaw::Short(needed)) if at as usize + done + needed <= self.end as usize => {
                    at += u32::try_from(done).expect("a segment is smaller");
                    bytes.resize(window.max(needed).min((self.end - at) as usize), 0);
                    window = (window * 2).min(WINDOW.1);
                    done = 0;
                    self.segment.file.read_at(at.into(), &mut bytes).map_err(|error| self.failed(&error))?;
                }
                Err(_) => {
                    let bad = at as usize + done;
                    (at, bytes, done) = self.find(bad, into)?;
                }
            }
        }
        Ok(())
    }

    /// Behind what is damaged and perhaps another ledger's: where the next entry is.
    fn find(&self, bad: usize, into: &Entries) -> Result<(u32, Vec<u8>, usize), StoreError> {
        let mut rest = vec![0; (self.end as usize).saturating_sub(bad)];
        self.segment.file.read_at(bad as u64, &mut rest).map_err(|error| self.failed(&error))?;
        let found = find(&rest, self.generation, 1, |record| into.wants(record));
        let Some(found) = found else {
            return Err(StoreError::Damaged(Damage {
                position: Some(Position { ledger: into.ledger, entry: into.next }),
                file: self.segment.name.clone(),
                offset: bad as u64,
                what: "the checksum is wrong",
            }));
        };
        Ok((u32::try_from(bad).expect("a segment is smaller"), rest, found))
    }

    fn failed(&self, error: &io::Error) -> StoreError {
        StoreError::read_failed(&self.segment.name, error)
    }
}

/// What is read so far.
struct Entries {
    ledger: i64,
    next: i64,
    limits: ReadLimits,
    bytes: usize,
    read: Vec<Bytes>,
}

impl Entries {
    fn wants(&self, record: &Record<'_>) -> bool {
        record.kind == Kind::Entry && record.ledger == self.ledger && record.entry == self.next
    }

    fn take(&mut self, record: &Record<'_>) {
        if !self.wants(record) {
            return;
        }
        self.bytes = self.bytes.saturating_add(record.payload.len());
        if self.bytes > self.limits.bytes && !self.read.is_empty() {
            return;
        }
        self.read.push(Bytes::copy_from_slice(record.payload));
        self.next += 1;
    }

    fn full(&self) -> bool {
        self.read.len() >= self.limits.entries || self.bytes > self.limits.bytes
    }
}
