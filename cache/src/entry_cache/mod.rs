//! The cache of a ledger's entries, in front of storage.
//!
//! # Guarantees
//! *Reads.* A read whose entries are all cached completes at once, on the thread that asks, and allocates nothing for an entry. What is missing is read from storage:
//! all of it if nothing is cached, else each longest gap once, at the same time. If a gap cannot be read, all that was gathered is dropped, and the whole
//! is read once. What is being read already is [not read again](crate::pending).
//!
//! *Exactly once.* A read is told once: its first entries, in order, without a gap, one at least; or why it has none. Storage may answer late, on any thread, too
//! short, too long, never, with errors or by a panic. An answer that is too short makes a result shorter, or [`ReadError::Missing`].
//!
//! *Bytes in flight.* A read has a permit for what its entries are taken to weigh: their average, or 10 KiB each as long as there is none, and 64 bytes more. Without room it
//! waits, or is [refused](ReadError::TooManyReads); of one that is larger than the whole budget, storage is asked for as much as that has room for. Reads that find all in the cache may be [spared](PermitsFor). The entries keep the permit, and give it back with the last of them; the share of what there is not is
//! given back at once, all of it before a failure is told.
//!
//! *What is cached.* Entries that are [appended](EntryCache::inserter); and what storage read, if somebody still has to read it then, before anybody is told of it.
//! Entries that are read [one by one](EntryCache::read_one) are not. After an [invalidation](EntryCache::invalidate_all) nothing is cached that was read before.
//!
//! *User code* runs under no lock; only copies of cached entries are made while their page is held, as in [`RangeCache`]. Panics end there: of storage, of copies,
//! of who is told.
//!
//! # Protocol
//! | state of a read | next | by whom |
//! |---|---|---|
//! | new | refused, if it goes beyond what is confirmed | who asks |
//! | new | waiting, unless there is a permit | who asks |
//! | waiting | looking, or refused | who gives a permit back, or the executor for such reads; the timers; the end of the permits |
//! | looking | told, if all is there | the same |
//! | looking | asking for the whole, or for the gaps | the same |
//! | asking for the gaps | told, or asking for the whole | storage's last answer |
//! | asking for the whole | told | storage's answer |
//!
//! A read is a value that is passed on; dropped anywhere, it is told [`ReadError::Abandoned`].
//!
//! # Orderings
//! | operation | word | ordering | pairs with | why |
//! |---|---|---|---|---|
//! | `invalidate`: add | invalidations | `AcqRel` | `current`: add of 0, `AcqRel` | an invalidation, then a removal; an insert, then a look: whichever of the two additions comes second sees the other, so that the removal finds what was inserted, or the look finds the invalidation |
//! | before a read | invalidations | Acquire | `invalidate` | what is read afterwards is as of then |
//! | counters | their words | Relaxed | | numbers that publish nothing |
//!
//! # Limits
//! Reads that wait for a permit go on where it is given back, unless there is an executor for them. Results of storage are told where it answers. A read that is under way keeps the cache and
//! storage alive. Expected reads are counted down by [`mark_read`](EntryCache::mark_read) alone.

mod ask;
mod counts;
mod entry;
mod error;
mod expected;
mod fill;
mod filling;
mod gaps;
mod inserter;
#[cfg(all(test, loom))]
mod models;
mod payload;
mod read;

use std::fmt;

use folio_sync::{Arc, Executor, arc_dyn};

pub use counts::EntryCacheSnapshot;
pub use entry::{InFlight, ReadEntry};
pub use error::ReadError;
pub use expected::ExpectedReads;
pub use inserter::EntryInserter;
pub use payload::{Metadata, Parsed, Payload};

use fill::Fill;
use filling::Filling;
use read::{Core, Extent};

use crate::cache::RangeCache;
use crate::core::Removed;
use crate::manager::CacheManager;
use crate::pending::{PendingReads, ReadStorage, contained, drop_all};
use crate::range::Position;

/// Which reads of an [`EntryCache`] take permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PermitsFor {
    /// All of them: what readers have of the cache counts, too, also when the cache has dropped it meanwhile.
    EveryRead,
    /// Those that need storage: what is cached is within the budget of the cache, and its readers are held to something else.
    StorageReads,
    /// None.
    NoRead,
}

/// Settings of an [`EntryCache`]; what it was opened with never changes.
#[non_exhaustive]
pub struct EntryCacheOptions {
    /// Whether all that is cached is copied; not by default.
    pub copies: bool,
    /// Which reads take permits for the bytes that they have in flight; all by default.
    pub permits: PermitsFor,
    /// Where reads go on that had to wait for a permit; without one, where it was given back.
    pub executor: Option<Arc<dyn Executor>>,
}

