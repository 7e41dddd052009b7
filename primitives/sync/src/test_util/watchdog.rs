//! A time limit for callbacks that block in ways that nobody sees.

use std::time::Duration;

use super::Blocked;
use crate::timers::{ThreadTimers, TimerId, Timers};
use crate::{Arc, Job, Mutex};

/// Reports callbacks that do not return within a limit, while they are still inside.
pub(super) struct Watchdog {
    limit: Duration,
    timers: ThreadTimers,
}

/// The watch over one callback, until dropped.
pub(super) struct Watch<'a> {
    watchdog: &'a Watchdog,
    timer: TimerId,
    /// Held while the report is made: after the watch is dropped there is none.
    returned: Arc<Mutex<bool>>,
}

impl Watchdog {
    pub(super) fn new(limit: Duration) -> Self {
        Self { limit, timers: ThreadTimers::builder().thread_name("folio-watchdog").build() }
    }

    /// Watches from now on; `report` is called once at most, on another thread.
    pub(super) fn begin(&self, report: impl FnOnce(Blocked) + Send + 'static) -> Watch<'_> {
        let returned = Arc::new(Mutex::new(false));
        let watched = Arc::clone(&returned);
        let overdue = Job::new(move || {
            let returned = watched.lock();
            if !*returned {
                report(Blocked { call: Blocked::OVERDUE });
            }
        });
        let timer = self.timers.once(self.limit, overdue).expect("the watchdog's thread starts");
        Watch { watchdog: self, timer, returned }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        // No watch is open: the thread has nothing to do, and ends before the test does.
        drop(self.timers.shutdown());
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        *self.returned.lock() = true;
        drop(self.watchdog.timers.cancel(self.timer));
    }
}
