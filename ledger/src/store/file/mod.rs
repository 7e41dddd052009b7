//! A store in files: segments that all ledgers share, written by one thread.
//!
//! # Guarantees
//! An append that was answered is read as it was appended, after whatever its durability says. What was refused is never there; what was never
//! answered is there up to some entry, or not. Nothing damaged is given out, and nothing that was on disk is passed over in silence.
//!
//! # Protocol
//! Callers put their requests into an inbox. One thread takes all that wait, writes them as one, syncs once, makes them visible, and answers in order; so the
//! sync of one batch is the time in which the next one gathers. Reads take from an index where to look, and read the file themselves.
//!
//! A segment begins with a list of all ledgers; so recovery reads the newest segment, and of the others their indexes. A segment is sealed, on disk as a
//! whole, before the next one begins. One without entries of a ledger that is there is used again, once the deletions are on disk.
//!
//! The log ends at the first record whose checksum is wrong, unless a later record says that this place was on disk when it was written: then it is damage. What
//! lies behind the end is overwritten with zeros before anything is written there. Recovery syncs what it found before it shows it.
//!
//! # Limits
//! Damage to what was written last, by a process that was killed, cannot be told from a write that was under way. All else is found: in the newest segment as the store is
//! opened, in others as they are read or inspected. A segment is used again only as a whole: one ledger that stays keeps it. A group whose ledgers are all deleted forgets its epoch. A second thread
//! makes the next segment once half of one is written: the disk has it to do beside the syncs.

mod codec;
mod index;
mod inspect;
mod maker;
mod options;
mod read;
mod record;
mod recovery;
mod request;
mod roll;
mod segment;
mod snapshot;
mod writer;

use std::collections::HashMap;
use std::fmt;

use bytes::Bytes;
use folio_sync::thread::{Builder, JoinHandle, ThreadId};
use folio_sync::{Arc, Mutex, unwind};
use index::Run;
pub(crate) use inspect::Tally;
use maker::Maker;
pub use options::{Cut, FileOptions, OpenError, OpenReport};
#[cfg(feature = "test-util")]
pub(crate) use record::{check_record, seal_record};
use request::Request;
use segment::Segment;
use writer::Writer;

use super::done::Done;
use super::error::StoreError;
use super::inbox::Inbox;
use super::layer::{Directory, RealDirectory};
use super::log::{Append, Appended, Capabilities, LedgerInfo, LogStore, ReadLimits};
use super::table::{MAX_GROUP_BYTES, Table};

/// The file by which a store is locked.
const LOCK: &str = "LOCK";

/// Keeps ledgers in the files of a directory.
///
/// Appends and all other changes are answered on the store's thread, reads on the thread that asks, which may have to wait for the disk. Dropping the store
/// finishes what was asked before. See [`FileOptions`] for limits and durability.
///
/// ```
/// use folio_ledger::store::layer::RealDirectory;
/// use folio_ledger::store::{Append, Done, FileOptions, FileStore, LogStore};
///
/// # let path = std::env::temp_dir().join(format!("folio-doc-{}", std::process::id()));
/// # std::fs::create_dir_all(&path).unwrap();
/// let options = FileOptions { segment_bytes: 1 << 20, ..FileOptions::default() };
/// let (store, report) = FileStore::open(RealDirectory::new(&path), options).unwrap();
/// assert!(report.cut.is_none());
/// store.create("orders", 1, 1, Done::new(|made| assert!(made.is_ok())));
/// let append = Append { ledger: 1, epoch: 1, first: 0, entries: vec!["a".into(), "b".into()] };
/// let (tell, told) = std::sync::mpsc::channel();
/// store.append(append, Done::new(move |appended| tell.send(appended).unwrap()));
/// assert_eq!(told.recv().unwrap().unwrap().last, 1);
/// # drop(store);
/// # std::fs::remove_dir_all(&path).unwrap();
/// ```
pub struct FileStore<D: Directory = RealDirectory> {
    shared: Arc<Shared<D>>,
    thread: Option<(JoinHandle<()>, ThreadId)>,
}

/// What callers and the store's thread share.
struct Shared<D: Directory> {
    directory: D,
    options: FileOptions,
    capabilities: Capabilities,
    inbox: Inbox<Request>,
    state: Mutex<State<D::File>>,
    /// Held as long as anybody uses the files.
    _lock: D::Lock,
}

/// What can be seen: only ever what is answered or about to be.
struct State<F> {
    table: Table,
    /// By ledger, in order.
    index: HashMap<i64, Vec<Located<F>>>,
    failed: Option<StoreError>,
}

/// A run, and where it is.
struct Located<F> {
    segment: Arc<Segment<F>>,
    generation: u64,
    run: Run,
}

