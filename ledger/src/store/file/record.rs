//! The record: what a segment is made of.
//!
//! | bytes | what |
//! |---|---|
//! | 0..4 | CRC-32C of all that follows up to the end of the payload |
//! | 4..8 | length of the payload |
//! | 8..16 | generation of the segment |
//! | 16..24 | ledger |
//! | 24..32 | entry, or what the kind says |
//! | 32..40 | epoch |
//! | 40..44 | up to where the segment was on disk when this was written |
//! | 44..48 | kind |
//! | 48.. | payload, and zeros up to a multiple of 8 |
//!
//! All numbers are little-endian. A record of another generation is what is left of an earlier use of the segment.

/// Bytes before the payload.
pub(crate) const HEADER: usize = 48;
/// Records begin at multiples of this.
pub(crate) const ALIGN: usize = 8;

/// What a record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Kind {
    /// An entry.
    Entry = 1,
    /// A ledger was created, in the group that the payload names.
    Create = 2,
    /// A ledger was recovered: it is closed, and its group has this epoch.
    Recover = 3,
    /// A ledger was closed.
    Close = 4,
    /// A ledger was deleted.
    Delete = 5,
    /// All ledgers at the beginning of the segment.
    Snapshot = 6,
    /// Nothing but that all before it was on disk.
    Mark = 7,
}

impl Kind {
    fn from_raw(raw: u32) -> Option<Self> {
        [Self::Entry, Self::Create, Self::Recover, Self::Close, Self::Delete, Self::Snapshot, Self::Mark]
            .into_iter()
            .find(|&kind| kind as u32 == raw)
    }
}

/// A record as it is read or to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    pub(crate) kind: Kind,
    pub(crate) generation: u64,
    pub(crate) ledger: i64,
    pub(crate) entry: i64,
    pub(crate) epoch: u64,
    pub(crate) synced: u32,
    pub(crate) payload: &'a [u8],
}

/// Why there is no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// So many bytes are needed to tell.
    Short(usize),
    /// It is of another generation.
    Stale,
    /// Its checksum is wrong, or it is of no known kind.
    Bad,
}

/// How many bytes the record of a payload takes.
pub(crate) const fn size(payload: usize) -> usize {
    (HEADER + payload).next_multiple_of(ALIGN)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|four| four.try_into().ok()).map_or(0, u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|eight| eight.try_into().ok()).map_or(0, u64::from_le_bytes)
}

fn i64_at(bytes: &[u8], at: usize) -> i64 {
    u64_at(bytes, at).cast_signed()
}

/// Whether a record of this generation may begin here: a cheap look before [`Record::decode`].
pub(crate) fn may_begin(bytes: &[u8], generation: u64) -> bool {
    bytes.len() >= HEADER && u64_at(bytes, 8) == generation
}

impl<'a> Record<'a> {
    /// Adds the record to what is to be written.
    pub(crate) fn encode(&self, into: &mut Vec<u8>) {
        let start = into.len();
        let length = u32::try_from(self.payload.len()).expect("payloads are limited far below");
        into.extend_from_slice(&[0; 4]);
        into.extend_from_slice(&length.to_le_bytes());
        into.extend_from_slice(&self.generation.to_le_bytes());
        into.extend_from_slice(&self.ledger.to_le_bytes());
        into.extend_from_slice(&self.entry.to_le_bytes());
        into.extend_from_slice(&self.epoch.to_le_bytes());
        into.extend_from_slice(&self.synced.to_le_bytes());
        into.extend_from_slice(&(self.kind as u32).to_le_bytes());
        into.extend_from_slice(self.payload);
        let crc = crc32c::crc32c(&into[start + 4..]);
        into[start..start + 4].copy_from_slice(&crc.to_le_bytes());
        into.resize(start + size(self.payload.len()), 0);
    }

