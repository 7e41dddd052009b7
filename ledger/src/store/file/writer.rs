//! The store's thread: takes requests, writes them as one, answers.

use std::collections::HashMap;
use std::io;
use std::mem::take;

use folio_sync::Arc;

use super::index::Run;
use super::maker::Maker;
use super::record::{self, Kind, Record};
use super::request::{Answer, Effect, Request, Staged};
use super::roll::{Active, Live};
use super::segment::Segment;
use super::{Located, Shared, snapshot};
use crate::store::done::Done;
use crate::store::error::StoreError;
use crate::store::layer::{Directory, StoreFile};
use crate::store::log::{Append, Appended, Durability};
use crate::store::table::{Table, Verdict};

/// What only the store's thread knows.
pub(super) struct Writer<D: Directory> {
    pub(super) shared: Arc<Shared<D>>,
    /// With what is staged.
    pub(super) table: Table,
    pub(super) active: Active<D::File>,
    /// Segments to be used again, and slots of which the file is to be made.
    pub(super) free: Vec<Arc<Segment<D::File>>>,
    pub(super) spare: Vec<u32>,
    pub(super) next_slot: u32,
    /// The newest generation that was ever begun.
    pub(super) newest: u64,
    pub(super) live: HashMap<u64, Live<D::File>>,
    pub(super) failed: Option<StoreError>,
    /// Makes segments ahead; without it they are made when they are needed.
    pub(super) maker: Option<Maker<D>>,
    /// Whether the next segment was asked for already.
    pub(super) ahead: bool,
    work: Work,
}

/// What is to be written at once.
#[derive(Default)]
struct Work {
    buffer: Vec<u8>,
    staged: Vec<Staged>,
    entries: usize,
    /// Whether something in it is to be on disk whatever the store's durability.
    sync: bool,
}

/// Whether the system had no room.
pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

impl<D: Directory> Writer<D> {
    pub(super) fn new(
        shared: Arc<Shared<D>>,
        table: Table,
        active: Active<D::File>,
        live: HashMap<u64, Live<D::File>>,
    ) -> Self {
        let newest = active.generation;
        Self {
            shared,
            table,
            active,
            free: Vec::new(),
            spare: Vec::new(),
            next_slot: 0,
            newest,
            live,
            failed: None,
            maker: None,
            ahead: false,
            work: Work::default(),
        }
    }

    pub(super) fn shared(&self) -> &Arc<Shared<D>> {
        &self.shared
    }

    /// Does all of this.
    pub(super) fn step(&mut self, requests: &mut Vec<Request>) {
        for request in requests.drain(..) {
            match &self.failed {
                Some(error) => request.refuse(error.clone()),
                None => self.take(request),
            }
        }
        // Each was told for itself.
        let _told = self.commit();
    }

    /// Says in the log that all before it is on disk.
    pub(super) fn finish(&mut self) {
        if self.failed.is_some() || self.active.segment.file.sync().is_err() {
            return;
        }
        self.active.synced = self.active.offset;
        let room = (self.active.bytes - self.active.offset) as usize;
        if room >= record::size(0) {
            self.record(Kind::Mark, 0, 0, 0, &[]);
            let Work { buffer, .. } = take(&mut self.work);
            let file = &self.active.segment.file;
            // Without it the log says less, but nothing wrong.
            drop(file.write_at(self.active.offset.into(), &buffer).and_then(|()| file.sync()));
        }
    }

    fn take(&mut self, request: Request) {
        match request {
            Request::Append { append, weight, done } => self.append(append, weight, done),
            Request::Create { group, ledger, epoch, done } => {
                let made = self.create(group, ledger, epoch);
                self.stage(made, |answer| Answer::Unit(done, answer));
            }
            Request::Close { ledger, epoch, done } => {
                let closed = self.table.check_close(ledger, epoch).and_then(|verdict| match verdict {
                    Verdict::Done(last) => Ok((Effect::None, last)),
                    Verdict::Do(last) => {
                        self.control(Kind::Close, ledger, last, epoch, &[])?;
                        self.table.close(ledger);
                        Ok((Effect::Close { ledger }, last))
                    }
                });
                self.stage(closed, |answer| Answer::Last(done, answer));
            }
            Request::Recover { ledger, epoch, done } => {
                let recovered = self.table.check_recover(ledger, epoch).and_then(|verdict| match verdict {
                    Verdict::Done(last) => Ok((Effect::None, last)),
                    Verdict::Do(last) => {
                        self.control(Kind::Recover, ledger, last, epoch, &[])?;
                        self.table.recover(ledger, epoch);
                        Ok((Effect::Recover { ledger, epoch }, last))
                    }
                });
                self.stage(recovered, |answer| Answer::Last(done, answer));
            }
            Request::Delete { ledger, epoch, done } => {
                let deleted = self.table.check_delete(ledger, epoch).and_then(|()| {
                    self.control(Kind::Delete, ledger, 0, epoch, &[])?;
                    self.table.delete(ledger);
                    Ok((Effect::Delete { ledger }, ()))
                });
                self.stage(deleted, |answer| Answer::Unit(done, answer));
            }
        }
    }

