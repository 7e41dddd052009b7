//! Entries on their way to the ledger's worker, and who hears of them.

use bytes::Bytes;
use folio_executor::Handler;
use folio_sync::time::{Clock, Instant};
use folio_sync::{Arc, RejectReason, Rejected, unwind};

use crate::error::AppendError;
use crate::position::Position;
use crate::settle::{Batch, Desk};

/// Hears what becomes of entries, by the token that each was appended with.
///
/// Called once for each: on the ledger's worker for an entry that was appended or that storage failed; on the caller's thread, or whoever shuts the
/// worker, for one that never came so far; and for one that storage answers after the worker is shut, on whatever thread that happens. It must not block, and should leave everything that takes time to another thread. A panic ends there.
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

/// An entry on its way to the worker.
pub(crate) struct Add<T> {
    pub(crate) payload: Bytes,
    pub(crate) token: T,
}

/// Gathers batches for storage, on the ledger's worker.
pub(crate) struct Appender<T: Send + 'static> {
    desk: Desk<T>,
    refuse: Refuse<T>,
    batch: Batch<T>,
}

impl<T: Send + 'static> Appender<T> {
    pub(crate) fn new(desk: Desk<T>, refuse: Refuse<T>) -> Self {
        Self { desk, refuse, batch: Batch::default() }
    }

    fn hand_in(&mut self) {
        if let Err(batch) = self.desk.hand_in(&mut self.batch) {
            let full = AppendError::Rejected(RejectReason::Full);
            self.refuse.all(batch.into_tokens(), &full);
        }
    }
}

impl<T: Send + 'static> Handler<Add<T>> for Appender<T> {
    fn run(&mut self, add: Add<T>) {
        if !self.batch.has_room_for(add.payload.len(), self.desk.room) {
            self.hand_in();
        }
        self.batch.push(add.payload, add.token);
    }

    fn batch_ended(&mut self) {
        self.hand_in();
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

/// Tells of entries that never came to storage.
pub(crate) struct Refuse<T> {
    pub(crate) sink: Arc<dyn AppendSink<T>>,
    pub(crate) clock: Arc<dyn Clock>,
}

impl<T> Clone for Refuse<T> {
    fn clone(&self) -> Self {
        Self { sink: Arc::clone(&self.sink), clock: Arc::clone(&self.clock) }
    }
}

impl<T: 'static> Refuse<T> {
    /// One that the executor did not take.
    pub(crate) fn rejected(&self, rejected: Rejected<Add<T>>) {
        self.one(rejected.value.token, rejected.reason);
    }

    pub(crate) fn one(&self, token: T, reason: RejectReason) {
        let error = match reason {
            RejectReason::Closed => AppendError::Closed,
            reason => AppendError::Rejected(reason),
        };
        self.all([token], &error);
    }

    /// One that is larger than storage takes.
    pub(crate) fn too_large(&self, add: Add<T>, most: usize) {
        let Add { payload, token } = add;
        let bytes = payload.len();
        contained(|| drop(payload));
        self.all([token], &AppendError::TooLarge { bytes, most });
    }

    fn all(&self, tokens: impl IntoIterator<Item = T>, error: &AppendError) {
        let at = self.clock.now();
        tell(tokens.into_iter(), |token| self.sink.appended(token, Err(error.clone()), at));
    }
}