    /// The record at the beginning of these bytes, and its size.
    pub(crate) fn decode(bytes: &'a [u8], generation: u64) -> Result<(Self, usize), Flaw> {
        if bytes.len() < HEADER {
            return Err(Flaw::Short(HEADER));
        }
        let found = u64_at(bytes, 8);
        if found != generation {
            return Err(Flaw::Stale);
        }
        let Some(kind) = Kind::from_raw(u32_at(bytes, 44)) else { return Err(Flaw::Bad) };
        let length = usize::try_from(u32_at(bytes, 4)).map_err(|_| Flaw::Bad)?;
        let end = HEADER.checked_add(length).ok_or(Flaw::Bad)?;
        let payload = bytes.get(HEADER..end).ok_or(Flaw::Short(end))?;
        if crc32c::crc32c(&bytes[4..end]) != u32_at(bytes, 0) {
            return Err(Flaw::Bad);
        }
        let record = Self {
            kind,
            generation,
            ledger: i64_at(bytes, 16),
            entry: i64_at(bytes, 24),
            epoch: u64_at(bytes, 32),
            synced: u32_at(bytes, 40),
            payload,
        };
        Ok((record, size(length)))
    }
}

/// For the fuzz targets: what decodes is encoded as it was, under a right checksum, too.
#[cfg(feature = "test-util")]
pub(crate) fn check_record(data: &[u8]) {
    let Some((generation, bytes)) = data.split_first_chunk::<8>() else { return };
    let generation = u64::from_le_bytes(*generation);
    let check = |bytes: &[u8]| {
        let Ok((record, size)) = Record::decode(bytes, generation) else { return };
        let mut again = Vec::new();
        record.encode(&mut again);
        assert_eq!(again.len(), size);
        let end = HEADER + record.payload.len();
        assert_eq!(again[..end], bytes[..end]);
    };
    check(bytes);
    let mut sealed = bytes.to_vec();
    seal_record(&mut sealed, 0, generation, 0, 0);
    check(&sealed);
}

/// For the fuzz targets: edits a byte of the last record of this generation that begins up to here, and makes its checksum right.
#[cfg(feature = "test-util")]
pub(crate) fn seal_record(bytes: &mut [u8], at: usize, generation: u64, offset: usize, value: u8) {
    let from = (0..=at / ALIGN).rev().map(|word| word * ALIGN);
    let Some(begin) =
        from.into_iter().find(|&begin| may_begin(bytes.get(begin..).unwrap_or_default(), generation))
    else {
        return;
    };
    let record = &mut bytes[begin..];
    // Its generation stays: it would not be one of this segment.
    if let Some(byte) = record.get_mut(offset).filter(|_| !(8..16).contains(&offset)) {
        *byte = value;
    }
    let end = HEADER + u32_at(record, 4) as usize;
    if let Some(covered) = record.get(4..end) {
        let crc = crc32c::crc32c(covered);
        record[..4].copy_from_slice(&crc.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

    use super::*;

    fn record(payload: &[u8]) -> Record<'_> {
        Record { kind: Kind::Entry, generation: 9, ledger: 7, entry: 41, epoch: 3, synced: 8192, payload }
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        for length in [0, 1, 7, 8, 9, 100] {
            let payload = vec![0xA5; length];
            let mut bytes = vec![1, 2, 3];
            record(&payload).encode(&mut bytes);
            assert_eq!(bytes.len() - 3, size(length));
            assert_eq!(Record::decode(&bytes[3..], 9), Ok((record(&payload), size(length))));
            assert_eq!(Record::decode(&bytes[3..], 8), Err(Flaw::Stale));
        }
    }

    #[test]
    fn each_flipped_bit_is_seen() {
        let payload = [7; 13];
        let mut bytes = Vec::new();
        record(&payload).encode(&mut bytes);
        for bit in 0..(HEADER + payload.len()) * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Record::decode(&flipped, 9).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn what_is_cut_short_asks_for_more() {
        let mut bytes = Vec::new();
        record(&[7; 13]).encode(&mut bytes);
        for length in 0..HEADER + 13 {
            let needed = if length < HEADER { HEADER } else { HEADER + 13 };
            assert_eq!(Record::decode(&bytes[..length], 9), Err(Flaw::Short(needed)));
        }
        assert_eq!(Record::decode(&[0; 64], 0), Err(Flaw::Bad), "zeros are no record");
    }
}
