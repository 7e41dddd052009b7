//! The one word that decides who owns the state, and what is asked of the owner.
//!
//! ```text
//!  63            32 31                       17 16                        2 1   0
//! +----------------+---------------------------+---------------------------+-----+
//! |   generation   |      urgent demand        |        soft demand        |phase|
//! +----------------+---------------------------+---------------------------+-----+
//! ```
//! Anybody may set demand. Only the owner clears it, and only the owner changes the phase away from `RUNNING`. The generation counts the
//! entries into `RUNNING`. Each way into `RUNNING` makes one [`Held`], each way out of it consumes one.

use std::fmt;

use folio_sync::atomic::{AtomicU64, Ordering};
use folio_sync::step;

use crate::demand::Demand;
use crate::outcome::Recorded;

const PHASE: u64 = 0b11;
/// Nobody owns the state.
const IDLE: u64 = 0b00;
/// A thread owns the state.
const RUNNING: u64 = 0b01;
/// A queued job owns the state.
const QUEUED: u64 = 0b10;
/// Nobody owns the state, and only urgent demand calls for an owner.
const WAITING: u64 = 0b11;

const DEMAND_SHIFT: u32 = 2;
const DEMAND: u64 = (Demand::ALL.bits() as u64) << DEMAND_SHIFT;
const GENERATION: u64 = 1 << (DEMAND_SHIFT + Demand::BITS);

/// Ownership of the state by a thread. Neither `Copy` nor `Clone`: there is one of them exactly while the phase is `RUNNING`.
#[derive(Debug)]
#[must_use = "ownership would be lost"]
pub(crate) struct Held {
    generation: u64,
}

impl Held {
    fn into_generation(self) -> u64 {
        self.generation
    }
}

/// Names the owner that queued a job, for telling its refusal from that of a later one.
#[derive(Clone, Copy)]
pub(crate) struct QueuedBy {
    generation: u64,
}

/// Why there is no ownership to be had.
pub(crate) enum NotOwned {
    /// A thread or a queued job owns the state: it will see the demand.
    Elsewhere,
    /// No demand calls for an owner.
    Nothing,
}

/// What letting go for good, or until something urgent comes, means.
#[derive(Clone, Copy)]
pub(crate) enum Leave {
    Idle,
    Waiting,
}

pub(crate) struct Word(AtomicU64);

fn demand(word: u64) -> Demand {
    Demand::from_bits(
        u32::try_from((word & DEMAND) >> DEMAND_SHIFT).expect("the mask leaves fewer than 32 bits"),
    )
}

fn bits(demand: Demand) -> u64 {
    u64::from(demand.bits()) << DEMAND_SHIFT
}

/// The generation of a word, in its place.
fn generation(word: u64) -> u64 {
    word & !(GENERATION - 1)
}

/// The same word in another phase.
fn phased(word: u64, phase: u64) -> u64 {
    (word & !PHASE) | phase
}

/// The word after a thread became the owner.
fn entered(word: u64) -> u64 {
    phased(word.wrapping_add(GENERATION), RUNNING)
}

/// What somebody who wants to own finds.
fn ownable(word: u64) -> Result<(), NotOwned> {
    match word & PHASE {
        IDLE if !demand(word).is_empty() => Ok(()),
        WAITING if demand(word).is_urgent() => Ok(()),
        IDLE | WAITING => Err(NotOwned::Nothing),
        _ => Err(NotOwned::Elsewhere),
    }
}

