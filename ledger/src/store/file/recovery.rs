//! Opening a store: what is there, and where the log ends.

use std::collections::HashMap;
use std::io;

use folio_sync::{Arc, Mutex};

use super::index::{self, Runs};
use super::options::{Cut, FileOptions, OpenError, OpenReport};
use super::record::{HEADER, Kind, Record, may_begin};
use super::roll::{Active, Live, begin};
use super::segment::{
    DATA, FORMAT, Head, Segment, find, index_name, next_generation, slot_of, written_after,
};
use super::writer::Writer;
use super::{LOCK, Located, Shared, State, snapshot};
use crate::position::Position;
use crate::store::error::Damage;
use crate::store::inbox::{Bounds, Inbox};
use crate::store::layer::{Directory, Hold, Mode, StoreFile};
use crate::store::table::Table;

/// A segment that is in use.
struct Used<F> {
    segment: Arc<Segment<F>>,
    generation: u64,
    bytes: u32,
}

/// What the directory has.
struct Found<F> {
    /// The newest first.
    used: Vec<Used<F>>,
    /// Slots whose files were never used, and the first one that has no file.
    spare: Vec<u32>,
    next_slot: u32,
    /// Whether there is anything that is not ours.
    foreign: bool,
}

/// What is read from the segments.
pub(super) struct Log<F> {
    pub(super) table: Table,
    pub(super) index: HashMap<i64, Vec<Located<F>>>,
    /// Where the log ends, in the newest segment; none in a directory without a log.
    active: Option<Active<F>>,
    tail: Tail,
    /// Segments without anything that is needed.
    free: Vec<Arc<Segment<F>>>,
    /// Slots whose files were never used, and the first one that has no file.
    spare: Vec<u32>,
    next_slot: u32,
    /// The newest generation that was ever begun.
    newest: u64,
    live: HashMap<u64, Live<F>>,
    pub(super) report: OpenReport,
}

/// The end of the log, of which nothing shows that it is on disk.
#[derive(Default)]
struct Tail {
    from: u32,
    bytes: Vec<u8>,
}

type Opened<D> = (Arc<Shared<D>>, Option<Writer<D>>, OpenReport);

pub(super) fn open<D: Directory>(directory: D, options: FileOptions) -> Result<Opened<D>, OpenError> {
    let capabilities = options.check()?;
    let hold = if options.read_only { Hold::Shared } else { Hold::Alone };
    let lock = directory.lock(LOCK, hold).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => OpenError::Locked,
        io::ErrorKind::NotFound if options.read_only => OpenError::NotAStore,
        _ => OpenError::Io(error),
    })?;
    let mode = if options.read_only { Mode::Read } else { Mode::Write };
    let log = read(&directory, mode)?;
    let Log {
        table,
        index,
        mut active,
        tail,
        free: unneeded,
        mut spare,
        mut next_slot,
        newest,
        live,
        report,
    } = log;
    if !options.read_only {
        if !report.damages.is_empty() {
            return Err(OpenError::Damaged(report.damages));
        }
        if snapshot::size(&table) > options.max_snapshot() {
            return Err(OpenError::Options("the list of ledgers does not fit into so small a segment"));
        }
        if let Some(active) = &mut active {
            settle(active, &tail, &report)?;
        } else {
            let slot = spare.pop().unwrap_or(next_slot);
            next_slot = next_slot.max(slot + 1);
            let segment = Arc::new(Segment::make(&directory, slot, options.segment_bytes)?);
            active = Some(begin(segment, next_generation(newest), options.segment_bytes, &table)?);
        }
    }
    // Segments of another size are made again.
    let mut free = Vec::new();
    for segment in unneeded {
        if segment.file.size()? == u64::from(options.segment_bytes) {
            free.push(segment);
        } else {
            spare.push(segment.slot);
        }
    }
    let bounds = Bounds { items: options.max_queued, weight: options.max_queued_bytes };
    let shared = Arc::new(Shared {
        directory,
        capabilities,
        inbox: Inbox::new(bounds),
        state: Mutex::new(State { table: table.clone(), index, failed: None }),
        _lock: lock,
        options,
    });
    let writer = active.filter(|_| !shared.options.read_only).map(|active| {
        let mut writer = Writer::new(Arc::clone(&shared), table, active, live);
        // A generation that was begun is never begun again, whatever became of it.
        writer.newest = newest.max(writer.newest);
        (writer.free, writer.spare, writer.next_slot) = (free, spare, next_slot);
        writer
    });
    Ok((shared, writer, report))
}

