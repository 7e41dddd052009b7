//! All ledgers as one record: what each segment begins with.

use super::codec::Reader;
use crate::store::table::{Group, MAX_GROUP_BYTES, Row, Table};

const GROUP: usize = 12;
const ROW: usize = 48;
/// What one more ledger may take.
pub(crate) const MOST_A_LEDGER: usize = GROUP + MAX_GROUP_BYTES + ROW;

/// How many bytes the snapshot of a table takes.
pub(crate) fn size(table: &Table) -> usize {
    8 + table.groups.len() * GROUP + table.name_bytes + table.ledgers.len() * ROW
}

pub(crate) fn encode(table: &Table) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(size(table));
    let count = |count: usize| u32::try_from(count).expect("a snapshot is limited far below").to_le_bytes();
    bytes.extend(count(table.groups.len()));
    for (name, group) in &table.groups {
        bytes.extend(group.epoch.to_le_bytes());
        bytes.extend(count(name.len()));
        bytes.extend(name.as_bytes());
    }
    let names: Vec<_> = table.groups.keys().collect();
    bytes.extend(count(table.ledgers.len()));
    for (ledger, row) in &table.ledgers {
        let group = names.binary_search(&&row.group).expect("a ledger's group is there while the ledger is");
        bytes.extend(ledger.to_le_bytes());
        bytes.extend(count(group));
        bytes.extend(u32::from(row.closed).to_le_bytes());
        bytes.extend(row.epoch.to_le_bytes());
        bytes.extend(row.next.to_le_bytes());
        bytes.extend(row.created.0.to_le_bytes());
        bytes.extend(row.created.1.to_le_bytes());
    }
    bytes
}

pub(crate) fn decode(bytes: &[u8]) -> Option<Table> {
    let mut reader = Reader(bytes);
    let mut table = Table::default();
    let mut names = Vec::<String>::new();
    for _ in 0..reader.count(GROUP)? {
        let epoch = reader.u64()?;
        let length = reader.count(1)?;
        let name = String::from(std::str::from_utf8(reader.bytes(length)?).ok()?);
        table.name_bytes += length;
        table.groups.insert(name.clone(), Group { epoch, ledgers: 0 });
        names.push(name);
    }
    for _ in 0..reader.count(ROW)? {
        let ledger = reader.i64()?;
        let group = names.get(usize::try_from(reader.u32()?).ok()?)?.clone();
        let closed = reader.u32()? != 0;
        let (epoch, next) = (reader.u64()?, reader.i64()?);
        let created = (reader.u64()?, reader.u64()?);
        if ledger < 0 || next < 0 {
            return None;
        }
        table.groups.get_mut(&group)?.ledgers += 1;
        table.ledgers.insert(ledger, Row { group, epoch, next, closed, created });
    }
    let whole = reader.0.is_empty() && table.groups.len() == names.len();
    (whole && table.groups.values().all(|group| group.ledgers > 0)).then_some(table)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

    use super::*;

    #[test]
    fn a_table_is_read_as_it_was_written_and_nothing_else_is_read() {
        let mut table = Table::default();
        assert_eq!(decode(&encode(&table)), Some(table.clone()));
        for ledger in 0..50 {
            table.create(&format!("group {}", ledger % 7), ledger, 5, (3, 4));
            table.appended(ledger, ledger * 2);
        }
        table.recover(9, 11);
        table.close(10);
        table.delete(20);
        let bytes = encode(&table);
        assert_eq!(bytes.len(), size(&table));
        assert_eq!(decode(&bytes).as_ref(), Some(&table));
        for length in 0..bytes.len() {
            assert_eq!(decode(&bytes[..length]), None);
        }
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            // A checksum stands before this: it need only not panic.
            let _ = decode(&flipped);
        }
    }
}
