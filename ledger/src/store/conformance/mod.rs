//! What every store does: suites that an implementation runs in its tests.
//!
//! ```
//! use folio_ledger::store::{MemoryMetadata, MemoryStore, conformance};
//!
//! conformance::log_store(&MemoryStore::new);
//! conformance::metadata_store(&MemoryMetadata::new);
//! ```

mod log;
mod metadata;

use std::fmt;
use std::time::Duration;

use folio_sync::thread::{self, Thread};
use folio_sync::time::{Clock, SystemClock};
use folio_sync::{Arc, Mutex};

pub use log::log_store;
pub use metadata::metadata_store;

use super::done::Done;
use super::error::StoreError;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// An answer that may not be there yet.
#[derive(Debug)]
pub struct Answer<T>(Arc<Mutex<Slot<T>>>);

#[derive(Debug)]
struct Slot<T> {
    answers: Vec<Result<T, StoreError>>,
    waiter: Option<Thread>,
}

impl<T> Answer<T> {
    /// Waits for it.
    ///
    /// # Errors
    /// What the store answered.
    ///
    /// # Panics
    /// When there is none for a minute, or a second one.
    pub fn wait(self) -> Result<T, StoreError> {
        let clock = SystemClock::new();
        let end = clock.now() + PATIENCE;
        loop {
            let mut slot = self.0.lock();
            if let Some(answer) = slot.answers.pop() {
                assert!(slot.answers.is_empty(), "a store answers once");
                return answer;
            }
            slot.waiter = Some(thread::current());
            drop(slot);
            assert!(clock.now() < end, "a store answers within a minute");
            thread::park_timeout(PATIENCE);
        }
    }

    /// The answer if it is there.
    pub fn now(&self) -> Option<Result<T, StoreError>> {
        self.0.lock().answers.pop()
    }
}

/// Asks a store something.
pub fn ask<T: Send + 'static>(call: impl FnOnce(Done<T>)) -> Answer<T> {
    let slot = Arc::new(Mutex::new(Slot { answers: Vec::new(), waiter: None }));
    let theirs = Arc::clone(&slot);
    call(Done::new(move |answer| {
        let mut slot = theirs.lock();
        slot.answers.push(answer);
        let waiter = slot.waiter.take();
        drop(slot);
        if let Some(waiter) = waiter {
            waiter.unpark();
        }
    }));
    Answer(slot)
}

/// Asks and waits; what is refused fails the test.
#[track_caller]
fn get<T: Send + fmt::Debug + 'static>(call: impl FnOnce(Done<T>)) -> T {
    match ask(call).wait() {
        Ok(value) => value,
        Err(error) => panic!("refused: {error}"),
    }
}

/// Asks and waits for why it is refused.
#[track_caller]
fn refused<T: Send + fmt::Debug + 'static>(call: impl FnOnce(Done<T>)) -> StoreError {
    match ask(call).wait() {
        Ok(value) => panic!("not refused: {value:?}"),
        Err(error) => error,
    }
}
