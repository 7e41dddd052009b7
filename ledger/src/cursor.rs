//! Cursors: where one reader of a ledger is, and what it has done with.

use std::fmt;

use bytes::Bytes;
use folio_cache::{ActiveCursor, ReadEntry, ReadRequest};
use folio_sync::atomic::{AtomicI64, Ordering};
use folio_sync::{Arc, Mutex};

use crate::acks::Acks;
use crate::append::contained;
use crate::error::ReadError;
use crate::ledger::Core;
use crate::position::{Entry, Position};
use crate::tail::{Tail, Wait};

/// Hears that entries came.
pub(crate) type Listener = dyn Fn() + Send + Sync;

/// How many deleted entries it takes to trim again.
const TRIM_EVERY: i64 = 1024;

/// What the ledger knows of a cursor.
pub(crate) struct CursorCore {
    pub(crate) tail: Tail,
    more: Arc<Listener>,
    /// The number of the next entry to read; the reader's alone, one at a time.
    next: AtomicI64,
    /// The number of the first entry that is not deleted.
    first_left: AtomicI64,
    acks: Mutex<Deleted>,
    /// How many readers still come to an entry, this one among them; the reader's alone.
    active: Mutex<ActiveCursor>,
    /// Room for the next read; the reader's alone.
    spare: Mutex<Vec<ReadEntry<Bytes>>>,
}

struct Deleted {
    acks: Acks,
    /// Trims again when the mark comes to here.
    trim_at: i64,
}

impl CursorCore {
    pub(crate) fn new(first: i64, confirmed: i64, more: Arc<Listener>, active: ActiveCursor) -> Self {
        Self {
            tail: Tail::new(confirmed),
            more,
            next: AtomicI64::new(first),
            first_left: AtomicI64::new(first),
            acks: Mutex::new(Deleted { acks: Acks::new(first), trim_at: first.saturating_add(TRIM_EVERY) }),
            active: Mutex::new(active),
            spare: Mutex::default(),
        }
    }

    pub(crate) fn first_left(&self) -> i64 {
        // Relaxed: a number; what is trimmed by it was deleted before, whoever did that.
        self.first_left.load(Ordering::Relaxed)
    }

    /// The number of the next entry to read, which is not before the first that is not deleted.
    fn position(&self) -> i64 {
        // Relaxed: a number.
        self.next.load(Ordering::Relaxed).max(self.first_left())
    }

    /// How many confirmed entries are not read yet.
    pub(crate) fn backlog(&self) -> u64 {
        u64::try_from(self.tail.confirmed() - self.position()).unwrap_or(0)
    }

    /// Calls the listener.
    pub(crate) fn tell(&self) {
        (self.more)();
    }
}

/// A place in a ledger, and the entries before and after it that are done with.
///
/// One read at a time is the caller's duty: the place moves as a read has its entries, before it completes. Deleting is for any thread.
///
/// # Following the tail
/// Read while there is [more](Wait::More), go away while [waiting](Wait::Waiting), begin again when the listener is called, until the ledger is
/// [closed](Wait::Closed). Here a thread of its own does so, which the listener wakes:
///
/// ```
/// use std::sync::mpsc;
///
/// use bytes::Bytes;
/// use folio_cache::{CacheManager, CacheOptions};
/// use folio_executor::OrderedExecutor;
/// use folio_ledger::{Callbacks, Cursor, Ledger, LedgerOptions, MemoryStorage, Wait};
/// use folio_sync::time::SystemClock;
/// use folio_sync::timers::ThreadTimers;
///
/// fn follow(cursor: &Cursor, woken: &mpsc::Receiver<()>) -> Vec<Bytes> {
///     let (mut all, mut buffer) = (Vec::new(), Vec::new());
///     let (tell, told) = mpsc::channel();
///     loop {
///         match cursor.wait() {
///             Wait::More => {
///                 let tell = tell.clone();
///                 cursor.read(100, buffer, move |result| tell.send(result).expect("the reader waits for it"));
///                 buffer = told.recv().expect("each read is answered").expect("memory does not fail");
///                 all.extend(buffer.drain(..).map(|entry| entry.payload));
///                 // What is read and done with need not be kept.
///                 cursor.mark_delete(cursor.position());
///             }
///             Wait::Waiting => woken.recv().expect("the listener has the other end"),
///             _ => return all,
///         }
///     }
/// }
///
/// let pool = OrderedExecutor::builder().threads(1).build()?;
/// let worker = pool.worker("ledger").clone();
/// let cache = CacheManager::new(
///     CacheOptions::default(),
///     pool.worker("eviction").clone(),
///     ThreadTimers::new(),
///     SystemClock::new(),
/// )?;
/// let ledger = Ledger::open(LedgerOptions::default(), MemoryStorage::new(), &cache, worker, Callbacks)?;
/// let (wake, woken) = mpsc::channel();
/// let cursor = ledger.cursor(0, move || wake.send(()).unwrap_or_default());
/// let reader = std::thread::spawn(move || follow(&cursor, &woken));
/// for n in 0..1_000 {
///     ledger.append(Bytes::from(n.to_string()), |result, _| assert!(result.is_ok()));
/// }
/// ledger.close();
/// let all = reader.join().expect("it does not panic");
/// assert!(all.into_iter().eq((0..1_000).map(|n| Bytes::from(n.to_string()))));
/// # drop(ledger);
/// # let _left = pool.join();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Cursor {
    ledger: Arc<Core>,
    core: Arc<CursorCore>,
}