    fn stage<T>(
        &mut self,
        done: Result<(Effect, T), StoreError>,
        answer: impl FnOnce(Result<T, StoreError>) -> Answer,
    ) {
        let (effect, value) = match done {
            Ok((effect, value)) => (effect, Ok(value)),
            Err(error) => (Effect::None, Err(error)),
        };
        self.work.staged.push(Staged { effect, answer: answer(value) });
    }

    fn append(&mut self, append: Append, weight: usize, done: Done<Appended>) {
        let options = &self.shared.options;
        let full = self.work.buffer.len() + weight > options.max_write_bytes
            || self.work.entries + append.entries.len() > options.max_write_entries;
        if full {
            // Each was told for itself.
            let _told = self.commit();
        }
        let staged = self.room(&append).and_then(|()| {
            // Only now: what was staged before may have failed.
            let next = self.table.check_append(&append)?;
            let offset = self.end();
            for (entry, payload) in (append.first..).zip(&append.entries) {
                self.record(Kind::Entry, append.ledger, entry, append.epoch, payload);
            }
            self.work.entries += append.entries.len();
            self.table.appended(append.ledger, next);
            let Append { ledger, first, entries, .. } = append;
            Ok((Effect::Append { ledger, first, offset, entries }, next - 1))
        });
        self.stage(staged, |answer| Answer::Appended(done, answer));
    }

    /// Sees to room for a batch; what is refused anyhow needs none.
    fn room(&mut self, append: &Append) -> Result<(), StoreError> {
        self.table.check_append(append)?;
        let bytes = append.entries.iter().map(|entry| record::size(entry.len())).sum();
        self.make_room(bytes, self.shared.options.reserve())
    }

    fn create(&mut self, group: String, ledger: i64, epoch: u64) -> Result<(Effect, ()), StoreError> {
        self.table.check_create(&group, ledger, epoch)?;
        if snapshot::size(&self.table) + snapshot::MOST_A_LEDGER > self.shared.options.max_snapshot() {
            return Err(StoreError::TooManyLedgers);
        }
        let offset = self.control(Kind::Create, ledger, 0, epoch, group.as_bytes())?;
        let created = (self.active.generation, offset.into());
        self.table.create(&group, ledger, epoch, created);
        Ok((Effect::Create { group, ledger, epoch, created }, ()))
    }

    /// Adds a record that is no entry; where it is.
    fn control(
        &mut self,
        kind: Kind,
        ledger: i64,
        entry: i64,
        epoch: u64,
        payload: &[u8],
    ) -> Result<u32, StoreError> {
        self.make_room(record::size(payload.len()), 0)?;
        let offset = self.end();
        self.record(kind, ledger, entry, epoch, payload);
        self.work.sync = true;
        Ok(offset)
    }

    fn record(&mut self, kind: Kind, ledger: i64, entry: i64, epoch: u64, payload: &[u8]) {
        let Active { generation, synced, .. } = self.active;
        Record { kind, generation, ledger, entry, epoch, synced, payload }.encode(&mut self.work.buffer);
    }

    /// Where the next record goes.
    fn end(&self) -> u32 {
        self.active.offset + u32::try_from(self.work.buffer.len()).expect("a segment is smaller")
    }

    /// Sees to it that so many bytes fit into the segment, with others left; begins the next one if need be.
    fn make_room(&mut self, bytes: usize, left: u32) -> Result<(), StoreError> {
        if self.end() as usize + bytes + left as usize <= self.active.bytes as usize {
            return Ok(());
        }
        // What was asked was checked against what is staged: if that is refused, so is this.
        self.commit()?;
        self.roll()
    }

