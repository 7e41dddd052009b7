//! What looking at a store as a whole needs of it.

use std::collections::BTreeMap;
use std::io;

use folio_sync::Arc;

use super::FileStore;
use super::record::{Kind, Record};
use super::segment::{DATA, Segment, find};
use crate::position::Position;
use crate::store::error::Damage;
use crate::store::layer::{Directory, StoreFile};
use crate::store::log::LedgerInfo;
use crate::store::table::Row;

/// What was found of a ledger.
pub(crate) struct Tally {
    pub(crate) group: String,
    pub(crate) info: LedgerInfo,
    /// How many entries are sound, and their payloads' bytes.
    pub(crate) entries: u64,
    pub(crate) bytes: u64,
    /// The number after the last sound entry, and where that is: generation and offset.
    next: i64,
    place: (u64, u64),
}

/// What was found of all records.
#[derive(Default)]
pub(crate) struct Records {
    pub(crate) ledgers: BTreeMap<i64, Tally>,
    /// How many are sound.
    pub(crate) count: u64,
    /// What is not, and the generation of its segment.
    damages: Vec<(u64, Damage)>,
}

impl Records {
    /// What is not sound: a record, or entries that are missing, of which the first is told.
    pub(crate) fn damages(self) -> impl Iterator<Item = Damage> {
        self.damages.into_iter().map(|(_, damage)| damage)
    }

    fn bad(
        &mut self,
        generation: u64,
        file: &str,
        offset: u64,
        position: Option<Position>,
        what: &'static str,
    ) {
        self.damages.push((generation, Damage { position, file: file.to_owned(), offset, what }));
    }

    /// Entries of a ledger are missing before this place: that is what a bad record since the last sound one was, if there is one.
    fn missing(&mut self, ledger: i64, generation: u64, file: &str, offset: u64) {
        let Some(tally) = self.ledgers.get(&ledger) else { return };
        let position = Some(Position { ledger, entry: tally.next });
        let between = tally.place..(generation, offset);
        let bad = self.damages.iter_mut().find(|(generation, damage)| {
            damage.position.is_none() && between.contains(&(*generation, damage.offset))
        });
        match bad {
            Some((_, damage)) => damage.position = position,
            None => self.bad(generation, file, offset, position, "entries are missing before this"),
        }
    }

    fn entry(&mut self, generation: u64, file: &str, offset: u64, record: &Record<'_>) {
        let Some(tally) = self.ledgers.get_mut(&record.ledger) else { return };
        if record.entry > tally.next {
            self.missing(record.ledger, generation, file, offset);
        }
        let Some(tally) = self.ledgers.get_mut(&record.ledger) else { return };
        tally.next = record.entry.saturating_add(1);
        tally.place = (generation, offset);
        tally.entries += 1;
        tally.bytes += record.payload.len() as u64;
    }
}

/// A segment, the end of its last known entry, and the places of each ledger's entries.
type Known<F> = (Arc<Segment<F>>, u32, BTreeMap<i64, (u32, u32)>);

impl<D: Directory> FileStore<D> {
    /// Checks every record of the segments that hold entries.
    pub(crate) fn check_records(&self) -> io::Result<Records> {
        let mut segments = BTreeMap::<u64, Known<D::File>>::new();
        let mut records = Records::default();
        let state = self.shared.state.lock();
        for (&ledger, Row { group, epoch, next, closed, .. }) in &state.table.ledgers {
            let info = LedgerInfo::new(ledger, *epoch, next - 1, *closed);
            let group = group.clone();
            let tally = Tally { group, info, entries: 0, bytes: 0, next: 0, place: (0, 0) };
            records.ledgers.insert(ledger, tally);
            for located in state.index.get(&ledger).into_iter().flatten() {
                let first = || (Arc::clone(&located.segment), DATA, BTreeMap::new());
                let (_, end, ledgers) = segments.entry(located.generation).or_insert_with(first);
                let run = &located.run;
                *end = run.end.max(*end);
                let part = ledgers.entry(ledger).or_insert((run.begin(), run.end));
                part.1 = run.end;
            }
        }
        drop(state);
        for (generation, (segment, end, ledgers)) in segments {
            let size = u32::try_from(segment.file.size()?).unwrap_or(u32::MAX);
            let bytes = segment.bytes(size)?;
            let mut at = DATA as usize;
            loop {
                if let Ok((record, size)) = Record::decode(bytes.get(at..).unwrap_or_default(), generation) {
                    records.count += 1;
                    let part = ledgers.get(&record.ledger);
                    // What is outside belongs to an earlier ledger of this number.
                    let belongs = part.is_some_and(|&(from, to)| (from as usize..to as usize).contains(&at));
                    if record.kind == Kind::Entry && belongs {
                        records.entry(generation, &segment.name, at as u64, &record);
                    }
                    at += size;
                } else if at < end as usize {
                    records.bad(generation, &segment.name, at as u64, None, "the checksum is wrong");
                    let Some(next) = find(&bytes, generation, at + 1, |_| true) else { break };
                    at = next;
                } else {
                    break;
                }
            }
        }
        let short = |(&ledger, tally): (&i64, &Tally)| (tally.next <= tally.info.last).then_some(ledger);
        let short: Vec<_> = records.ledgers.iter().filter_map(short).collect();
        for ledger in short {
            records.missing(ledger, u64::MAX, "", 0);
        }
        Ok(records)
    }
}