/// Puts on disk what was found, and takes away what lies behind the end.
///
/// What nothing shows to be on disk is written again: after a sync that failed the system takes it for written, and a sync would do nothing.
fn settle<F: StoreFile>(active: &mut Active<F>, tail: &Tail, report: &OpenReport) -> io::Result<()> {
    active.segment.begin(active.generation, active.bytes)?;
    let file = &active.segment.file;
    file.write_at(tail.from.into(), &tail.bytes)?;
    if report.cut.is_some() {
        let zeros = vec![0; (active.bytes - active.offset) as usize];
        file.write_at(active.offset.into(), &zeros)?;
    }
    file.sync()?;
    active.synced = active.offset;
    Ok(())
}

/// Reads what a directory has.
pub(super) fn read<D: Directory>(directory: &D, mode: Mode) -> Result<Log<D::File>, OpenError> {
    let mut report = OpenReport::default();
    let found = look(directory, mode, &mut report.damages)?;
    if found.used.is_empty() && report.damages.is_empty() && (found.foreign || mode == Mode::Read) {
        return Err(OpenError::NotAStore);
    }
    Ok(Log::read(directory, found, report)?)
}

fn look<D: Directory>(
    directory: &D,
    mode: Mode,
    damages: &mut Vec<Damage>,
) -> Result<Found<D::File>, OpenError> {
    let mut found = Found { used: Vec::new(), spare: Vec::new(), next_slot: 0, foreign: false };
    for name in directory.list()? {
        let Some(slot) = slot_of(&name) else {
            // Metadata may be beside the log.
            found.foreign |= name != LOCK && !name.starts_with("index-") && !name.starts_with("metadata");
            continue;
        };
        found.next_slot = found.next_slot.max(slot + 1);
        let segment = Arc::new(Segment::open(directory, slot, mode)?);
        match segment.head()? {
            Head::Used { generation, bytes } => {
                let size = segment.file.size()?;
                if size < bytes.into() {
                    damages.push(damage(&segment, size, "the file is too short"));
                } else {
                    found.used.push(Used { segment, generation, bytes });
                }
            }
            Head::Unused => found.spare.push(slot),
            Head::Version(version) => {
                return Err(OpenError::Format { found: version, supported: FORMAT });
            }
            Head::Damaged => damages.push(damage(&segment, 0, "both copies of the header are damaged")),
        }
    }
    found.used.sort_by_key(|used| std::cmp::Reverse(used.generation));
    for pair in found.used.windows(2) {
        if pair[0].generation == pair[1].generation {
            damages.push(damage(&pair[1].segment, 0, "another segment has the same generation"));
        }
    }
    Ok(found)
}

fn damage<F>(segment: &Segment<F>, offset: u64, what: &'static str) -> Damage {
    Damage { position: None, file: segment.name.clone(), offset, what }
}

