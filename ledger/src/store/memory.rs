//! Stores in memory.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use folio_sync::Mutex;

use super::done::Done;
use super::error::StoreError;
use super::log::{Append, Appended, Capabilities, Durability, FenceScope, LedgerInfo, LogStore, ReadLimits};
use super::metadata::{Change, MetadataStore, Versioned, check};
use super::table::{ENTRY_OVERHEAD, Table, Verdict};
use crate::position::Position;

/// The largest entry, and the largest batch.
const MAX_ENTRY_BYTES: usize = 5 << 20;
const MAX_BATCH_BYTES: usize = 16 << 20;

/// Keeps ledgers in memory; every call is answered before it returns.
///
/// # Memory
/// The payloads, shared with whoever appended them, and 32 bytes each; up to a limit if there is one.
#[derive(Debug)]
pub struct MemoryStore {
    max_bytes: usize,
    ledgers: Mutex<Ledgers>,
}

#[derive(Debug, Default)]
struct Ledgers {
    table: Table,
    entries: HashMap<i64, Vec<Bytes>>,
    bytes: usize,
}

impl MemoryStore {
    /// Empty, without a limit.
    pub fn new() -> Self {
        Self::with_max_bytes(usize::MAX)
    }

    /// Empty; keeps at most so many bytes, with 64 counted for each entry beside its payload.
    pub fn with_max_bytes(max_bytes: usize) -> Self {
        Self { max_bytes, ledgers: Mutex::default() }
    }

    pub(crate) fn append_now(&self, append: Append) -> Result<Appended, StoreError> {
        let bytes = Table::check_size(&append, &self.capabilities())?;
        let mut ledgers = self.ledgers.lock();
        let next = ledgers.table.check_append(&append)?;
        if ledgers.bytes.saturating_add(bytes) > self.max_bytes {
            return Err(StoreError::Full);
        }
        ledgers.bytes += bytes;
        ledgers.table.appended(append.ledger, next);
        ledgers.entries.entry(append.ledger).or_default().extend(append.entries);
        Ok(Appended { last: next - 1, durability: Durability::Memory })
    }

    fn create_now(&self, group: &str, ledger: i64, epoch: u64) -> Result<(), StoreError> {
        let mut ledgers = self.ledgers.lock();
        ledgers.table.check_create(group, ledger, epoch)?;
        ledgers.table.create(group, ledger, epoch, (0, 0));
        Ok(())
    }

    fn read_now(&self, ledger: i64, first: i64, limits: ReadLimits) -> Result<Vec<Bytes>, StoreError> {
        if limits.entries == 0 {
            return Err(StoreError::Invalid("a read of no entries"));
        }
        let ledgers = self.ledgers.lock();
        ledgers.table.row(ledger)?;
        let entries = ledgers.entries.get(&ledger).map_or(&[][..], Vec::as_slice);
        let at = usize::try_from(first).ok().filter(|&at| at < entries.len());
        let at = at.ok_or(StoreError::NoSuchEntry(Position { ledger, entry: first }))?;
        let mut room = limits.bytes;
        let mut fits = |entry: &&Bytes| match room.checked_sub(entry.len()) {
            Some(left) => {
                room = left;
                true
            }
            None => false,
        };
        let rest = entries[at + 1..].iter().take(limits.entries - 1);
        let first = &entries[at];
        let others = if fits(&first) { rest.take_while(fits).cloned().collect() } else { Vec::new() };
        Ok([vec![first.clone()], others].concat())
    }

    fn close_now(&self, ledger: i64, epoch: u64) -> Result<i64, StoreError> {
        let mut ledgers = self.ledgers.lock();
        let (Verdict::Do(last) | Verdict::Done(last)) = ledgers.table.check_close(ledger, epoch)?;
        ledgers.table.close(ledger);
        Ok(last)
    }

    fn recover_now(&self, ledger: i64, epoch: u64) -> Result<i64, StoreError> {
        let mut ledgers = self.ledgers.lock();
        let (Verdict::Do(last) | Verdict::Done(last)) = ledgers.table.check_recover(ledger, epoch)?;
        ledgers.table.recover(ledger, epoch);
        Ok(last)
    }

