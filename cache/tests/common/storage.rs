//! Storage that answers when and as the test says.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::collections::VecDeque;

use folio_cache::pending::{ReadDone, ReadStorage, StorageFailure, Stored};
use folio_sync::{Arc, Mutex};

use crate::common::{Tally, Value};

/// What one entry weighs.
pub(crate) const WEIGHT: u64 = 10;

/// A read: ledger, first entry, how many.
pub(crate) type Wish = (i64, i64, u32);

/// Keeps each read until the test answers it; a handle.
#[derive(Clone)]
pub(crate) struct Shelf(Arc<Kept>);

struct Kept {
    tally: Tally,
    reads: Mutex<VecDeque<Read>>,
    log: Mutex<Vec<Wish>>,
}

/// A read that waits for its answer.
pub(crate) struct Read {
    pub(crate) wish: Wish,
    pub(crate) done: ReadDone<Value>,
    tally: Tally,
}

impl Shelf {
    pub(crate) fn new(tally: &Tally) -> Self {
        let kept = Kept { tally: tally.clone(), reads: Mutex::default(), log: Mutex::default() };
        Self(Arc::new(kept))
    }

    /// All reads so far.
    pub(crate) fn log(&self) -> Vec<Wish> {
        self.0.log.lock().clone()
    }

    /// How many reads wait.
    pub(crate) fn waiting(&self) -> usize {
        self.0.reads.lock().len()
    }

    /// The oldest read that waits.
    #[track_caller]
    pub(crate) fn next(&self) -> Read {
        self.take(0)
    }

    /// A read that waits, by age.
    #[track_caller]
    pub(crate) fn take(&self, at: usize) -> Read {
        self.try_take(at).expect("a read waits")
    }

    /// A read that waits, by age, if there are so many.
    pub(crate) fn try_take(&self, at: usize) -> Option<Read> {
        self.0.reads.lock().remove(at)
    }

    /// Answers all in full, the newest first; how many.
    pub(crate) fn answer_all(&self) -> usize {
        let mut answered = 0;
        loop {
            let newest = self.0.reads.lock().pop_back();
            let Some(read) = newest else { return answered };
            read.answer();
            answered += 1;
        }
    }
}

impl ReadStorage<Value> for Shelf {
    fn read(&self, ledger: i64, first: i64, count: u32, done: ReadDone<Value>) {
        let wish = (ledger, first, count);
        self.0.log.lock().push(wish);
        let read = Read { wish, done, tally: self.0.tally.clone() };
        self.0.reads.lock().push_back(read);
    }
}

impl Read {
    /// The first so many entries from where the read begins.
    pub(crate) fn values(&self, count: u32) -> Vec<Value> {
        let (ledger, first, _) = self.wish;
        (first..first + i64::from(count)).map(|entry| self.tally.value((ledger, entry), WEIGHT)).collect()
    }

    /// What was asked for.
    pub(crate) fn answer(self) {
        let count = self.wish.2;
        self.answer_with(count);
    }

    /// So many entries.
    pub(crate) fn answer_with(self, count: u32) {
        let values = self.values(count);
        self.done.succeed(values);
    }

    /// What was asked for, as slices of one buffer.
    pub(crate) fn answer_sliced(self) {
        let values = self.values(self.wish.2);
        self.done.succeed(Stored::sliced(values));
    }

    pub(crate) fn fail(self) {
        self.done.fail(failure());
    }
}

/// A failure of storage's own.
pub(crate) fn failure() -> StorageFailure {
    StorageFailure::failed(std::io::Error::other("out of order"))
}