impl<F: StoreFile> Log<F> {
    fn read<D: Directory<File = F>>(directory: &D, found: Found<F>, report: OpenReport) -> io::Result<Self> {
        let mut log = Self {
            table: Table::default(),
            index: HashMap::new(),
            active: None,
            tail: Tail::default(),
            free: Vec::new(),
            spare: found.spare,
            next_slot: found.next_slot,
            newest: found.used.first().map_or(0, |used| used.generation),
            live: HashMap::new(),
            report,
        };
        let mut all = Vec::new();
        let mut segments = found.used.iter();
        // The newest segment that has a list of ledgers; what is newer was just being begun.
        for used in segments.by_ref() {
            if let Some(runs) = log.replay(used)? {
                all.push((used, runs));
                break;
            }
        }
        for used in segments {
            let runs = match kept_index(directory, used) {
                Some(runs) => runs,
                None => log.scan(used)?,
            };
            all.push((used, runs));
        }
        for (used, runs) in all.into_iter().rev() {
            log.take(used, runs);
        }
        log.check();
        log.report.ledgers = log.table.ledgers.len();
        log.report.segments = log.live.len();
        Ok(log)
    }

    /// Reads the newest segment; none if it has no list of ledgers and never had.
    fn replay(&mut self, used: &Used<F>) -> io::Result<Option<Runs>> {
        let Used { segment, generation, bytes: length } = used;
        let bytes = segment.bytes(*length)?;
        let first = Record::decode(bytes.get(DATA as usize..).unwrap_or_default(), *generation);
        let snapshot = first.ok().filter(|(record, _)| record.kind == Kind::Snapshot);
        let Some((table, size)) =
            snapshot.and_then(|(record, size)| Some((snapshot::decode(record.payload)?, size)))
        else {
            if written_after(&bytes, *generation, DATA as usize, DATA).is_some() {
                self.report.damages.push(damage(segment, DATA.into(), "the list of ledgers is damaged"));
            } else {
                self.free.push(Arc::clone(segment));
            }
            return Ok(None);
        };
        self.table = table;
        let mut runs = Runs::default();
        let table = &mut self.table;
        let damages = &mut self.report.damages;
        let mut synced = DATA;
        let end = walk(segment, &bytes, *generation, DATA as usize + size, damages, |at, end, record| {
            synced = synced.max(record.synced);
            apply(table, &mut runs, (*generation, at), end, record);
        });
        let offset = u32::try_from(end).expect("a segment is smaller");
        let torn =
            may_begin(&bytes[end..], *generation) || find(&bytes, *generation, end, |_| true).is_some();
        if torn {
            self.report.cut = Some(Cut::new(segment.name.clone(), offset.into()));
        }
        self.report.scanned += 1;
        self.tail =
            Tail { from: synced, bytes: bytes.get(synced as usize..end).unwrap_or_default().to_vec() };
        self.active = Some(Active {
            segment: Arc::clone(segment),
            generation: *generation,
            bytes: *length,
            offset,
            synced: DATA,
        });
        Ok(Some(runs))
    }

    /// Reads a sealed segment whose index is not there.
    fn scan(&mut self, used: &Used<F>) -> io::Result<Runs> {
        let Used { segment, generation, bytes: length } = used;
        let bytes = segment.bytes(*length)?;
        let mut runs = Runs::default();
        walk(segment, &bytes, *generation, DATA as usize, &mut self.report.damages, |at, end, record| {
            match record.kind {
                Kind::Entry => runs.push(record.ledger, record.entry, at, end),
                Kind::Create | Kind::Delete => runs.forget(record.ledger),
                Kind::Recover | Kind::Close | Kind::Snapshot | Kind::Mark => {}
            }
        });
        self.report.scanned += 1;
        Ok(runs)
    }

    /// Takes from a segment what belongs to ledgers that are there.
    fn take(&mut self, used: &Used<F>, runs: Runs) {
        let Used { segment, generation, .. } = used;
        for (ledger, runs) in runs.0 {
            let Some(row) = self.table.ledgers.get(&ledger) else { continue };
            let created = row.created;
            // What is older belongs to an earlier ledger of this number.
            for run in runs.into_iter().filter(|run| (*generation, run.begin().into()) > created) {
                let live = Live { segment: Arc::clone(segment), ledgers: 0 };
                self.live.entry(*generation).or_insert(live).ledgers += 1;
                let located = Located { segment: Arc::clone(segment), generation: *generation, run };
                self.index.entry(ledger).or_default().push(located);
            }
        }
        let is_active = self.active.as_ref().is_some_and(|active| active.generation == *generation);
        if !is_active && !self.live.contains_key(generation) {
            self.free.push(Arc::clone(segment));
        }
    }

