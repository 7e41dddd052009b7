//! What looking at a store as a whole needs of it.

use std::collections::BTreeMap;
use std::io;

use bytes::Bytes;
use folio_sync::Arc;

use super::FileStore;
use super::record::Record;
use super::segment::{DATA, Segment, find};
use crate::store::error::{Damage, StoreError};
use crate::store::layer::{Directory, StoreFile};
use crate::store::log::{LedgerInfo, ReadLimits};

impl<D: Directory> FileStore<D> {
    /// All ledgers with their groups, by number.
    pub(crate) fn ledgers(&self) -> Vec<(String, LedgerInfo)> {
        let state = self.shared.state.lock();
        let info = |(&ledger, row): (&i64, &crate::store::table::Row)| {
            (row.group.clone(), LedgerInfo::new(ledger, row.epoch, row.next - 1, row.closed))
        };
        state.table.ledgers.iter().map(info).collect()
    }

    pub(crate) fn read_here(
        &self,
        ledger: i64,
        first: i64,
        limits: ReadLimits,
    ) -> Result<Vec<Bytes>, StoreError> {
        self.shared.read(ledger, first, limits)
    }

    /// Checks every record of the segments that hold entries, up to the last entry that is known; how many there are, and what is damaged.
    pub(crate) fn check_records(&self) -> io::Result<(u64, Vec<Damage>)> {
        let mut segments = BTreeMap::<u64, (Arc<Segment<D::File>>, u32)>::new();
        for located in self.shared.state.lock().index.values().flatten() {
            let of =
                segments.entry(located.generation).or_insert_with(|| (Arc::clone(&located.segment), DATA));
            of.1 = of.1.max(located.run.end);
        }
        let (mut records, mut damages) = (0, Vec::new());
        for (generation, (segment, end)) in segments {
            let size = u32::try_from(segment.file.size()?).unwrap_or(u32::MAX);
            let bytes = segment.bytes(size)?;
            let mut at = DATA as usize;
            loop {
                let rest = bytes.get(at..).unwrap_or_default();
                if let Ok((_, size)) = Record::decode(rest, generation) {
                    records += 1;
                    at += size;
                } else if at < end as usize {
                    let file = segment.name.clone();
                    let what = "the checksum is wrong";
                    damages.push(Damage { position: None, file, offset: at as u64, what });
                    let Some(next) = find(&bytes, generation, at + 1, |_| true) else { break };
                    at = next;
                } else {
                    break;
                }
            }
        }
        Ok((records, damages))
    }
}