impl Word {
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(IDLE))
    }

    /// Adds demand, and says whether somebody has to run for it.
    pub(crate) fn record(&self, demand: Demand) -> Recorded {
        // Release: publishes what the recorder put into its mailbox; pairs with take's Acquire.
        let before = step!("turn.record", self.0.fetch_or(bits(demand), Ordering::Release));
        // What others recorded is theirs to run for: soft demand joins nothing only because something urgent came before it.
        match ownable(phased(bits(demand), before & PHASE)) {
            Ok(()) => Recorded::MustRun,
            Err(NotOwned::Elsewhere) => Recorded::Seen,
            Err(NotOwned::Nothing) => Recorded::Waits,
        }
    }

    /// Takes ownership if nobody has it and demand calls for it: idle or waiting to running.
    pub(crate) fn own(&self) -> Result<Held, NotOwned> {
        // Relaxed: only a guess for the exchange. It is at least as new as the caller's own record, so an owner seen here sees that.
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            ownable(word)?;
            // Acquire: sees the state as the last owner left it; pairs with the Release of leave, recover and give_up.
            // Relaxed on failure: the value is only the next guess.
            match step!(
                "turn.own",
                self.0.compare_exchange_weak(word, entered(word), Ordering::Acquire, Ordering::Relaxed)
            ) {
                Ok(_) => return Ok(Held { generation: generation(entered(word)) }),
                Err(found) => word = found,
            }
        }
    }

    /// Gives ownership to a job that is about to be queued: idle or waiting to queued.
    pub(crate) fn own_for_job(&self) -> Result<QueuedBy, NotOwned> {
        // Relaxed: only a guess for the exchange, as in own.
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            ownable(word)?;
            // Relaxed: this thread does not touch the state. As a read-modify-write it goes on with the release sequence of the last
            // owner, so that claim and take_back synchronise with that. Relaxed on failure: the value is only the next guess.
            match step!(
                "turn.schedule",
                self.0.compare_exchange_weak(
                    word,
                    phased(word, QUEUED),
                    Ordering::Relaxed,
                    Ordering::Relaxed
                )
            ) {
                Ok(_) => return Ok(QueuedBy { generation: generation(word) }),
                Err(found) => word = found,
            }
        }
    }

    /// Gives ownership to a job that is about to be queued: running to queued.
    pub(crate) fn hand_on(&self, held: Held) -> QueuedBy {
        // Release: publishes the state to whoever the job runs on; pairs with claim's Acquire.
        let before = step!("turn.yield", self.0.fetch_xor(RUNNING ^ QUEUED, Ordering::Release));
        debug_assert_eq!(
            (before & PHASE, generation(before)),
            (RUNNING, held.generation),
            "the owner hands on"
        );
        QueuedBy { generation: held.into_generation() }
    }

    /// Takes ownership for the queued job that runs or is dropped here: queued to running.
    ///
    /// `None` when somebody else took it: the executor had refused this job and kept it all the same.
    pub(crate) fn claim(&self) -> Option<Held> {
        // Relaxed: only a guess for the exchange.
        let mut word = self.0.load(Ordering::Relaxed);
        let mut newest = false;
        loop {
            if word & PHASE != QUEUED {
                if newest {
                    return None;
                }
                // Relaxed: a read-modify-write reads the newest value, which is all it is for. It makes the claim independent of how
                // the executor passes jobs on.
                word = self.0.fetch_or(0, Ordering::Relaxed);
                newest = true;
                continue;
            }
            // Acquire: sees the state as the last owner left it; pairs with the Release of hand_on, leave, recover and give_up.
            // Relaxed on failure: the value is only the next guess.
            match step!(
                "turn.claim",
                self.0.compare_exchange_weak(word, entered(word), Ordering::Acquire, Ordering::Relaxed)
            ) {
                Ok(_) => return Some(Held { generation: generation(entered(word)) }),
                Err(found) => word = found,
            }
        }
    }

    /// Takes ownership back from a job that was refused: queued to running.
    ///
    /// `None` when that job found an owner all the same: the refusal is a late error of somebody who has nothing to say any more.
    pub(crate) fn take_back(&self, by: QueuedBy) -> Option<Held> {
        // Relaxed: only a guess for the exchange.
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            if word & PHASE != QUEUED || generation(word) != by.generation {
                return None;
            }
            // Acquire: whoever scheduled sees the state as the last owner left it; pairs with the Release of leave, recover and give_up.
            // Relaxed on failure: the value is only the next guess.
            match step!(
                "turn.take_back",
                self.0.compare_exchange_weak(word, entered(word), Ordering::Acquire, Ordering::Relaxed)
            ) {
                Ok(_) => return Some(Held { generation: generation(entered(word)) }),
                Err(found) => word = found,
            }
        }
    }

    /// Takes all demand, for the next step of the owner.
    pub(crate) fn take(&self) -> Demand {
        // Relaxed: demand that this load misses is seen by the next one, or by leave, which does not let go over it.
        if demand(self.0.load(Ordering::Relaxed)).is_empty() {
            return Demand::NONE;
        }
        // Acquire: sees what the recorders put into their mailboxes; pairs with record's Release.
        demand(step!("turn.take", self.0.fetch_and(!DEMAND, Ordering::Acquire)))
    }

    /// Lets go, unless there is demand that the phase to come must not pass over: running to idle or waiting.
    pub(crate) fn leave(&self, held: Held, how: Leave) -> Result<(), Held> {
        let phase = match how {
            Leave::Idle => IDLE,
            Leave::Waiting => WAITING,
        };
        // Relaxed: only a guess for the exchange.
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            let left = phased(word, phase);
            if ownable(left).is_ok() {
                return Err(held);
            }
            // Release: publishes the state to the next owner; pairs with the Acquire of own, claim and take_back.
            // Relaxed on failure: the value is only the next guess.
            match step!(
                "turn.leave",
                self.0.compare_exchange_weak(word, left, Ordering::Release, Ordering::Relaxed)
            ) {
                Ok(_) => return Ok(()),
                Err(found) => word = found,
            }
        }
    }

    /// Publishes what a panicked step leaves to do and lets go, both at once: running to idle. With demand that no step has seen, what
    /// is left is added to it, and the owner stays.
    pub(crate) fn recover(&self, held: Held, left: Demand) -> Result<(), Held> {
        // Relaxed: only a guess for the exchange.
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            let unseen = !demand(word).is_empty();
            let next = phased(word, if unseen { RUNNING } else { IDLE }) | bits(left);
            // Release: publishes the state with the demand to mend it; pairs with the Acquire of own, claim and take_back.
            // Relaxed on failure: the value is only the next guess.
            match step!(
                "turn.recover",
                self.0.compare_exchange_weak(word, next, Ordering::Release, Ordering::Relaxed)
            ) {
                Ok(_) if unseen => return Err(held),
                Ok(_) => return Ok(()),
                Err(found) => word = found,
            }
        }
    }

    /// Lets go whatever demand there is, which stays: running to idle.
    pub(crate) fn give_up(&self, held: Held) {
        // Release: publishes the state to the next owner; pairs with the Acquire of own, claim and take_back.
        let before = step!("turn.give_up", self.0.fetch_xor(RUNNING ^ IDLE, Ordering::Release));
        let generation_of_owner = held.into_generation();
        debug_assert_eq!(
            (before & PHASE, generation(before)),
            (RUNNING, generation_of_owner),
            "the owner lets go"
        );
    }
}

impl fmt::Debug for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Relaxed: a number to look at.
        let word = self.0.load(Ordering::Relaxed);
        let phase = match word & PHASE {
            IDLE => "idle",
            RUNNING => "running",
            QUEUED => "queued",
            _ => "waiting",
        };
        f.debug_struct("Word")
            .field("phase", &phase)
            .field("demand", &demand(word))
            .field("generation", &(generation(word) / GENERATION))
            .finish()
    }
}
