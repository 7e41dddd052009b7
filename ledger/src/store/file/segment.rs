//! The segment: a file of fixed size, used again and again.
//!
//! It begins with two copies of its header, each in a block of its own and written one after the other, so that no crash and no single fault loses
//! both. Each use has a generation of its own; records of another one are not there. It counts in its upper bits, and is drawn by lot below, so that nobody
//! who only appends can know it: no payload poses as a record.

use std::hash::{BuildHasher, RandomState};
use std::io;

use super::record::Record;
use crate::store::layer::{Directory, Mode, StoreFile};

/// The version of the format.
pub(crate) const FORMAT: u32 = 1;
/// Where the first record is.
pub(crate) const DATA: u32 = 8192;
const COPIES: [u64; 2] = [0, 4096];
const MAGIC: [u8; 8] = *b"FOLIOSEG";
const HEADER: usize = 32;

/// A segment's file.
#[derive(Debug)]
pub(crate) struct Segment<F> {
    pub(crate) slot: u32,
    pub(crate) name: String,
    pub(crate) file: F,
}

/// What the header of a segment says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Head {
    /// It is in use.
    Used {
        /// Which use it is.
        generation: u64,
        /// How long the segment is.
        bytes: u32,
    },
    /// It was never used.
    Unused,
    /// It is of another format.
    Version(u32),
    /// Both copies are damaged.
    Damaged,
}

/// The name of a segment's file.
pub(crate) fn file_name(slot: u32) -> String {
    format!("segment-{slot:08}")
}

/// The name of the file with a sealed segment's index.
pub(crate) fn index_name(slot: u32) -> String {
    format!("index-{slot:08}")
}

/// The slot of a segment's file, or none if it is another file.
pub(crate) fn slot_of(name: &str) -> Option<u32> {
    let slot = name.strip_prefix("segment-")?.parse().ok()?;
    (file_name(slot) == name).then_some(slot)
}

/// Bits of a generation that nobody can know beforehand; the others count.
const SECRET_BITS: u32 = 40;

/// The generation after another one.
pub(crate) fn next_generation(last: u64) -> u64 {
    // The standard library seeds each such state from the system.
    let secret = RandomState::new().hash_one(last) >> (64 - SECRET_BITS);
    ((last >> SECRET_BITS) + 1) << SECRET_BITS | secret
}

fn encode(generation: u64, bytes: u32) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..8].copy_from_slice(&MAGIC);
    header[8..12].copy_from_slice(&FORMAT.to_le_bytes());
    header[12..20].copy_from_slice(&generation.to_le_bytes());
    header[20..24].copy_from_slice(&bytes.to_le_bytes());
    let crc = crc32c::crc32c(&header[..28]);
    header[28..].copy_from_slice(&crc.to_le_bytes());
    header
}

fn decode(header: &[u8; HEADER]) -> Head {
    if header.iter().all(|&byte| byte == 0) {
        return Head::Unused;
    }
    let four = |at: usize| header[at..at + 4].try_into().map_or(0, u32::from_le_bytes);
    if header[..8] != MAGIC || crc32c::crc32c(&header[..28]) != four(28) {
        return Head::Damaged;
    }
    if four(8) != FORMAT {
        return Head::Version(four(8));
    }
    let generation = u64::from(four(12)) | u64::from(four(16)) << 32;
    Head::Used { generation, bytes: four(20) }
}

impl<F: StoreFile> Segment<F> {
    /// Opens the file of a segment that is there.
    pub(crate) fn open<D: Directory<File = F>>(directory: &D, slot: u32, mode: Mode) -> io::Result<Self> {
        let name = file_name(slot);
        Ok(Self { slot, file: directory.open(&name, mode)?, name })
    }

    /// Makes the file of a segment, full of zeros, on disk with its name.
    pub(crate) fn make<D: Directory<File = F>>(directory: &D, slot: u32, bytes: u32) -> io::Result<Self> {
        let segment = Self::open(directory, slot, Mode::Create)?;
        let made = segment.file.preallocate(u64::from(bytes)).and_then(|()| segment.file.sync());
        made.and_then(|()| directory.sync()).inspect_err(|_| {
            // Nothing needs it; what stays is made again by whoever needs the slot.
            drop(directory.remove(&segment.name));
        })?;
        Ok(segment)
    }

    /// Begins another use: on disk when this returns, but for the second copy.
    pub(crate) fn begin(&self, generation: u64, bytes: u32) -> io::Result<()> {
        let header = encode(generation, bytes);
        // A crash may tear the one that is written first, and may have torn the second one of the last use: the newest goes last.
        let first = match self.heads()? {
            [Head::Used { .. }, Head::Unused | Head::Damaged] => 1,
            [Head::Used { generation: first, .. }, Head::Used { generation: second, .. }] => {
                usize::from(first > second)
            }
            _ => 0,
        };
        self.file.write_at(COPIES[first], &header)?;
        self.file.sync()?;
        self.file.write_at(COPIES[1 - first], &header)
    }

