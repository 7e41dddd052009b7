//! Calling those whose request has ended: without a lock, one after the other.

use std::cell::RefCell;
use std::collections::VecDeque;

use folio_sync::timers::TimerId;
use folio_sync::{Arc, unwind};

use super::{Permit, PermitError, Shared, Waiter};

/// What is called at the end of a request that had to wait.
pub(super) type Granted = Box<dyn FnOnce(Result<Permit, PermitError>) + Send>;

/// A request that has ended, and is to be told so.
pub(super) struct Due {
    shared: Arc<Shared>,
    granted: Granted,
    timer: Option<TimerId>,
    result: Result<Permit, PermitError>,
}

impl Due {
    pub(super) fn new(shared: &Arc<Shared>, waiter: Waiter, result: Result<Permit, PermitError>) -> Self {
        let Waiter { granted, timer, .. } = waiter;
        Self { shared: Arc::clone(shared), granted, timer, result }
    }

    /// Stops the timer, and calls back; panics end here.
    fn run(self) {
        let Self { shared, granted, timer, result } = self;
        if let Some(timer) = timer {
            contain(|| drop(shared.timers.cancel(timer)));
        }
        contain(|| granted(result));
    }
}

fn contain(user_code: impl FnOnce()) {
    if let Err(payload) = unwind::catch(user_code) {
        unwind::discard(payload);
    }
}

folio_sync::thread_local! {
    /// What this thread has to call, if it is calling somebody: the frame that began goes on until there is none.
    static OWED: RefCell<Option<VecDeque<Due>>> = RefCell::new(None);
}

/// Calls all of these, in order: here, or, if this is inside of such a call, when that has returned.
pub(super) fn settle(mut due: VecDeque<Due>) {
    if due.is_empty() {
        return;
    }
    let begun = OWED.try_with(|owed| {
        let mut owed = owed.borrow_mut();
        let begins = owed.is_none();
        owed.get_or_insert_default().append(&mut due);
        begins
    });
    if matches!(begun, Ok(true)) {
        while let Some(next) = next() {
            next.run();
        }
    }
    // Left only if the thread ends and its thread-locals are gone: then calls nest.
    due.into_iter().for_each(Due::run);
}

/// The next one to call; after the last one, the frame ends.
fn next() -> Option<Due> {
    OWED.with(|owed| {
        let mut owed = owed.borrow_mut();
        let next = owed.as_mut().and_then(VecDeque::pop_front);
        if next.is_none() {
            *owed = None;
        }
        next
    })
}
