//! What the ledger and timers tell a dispatcher through.

use std::time::Duration;

use folio_sync::timers::Timers;
use folio_sync::{Arc, Executor, Mutex};
use folio_turn::{Demand, Turn};

use crate::dispatch::{Dispatch, MORE, demand};
use crate::retry::{Backoff, later};

/// A turn that the executor did not take is offered again after so long, at first and at most.
const OFFER_AGAIN: [Duration; 2] = [Duration::from_millis(1), Duration::from_secs(1)];

/// The way to a dispatcher: whoever has only this does not keep it alive once the subscription has ended.
pub(crate) struct Notifier {
    /// Locked for a look only, as what is below.
    target: Mutex<Option<Target>>,
    again: Mutex<Again>,
}

/// The dispatcher, and where it runs.
#[derive(Clone)]
struct Target {
    turn: Turn<Dispatch>,
    executor: Arc<dyn Executor>,
}

/// Whether a timer is set for a turn that the executor did not take, and how long the next one is.
struct Again {
    set: bool,
    backoff: Backoff,
}

impl Notifier {
    /// Nobody to tell yet.
    pub(crate) fn new() -> Self {
        let [first, most] = OFFER_AGAIN;
        let again = Again { set: false, backoff: Backoff::new(first, most) };
        Self { target: Mutex::new(None), again: Mutex::new(again) }
    }

    pub(crate) fn tells(&self, turn: Turn<Dispatch>, executor: Arc<dyn Executor>) {
        let before = self.target.lock().replace(Target { turn, executor });
        drop(before);
    }

    /// Tells nobody any more.
    pub(crate) fn forget(&self) {
        let target = self.target.lock().take();
        drop(target);
    }

    /// Leaves demand, if there still is a dispatcher.
    pub(crate) fn tell(&self, what: Demand) {
        let target = self.target.lock().clone();
        if let Some(Target { turn, executor }) = target {
            demand(&turn, &*executor, what);
        }
    }

    /// Has the turn, which nobody owns, offered to the executor again later. If no timer can be set, the next demand does it.
    pub(crate) fn offer_later(notifier: &Arc<Self>, timers: &dyn Timers) {
        let delay = {
            let mut again = notifier.again.lock();
            if std::mem::replace(&mut again.set, true) {
                // What the timer runs takes this mark back first, and then looks at the turn.
                return;
            }
            again.backoff.next()
        };
        let offers = Arc::clone(notifier);
        if later(timers, delay, move || offers.offer()).is_none() {
            notifier.again.lock().set = false;
        }
    }

    fn offer(&self) {
        self.again.lock().set = false;
        let target = self.target.lock().clone();
        let Some(Target { turn, executor }) = target else { return };
        // A turn that could not yield has no demand, though it has more to do.
        if turn.record(MORE).must_run()
            && let Err(stranded) = turn.schedule(&*executor)
        {
            stranded.settle();
        } else {
            self.again.lock().backoff.reset();
        }
    }
}
