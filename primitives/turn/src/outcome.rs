//! What the calls of a turn answer.

use std::error::Error;
use std::fmt;

use folio_sync::RejectReason;

use crate::ownership::Ownership;
use crate::work::Work;

/// What recording demand found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use = "when somebody has to run, only the caller knows it: join or schedule"]
pub enum Recorded {
    /// Nobody owns the turn: join it or schedule it.
    ///
    /// Until somebody does, the demand stays recorded and nothing happens.
    MustRun,
    /// An owner runs, or is queued: it sees the demand before it lets go.
    ///
    /// Unless its step goes into the wait: soft demand then stays recorded for the owner that urgent demand brings.
    Seen,
    /// Nobody owns the turn, and the demand calls for no owner.
    ///
    /// What is outstanding brings one, who sees the demand.
    Waits,
}

impl Recorded {
    /// Whether the caller has to join or schedule.
    pub fn must_run(self) -> bool {
        self == Self::MustRun
    }
}

/// What joining came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Joined {
    /// This thread ran the turn until a step had nothing more to do.
    Ran,
    /// This thread used up the budget and queued the rest; ownership went with it.
    Yielded,
    /// Somebody else owns the turn, or this thread itself further up.
    ///
    /// The owner sees all demand that was recorded before the call.
    Elsewhere,
    /// No recorded demand calls for an owner.
    Nothing,
}

/// What scheduling came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheduled {
    /// One job was queued, and owns the turn.
    Queued,
    /// Somebody else owns the turn, or a job that is queued already.
    Elsewhere,
    /// No recorded demand calls for an owner.
    Nothing,
}

/// Why a queued owner was stranded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Why {
    /// The executor did not take the job.
    Refused(RejectReason),
    /// The executor took the job and dropped it unrun.
    Dropped,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(reason) => write!(f, "refused, {reason}"),
            Self::Dropped => f.write_str("dropped unrun"),
        }
    }
}

/// A hand-over to an executor that failed; ownership is in it.
///
/// Whoever gets one decides: run the turn here, schedule it elsewhere, end what it works on, or pass it to [`Work::stranded`] by
/// [`settle`](Self::settle).
#[must_use = "ownership came back, and somebody has to act on it"]
pub struct Stranded<W: Work> {
    /// The turn's ownership.
    pub ownership: Ownership<W>,
    /// What became of the job.
    pub why: Why,
}

impl<W: Work> Stranded<W> {
    /// Leaves it to the work's own [`stranded`](Work::stranded).
    pub fn settle(self) {
        W::stranded(self);
    }
}

impl<W: Work> fmt::Debug for Stranded<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stranded").field("why", &self.why).finish_non_exhaustive()
    }
}

impl<W: Work> fmt::Display for Stranded<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the hand-over of a turn was {}", self.why)
    }
}

impl<W: Work> Error for Stranded<W> {}
