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
use std::sync::mpsc;
use std::time::Duration;

pub use log::log_store;
pub use metadata::metadata_store;

use super::done::Done;
use super::error::StoreError;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// An answer that may not be there yet.
#[derive(Debug)]
pub struct Answer<T>(mpsc::Receiver<Result<T, StoreError>>);

impl<T> Answer<T> {
    /// Waits for it.
    ///
    /// # Errors
    /// What the store answered.
    ///
    /// # Panics
    /// When there is none for a minute, or a second one.
    pub fn wait(self) -> Result<T, StoreError> {
        let answer = self.0.recv_timeout(PATIENCE).expect("a store answers within a minute");
        assert!(self.0.try_recv().is_err(), "a store answers once");
        answer
    }

    /// The answer if it is there.
    pub fn now(&self) -> Option<Result<T, StoreError>> {
        self.0.try_recv().ok()
    }
}

/// Asks a store something.
pub fn ask<T: Send + 'static>(call: impl FnOnce(Done<T>)) -> Answer<T> {
    let (tell, told) = mpsc::channel();
    // Who no longer waits need not hear it.
    call(Done::new(move |answer| drop(tell.send(answer))));
    Answer(told)
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
