//! Reads of storage that are under way, and who waits for which part of them.
//!
//! # Guarantees
//! *Coalescing.* No entry that is being read is asked for again: who wants it waits for the read that is under way. A range that is being read is
//! waited for; so is a part of a larger one; of what is under way in part only, what is missing is read, each gap once: to the right, to the
//! left, on both sides, or between. If nothing of it is under way, it is read.
//!
//! *Exactly once.* Each reader is told once: the entries from its first one on, as far as storage has them, perhaps none; or why there are none. When
//! one of the reads that it waits for fails, all of what it was to get is dropped.
//!
//! *No reader is told under a lock*, nor is an entry copied or dropped there. A read is taken out before its result is handed out: so a result that is
//! being handed out gains no reader, and readers may do anything. Their panics end here.
//!
//! *Progress.* One lock, held to look for what is under way, and to take one out.
//!
//! # Protocol
//! | state of a read | next | by whom |
//! |---|---|---|
//! | open | open, with a reader more | who wants a part of it, under the lock |
//! | open | detached | an invalidation, or the failure of another read of its ledger: later reads do not meet it; its readers stay |
//! | open or detached | taken out | storage's answer, once by its type; then its readers are told, the first to come first |
//!
//! All parts of a new read are found and joined, or opened, in one step.
//!
//! # Orderings
//! The lock orders all; counters are Relaxed, numbers that publish nothing.
//!
//! # Limits
//! What is under way is bounded by who admits reads, not here. A storage that forgets a [`ReadDone`] keeps its readers for ever. A read is told where storage answers:
//! storage that answers within the call nests readers that read again.

mod gather;
#[cfg(all(test, loom))]
mod models;
mod open;
mod storage;

use std::fmt;

use folio_sync::atomic::{AtomicU64, Ordering};
use folio_sync::{Arc, Mutex, arc_dyn, step, unwind};

pub(crate) use gather::{Parts, gather, whole};
pub use storage::{ReadDone, ReadStorage, StorageFailure, Stored};

use gather::concatenate;
use open::{Open, Reader, Segment};

/// Hears what became of a read.
pub(crate) type Done<V> = Box<dyn FnOnce(Result<Vec<V>, StorageFailure>) + Send>;

/// How reads went so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PendingCounts {
    /// Reads that waited, with a part of theirs at least, for what was under way.
    pub coalesced: u64,
    /// Reads of storage that were begun.
    pub begun: u64,
    /// Of these, those that were answered.
    pub answered: u64,
    /// Of these, those that failed.
    pub failed: u64,
}

/// Answers reads of overlapping ranges by one read of storage.
///
/// A handle: clones are the same. See the [module](self) for what it promises.
///
/// ```
/// use folio_cache::pending::{PendingReads, ReadDone, ReadStorage};
///
/// /// Has each entry: its number.
/// struct Numbers;
///
/// impl ReadStorage<i64> for Numbers {
///     fn read(&self, _ledger: i64, first: i64, count: u32, done: ReadDone<i64>) {
///         done.succeed((first..first + i64::from(count)).collect::<Vec<_>>());
///     }
/// }
///
/// let reads = PendingReads::new(Numbers);
/// let (tell, told) = std::sync::mpsc::channel();
/// reads.read(1, 5, 3, move |entries| tell.send(entries.unwrap()).unwrap());
/// assert_eq!(told.recv()?, [5, 6, 7]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct PendingReads<V> {
    storage: Arc<dyn ReadStorage<V>>,
    shared: Arc<Shared<V>>,
}

/// What a read that is under way keeps; not storage, which may keep the read.
struct Shared<V> {
    open: Mutex<Open<V>>,
    coalesced: AtomicU64,
    begun: AtomicU64,
    answered: AtomicU64,
    failed: AtomicU64,
}

