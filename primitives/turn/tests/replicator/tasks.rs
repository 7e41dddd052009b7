//! What the replicator keeps about its reads, and the settings of a test.

use std::collections::VecDeque;

use crate::world::{Entry, ReadError};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Disconnected,
    Started,
    Terminating,
    Terminated,
}

impl State {
    pub(crate) fn is_terminal(self) -> bool {
        matches!(self, Self::Terminating | Self::Terminated)
    }
}

/// A fault that a replicator is made with, so that the race which is about it must be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Planted {
    Nothing,
    /// What an acknowledgement asks for while a read is outstanding is not left to that read's owner.
    NoShortcutWhilePending,
    /// A rejected completion is followed by a rewind only while the producer is there.
    NoRewindWhileDisconnected,
    /// An error of the producer's start goes the way of a step's.
    StartErrorEscapes,
}

/// What the timers do with the next retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timers {
    Take,
    Refuse,
    Panic,
}

pub(crate) struct Task {
    pub(crate) id: u64,
    pub(crate) requested: usize,
    /// `Some` once the read came back, with what is not yet taken out for submission.
    pub(crate) result: Option<Vec<Entry>>,
    pub(crate) error: Option<ReadError>,
    pub(crate) entries: usize,
    pub(crate) completed: usize,
    pub(crate) submitted: bool,
    pub(crate) skip: bool,
}

impl Task {
    pub(crate) fn is_done(&self) -> bool {
        self.submitted && self.result.is_some() && self.completed >= self.entries
    }

    pub(crate) fn in_flight(&self) -> usize {
        if self.result.is_none() { self.requested } else { self.entries - self.completed }
    }
}

/// What M guards.
pub(crate) struct Monitor {
    pub(crate) state: State,
    pub(crate) tasks: VecDeque<Task>,
    pub(crate) rewind_holds: usize,
    pub(crate) timer: bool,
    pub(crate) next_id: u64,
}

impl Monitor {
    pub(crate) fn task(&mut self, id: u64) -> Option<&mut Task> {
        self.tasks.iter_mut().find(|task| task.id == id)
    }

    pub(crate) fn skip_all(&mut self) {
        self.tasks.iter_mut().for_each(|task| task.skip = true);
    }

    pub(crate) fn recycle(&mut self) {
        self.tasks.retain(|task| !task.is_done());
    }

    pub(crate) fn is_pending(&self) -> bool {
        self.tasks.iter().any(|task| task.result.is_none())
    }
}
