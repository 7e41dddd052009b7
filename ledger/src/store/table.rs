//! Which ledgers there are, and who may do what with them.

use std::collections::BTreeMap;

use super::error::StoreError;
use super::log::{Append, Capabilities, LedgerInfo};

/// How long a group's name may be.
pub(crate) const MAX_GROUP_BYTES: usize = 512;
/// What an entry counts for beside its payload.
pub(crate) const ENTRY_OVERHEAD: usize = 64;

/// A ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) group: String,
    /// In which it was created.
    pub(crate) epoch: u64,
    /// The number of the next entry.
    pub(crate) next: i64,
    pub(crate) closed: bool,
    /// Where it begins: the store's generation, and an offset there.
    pub(crate) created: (u64, u64),
}

impl Row {
    fn last(&self) -> i64 {
        self.next - 1
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Group {
    /// The newest owner's.
    pub(crate) epoch: u64,
    /// How many ledgers it has; it goes with the last one.
    pub(crate) ledgers: usize,
}

/// What a ledger's close, recovery or deletion comes to.
pub(crate) enum Verdict {
    /// It is to be done; the last entry is this.
    Do(i64),
    /// It is done already; the last entry is this.
    Done(i64),
}

/// All ledgers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) ledgers: BTreeMap<i64, Row>,
    pub(crate) groups: BTreeMap<String, Group>,
    /// How long the names of all groups are.
    pub(crate) name_bytes: usize,
}

impl Table {
    pub(crate) fn row(&self, ledger: i64) -> Result<&Row, StoreError> {
        self.ledgers.get(&ledger).ok_or(StoreError::NoSuchLedger(ledger))
    }

    fn group_epoch(&self, group: &str) -> u64 {
        self.groups.get(group).map_or(0, |group| group.epoch)
    }

    /// The ledger, unless its owner of this epoch has been replaced.
    fn owned(&self, ledger: i64, epoch: u64) -> Result<&Row, StoreError> {
        let row = self.row(ledger)?;
        match self.group_epoch(&row.group) {
            newest if newest > epoch => Err(StoreError::Fenced { epoch: newest }),
            _ => Ok(row),
        }
    }

    pub(crate) fn check_create(&self, group: &str, ledger: i64, epoch: u64) -> Result<(), StoreError> {
        if ledger < 0 {
            return Err(StoreError::Invalid("a ledger's number is negative"));
        }
        if group.len() > MAX_GROUP_BYTES {
            return Err(StoreError::TooLarge { bytes: group.len(), most: MAX_GROUP_BYTES });
        }
        if self.ledgers.contains_key(&ledger) {
            return Err(StoreError::Exists(ledger));
        }
        match self.group_epoch(group) {
            newest if newest > epoch => Err(StoreError::Fenced { epoch: newest }),
            _ => Ok(()),
        }
    }

    /// What does not depend on the ledger's state: asked before a batch is queued. Its size, too.
    pub(crate) fn check_size(append: &Append, capabilities: &Capabilities) -> Result<usize, StoreError> {
        if append.entries.is_empty() {
            return Err(StoreError::Invalid("a batch has no entries"));
        }
        let mut bytes = 0_usize;
        for entry in &append.entries {
            if entry.len() > capabilities.max_entry_bytes {
                return Err(StoreError::TooLarge { bytes: entry.len(), most: capabilities.max_entry_bytes });
            }
            bytes = bytes.saturating_add(entry.len() + ENTRY_OVERHEAD);
        }
        if bytes > capabilities.max_batch_bytes {
            return Err(StoreError::TooLarge { bytes, most: capabilities.max_batch_bytes });
        }
        Ok(bytes)
    }

    /// Whether a batch follows; the number of the entry after it.
    pub(crate) fn check_append(&self, append: &Append) -> Result<i64, StoreError> {
        let row = self.owned(append.ledger, append.epoch)?;
        if row.closed {
            return Err(StoreError::LedgerClosed { last: row.last() });
        }
        if append.epoch != row.epoch {
            return Err(StoreError::Invalid("the ledger was created in another epoch"));
        }
        if append.first != row.next {
            return Err(StoreError::OutOfOrder { expected: row.next });
        }
        i64::try_from(append.entries.len())
            .ok()
            .and_then(|count| row.next.checked_add(count))
            .ok_or(StoreError::Invalid("a ledger has too many entries"))
    }

    pub(crate) fn check_close(&self, ledger: i64, epoch: u64) -> Result<Verdict, StoreError> {
        let row = self.owned(ledger, epoch)?;
        if row.closed {
            return Ok(Verdict::Done(row.last()));
        }
        if epoch != row.epoch {
            return Err(StoreError::Invalid("a ledger of an earlier epoch is recovered, not closed"));
        }
        Ok(Verdict::Do(row.last()))
    }

    pub(crate) fn check_recover(&self, ledger: i64, epoch: u64) -> Result<Verdict, StoreError> {
        let row = self.owned(ledger, epoch)?;
        if row.closed && self.group_epoch(&row.group) == epoch {
            return Ok(Verdict::Done(row.last()));
        }
        Ok(Verdict::Do(row.last()))
    }

    pub(crate) fn check_delete(&self, ledger: i64, epoch: u64) -> Result<(), StoreError> {
        self.owned(ledger, epoch).map(|_| ())
    }

    pub(crate) fn create(&mut self, group: &str, ledger: i64, epoch: u64, created: (u64, u64)) {
        if !self.groups.contains_key(group) {
            self.name_bytes += group.len();
        }
        let group = group.to_owned();
        let of = self.groups.entry(group.clone()).or_default();
        of.epoch = of.epoch.max(epoch);
        of.ledgers += 1;
        self.ledgers.insert(ledger, Row { group, epoch, next: 0, closed: false, created });
    }

    pub(crate) fn appended(&mut self, ledger: i64, next: i64) {
        if let Some(row) = self.ledgers.get_mut(&ledger) {
            row.next = next;
        }
    }

    pub(crate) fn close(&mut self, ledger: i64) {
        if let Some(row) = self.ledgers.get_mut(&ledger) {
            row.closed = true;
        }
    }

    pub(crate) fn recover(&mut self, ledger: i64, epoch: u64) {
        self.close(ledger);
        if let Some(row) = self.ledgers.get(&ledger)
            && let Some(group) = self.groups.get_mut(&row.group)
        {
            group.epoch = group.epoch.max(epoch);
        }
    }

    pub(crate) fn delete(&mut self, ledger: i64) {
        let Some(row) = self.ledgers.remove(&ledger) else { return };
        if let Some(group) = self.groups.get_mut(&row.group) {
            group.ledgers -= 1;
            if group.ledgers == 0 {
                self.name_bytes -= row.group.len();
                self.groups.remove(&row.group);
            }
        }
    }

    pub(crate) fn list(&self, group: &str) -> Vec<LedgerInfo> {
        let of_group = self.ledgers.iter().filter(|(_, row)| &*row.group == group);
        of_group.map(|(&ledger, row)| LedgerInfo::new(ledger, row.epoch, row.last(), row.closed)).collect()
    }
}
