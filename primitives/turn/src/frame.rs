//! Where a turn lands that an executor runs, or drops, inside the call that queues it.
//!
//! A thread that drives a turn has a frame on its stack. A job of the same turn that comes to run further down, inside the executor's
//! `submit`, leaves ownership at that frame and returns: the driver goes on when `submit` has returned, and the stack stays as it is.

use std::cell::RefCell;

use crate::word::Held;

/// How ownership came to a frame.
pub(crate) enum Landed {
    /// The job ran here.
    ToRun(Held),
    /// The job was dropped here.
    Dropped(Held),
}

struct Entry {
    turn: usize,
    landed: Option<Landed>,
}

folio_sync::thread_local! {
    /// The turns that this thread drives, innermost last.
    static FRAMES: RefCell<Vec<Entry>> = RefCell::new(Vec::new());
}

/// This thread drives a turn, until dropped.
pub(crate) struct Frame {
    /// False while the thread ends and its thread-locals are gone: then nothing lands, and inline executors nest.
    entered: bool,
}

impl Frame {
    pub(crate) fn enter(turn: usize) -> Self {
        let entry = Entry { turn, landed: None };
        Self { entered: FRAMES.try_with(|frames| frames.borrow_mut().push(entry)).is_ok() }
    }

    /// Takes what landed here.
    pub(crate) fn take_landed(&self) -> Option<Landed> {
        if !self.entered {
            return None;
        }
        // Frames are made and dropped by scope, so the last entry is this one's.
        FRAMES.try_with(|frames| frames.borrow_mut().last_mut().and_then(|entry| entry.landed.take())).ok()?
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        if self.entered {
            let _gone = FRAMES.try_with(|frames| frames.borrow_mut().pop());
        }
    }
}

/// Whether this thread drives the turn.
pub(crate) fn is_driven_here(turn: usize) -> bool {
    FRAMES.try_with(|frames| frames.borrow().iter().any(|entry| entry.turn == turn)).unwrap_or(false)
}

/// Leaves ownership at the innermost frame of the turn, which [`is_driven_here`] has found.
pub(crate) fn land(turn: usize, landed: Landed) {
    FRAMES.with(|frames| {
        let mut frames = frames.borrow_mut();
        let entry = frames.iter_mut().rfind(|entry| entry.turn == turn).expect("the turn is driven here");
        debug_assert!(entry.landed.is_none(), "a frame that holds ownership has no job queued");
        entry.landed = Some(landed);
    });
}
