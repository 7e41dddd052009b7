//! Which timer is the one that is pending.

use std::time::Duration;

use folio_sync::Mutex;
use folio_sync::timers::TimerId;

/// The pending tick of a manager. The lock is held for a look: timers are set and cancelled without it.
pub(super) struct Ticks(Mutex<State>);

struct State {
    interval: Duration,
    /// The number of the last tick; numbers are never used again.
    last: u64,
    /// Whether that one is pending, or about to be.
    pending: bool,
    /// Its timer, once it is set.
    timer: Option<TimerId>,
    closed: bool,
}

impl State {
    fn is_pending(&self, tick: u64) -> bool {
        self.pending && self.last == tick
    }

    fn stop(&mut self) -> Option<TimerId> {
        self.pending = false;
        self.timer.take()
    }
}

impl Ticks {
    pub(super) fn new(interval: Duration) -> Self {
        Self(Mutex::new(State { interval, last: 0, pending: false, timer: None, closed: false }))
    }

    /// The next tick and how long until it, if none is pending: the caller sets its timer.
    pub(super) fn begin(&self) -> Option<(u64, Duration)> {
        let mut state = self.0.lock();
        if state.closed || state.pending {
            return None;
        }
        state.last += 1;
        state.pending = true;
        Some((state.last, state.interval))
    }

    /// Notes the timer of a tick; gives it back, to be cancelled, if that is not the one that is pending.
    #[must_use = "a timer that comes back has to be cancelled"]
    pub(super) fn set(&self, tick: u64, timer: TimerId) -> Option<TimerId> {
        let mut state = self.0.lock();
        if state.is_pending(tick) {
            state.timer = Some(timer);
            return None;
        }
        Some(timer)
    }

    /// No timer could be set.
    pub(super) fn refused(&self, tick: u64) {
        let mut state = self.0.lock();
        if state.is_pending(tick) {
            state.pending = false;
        }
    }

    /// The timer of a tick runs; whether it is the one that is pending.
    pub(super) fn fired(&self, tick: u64) -> bool {
        let mut state = self.0.lock();
        let pending = state.is_pending(tick);
        if pending {
            state.stop();
        }
        pending
    }

    /// Sets the interval; the pending timer is to be cancelled.
    #[must_use = "a timer that comes back has to be cancelled"]
    pub(super) fn set_interval(&self, interval: Duration) -> Option<TimerId> {
        let mut state = self.0.lock();
        state.interval = interval;
        state.stop()
    }

    /// No tick begins again; the pending timer is to be cancelled.
    #[must_use = "a timer that comes back has to be cancelled"]
    pub(super) fn close(&self) -> Option<TimerId> {
        let mut state = self.0.lock();
        state.closed = true;
        state.stop()
    }
}