    /// Entries that are missing are damage, wherever they were.
    fn check(&mut self) {
        for (&ledger, row) in &self.table.ledgers {
            let mut next = 0;
            let mut before = (String::new(), 0);
            let located = self.index.get(&ledger).map_or(&[][..], Vec::as_slice);
            let ends =
                located.iter().map(|one| (one.run.first, one.run.next, &one.segment.name, one.run.end));
            let none = String::new();
            for (first, after, name, end) in ends.chain([(row.next, row.next, &none, 0)]) {
                if first != next {
                    let position = Some(Position { ledger, entry: next });
                    missing(&mut self.report.damages, position, &before, name);
                }
                next = after;
                before = (name.clone(), end);
            }
        }
    }
}

/// Notes that entries are missing, where damage was met, if it was.
fn missing(damages: &mut Vec<Damage>, position: Option<Position>, before: &(String, u32), after: &String) {
    let near = |damage: &&mut Damage| {
        damage.position.is_none() && (damage.file == before.0 || damage.file == *after)
    };
    if let Some(damage) = damages.iter_mut().find(near) {
        damage.position = position;
        return;
    }
    let (file, offset) = before.clone();
    damages.push(Damage { position, file, offset: offset.into(), what: "entries are missing" });
}

/// Visits the records of a segment up to its end, and tells where that is.
fn walk<F>(
    segment: &Segment<F>,
    bytes: &[u8],
    generation: u64,
    from: usize,
    damages: &mut Vec<Damage>,
    mut visit: impl FnMut(u32, u32, &Record<'_>),
) -> usize {
    let mut at = from;
    let offset = |at: usize| u32::try_from(at).expect("a segment is smaller");
    loop {
        if let Ok((record, size)) = Record::decode(&bytes[at..], generation) {
            visit(offset(at), offset(at + size), &record);
            at += size;
        } else if written_after(bytes, generation, at, offset(at)).is_some() {
            damages.push(damage(segment, at as u64, "the checksum is wrong"));
            at = find(bytes, generation, at, |_| true).expect("one was found just now");
        } else {
            return at;
        }
    }
}

fn apply(table: &mut Table, runs: &mut Runs, (generation, at): (u64, u32), end: u32, record: &Record<'_>) {
    let &Record { kind, ledger, entry, epoch, payload, .. } = record;
    match kind {
        Kind::Entry => {
            if table.ledgers.contains_key(&ledger) && (0..i64::MAX).contains(&entry) {
                runs.push(ledger, entry, at, end);
                table.appended(ledger, entry + 1);
            }
        }
        Kind::Create => {
            runs.forget(ledger);
            table.delete(ledger);
            table.create(&String::from_utf8_lossy(payload), ledger, epoch, (generation, at.into()));
        }
        Kind::Recover => table.recover(ledger, epoch),
        Kind::Close => table.close(ledger),
        Kind::Delete => {
            table.delete(ledger);
            runs.forget(ledger);
        }
        Kind::Snapshot | Kind::Mark => {}
    }
}

/// The index that was kept beside a sealed segment, if it is whole and nothing came after it.
fn kept_index<D: Directory>(directory: &D, used: &Used<D::File>) -> Option<Runs> {
    let file = directory.open(&index_name(used.segment.slot), Mode::Read).ok()?;
    let mut bytes = vec![0; usize::try_from(file.size().ok()?).ok()?];
    file.read_at(0, &mut bytes).ok()?;
    let (runs, end) = index::decode(&bytes, used.generation)?;
    if end as usize + HEADER <= used.bytes as usize {
        let mut header = [0; HEADER];
        used.segment.file.read_at(end.into(), &mut header).ok()?;
        if may_begin(&header, used.generation) {
            return None;
        }
    }
    Some(runs)
}
