//! From one segment to the next.

use std::io;

use folio_sync::Arc;

use super::index::{self, Run};
use super::maker::Maker;
use super::record::{Kind, Record};
use super::segment::{DATA, Segment, index_name, next_generation};
use super::snapshot;
use super::writer::{Writer, is_full};
use crate::store::error::StoreError;
use crate::store::layer::{Directory, Mode, StoreFile};
use crate::store::table::Table;

/// The segment that is written.
#[derive(Debug)]
pub(super) struct Active<F> {
    pub(super) segment: Arc<Segment<F>>,
    pub(super) generation: u64,
    pub(super) bytes: u32,
    /// Where the next record goes.
    pub(super) offset: u32,
    /// Up to where it is on disk.
    pub(super) synced: u32,
}

/// A segment and how many ledgers have a run in it.
pub(super) struct Live<F> {
    pub(super) segment: Arc<Segment<F>>,
    pub(super) ledgers: usize,
}

/// Begins a use of a segment: on disk when this returns.
pub(super) fn begin<F: StoreFile>(
    segment: Arc<Segment<F>>,
    generation: u64,
    bytes: u32,
    table: &Table,
) -> io::Result<Active<F>> {
    segment.begin(generation, bytes)?;
    let payload = snapshot::encode(table);
    let snapshot = Record {
        kind: Kind::Snapshot,
        generation,
        ledger: 0,
        entry: 0,
        epoch: 0,
        synced: 0,
        payload: &payload,
    };
    let mut record = Vec::new();
    snapshot.encode(&mut record);
    segment.file.write_at(DATA.into(), &record)?;
    segment.file.sync()?;
    let offset = DATA + u32::try_from(record.len()).expect("a snapshot is limited far below");
    Ok(Active { segment, generation, bytes, offset, synced: offset })
}
impl<D: Directory> Writer<D> {
    /// Begins the next segment; nothing is staged.
    pub(super) fn roll(&mut self) -> Result<(), StoreError> {
        let bytes = self.shared.options.segment_bytes;
        let segment = if let Some(segment) = self.free.pop() { segment } else { self.make_segment()? };
        // All of the old one is on disk before anything is in the new one; and so are the deletions by which that one is free.
        if let Err(error) = self.active.segment.file.sync() {
            return Err(self.fail("syncing a segment", &error));
        }
        self.keep_index();
        self.newest = next_generation(self.newest);
        match begin(segment, self.newest, bytes, &self.table) {
            Ok(active) => {
                let old = std::mem::replace(&mut self.active, active);
                self.ahead = false;
                if !self.live.contains_key(&old.generation) {
                    self.free.push(old.segment);
                }
                Ok(())
            }
            Err(error) => Err(self.fail("beginning a segment", &error)),
        }
    }

    /// The slot of a segment that is to be made.
    fn next_slot(&mut self) -> u32 {
        self.spare.pop().unwrap_or_else(|| {
            self.next_slot += 1;
            self.next_slot - 1
        })
    }

    /// Asks for the next segment when half of this one is written; once, as there may be no room.
    pub(super) fn look_ahead(&mut self) {
        if self.ahead || !self.free.is_empty() || self.active.offset < self.active.bytes / 2 {
            return;
        }
        if self.maker.as_ref().is_some_and(|maker| !maker.is_asked()) {
            self.ahead = true;
            let slot = self.next_slot();
            self.maker.as_mut().expect("it was there just now").ask(slot);
        }
    }

    fn make_segment(&mut self) -> Result<Arc<Segment<D::File>>, StoreError> {
        let (slot, made) = match self.maker.as_mut().and_then(Maker::take) {
            Some((slot, made)) if !made.as_ref().is_err_and(is_full) => (slot, made),
            // There was no room then; there may be now.
            full => {
                let slot = full.map_or_else(|| self.next_slot(), |(slot, _)| slot);
                let bytes = self.shared.options.segment_bytes;
                (slot, Segment::make(&self.shared.directory, slot, bytes).map(Arc::new))
            }
        };
        match made {
            Ok(segment) => Ok(segment),
            Err(error) => {
                self.spare.push(slot);
                // Nothing that is kept depends on it.
                if is_full(&error) {
                    Err(StoreError::Full)
                } else {
                    Err(self.fail("making a segment", &error))
                }
            }
        }
    }

    /// Writes the index of the segment beside it. It may be lost: the segment tells the same.
    fn keep_index(&self) {
        let state = self.shared.state.lock();
        let mut runs: Vec<(i64, &Run)> = Vec::new();
        for (&ledger, located) in &state.index {
            let newest = located.iter().rev().take_while(|one| one.generation == self.active.generation);
            runs.extend(newest.map(|one| (ledger, &one.run)));
        }
        let bytes = index::encode(self.active.generation, self.active.offset, &runs);
        drop(state);
        let name = index_name(self.active.segment.slot);
        let directory = &self.shared.directory;
        let kept = directory.open(&name, Mode::Create).and_then(|file| file.write_at(0, &bytes));
        if kept.is_err() {
            drop(directory.remove(&name));
        }
    }
}