impl<D: Directory> FileStore<D> {
    /// Opens the store in a directory, or makes one in an empty directory; tells what it found.
    ///
    /// # Errors
    /// When it is open elsewhere, is of another format, or is damaged; when the directory holds something else; when the system says so. A damaged store
    /// can be opened for reading only.
    pub fn open(directory: D, options: FileOptions) -> Result<(Self, OpenReport), OpenError> {
        let (shared, writer, report) = recovery::open(directory, options)?;
        let mut store = Self { shared, thread: None };
        if let Some(writer) = writer {
            let mut writer = writer;
            writer.maker = Some(Maker::start(Arc::clone(&store.shared))?);
            let thread = Builder::new().name("folio-store".to_owned()).spawn(move || run(writer))?;
            let id = thread.thread().id();
            store.thread = Some((thread, id));
        }
        Ok((store, report))
    }

    /// Opens it without a thread: what is asked waits until the [`Stepper`] is told to go on.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    #[cfg(feature = "test-util")]
    pub fn open_stepped(
        directory: D,
        options: FileOptions,
    ) -> Result<(Self, Stepper<D>, OpenReport), OpenError> {
        let (shared, writer, report) = recovery::open(directory, options)?;
        Ok((Self { shared, thread: None }, Stepper(writer), report))
    }

    fn put(&self, request: Request) {
        let (request, error) = if self.shared.options.read_only {
            (request, StoreError::ReadOnly)
        } else {
            let weight = request.weight();
            match self.shared.inbox.put(request, weight) {
                Ok(()) => return,
                Err(refused) => refused,
            }
        };
        request.refuse(error);
    }
}

/// The store's thread.
fn run<D: Directory>(mut writer: Writer<D>) {
    let shared = Arc::clone(writer.shared());
    let ran = unwind::catch(move || {
        let mut requests = Vec::new();
        while writer.shared().inbox.take(&mut requests, writer.shared().options.linger) {
            writer.step(&mut requests);
        }
        writer.finish();
    });
    if let Err(payload) = ran {
        unwind::discard(payload);
    }
    // However it ended: nobody is left waiting.
    shared.inbox.close();
    let mut left = Vec::new();
    shared.inbox.take_now(&mut left);
    for request in left {
        request.refuse(StoreError::Shut);
    }
}

impl<D: Directory> Drop for FileStore<D> {
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

impl<D: Directory> fmt::Debug for FileStore<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileStore").field("options", &self.shared.options).finish_non_exhaustive()
    }
}

impl<D: Directory> LogStore for FileStore<D> {
    fn capabilities(&self) -> Capabilities {
        self.shared.capabilities
    }

    fn create(&self, group: &str, ledger: i64, epoch: u64, done: Done<()>) {
        if group.len() > MAX_GROUP_BYTES {
            done.tell(Err(StoreError::TooLarge { bytes: group.len(), most: MAX_GROUP_BYTES }));
            return;
        }
        self.put(Request::Create { group: group.to_owned(), ledger, epoch, done });
    }

    fn append(&self, append: Append, done: Done<Appended>) {
        match Table::check_size(&append, &self.shared.capabilities) {
            Ok(weight) => self.put(Request::Append { append, weight, done }),
            Err(error) => done.tell(Err(error)),
        }
    }

    fn read(&self, ledger: i64, first: i64, limits: ReadLimits, done: Done<Vec<Bytes>>) {
        done.tell(self.shared.read(ledger, first, limits));
    }

    fn last_confirmed(&self, ledger: i64, done: Done<i64>) {
        let last = self.shared.state.lock().table.row(ledger).map(|row| row.next - 1);
        done.tell(last);
    }

    fn close(&self, ledger: i64, epoch: u64, done: Done<i64>) {
        self.put(Request::Close { ledger, epoch, done });
    }

    fn recover(&self, ledger: i64, epoch: u64, done: Done<i64>) {
        self.put(Request::Recover { ledger, epoch, done });
    }

    fn delete(&self, ledger: i64, epoch: u64, done: Done<()>) {
        self.put(Request::Delete { ledger, epoch, done });
    }

    fn list(&self, group: &str, done: Done<Vec<LedgerInfo>>) {
        let list = self.shared.state.lock().table.list(group);
        done.tell(Ok(list));
    }
}

/// The thread of a store, stepped by hand.
#[cfg(feature = "test-util")]
pub struct Stepper<D: Directory>(Option<Writer<D>>);

#[cfg(feature = "test-util")]
impl<D: Directory> Stepper<D> {
    /// Does all that was asked.
    pub fn step(&mut self) {
        let Some(writer) = &mut self.0 else { return };
        let mut requests = Vec::new();
        writer.shared().inbox.take_now(&mut requests);
        writer.step(&mut requests);
    }

    /// Ends it as a store that is dropped does.
    pub fn finish(mut self) {
        self.step();
        if let Some(writer) = &mut self.0 {
            writer.finish();
        }
    }
}

#[cfg(feature = "test-util")]
impl<D: Directory> fmt::Debug for Stepper<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stepper").finish_non_exhaustive()
    }
}
