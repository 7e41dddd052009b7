//! Looking at a store as a whole: what is there, and whether it is sound.

use std::fmt::{self, Write};
use std::path::Path;

use super::error::Damage;
use super::file::{Cut, FileOptions, FileStore, OpenError, OpenReport, Tally};
use super::layer::{Directory, RealDirectory};
use super::log::LedgerInfo;
use super::redb::{MetadataReport, RedbMetadata};

/// The file with the metadata, in a directory that has both.
pub const METADATA_FILE: &str = "metadata.redb";

/// What a store has, and what of it is damaged.
///
/// Displayed for people; [`to_json`](Self::to_json) is for programs.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Inspection {
    /// All ledgers, by number.
    pub ledgers: Vec<LedgerReport>,
    /// How many segments hold entries, the newest one among them.
    pub segments: usize,
    /// How many records were checked.
    pub records: u64,
    /// Something was being written as the store ended.
    pub cut: Option<Cut>,
    /// What is damaged, with ledger and entry where that is known; of entries that follow each other and are missing, the first.
    pub damages: Vec<Damage>,
    /// What the metadata has, if it is in the same directory.
    pub metadata: Option<MetadataReport>,
}

/// What a ledger has.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LedgerReport {
    /// Its group.
    pub group: String,
    /// Its number, its epoch, its last entry, and whether it is closed.
    pub info: LedgerInfo,
    /// How many entries are sound.
    pub entries: u64,
    /// How many bytes of payload these have.
    pub bytes: u64,
}

impl Inspection {
    /// Whether nothing is damaged.
    pub fn is_sound(&self) -> bool {
        self.damages().next().is_none()
    }

    /// All damages, those of the metadata, too.
    fn damages(&self) -> impl Iterator<Item = &Damage> {
        self.damages.iter().chain(self.metadata.iter().flat_map(|metadata| &metadata.damages))
    }

    /// The same as one object of JSON, with a line break at its end.
    pub fn to_json(&self) -> String {
        let ledgers = self.ledgers.iter().map(|ledger| {
            let LedgerInfo { ledger: number, epoch, last, closed } = ledger.info;
            format!(
                "{{\"ledger\":{number},\"group\":{},\"epoch\":{epoch},\"last\":{last},\"closed\":{closed},\"entries\":{},\"bytes\":{}}}",
                text(&ledger.group),
                ledger.entries,
                ledger.bytes
            )
        });
        let damages = self.damages().map(|damage| {
            let position = damage.position.map_or(String::new(), |position| {
                format!("\"ledger\":{},\"entry\":{},", position.ledger, position.entry)
            });
            format!(
                "{{{position}\"file\":{},\"offset\":{},\"what\":{}}}",
                text(&damage.file),
                damage.offset,
                text(damage.what)
            )
        });
        let cut = self.cut.as_ref().map_or("null".to_owned(), |cut| {
            format!("{{\"file\":{},\"offset\":{}}}", text(&cut.file), cut.offset)
        });
        let metadata = self.metadata.as_ref().map_or("null".to_owned(), |metadata| {
            format!("{{\"values\":{},\"bytes\":{}}}", metadata.values, metadata.bytes)
        });
        format!(
            "{{\"sound\":{},\"segments\":{},\"records\":{},\"ledgers\":[{}],\"cut\":{cut},\"metadata\":{metadata},\"damages\":[{}]}}\n",
            self.is_sound(),
            self.segments,
            self.records,
            ledgers.collect::<Vec<_>>().join(","),
            damages.collect::<Vec<_>>().join(",")
        )
    }
}

/// A string of JSON.
fn text(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            letter if letter.is_control() && (letter as u32) < 0x20 => {
                // Writing to a string does not fail.
                let _ = write!(quoted, "\\u{:04x}", letter as u32);
            }
            letter => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}

impl fmt::Display for Inspection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for ledger in &self.ledgers {
            let LedgerInfo { ledger: number, epoch, last, closed } = ledger.info;
            let state = if closed { "closed" } else { "open" };
            let (group, entries, bytes) = (&ledger.group, ledger.entries, ledger.bytes);
            writeln!(
                f,
                "ledger {number} of {group}: 0..={last}, {entries} sound entries, {bytes} bytes, epoch {epoch}, {state}"
            )?;
        }
        writeln!(f, "{} ledgers, {} segments, {} records", self.ledgers.len(), self.segments, self.records)?;
        if let Some(metadata) = &self.metadata {
            writeln!(f, "{} values of metadata, {} bytes", metadata.values, metadata.bytes)?;
        }
        if let Some(cut) = &self.cut {
            writeln!(
                f,
                "the end of {} from {} on was being written and does not count",
                cut.file, cut.offset
            )?;
        }
        for damage in self.damages() {
            writeln!(f, "DAMAGED: {damage}")?;
        }
        f.write_str(if self.is_sound() { "sound" } else { "DAMAGED" })
    }
}

/// Looks at all that is in a directory: every entry, every other record, and the metadata if that is there, too.
///
/// Nothing may have the store open. The log is only read; redb may repair its file if that was not shut.
///
/// # Errors
/// When it is open elsewhere, no store, or of another format; when the system says so.
pub fn inspect(path: impl AsRef<Path>) -> Result<Inspection, OpenError> {
    let path = path.as_ref();
    let mut inspection = inspect_log(RealDirectory::new(path))?;
    let metadata = path.join(METADATA_FILE);
    if metadata.is_file() {
        inspection.metadata = Some(match RedbMetadata::check(metadata) {
            Err(OpenError::Damaged(damages)) => MetadataReport { damages, ..MetadataReport::default() },
            report => report?,
        });
    }
    Ok(inspection)
}

/// Looks at all that is in the log of a directory of any kind.
///
/// # Errors
/// As [`inspect`].
pub fn inspect_log<D: Directory>(directory: D) -> Result<Inspection, OpenError> {
    let options = FileOptions { read_only: true, ..FileOptions::default() };
    let (store, report) = FileStore::open(directory, options)?;
    let OpenReport { cut, damages: others, segments, .. } = report;
    let mut records = store.check_records()?;
    let ledgers = std::mem::take(&mut records.ledgers).into_values();
    let ledgers =
        ledgers.map(|Tally { group, info, entries, bytes, .. }| LedgerReport { group, info, entries, bytes });
    let (ledgers, count) = (ledgers.collect(), records.count);
    let mut damages: Vec<_> = records.damages().collect();
    // Where an entry is missing was found by the records, too.
    let is_known = |other: &Damage| {
        let here = |damage: &Damage| damage.file == other.file && damage.offset == other.offset;
        other.position.is_some() || damages.iter().any(here)
    };
    let more: Vec<_> = others.into_iter().filter(|other| !is_known(other)).collect();
    damages.extend(more);
    Ok(Inspection { ledgers, segments, records: count, cut, damages, metadata: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_quoted() {
        assert_eq!(text("a\"b\\c\n\u{1}é"), "\"a\\\"b\\\\c\\u000a\\u0001é\"");
    }
}
