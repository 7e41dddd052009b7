//! Small values in a file, by redb.
//!
//! # Guarantees
//! A commit that was answered is there after a loss of power. Each value carries its key's and version's checksum, so that whatever the file has
//! become, a wrong value is not given out. A panic inside redb, which a damaged file may cause, becomes an error; an abort would not.
//!
//! # Protocol
//! Commits wait in an inbox. One thread takes all that wait, makes them one after the other in one transaction, those whose versions are not as expected left out,
//! and answers when it is on disk. Reads take a snapshot, on the thread that asks.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use folio_sync::atomic::{AtomicBool, Ordering};
use folio_sync::thread::{Builder, JoinHandle, ThreadId};
use folio_sync::{Arc, Mutex, unwind};
use redb::{Database, ReadOnlyTable, ReadableDatabase, ReadableTable, Table, TableDefinition, TableError};

use super::done::Done;
use super::error::{Damage, StoreError};
use super::file::OpenError;
use super::inbox::{Bounds, Inbox};
use super::metadata::{Change, MetadataStore, Versioned, check};

const VALUES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("values");
const STORE: TableDefinition<'_, &str, u64> = TableDefinition::new("store");
/// The last version that was given out.
const VERSION: &str = "version";
const FORMAT: &str = "format";
/// The version of the format of what we keep in redb.
const SUPPORTED: u32 = 1;
/// Before the value: its version, and the checksum.
const HEADER: usize = 12;

/// How a [`RedbMetadata`] is opened.
#[derive(Clone, Debug)]
pub struct RedbOptions {
    /// How many commits may wait, those in work included.
    pub max_queued: usize,
    /// How many bytes of keys and values may wait.
    pub max_queued_bytes: usize,
    /// How much redb may keep in memory.
    pub cache_bytes: usize,
}

impl Default for RedbOptions {
    fn default() -> Self {
        Self { max_queued: 16_384, max_queued_bytes: 64 << 20, cache_bytes: 64 << 20 }
    }
}

/// Keeps small values in a file.
///
/// Commits are answered on the store's thread, several at once where they wait; reads on the thread that asks. Dropping it finishes what was asked before.
pub struct RedbMetadata {
    shared: Arc<Shared>,
    thread: Option<(JoinHandle<()>, ThreadId)>,
}

struct Shared {
    database: Database,
    file: String,
    inbox: Inbox<Commit>,
    failed: Mutex<Option<StoreError>>,
}

#[derive(Debug)]
struct Commit {
    changes: Vec<Change>,
    done: Done<Vec<Option<u64>>>,
}

/// What one commit came to.
type Made = Result<Vec<Option<u64>>, StoreError>;

/// What a check of the whole file found.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct MetadataReport {
    /// How many values there are.
    pub values: u64,
    /// How many bytes they have.
    pub bytes: u64,
    /// What is damaged.
    pub damages: Vec<Damage>,
}

impl RedbMetadata {
    /// Opens the file, or makes it. One that was not shut is repaired and checked as a whole.
    ///
    /// # Errors
    /// When it is open elsewhere, of another format, or damaged; when the system says so.
    pub fn open(path: impl Into<PathBuf>, options: &RedbOptions) -> Result<Self, OpenError> {
        let path = path.into();
        let file = name(&path);
        let (mut database, repaired) = open(&path, options.cache_bytes)?;
        if repaired {
            let report = inspect(&mut database, &file);
            if !report.damages.is_empty() {
                return Err(OpenError::Damaged(report.damages));
            }
        }
        guard(|| prepare(&database)).map_err(|problem| problem.opening(&file))?;
        let bounds = Bounds { items: options.max_queued, weight: options.max_queued_bytes };
        let shared = Arc::new(Shared { database, file, inbox: Inbox::new(bounds), failed: Mutex::new(None) });
        let theirs = Arc::clone(&shared);
        let thread = Builder::new().name("folio-metadata".to_owned()).spawn(move || theirs.run())?;
        let id = thread.thread().id();
        Ok(Self { shared, thread: Some((thread, id)) })
    }

    /// Checks a file as a whole: redb's own structure, and every value.
    ///
    /// # Errors
    /// When it is open elsewhere, of another format, or cannot be opened at all.
    pub fn check(path: impl Into<PathBuf>) -> Result<MetadataReport, OpenError> {
        let path = path.into();
        if !path.is_file() {
            return Err(OpenError::NotAStore);
        }
        let (mut database, _) = open(&path, RedbOptions::default().cache_bytes)?;
        Ok(inspect(&mut database, &name(&path)))
    }
}

fn name(path: &Path) -> String {
    path.file_name().map_or(String::new(), |name| name.to_string_lossy().into())
}

