//! Ownership of a turn as a value.

use std::fmt;

use folio_sync::Executor;

use crate::outcome::{Joined, Stranded};
use crate::turn::Turn;
use crate::word::{Held, Leave};
use crate::work::Work;

/// Ownership of a turn, held by this value; there is never a second one.
///
/// Dropping it lets go with all demand still recorded, and nobody runs for that until somebody joins or schedules.
#[must_use = "dropping it lets go, and recorded demand waits for the next who joins or schedules"]
pub struct Ownership<W: Work> {
    turn: Turn<W>,
    /// `None` once ownership was passed on.
    held: Option<Held>,
}

impl<W: Work> Ownership<W> {
    pub(crate) fn new(turn: Turn<W>, held: Held) -> Self {
        Self { turn, held: Some(held) }
    }

    /// The turn that is owned.
    pub fn turn(&self) -> &Turn<W> {
        &self.turn
    }

    /// Reaches the state.
    ///
    /// # Panics
    /// When `visit` does. This is no step: [`panicked`](Work::panicked) is not called, and what the state needs is for the caller to see to.
    pub fn with<R>(&mut self, visit: impl FnOnce(&mut W) -> R) -> R {
        let held = self.held.as_mut().expect("ownership is passed on only with the value");
        self.turn.work_on(held, visit)
    }

    /// Runs a turn here, with a fresh budget.
    ///
    /// # Errors
    /// [`Stranded`] when the budget is used up and the rest cannot be queued.
    ///
    /// # Panics
    /// When a step does and its panic is propagated.
    pub fn run(mut self) -> Result<Joined, Stranded<W>> {
        let held = self.take();
        self.turn.drive(held, false)
    }

    /// Queues a turn, whose job takes the ownership over.
    ///
    /// # Errors
    /// [`Stranded`] when the executor does not take the job.
    pub fn schedule<E: Executor + ?Sized>(mut self, executor: &E) -> Result<(), Stranded<W>> {
        let held = self.take();
        self.turn.queue_held(held, executor)
    }

    /// Lets go, as a step that says [`Idle`](crate::Next::Idle) does.
    ///
    /// # Errors
    /// Ownership is given back when there is demand: whoever recorded it relies on this owner.
    pub fn leave(mut self) -> Result<(), Self> {
        let held = self.take();
        match self.turn.word().leave(held, Leave::Idle) {
            Ok(()) => Ok(()),
            Err(held) => {
                self.held = Some(held);
                Err(self)
            }
        }
    }

    fn take(&mut self) -> Held {
        self.held.take().expect("ownership is passed on only with the value")
    }
}

impl<W: Work> Drop for Ownership<W> {
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            self.turn.word().give_up(held);
        }
    }
}

impl<W: Work> fmt::Debug for Ownership<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ownership").field("turn", &self.turn).finish_non_exhaustive()
    }
}