impl Cursor {
    pub(crate) fn new(ledger: Arc<Core>, core: Arc<CursorCore>) -> Self {
        Self { ledger, core }
    }

    /// Reads the next entries, at most so many, into `buffer`, whose room is used; there may be fewer, but none only at the tail.
    ///
    /// `done` is called once: with the buffer, on this thread or another one, as the ledger's policy is, perhaps before this returns; or with what went
    /// wrong. Its panic ends there. What is not in the cache is read from storage.
    pub fn read(
        &self,
        most: usize,
        mut buffer: Vec<Entry>,
        done: impl FnOnce(Result<Vec<Entry>, ReadError>) + Send + 'static,
    ) {
        let first = self.position();
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let confirmed = self.core.tail.confirmed();
        let end = confirmed.min(first.saturating_add(most)).max(first);
        let count = u32::try_from(end - first).unwrap_or(u32::MAX);
        contained(|| buffer.clear());
        let (ledger, core) = (Arc::clone(&self.ledger), Arc::clone(&self.core));
        let request =
            ReadRequest { ledger: ledger.id, first, count, last_confirmed: (ledger.id, confirmed - 1) };
        let spare = std::mem::take(&mut *core.spare.lock());
        self.ledger.entries.read(request, spare, move |result| {
            let result = match result {
                Ok(mut read) => {
                    // Relaxed: the reader's alone; whoever reads next comes after this one.
                    core.next.store(first + i64::try_from(read.len()).unwrap_or(0), Ordering::Relaxed);
                    core.active.lock().advance_to((ledger.id, core.next.load(Ordering::Relaxed)));
                    ledger.entries.mark_read(&read);
                    buffer.extend(read.drain(..).map(Entry::from));
                    *core.spare.lock() = read;
                    Ok(buffer)
                }
                Err(error) => Err(error.into()),
            };
            ledger.complete(result, done);
        });
    }

    /// Whether there is more to read; if not, the listener is called once when there is.
    pub fn wait(&self) -> Wait {
        self.core.tail.wait(self.position())
    }

    /// The number of the next entry to read, which is not before the first that is not deleted.
    pub fn position(&self) -> i64 {
        self.core.position()
    }

    /// Reads from this entry on, or from the first that is not deleted if that is later.
    pub fn seek(&self, entry: i64) {
        // Relaxed: as in `read`.
        self.core.next.store(entry, Ordering::Relaxed);
        self.core.active.lock().advance_to((self.ledger.id, entry));
    }

    /// How many confirmed entries are not read yet.
    pub fn backlog(&self) -> u64 {
        self.core.backlog()
    }

    /// The number of the first entry that is not deleted: all before it are.
    pub fn mark_deleted(&self) -> i64 {
        self.core.first_left()
    }

    /// Deletes entries, in any order; how many were not before. The mark follows. Entries that the ledger does not have are passed over.
    ///
    /// Now and then what no cursor needs any more is dropped here.
    pub fn delete(&self, positions: impl AsRef<[Position]>) -> usize {
        let (positions, ledger, end) = (positions.as_ref(), self.ledger.id, self.core.tail.confirmed());
        let is_there = |position: &&Position| position.ledger == ledger && position.entry < end;
        self.change(|acks| positions.iter().filter(is_there).filter(|at| acks.delete(at.entry)).count())
    }

    /// Deletes all confirmed entries before this one.
    pub fn mark_delete(&self, entry: i64) {
        let end = entry.min(self.core.tail.confirmed());
        self.change(|acks| acks.delete_before(end));
    }

    /// Whether an entry is deleted.
    pub fn is_deleted(&self, entry: i64) -> bool {
        self.core.acks.lock().acks.is_deleted(entry)
    }

    fn change<R>(&self, change: impl FnOnce(&mut Acks) -> R) -> R {
        let mut deleted = self.core.acks.lock();
        let changed = change(&mut deleted.acks);
        let left = deleted.acks.first_left();
        // Relaxed: a number; under the lock, so that it never goes back.
        self.core.first_left.store(left, Ordering::Relaxed);
        let trims = left >= deleted.trim_at;
        if trims {
            deleted.trim_at = left.saturating_add(TRIM_EVERY);
        }
        drop(deleted);
        if trims {
            self.ledger.trim();
        }
        changed
    }
}

impl Drop for Cursor {
    fn drop(&mut self) {
        self.ledger.forget(&self.core);
    }
}

impl fmt::Debug for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cursor")
            .field("position", &self.position())
            .field("mark_deleted", &self.mark_deleted())
            .field("backlog", &self.backlog())
            .finish_non_exhaustive()
    }
}