/// Opens the database; whether it had to be repaired.
fn open(path: &Path, cache_bytes: usize) -> Result<(Database, bool), OpenError> {
    let repaired = Arc::new(AtomicBool::new(false));
    let tells = Arc::clone(&repaired);
    let opened = guard(|| {
        let mut builder = Database::builder();
        builder.set_cache_size(cache_bytes);
        // Relaxed: told and read on this thread.
        builder.set_repair_callback(move |_| tells.store(true, Ordering::Relaxed));
        builder.create(path).map_err(Problem::from)
    });
    let database = opened.map_err(|problem| problem.opening(&name(path)))?;
    // Relaxed: as above.
    Ok((database, repaired.load(Ordering::Relaxed)))
}

/// Sees to the format and the tables.
fn prepare(database: &Database) -> Result<(), Problem> {
    let write = database.begin_write()?;
    {
        let mut store = write.open_table(STORE)?;
        let found = store.get(FORMAT)?.map(|found| found.value());
        match found {
            Some(found) if found == u64::from(SUPPORTED) => {}
            Some(found) => return Err(Problem::Format(found)),
            None => drop(store.insert(FORMAT, u64::from(SUPPORTED))?),
        }
        write.open_table(VALUES)?;
    }
    write.commit()?;
    Ok(())
}

fn inspect(database: &mut Database, file: &str) -> MetadataReport {
    let mut report = MetadataReport::default();
    let sound = guard(|| Ok(database.check_integrity()?));
    let read = guard(|| {
        let read = database.begin_read()?;
        let values = match read.open_table(VALUES) {
            Err(TableError::TableDoesNotExist(_)) => return Ok(()),
            values => values?,
        };
        for pair in values.range::<&str>(..)? {
            let (key, value) = pair?;
            report.values += 1;
            report.bytes += value.value().len() as u64;
            if decode(key.value(), value.value()).is_none() {
                report.damages.push(damage(file, "the checksum of a value is wrong"));
            }
        }
        Ok(())
    });
    match sound {
        Ok(true) => {}
        Ok(false) => report.damages.push(damage(file, "redb found its structure damaged")),
        Err(problem) => report.damages.push(damage(file, problem.words())),
    }
    if let Err(problem) = read {
        report.damages.push(damage(file, problem.words()));
    }
    report
}

fn damage(file: &str, what: &'static str) -> Damage {
    Damage { position: None, file: file.to_owned(), offset: 0, what }
}

fn checksum(key: &str, version: u64, value: &[u8]) -> u32 {
    let crc = crc32c::crc32c(&(key.len() as u64).to_le_bytes());
    let crc = crc32c::crc32c_append(crc, key.as_bytes());
    crc32c::crc32c_append(crc32c::crc32c_append(crc, &version.to_le_bytes()), value)
}

fn encode(key: &str, version: u64, value: &[u8]) -> Vec<u8> {
    [&version.to_le_bytes()[..], &checksum(key, version, value).to_le_bytes(), value].concat()
}

fn decode(key: &str, stored: &[u8]) -> Option<Versioned> {
    let (header, value) = stored.split_at_checked(HEADER)?;
    let version = u64::from_le_bytes(header[..8].try_into().ok()?);
    let crc = u32::from_le_bytes(header[8..].try_into().ok()?);
    let right = crc == checksum(key, version, value);
    right.then(|| Versioned { version, value: Bytes::copy_from_slice(value) })
}

/// What redb said, or a panic of it.
enum Problem {
    Redb(Box<redb::Error>),
    Panicked,
    /// A value whose checksum is wrong.
    Value,
    Format(u64),
}

impl<E: Into<redb::Error>> From<E> for Problem {
    fn from(error: E) -> Self {
        Self::Redb(Box::new(error.into()))
    }
}

impl Problem {
    fn words(&self) -> &'static str {
        match self {
            Self::Redb(error) if matches!(**error, redb::Error::Corrupted(_)) => "redb found it corrupted",
            Self::Redb(_) => "redb cannot read it",
            Self::Panicked => "redb panicked",
            Self::Value => "the checksum of a value is wrong",
            Self::Format(_) => "it is of another format",
        }
    }

    fn opening(self, file: &str) -> OpenError {
        match self {
            Self::Format(found) => {
                OpenError::Format { found: u32::try_from(found).unwrap_or(u32::MAX), supported: SUPPORTED }
            }
            Self::Redb(error) => match *error {
                redb::Error::DatabaseAlreadyOpen => OpenError::Locked,
                redb::Error::Io(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                    OpenError::Damaged(vec![damage(file, "redb cannot read it")])
                }
                redb::Error::Io(error) => OpenError::Io(error),
                redb::Error::Corrupted(_) => {
                    OpenError::Damaged(vec![damage(file, "redb found it corrupted")])
                }
                other => OpenError::Io(std::io::Error::other(other)),
            },
            problem => OpenError::Damaged(vec![damage(file, problem.words())]),
        }
    }

    fn reading(self, file: &str) -> StoreError {
        match self {
            Self::Redb(error) if !matches!(*error, redb::Error::Corrupted(_)) => {
                StoreError::ReadFailed(format!("{file}: {error}"))
            }
            problem => StoreError::Damaged(damage(file, problem.words())),
        }
    }
}

