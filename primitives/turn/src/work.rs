//! What a turn does, as its user writes it.

use folio_sync::unwind::Payload;

use crate::demand::Demand;
use crate::outcome::Stranded;
use crate::turn::Turn;

/// What a step has to say at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Next {
    /// One piece of work is done; there may be more. Counts against the budget.
    Again,
    /// There is nothing to do until something is asked.
    Idle,
    /// There is nothing to do until something outstanding comes back.
    ///
    /// Whatever brings it back records urgent demand.
    Wait,
}

/// A step that panicked.
#[derive(Debug)]
#[non_exhaustive]
pub struct Panicked<'a> {
    /// The demand that the step had been given.
    pub demand: Demand,
    /// What the panic carried.
    pub payload: &'a Payload,
}

/// What becomes of a turn whose step panicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Recovery {
    /// This demand is left to do, and the panic goes on.
    ///
    /// It reaches whoever runs the turn, once nobody owns it or a queued job does.
    Propagate(Demand),
    /// This demand is left to do, and the panic ends here.
    Contain(Demand),
}

/// The state of a turn, and the steps that its owner takes.
pub trait Work: Send + Sized + 'static {
    /// Does one piece of work.
    ///
    /// `demand` is what was recorded since the step before; a step that cannot act on it now remembers it in its state. No lock is held
    /// and nobody else reaches the state. The step may record demand on its own turn, and join or schedule it: both answer
    /// [`Elsewhere`](crate::Joined::Elsewhere) at once. It hands clones of `turn` to the callbacks that it leaves behind, rather
    /// than keeping one in the state, which would keep the turn alive for ever.
    fn step(&mut self, turn: &Turn<Self>, demand: Demand) -> Next;

    /// Mends the state after a step panicked, and says what is left to do.
    ///
    /// The state is still owned. The demand that is left becomes visible in one step with the end of ownership, and nobody runs for it
    /// by itself: a work that wants a later try sets a timer here, which records and joins. If it fires before ownership ends, the
    /// owner sees its demand and goes on. Demand that came before the panic and that no step has seen makes the owner go on, too,
    /// within its budget.
    ///
    /// By default what the step had been given is left to do, and the panic goes on to whoever runs the turn. A panic of this function
    /// has the same outcome.
    fn panicked(&mut self, turn: &Turn<Self>, panicked: Panicked<'_>) -> Recovery {
        let _ = turn;
        Recovery::Propagate(panicked.demand)
    }

    /// Receives the ownership of a queued turn that never ran.
    ///
    /// It was dropped unrun, or could not be queued again by the job it ran in.
    ///
    /// Called on the thread on which that happened: the executor's, or whichever drops its queue, perhaps while it unwinds. A panic
    /// of this function ends there when the job was dropped, and goes on to the executor otherwise.
    fn stranded(stranded: Stranded<Self>);
}
