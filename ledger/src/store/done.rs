//! The answer to one call.

use std::fmt;

use folio_sync::unwind;

use super::error::StoreError;

/// What is done with the answer of a store: called once, on any thread.
///
/// A store that drops it unanswered has answered [`StoreError::Dropped`]. A panic of what it calls ends there.
///
/// ```
/// use folio_ledger::store::{Done, StoreError};
///
/// let (tell, told) = std::sync::mpsc::channel();
/// let done = Done::new(move |answer: Result<i64, StoreError>| tell.send(answer).unwrap());
/// done.tell(Ok(7));
/// assert_eq!(told.recv(), Ok(Ok(7)));
/// ```
pub struct Done<T>(Option<Call<T>>);

type Call<T> = Box<dyn FnOnce(Result<T, StoreError>) + Send>;

impl<T> Done<T> {
    /// Calls this with the answer. It must not block.
    pub fn new(call: impl FnOnce(Result<T, StoreError>) + Send + 'static) -> Self {
        Self(Some(Box::new(call)))
    }

    /// Answers.
    pub fn tell(mut self, answer: Result<T, StoreError>) {
        self.call(answer);
    }

    fn call(&mut self, answer: Result<T, StoreError>) {
        let Some(call) = self.0.take() else { return };
        if let Err(payload) = unwind::catch(move || call(answer)) {
            unwind::discard(payload);
        }
    }
}

impl<T> Drop for Done<T> {
    fn drop(&mut self) {
        self.call(Err(StoreError::Dropped));
    }
}

impl<T> fmt::Debug for Done<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Done").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

    use std::sync::mpsc;

    use super::*;

    #[test]
    fn an_answer_is_told_once_and_a_dropped_one_too() {
        let (tell, told) = mpsc::channel();
        let answer = |tell: mpsc::Sender<_>| Done::new(move |answer| tell.send(answer).unwrap());
        answer(tell.clone()).tell(Ok(3));
        drop(answer(tell));
        assert_eq!(told.iter().collect::<Vec<_>>(), [Ok(3), Err(StoreError::Dropped)]);
    }

    #[test]
    fn a_panic_of_who_is_told_ends_there() {
        let planted = || std::panic::resume_unwind(Box::new("planted"));
        Done::<()>::new(move |_| planted()).tell(Ok(()));
        drop(Done::<()>::new(move |_| planted()));
    }
}