/// Runs what calls redb; a panic ends here.
fn guard<R>(call: impl FnOnce() -> Result<R, Problem>) -> Result<R, Problem> {
    unwind::catch(call).unwrap_or_else(|payload| {
        unwind::discard(payload);
        Err(Problem::Panicked)
    })
}

impl Shared {
    fn run(&self) {
        let mut commits = Vec::new();
        while self.inbox.take(&mut commits, Duration::ZERO) {
            let failed = self.failed.lock().clone();
            let made = failed.map_or_else(|| self.make(&commits), Err);
            match made {
                Ok(answers) => {
                    for (commit, answer) in commits.drain(..).zip(answers) {
                        commit.done.tell(answer);
                    }
                }
                Err(error) => {
                    *self.failed.lock() = Some(error.clone());
                    for commit in commits.drain(..) {
                        commit.done.tell(Err(error.clone()));
                    }
                }
            }
        }
    }

    /// Makes all commits in one transaction; what each is answered.
    fn make(&self, commits: &[Commit]) -> Result<Vec<Made>, StoreError> {
        let made = guard(|| {
            let write = self.database.begin_write()?;
            let mut answers = Vec::with_capacity(commits.len());
            {
                let mut values = write.open_table(VALUES)?;
                let mut store = write.open_table(STORE)?;
                let mut version = store.get(VERSION)?.map_or(0, |version| version.value());
                for commit in commits {
                    answers.push(self.make_one(&commit.changes, &mut values, &mut version)?);
                }
                store.insert(VERSION, version)?;
            }
            write.commit()?;
            Ok(answers)
        });
        made.map_err(|problem| match problem {
            Problem::Redb(error) => StoreError::Failed(format!("{}: {error}", self.file)),
            problem => StoreError::Failed(format!("{}: {}", self.file, problem.words())),
        })
    }

    fn make_one(
        &self,
        changes: &[Change],
        values: &mut Table<'_, &'static str, &'static [u8]>,
        version: &mut u64,
    ) -> Result<Made, Problem> {
        for change in changes {
            let found = match values.get(change.key.as_str())? {
                None => None,
                Some(stored) => match decode(&change.key, stored.value()) {
                    Some(value) => Some(value.version),
                    None => return Ok(Err(Problem::Value.reading(&self.file))),
                },
            };
            if !change.expected.allows(found) {
                return Ok(Err(StoreError::Conflict { key: change.key.clone(), found }));
            }
        }
        let mut versions = Vec::with_capacity(changes.len());
        for Change { key, value, .. } in changes {
            if let Some(value) = value {
                *version += 1;
                values.insert(key.as_str(), &encode(key, *version, value)[..])?;
                versions.push(Some(*version));
            } else {
                values.remove(key.as_str())?;
                versions.push(None);
            }
        }
        Ok(Ok(versions))
    }

    fn read<R>(
        &self,
        read: impl FnOnce(&ReadOnlyTable<&'static str, &'static [u8]>) -> Result<R, Problem>,
    ) -> Result<R, StoreError> {
        let done = guard(|| read(&self.database.begin_read()?.open_table(VALUES)?));
        done.map_err(|problem| problem.reading(&self.file))
    }
}

impl MetadataStore for RedbMetadata {
    fn get(&self, key: &str, done: Done<Option<Versioned>>) {
        let value = self.shared.read(|values| match values.get(key)? {
            None => Ok(None),
            Some(stored) => decode(key, stored.value()).map(Some).ok_or(Problem::Value),
        });
        done.tell(value);
    }

    fn list(&self, prefix: &str, done: Done<Vec<(String, u64)>>) {
        let list = self.shared.read(|values| {
            let mut list = Vec::new();
            for pair in values.range(prefix..)? {
                let (key, stored) = pair?;
                if !key.value().starts_with(prefix) {
                    break;
                }
                let value = decode(key.value(), stored.value()).ok_or(Problem::Value)?;
                list.push((key.value().to_owned(), value.version));
            }
            Ok(list)
        });
        done.tell(list);
    }

    fn commit(&self, changes: Vec<Change>, done: Done<Vec<Option<u64>>>) {
        if let Err(error) = check(&changes) {
            done.tell(Err(error));
            return;
        }
        let bytes = |change: &Change| change.key.len() + change.value.as_ref().map_or(0, Bytes::len);
        let weight = changes.iter().map(bytes).sum();
        if let Err((commit, error)) = self.shared.inbox.put(Commit { changes, done }, weight) {
            commit.done.tell(Err(error));
        }
    }
}

impl Drop for RedbMetadata {
    fn drop(&mut self) {
        self.shared.inbox.close();
        let Some((thread, id)) = self.thread.take() else { return };
        // An answer may hold the store and be the last to do so: the thread does not wait for itself.
        if folio_sync::thread::current().id() != id
            && let Err(payload) = thread.join()
        {
            unwind::discard(payload);
        }
    }
}

impl fmt::Debug for RedbMetadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedbMetadata").field("file", &self.shared.file).finish_non_exhaustive()
    }
}