    pub(super) fn fail(&mut self, what: &str, error: &io::Error) -> StoreError {
        let error = StoreError::failed(what, error);
        self.failed = Some(error.clone());
        self.shared.state.lock().failed = Some(error.clone());
        error
    }

    /// Writes what is staged, makes it visible, answers; whether that went well.
    fn commit(&mut self) -> Result<(), StoreError> {
        let work = take(&mut self.work);
        let mut written = match &self.failed {
            Some(error) => Err(error.clone()),
            None => self.write(&work.buffer),
        };
        if written.is_ok() && (work.sync || self.shared.options.durability >= Durability::Synced) {
            written = self.sync();
        }
        match &written {
            Ok(()) => self.publish(&work.staged),
            Err(_) => self.table = self.shared.state.lock().table.clone(),
        }
        let durability = self.shared.options.durability;
        let Work { mut buffer, mut staged, .. } = work;
        for one in staged.drain(..) {
            one.answer.tell(durability, written.as_ref().err());
        }
        buffer.clear();
        self.work = Work { buffer, staged, ..Work::default() };
        self.look_ahead();
        written
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        if bytes.is_empty() {
            return Ok(());
        }
        if let Err(error) = self.active.segment.file.write_at(self.active.offset.into(), bytes) {
            if is_full(&error) {
                self.take_back(bytes.len())?;
                return Err(StoreError::Full);
            }
            return Err(self.fail("writing", &error));
        }
        self.active.offset += u32::try_from(bytes.len()).expect("a segment is smaller");
        Ok(())
    }

    /// Puts on disk what is written; a sync that fails is the last.
    fn sync(&mut self) -> Result<(), StoreError> {
        if self.active.synced < self.active.offset {
            if let Err(error) = self.active.segment.file.sync() {
                return Err(self.fail("syncing", &error));
            }
            self.active.synced = self.active.offset;
        }
        Ok(())
    }

    /// What is refused must not be there after a crash, not even in part.
    fn take_back(&mut self, bytes: usize) -> Result<(), StoreError> {
        let file = &self.active.segment.file;
        let taken = file.write_at(self.active.offset.into(), &vec![0; bytes]).and_then(|()| file.sync());
        taken.map_err(|error| self.fail("taking back what did not fit", &error))
    }

    /// Makes what is written visible.
    fn publish(&mut self, staged: &[Staged]) {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.state.lock();
        for one in staged {
            match &one.effect {
                Effect::None => {}
                Effect::Append { ledger, first, offset, entries } => {
                    let mut at = *offset;
                    let located = state.index.entry(*ledger).or_default();
                    if located.last().is_none_or(|last| last.generation != self.active.generation) {
                        let (segment, generation) =
                            (Arc::clone(&self.active.segment), self.active.generation);
                        let live = Live { segment: Arc::clone(&segment), ledgers: 0 };
                        self.live.entry(generation).or_insert(live).ledgers += 1;
                        located.push(Located { segment, generation, run: Run::new(*first) });
                    }
                    let run = &mut located.last_mut().expect("one was pushed if there was none").run;
                    for entry in entries {
                        let end =
                            at + u32::try_from(record::size(entry.len())).expect("a segment is smaller");
                        run.push(at, end);
                        at = end;
                    }
                    let next = run.next;
                    state.table.appended(*ledger, next);
                }
                Effect::Create { group, ledger, epoch, created } => {
                    state.table.create(group, *ledger, *epoch, *created);
                }
                Effect::Close { ledger } => state.table.close(*ledger),
                Effect::Recover { ledger, epoch } => state.table.recover(*ledger, *epoch),
                Effect::Delete { ledger } => {
                    state.table.delete(*ledger);
                    for located in state.index.remove(ledger).unwrap_or_default() {
                        self.leave(located.generation);
                    }
                }
            }
        }
    }

    /// A ledger has gone from a segment, which is free with the last one.
    fn leave(&mut self, generation: u64) {
        let Some(live) = self.live.get_mut(&generation) else { return };
        live.ledgers -= 1;
        if live.ledgers > 0 {
            return;
        }
        let live = self.live.remove(&generation);
        if generation != self.active.generation {
            self.free.extend(live.map(|live| live.segment));
        }
    }
}
