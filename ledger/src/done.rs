//! The answer to one call.

use std::fmt;

use folio_sync::unwind;

/// An error that says that a call was dropped unanswered.
pub trait Unanswered {
    /// It was.
    fn unanswered() -> Self;
}

/// What is done with the answer of storage: called once, on any thread.
///
/// Whoever drops it unanswered has answered [`Unanswered::unanswered`]. A panic of what it calls ends there.
///
/// ```
/// use folio_ledger::store::{Done, StoreError};
///
/// let (tell, told) = std::sync::mpsc::channel();
/// let done = Done::new(move |answer: Result<i64, StoreError>| tell.send(answer).unwrap());
/// done.tell(Ok(7));
/// assert_eq!(told.recv(), Ok(Ok(7)));
/// ```
pub struct Done<T, E: Unanswered>(Option<Call<T, E>>);

type Call<T, E> = Box<dyn FnOnce(Result<T, E>) + Send>;

impl<T, E: Unanswered> Done<T, E> {
    /// Calls this with the answer. It must not block.
    pub fn new(call: impl FnOnce(Result<T, E>) + Send + 'static) -> Self {
        Self(Some(Box::new(call)))
    }

    /// Answers.
    pub fn tell(mut self, answer: Result<T, E>) {
        self.call(answer);
    }

    fn call(&mut self, answer: Result<T, E>) {
        let Some(call) = self.0.take() else { return };
        if let Err(payload) = unwind::catch(move || call(answer)) {
            unwind::discard(payload);
        }
    }
}

impl<T, E: Unanswered> Drop for Done<T, E> {
    fn drop(&mut self) {
        self.call(Err(E::unanswered()));
    }
}

impl<T, E: Unanswered> fmt::Debug for Done<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Done").finish_non_exhaustive()
    }
}
