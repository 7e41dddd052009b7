//! The ledger's worker: appends a batch, confirms it, tells everybody.

use bytes::Bytes;
use folio_cache::Inserter;
use folio_executor::Handler;
use folio_sync::atomic::Ordering;
use folio_sync::time::Instant;
use folio_sync::{Arc, RejectReason, Rejected, step, unwind};

use crate::cursor::CursorCore;
use crate::error::AppendError;
use crate::ledger::Core;
use crate::position::Position;
use crate::storage::StorageError;

/// Hears what becomes of entries, by the token that each was appended with.
///
/// Called once for each: on the ledger's worker for an entry that was appended or failed there; on the caller's thread, or whoever shuts the worker,
/// for one that never came so far. It must not block, and should leave everything that takes time to another thread. A panic ends there.
pub trait AppendSink<T>: Send + Sync + 'static {
    /// The entry's position, or why it has none; `at` is when storage had answered for its batch, or when it was refused.
    fn appended(&self, token: T, result: Result<Position, AppendError>, at: Instant);
}

/// A sink for tokens that are functions: each is called with its result.
#[derive(Clone, Copy, Debug, Default)]
pub struct Callbacks;

impl<F: FnOnce(Result<Position, AppendError>, Instant) + Send + 'static> AppendSink<F> for Callbacks {
    fn appended(&self, token: F, result: Result<Position, AppendError>, at: Instant) {
        token(result, at);
    }
}

/// How many entries it takes to look for what is too old in the cache, or too much.
const EVICT_EVERY: i64 = 4096;

/// An entry on its way to the worker.
pub(crate) struct Add<T> {
    pub(crate) payload: Bytes,
    pub(crate) token: T,
}

/// Runs on the ledger's worker.
pub(crate) struct Appender<T> {
    core: Arc<Core>,
    sink: Arc<dyn AppendSink<T>>,
    inserter: Option<Inserter<Bytes>>,
    /// The number of the next entry.
    next: i64,
    /// The batch so far: what to append, and whom to tell, in the same order.
    payloads: Vec<Bytes>,
    tokens: Vec<T>,
    /// Cursors to tell; empty between batches.
    waiting: Vec<Arc<CursorCore>>,
    failed: Option<StorageError>,
    /// Evicts again when so many entries are appended.
    evict_at: i64,
}

impl<T: 'static> Appender<T> {
    pub(crate) fn new(core: Arc<Core>, sink: Arc<dyn AppendSink<T>>) -> Self {
        let inserter = core.cache.as_ref().map(folio_cache::RangeCache::inserter);
        Self {
            core,
            sink,
            inserter,
            next: 0,
            payloads: Vec::new(),
            tokens: Vec::new(),
            waiting: Vec::new(),
            failed: None,
            evict_at: EVICT_EVERY,
        }
    }

    /// Gives the batch to storage; the position of its first entry.
    fn append(&mut self) -> Result<Position, StorageError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let first = Position { ledger: self.core.id, entry: self.next };
        if let Err(error) =
            step!("ledger.append", self.core.ask(|storage| storage.append(first, &self.payloads)))
        {
            self.failed = Some(error.clone());
            return Err(error);
        }
        Ok(first)
    }

    /// Puts the batch into the cache.
    fn cache(&mut self, first: Position, now: Instant) {
        let Some(inserter) = &mut self.inserter else { return };
        let entries = (first.entry..).zip(self.payloads.drain(..));
        let entries = entries.map(|(entry, payload)| ((first.ledger, entry), payload, 0));
        // What was not taken over is read from storage.
        drop(inserter.insert_batch(entries, now));
    }
}

impl<T: Send + 'static> Handler<Add<T>> for Appender<T> {
    fn run(&mut self, add: Add<T>) {
        self.payloads.push(add.payload);
        self.tokens.push(add.token);
    }

    fn batch_ended(&mut self) {
        let appended = self.append();
        let now = self.core.clock.now();
        if let Ok(first) = appended {
            self.next += i64::try_from(self.payloads.len()).expect("a batch has few entries");
            contained(|| self.cache(first, now));
            // Release: the entries are in storage and in the cache; pairs with the Acquire of whoever reads up to here.
            step!("ledger.confirm", self.core.confirmed.store(self.next, Ordering::Release));
            // Before anybody is told: who is can read the entries by any cursor.
            self.core.confirm_to_cursors(self.next, &mut self.waiting);
        }
        contained(|| self.payloads.clear());
        let mut results = Results { next: appended.map_err(AppendError::Storage) };
        tell(self.tokens.drain(..), |token| self.sink.appended(token, results.next(), now));
        tell(self.waiting.drain(..), |cursor| cursor.tell());
        if self.next >= self.evict_at {
            self.evict_at = self.next + EVICT_EVERY;
            self.core.evict();
        }
    }
}

/// What each entry of a batch is told.
struct Results {
    next: Result<Position, AppendError>,
}

impl Results {
    fn next(&mut self) -> Result<Position, AppendError> {
        let result = self.next.clone();
        if let Ok(position) = &mut self.next {
            *position = position.next();
        }
        result
    }
}

/// Calls user code, or drops what may be of a user's own making; its panic ends here.
pub(crate) fn contained(call: impl FnOnce()) {
    if let Err(payload) = unwind::catch(call) {
        unwind::discard(payload);
    }
}

/// Tells each of them; a panic of one keeps no other from being told.
pub(crate) fn tell<A>(mut all: impl Iterator<Item = A>, mut one: impl FnMut(A)) {
    while let Err(payload) = unwind::catch(|| all.by_ref().for_each(&mut one)) {
        unwind::discard(payload);
    }
}

/// Tells of an entry that never came to the worker.
pub(crate) fn reject<T: 'static>(sink: &dyn AppendSink<T>, rejected: Rejected<Add<T>>, at: Instant) {
    let error = match rejected.reason {
        RejectReason::Closed => AppendError::Closed,
        reason => AppendError::Rejected(reason),
    };
    tell(std::iter::once(rejected.value.token), |token| sink.appended(token, Err(error.clone()), at));
}