    /// What the newest of the two copies says.
    pub(crate) fn head(&self) -> io::Result<Head> {
        let heads = self.heads()?;
        Ok(match heads {
            [Head::Version(version), _] | [_, Head::Version(version)] => Head::Version(version),
            [Head::Used { generation: first, .. }, Head::Used { generation: second, .. }] => {
                heads[usize::from(second > first)]
            }
            [used @ Head::Used { .. }, _] | [_, used @ Head::Used { .. }] => used,
            // The first copy of a segment that was never used is written first: it is torn, and nothing was written after it.
            [Head::Unused | Head::Damaged, Head::Unused] => self.unused()?,
            _ => Head::Damaged,
        })
    }

    /// What both copies say.
    fn heads(&self) -> io::Result<[Head; 2]> {
        let mut heads = [Head::Unused; 2];
        for (head, offset) in heads.iter_mut().zip(COPIES) {
            let mut header = [0; HEADER];
            match self.file.read_at(offset, &mut header) {
                Ok(()) => *head = decode(&header),
                // It was being made.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {}
                Err(error) => return Err(error),
            }
        }
        Ok(heads)
    }

    /// Whether a segment without a header has nothing else, either.
    fn unused(&self) -> io::Result<Head> {
        let mut first = [0; 16];
        match self.file.read_at(u64::from(DATA), &mut first) {
            Ok(()) if first.iter().any(|&byte| byte != 0) => Ok(Head::Damaged),
            Ok(()) => Ok(Head::Unused),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(Head::Unused),
            Err(error) => Err(error),
        }
    }

    /// All bytes of the segment.
    pub(crate) fn bytes(&self, length: u32) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length as usize];
        self.file.read_at(0, &mut bytes)?;
        Ok(bytes)
    }
}

/// Where the next record of a generation is that was written after all before `offset` was on disk, at `from` or later.
pub(crate) fn written_after(bytes: &[u8], generation: u64, from: usize, offset: u32) -> Option<usize> {
    find(bytes, generation, from, |record| record.synced > offset)
}

/// Where the next record of a generation is that is wanted, at `from` or later.
pub(crate) fn find(
    bytes: &[u8],
    generation: u64,
    from: usize,
    wanted: impl Fn(&Record<'_>) -> bool,
) -> Option<usize> {
    let from = from.next_multiple_of(super::record::ALIGN);
    (from..bytes.len()).step_by(super::record::ALIGN).find(|&at| {
        super::record::may_begin(&bytes[at..], generation)
            && Record::decode(&bytes[at..], generation).is_ok_and(|(record, _)| wanted(&record))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

    use super::*;
    use crate::store::faulty::Seed;
    use crate::store::layer::SimDirectory;

    #[test]
    fn names_are_those_of_segments_only() {
        assert_eq!(slot_of(&file_name(12)), Some(12));
        for name in ["segment-12", "segment-0000001x", "index-00000001", "segment-", "LOCK"] {
            assert_eq!(slot_of(name), None);
        }
    }

    #[test]
    fn a_flipped_bit_of_the_header_loses_nothing() {
        let directory = SimDirectory::new();
        let segment = Segment::make(&directory, 1, 16384).unwrap();
        assert_eq!(segment.head().unwrap(), Head::Unused);
        segment.begin(5, 16384).unwrap();
        let used = Head::Used { generation: 5, bytes: 16384 };
        let whole = directory.bytes("segment-00000001");
        for bit in 0..HEADER * 8 {
            for copy in [0, 4096] {
                let mut bytes = whole.clone();
                bytes[copy + bit / 8] ^= 1 << (bit % 8);
                directory.put("segment-00000001", bytes);
                let segment = Segment::open(&directory, 1, Mode::Read).unwrap();
                assert_eq!(segment.head().unwrap(), used, "bit {bit} of {copy}");
            }
        }
    }

    #[test]
    fn generations_grow_and_cannot_be_known() {
        let mut last = 0;
        for count in 1..1000 {
            let next = next_generation(last);
            assert!(next > last && next >> SECRET_BITS == count);
            assert_ne!(next_generation(last), next);
            last = next;
        }
    }

    #[test]
    fn a_header_survives_a_crash_as_it_is_written_though_one_copy_was_damaged_before() {
        for (seed, damaged) in (0..300).flat_map(|seed| [(seed, None), (seed, Some(0)), (seed, Some(4096))]) {
            let directory = SimDirectory::new();
            let segment = Segment::make(&directory, 1, 16384).unwrap();
            segment.begin(5, 16384).unwrap();
            segment.file.sync().unwrap();
            if let Some(copy) = damaged {
                let mut bytes = directory.bytes("segment-00000001");
                bytes[copy] ^= 1;
                directory.put("segment-00000001", bytes);
            }
            let segment = Segment::open(&directory, 1, Mode::Write).unwrap();
            directory.power_off_after(seed % 4);
            let begun = segment.begin(6, 16384);
            directory.crash(&mut Seed::new(seed));
            let segment = Segment::open(&directory, 1, Mode::Read).unwrap();
            let head = segment.head().unwrap();
            let is = |generation| head == Head::Used { generation, bytes: 16384 };
            assert!(is(6) || is(5) && begun.is_err(), "seed {seed}, {damaged:?}: {head:?}");
        }
    }

    #[test]
    fn another_version_is_told() {
        let mut header = encode(5, 16384);
        header[8..12].copy_from_slice(&7_u32.to_le_bytes());
        assert_eq!(decode(&header), Head::Damaged);
        let crc = crc32c::crc32c(&header[..28]);
        header[28..].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(decode(&header), Head::Version(7));
    }
}
