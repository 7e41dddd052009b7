//! The answer to one call of a store.

use super::error::StoreError;
use crate::done::Unanswered;

/// What is done with the answer of a store.
pub type Done<T> = crate::done::Done<T, StoreError>;

impl Unanswered for StoreError {
    fn unanswered() -> Self {
        Self::Dropped
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
