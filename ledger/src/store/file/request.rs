//! What is asked of a store's thread, what it changes, and what is answered.

use bytes::Bytes;

use crate::store::done::Done;
use crate::store::error::StoreError;
use crate::store::log::{Append, Appended, Durability};

/// What is asked.
#[derive(Debug)]
pub(super) enum Request {
    Append { append: Append, weight: usize, done: Done<Appended> },
    Create { group: String, ledger: i64, epoch: u64, done: Done<()> },
    Close { ledger: i64, epoch: u64, done: Done<i64> },
    Recover { ledger: i64, epoch: u64, done: Done<i64> },
    Delete { ledger: i64, epoch: u64, done: Done<()> },
}

impl Request {
    pub(super) fn weight(&self) -> usize {
        match self {
            Self::Append { weight, .. } => *weight,
            Self::Create { .. } | Self::Close { .. } | Self::Recover { .. } | Self::Delete { .. } => 0,
        }
    }

    pub(super) fn refuse(self, error: StoreError) {
        match self {
            Self::Append { done, .. } => done.tell(Err(error)),
            Self::Create { done, .. } | Self::Delete { done, .. } => done.tell(Err(error)),
            Self::Close { done, .. } | Self::Recover { done, .. } => done.tell(Err(error)),
        }
    }
}

/// What a request changes as soon as it is written, and what is answered then.
pub(super) struct Staged {
    pub(super) effect: Effect,
    pub(super) answer: Answer,
}

pub(super) enum Effect {
    None,
    Append { ledger: i64, first: i64, offset: u32, entries: Vec<Bytes> },
    Create { group: String, ledger: i64, epoch: u64, created: (u64, u64) },
    Close { ledger: i64 },
    Recover { ledger: i64, epoch: u64 },
    Delete { ledger: i64 },
}

pub(super) enum Answer {
    Appended(Done<Appended>, Result<i64, StoreError>),
    Last(Done<i64>, Result<i64, StoreError>),
    Unit(Done<()>, Result<(), StoreError>),
}

impl Answer {
    /// Tells it; or this error, even to whom was refused: that was judged by what is not so now.
    pub(super) fn tell(self, durability: Durability, failed: Option<&StoreError>) {
        fn or<T>(answer: Result<T, StoreError>, failed: Option<&StoreError>) -> Result<T, StoreError> {
            failed.map_or(answer, |error| Err(error.clone()))
        }
        match self {
            Self::Appended(done, answer) => {
                done.tell(or(answer, failed).map(|last| Appended { last, durability }));
            }
            Self::Last(done, answer) => done.tell(or(answer, failed)),
            Self::Unit(done, answer) => done.tell(or(answer, failed)),
        }
    }
}