impl Default for EntryCacheOptions {
    fn default() -> Self {
        Self { copies: false, permits: PermitsFor::EveryRead, executor: None }
    }
}

impl fmt::Debug for EntryCacheOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EntryCacheOptions")
            .field("copies", &self.copies)
            .field("permits", &self.permits)
            .field("has_executor", &self.executor.is_some())
            .finish()
    }
}

/// Which entries to read: some of a ledger that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    /// The ledger.
    pub ledger: i64,
    /// The first entry.
    pub first: i64,
    /// How many; none are read at once.
    pub count: u32,
    /// The last confirmed position: what goes beyond it is refused.
    pub last_confirmed: Position,
}

/// Caches the entries of a log, and reads what it does not have from storage.
///
/// A handle: clones are the same cache. See the [module](self) for what it promises.
///
/// ```
/// use bytes::Bytes;
/// use folio_cache::pending::{ReadDone, ReadStorage};
/// use folio_cache::{CacheManager, CacheOptions, EntryCache, EntryCacheOptions, ReadRequest};
/// use folio_sync::test_util::{ManualClock, ManualExecutor, ManualTimers};
/// use folio_sync::time::Instant;
///
/// struct Disk;
///
/// impl ReadStorage<Bytes> for Disk {
///     fn read(&self, _ledger: i64, _first: i64, count: u32, done: ReadDone<Bytes>) {
///         done.succeed(vec![Bytes::from_static(b"read"); count as usize]);
///     }
/// }
///
/// let clock = ManualClock::new();
/// let timers = ManualTimers::new(&clock);
/// let manager = CacheManager::new(CacheOptions::default(), ManualExecutor::new(), timers, clock)?;
/// let readers = |_position| 1;
/// let cache = EntryCache::new(&manager, Disk, readers, EntryCacheOptions::default());
/// cache.inserter().insert((1, 0), Bytes::from_static(b"appended"), 1, Instant::ORIGIN);
///
/// let (tell, told) = std::sync::mpsc::channel();
/// let request = ReadRequest { ledger: 1, first: 0, count: 2, last_confirmed: (1, 7) };
/// cache.read(request, Vec::new(), move |entries| tell.send(entries.unwrap()).unwrap());
/// let entries = told.recv()?;
/// assert_eq!((&*entries[0].value, &*entries[1].value), (&b"appended"[..], &b"read"[..]));
/// assert_eq!(cache.mark_read(&entries), 2);
/// assert_eq!((cache.snapshot().partial, cache.snapshot().storage_reads), (1, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct EntryCache<V: Payload>(Arc<Core<V>>);

impl<V: Payload> EntryCache<V> {
    /// An empty cache within the budgets of a manager; `expected` tells how many still have to read what storage has read.
    ///
    /// It is no handle of the manager: when that is closed, nothing is cached any more, and reads that take permits fail.
    pub fn new(
        manager: &CacheManager<V>,
        storage: impl ReadStorage<V>,
        expected: impl ExpectedReads,
        options: EntryCacheOptions,
    ) -> Self {
        let EntryCacheOptions { copies, permits, executor } = options;
        let expected = arc_dyn!(expected => dyn ExpectedReads);
        let fill = Fill::new(manager.cache(), expected, Arc::clone(manager.clock()), copies);
        let of_manager = (permits != PermitsFor::NoRead).then(|| manager.permits().clone());
        Self::over(fill, storage, of_manager, permits, executor)
    }

    fn over(
        fill: Fill<V>,
        storage: impl ReadStorage<V>,
        permits: Option<crate::permits::ReadPermits>,
        permits_for: PermitsFor,
        executor: Option<Arc<dyn Executor>>,
    ) -> Self {
        let (fill, storage) = (Arc::new(fill), arc_dyn!(storage => dyn ReadStorage<V>));
        let filling = |looks_again| {
            PendingReads::new(Filling { fill: Arc::clone(&fill), storage: Arc::clone(&storage), looks_again })
        };
        let (pending, fallbacks) = (filling(true), filling(false));
        Self(Arc::new(Core { fill, pending, fallbacks, storage, permits, permits_for, executor }))
    }

    /// Reads entries into `buffer`, whose room is used and whose contents are dropped.
    ///
    /// `done` is told once: on this thread, before this returns, if all are cached, else perhaps on another one; its panic ends there. It hears one
    /// entry at least unless none was asked for, and perhaps fewer than that; or why there are none.
    pub fn read(
        &self,
        request: ReadRequest,
        mut buffer: Vec<ReadEntry<V>>,
        done: impl FnOnce(Result<Vec<ReadEntry<V>>, ReadError>) + Send + 'static,
    ) {
        drop_all(buffer.drain(..));
        match request.extent() {
            Ok(Some(extent)) => Core::read(&self.0, extent, buffer, done),
            Ok(None) => contained(|| done(Ok(buffer))),
            Err(error) => {
                counts::add(&self.0.fill.counts.failures, 1);
                contained(|| done(Err(error)));
            }
        }
    }