    fn delete_now(&self, ledger: i64, epoch: u64) -> Result<(), StoreError> {
        let mut ledgers = self.ledgers.lock();
        ledgers.table.check_delete(ledger, epoch)?;
        ledgers.table.delete(ledger);
        let entries = ledgers.entries.remove(&ledger).unwrap_or_default();
        ledgers.bytes -= entries.iter().map(|entry| entry.len() + ENTRY_OVERHEAD).sum::<usize>();
        drop(ledgers);
        // Many payloads may go with them: nobody waits for that.
        drop(entries);
        Ok(())
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl LogStore for MemoryStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new(Durability::Memory, FenceScope::Group, MAX_ENTRY_BYTES, MAX_BATCH_BYTES)
    }

    fn create(&self, group: &str, ledger: i64, epoch: u64, done: Done<()>) {
        done.tell(self.create_now(group, ledger, epoch));
    }

    fn append(&self, append: Append, done: Done<Appended>) {
        done.tell(self.append_now(append));
    }

    fn read(&self, ledger: i64, first: i64, limits: ReadLimits, done: Done<Vec<Bytes>>) {
        done.tell(self.read_now(ledger, first, limits));
    }

    fn last_confirmed(&self, ledger: i64, done: Done<i64>) {
        let last = self.ledgers.lock().table.row(ledger).map(|row| row.next - 1);
        done.tell(last);
    }

    fn close(&self, ledger: i64, epoch: u64, done: Done<i64>) {
        done.tell(self.close_now(ledger, epoch));
    }

    fn recover(&self, ledger: i64, epoch: u64, done: Done<i64>) {
        done.tell(self.recover_now(ledger, epoch));
    }

    fn delete(&self, ledger: i64, epoch: u64, done: Done<()>) {
        done.tell(self.delete_now(ledger, epoch));
    }

    fn list(&self, group: &str, done: Done<Vec<LedgerInfo>>) {
        let list = self.ledgers.lock().table.list(group);
        done.tell(Ok(list));
    }
}

/// Keeps small values in memory; every call is answered before it returns.
#[derive(Debug, Default)]
pub struct MemoryMetadata {
    values: Mutex<Values>,
}

#[derive(Debug, Default)]
struct Values {
    /// The last version given out.
    version: u64,
    values: BTreeMap<String, Versioned>,
}

impl MemoryMetadata {
    /// Empty.
    pub fn new() -> Self {
        Self::default()
    }

    fn commit_now(&self, changes: Vec<Change>) -> Result<Vec<Option<u64>>, StoreError> {
        check(&changes)?;
        let mut values = self.values.lock();
        for change in &changes {
            let found = values.values.get(&change.key).map(|value| value.version);
            if !change.expected.allows(found) {
                return Err(StoreError::Conflict { key: change.key.clone(), found });
            }
        }
        let mut versions = Vec::with_capacity(changes.len());
        for Change { key, value, .. } in changes {
            versions.push(value.is_some().then(|| {
                values.version += 1;
                values.version
            }));
            match value {
                Some(value) => {
                    let version = values.version;
                    values.values.insert(key, Versioned { version, value });
                }
                None => drop(values.values.remove(&key)),
            }
        }
        Ok(versions)
    }
}

impl MetadataStore for MemoryMetadata {
    fn get(&self, key: &str, done: Done<Option<Versioned>>) {
        let value = self.values.lock().values.get(key).cloned();
        done.tell(Ok(value));
    }

    fn list(&self, prefix: &str, done: Done<Vec<(String, u64)>>) {
        let values = self.values.lock();
        let from = values.values.range(prefix.to_owned()..);
        let keys = from.take_while(|(key, _)| key.starts_with(prefix));
        let list = keys.map(|(key, value)| (key.clone(), value.version)).collect();
        drop(values);
        done.tell(Ok(list));
    }

    fn commit(&self, changes: Vec<Change>, done: Done<Vec<Option<u64>>>) {
        done.tell(self.commit_now(changes));
    }
}