impl<V: Clone + Send + 'static> PendingReads<V> {
    /// None under way.
    pub fn new(storage: impl ReadStorage<V>) -> Self {
        let shared = Shared {
            open: Mutex::default(),
            coalesced: AtomicU64::new(0),
            begun: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        };
        Self { storage: arc_dyn!(storage => dyn ReadStorage<V>), shared: Arc::new(shared) }
    }

    /// Reads entries of a ledger that follow each other; `done` is told once, perhaps before this returns.
    ///
    /// It hears the entries from the first on, as many as there are, perhaps none. Positions beyond the largest have no entries.
    pub fn read(
        &self,
        ledger: i64,
        first: i64,
        count: u32,
        done: impl FnOnce(Result<Vec<V>, StorageFailure>) + Send + 'static,
    ) {
        let Some(more) = count.checked_sub(1) else { return tell(Box::new(done), Ok(Vec::new())) };
        let last = first.saturating_add(more.into());
        let segments = step!("pending.attach", self.shared.attach(ledger, first, last, done));
        segments.into_iter().filter(|segment| segment.is_new).for_each(|new| self.begin(ledger, new));
    }

    /// Asks storage for what a new read is to have.
    fn begin(&self, ledger: i64, new: Segment) {
        // Relaxed: a number.
        self.shared.begun.fetch_add(1, Ordering::Relaxed);
        let shared = Arc::clone(&self.shared);
        let answered = ReadDone::new(move |answer| shared.complete(new.read, answer));
        let count = u32::try_from(new.count()).expect("a segment is a part of what was asked for");
        contained(|| self.storage.read(ledger, new.first, count, answered));
    }

    /// Detaches what is under way in a ledger: later reads do not wait for it. Who waits already is told.
    pub fn invalidate(&self, ledger: i64) {
        step!("pending.detach", self.shared.open.lock().detach(ledger));
    }

    /// Detaches all that is under way, as [`invalidate`](Self::invalidate).
    pub fn clear(&self) {
        self.shared.open.lock().detach_all();
    }

    /// How many reads of storage are under way; takes no lock.
    pub fn in_flight(&self) -> u64 {
        let counts = self.counts();
        counts.begun.saturating_sub(counts.answered)
    }

    /// How reads went so far; takes no lock.
    pub fn counts(&self) -> PendingCounts {
        // Relaxed, all: numbers.
        PendingCounts {
            coalesced: self.shared.coalesced.load(Ordering::Relaxed),
            answered: self.shared.answered.load(Ordering::Relaxed),
            failed: self.shared.failed.load(Ordering::Relaxed),
            begun: self.shared.begun.load(Ordering::Relaxed),
        }
    }
}

impl<V: Clone + Send + 'static> Shared<V> {
    /// Joins what is under way of a range, and opens reads for the rest.
    fn attach(
        &self,
        ledger: i64,
        first: i64,
        last: i64,
        done: impl FnOnce(Result<Vec<V>, StorageFailure>) + Send + 'static,
    ) -> Vec<Segment> {
        let mut open = self.open.lock();
        let segments = open.cover(ledger, first, last);
        if let [segment] = segments[..] {
            open.join(segment, Box::new(done));
        } else {
            let wanted: Vec<_> = segments.iter().map(Segment::count).collect();
            let parts = gather(segments.len(), move |parts| done(concatenate(parts, &wanted)));
            segments.iter().zip(parts).for_each(|(segment, part)| open.join(*segment, part));
        }
        drop(open);
        if segments.iter().any(|segment| !segment.is_new) {
            // Relaxed: a number.
            self.coalesced.fetch_add(1, Ordering::Relaxed);
        }
        segments
    }

    /// Tells the readers of a read what storage answered.
    fn complete(&self, read: u64, answer: Result<Stored<V>, StorageFailure>) {
        // First of all: from now on nobody joins it.
        let taken = step!("pending.take", self.open.lock().take(read, answer.is_err()));
        // Relaxed, both: numbers.
        self.answered.fetch_add(1, Ordering::Relaxed);
        if answer.is_err() {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
        let Some(readers) = taken else { return };
        match answer {
            Ok(stored) => hand_out(readers, stored.values),
            Err(failure) => {
                for reader in readers {
                    tell(reader.done, Err(failure.clone()));
                }
            }
        }
    }
}

/// Gives each reader its part: copies, and to the last one what was read itself.
fn hand_out<V: Clone>(mut readers: Vec<Reader<V>>, mut values: Vec<V>) {
    let Some(last) = readers.pop() else { return drop_all(values) };
    for reader in readers {
        let copy =
            unwind::catch(|| values.get(reader.part(values.len())).map_or_else(Vec::new, <[V]>::to_vec));
        tell(reader.done, copy.map_err(panicked));
    }
    let part = last.part(values.len());
    let behind = values.split_off(part.end);
    let own = if part.start == 0 { std::mem::take(&mut values) } else { values.split_off(part.start) };
    drop_all(values.into_iter().chain(behind));
    tell(last.done, Ok(own));
}

/// Tells a reader; its panic ends here.
fn tell<V>(done: Done<V>, result: Result<Vec<V>, StorageFailure>) {
    contained(|| done(result));
}

/// Calls user code; its panic ends here.
pub(crate) fn contained(call: impl FnOnce()) {
    if let Err(payload) = unwind::catch(call) {
        unwind::discard(payload);
    }
}

/// Drops values one after the other: a destructor that panics stops no other, and its panic ends here.
pub(crate) fn drop_all<T>(values: impl IntoIterator<Item = T>) {
    let mut values = values.into_iter();
    while let Err(payload) = unwind::catch(|| values.by_ref().for_each(drop)) {
        unwind::discard(payload);
    }
}

/// A panic as a failure.
pub(crate) fn panicked(payload: unwind::Payload) -> StorageFailure {
    unwind::discard(payload);
    StorageFailure::Panicked
}

impl<V> Clone for PendingReads<V> {
    fn clone(&self) -> Self {
        Self { storage: Arc::clone(&self.storage), shared: Arc::clone(&self.shared) }
    }
}

impl<V: Clone + Send + 'static> fmt::Debug for PendingReads<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingReads").field("counts", &self.counts()).finish_non_exhaustive()
    }
}