    /// Reads one entry, which is not cached by that; otherwise as [`read`](Self::read).
    pub fn read_one(
        &self,
        position: Position,
        last_confirmed: Position,
        done: impl FnOnce(Result<ReadEntry<V>, ReadError>) + Send + 'static,
    ) {
        let (ledger, first) = position;
        let request = ReadRequest { ledger, first, count: 1, last_confirmed };
        let one = move |result: Result<Vec<ReadEntry<V>>, ReadError>| {
            done(result.and_then(|mut entries| entries.pop().ok_or(ReadError::Missing(position))));
        };
        match request.extent() {
            Ok(Some(extent)) => Core::read(&self.0, Extent { single: true, ..extent }, Vec::new(), one),
            Ok(None) => unreachable!("one entry is asked for"),
            Err(error) => {
                counts::add(&self.0.fill.counts.failures, 1);
                contained(|| one(Err(error)));
            }
        }
    }

    /// Counts one delivery of each of these entries, in the order in which they were read; how many are cached.
    ///
    /// To be called for what reached a reader, not for what was read and thrown away.
    pub fn mark_read(&self, entries: &[ReadEntry<V>]) -> u64 {
        let mut marked = 0;
        let mut positions = entries.iter().map(|entry| entry.position).peekable();
        while let Some(first) = positions.next() {
            let mut last = first;
            while let Some(next) = positions.next_if(|next| Some(*next) == after(last)) {
                last = next;
            }
            marked += self.0.fill.cache.mark_range_read(first..=last);
        }
        marked
    }

    /// A way to insert what is appended, for one writer.
    pub fn inserter(&self) -> EntryInserter<V> {
        EntryInserter::new(&self.0.fill)
    }

    /// The entries, to look at.
    pub fn range_cache(&self) -> &RangeCache<V> {
        &self.0.fill.cache
    }

    /// Removes the entries before a position from the cache.
    pub fn invalidate_before(&self, position: Position) -> Removed {
        self.0.fill.cache.remove_range(..position)
    }

    /// Removes a ledger's entries from the cache. What is being read is told, but not cached; later reads do not wait for it.
    pub fn invalidate_all(&self, ledger: i64) -> Removed {
        self.0.fill.invalidate();
        self.0.pending.invalidate(ledger);
        self.0.fallbacks.invalidate(ledger);
        self.0.fill.cache.remove_ledger(ledger)
    }

    /// Removes all entries from the cache, as [`invalidate_all`](Self::invalidate_all).
    pub fn clear(&self) -> Removed {
        self.0.fill.invalidate();
        self.0.pending.clear();
        self.0.fallbacks.clear();
        self.0.fill.cache.clear()
    }

    /// What an entry that is read is taken to weigh, in bytes.
    pub fn estimate(&self) -> u64 {
        self.0.fill.estimate()
    }

    /// How reads went so far. Neither locks nor walks.
    pub fn snapshot(&self) -> EntryCacheSnapshot {
        let coalesced = self.0.pending.counts().coalesced + self.0.fallbacks.counts().coalesced;
        self.0.fill.counts.snapshot(coalesced)
    }
}

/// The position that follows in the same ledger.
fn after((ledger, entry): Position) -> Option<Position> {
    Some((ledger, entry.checked_add(1)?))
}

impl ReadRequest {
    /// What there may be of it, if any entry is asked for.
    fn extent(&self) -> Result<Option<Extent>, ReadError> {
        let Self { ledger, first, count, last_confirmed } = *self;
        let Some(more) = count.checked_sub(1) else { return Ok(None) };
        // Beyond the largest position nothing is confirmed; at it all is cut off.
        let last = first.saturating_add(more.into());
        if (ledger, last) > last_confirmed {
            return Err(ReadError::Unconfirmed { last: (ledger, last), confirmed: last_confirmed });
        }
        let count = u32::try_from(last.abs_diff(first)).map_or(u32::MAX, |more| more.saturating_add(1));
        Ok(Some(Extent { ledger, first, count, single: false }))
    }
}

impl<V: Payload> Clone for EntryCache<V> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<V: Payload> fmt::Debug for EntryCache<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EntryCache")
            .field("cache", &self.0.fill.cache)
            .field("snapshot", &self.snapshot())
            .finish_non_exhaustive()
    }
}
