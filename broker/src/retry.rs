//! What is tried again later: reads that failed, and a turn that no executor took.

use std::time::Duration;

use folio_sync::timers::{TimerId, Timers};
use folio_sync::{Job, unwind};

/// How long it is waited before something is tried again: longer each time, and shorter again as it works.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    first: Duration,
    most: Duration,
    next: Duration,
}

impl Backoff {
    pub(crate) const fn new(first: Duration, most: Duration) -> Self {
        Self { first, most, next: first }
    }

    /// How long to wait now; twice as long the next time.
    pub(crate) fn next(&mut self) -> Duration {
        let next = self.next;
        self.next = next.saturating_mul(2).min(self.most);
        next
    }

    /// It worked: half as long the next time.
    pub(crate) fn ease(&mut self) {
        self.next = (self.next / 2).max(self.first);
    }

    /// It worked: as at first the next time.
    pub(crate) fn reset(&mut self) {
        self.next = self.first;
    }
}

/// Runs something later; none if these timers do not take it.
pub(crate) fn later(
    timers: &dyn Timers,
    delay: Duration,
    job: impl FnOnce() + Send + 'static,
) -> Option<TimerId> {
    unwind::catch(|| timers.once(delay, Job::new(job)).ok()).unwrap_or_else(|payload| {
        unwind::discard(payload);
        None
    })
}

/// Takes a timer back, if it is still set.
pub(crate) fn cancel(timers: &dyn Timers, timer: TimerId) {
    if let Err(payload) = unwind::catch(|| drop(timers.cancel(timer))) {
        unwind::discard(payload);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_waited_longer_each_time_and_shorter_again_as_it_works() {
        let seconds = Duration::from_secs;
        let mut backoff = Backoff::new(seconds(15), seconds(60));
        let mut waits = |count| (0..count).map(|_| backoff.next().as_secs()).collect::<Vec<_>>();
        assert_eq!(waits(5), [15, 30, 60, 60, 60]);
        backoff.ease();
        assert_eq!(backoff.next(), seconds(30));
        (0..5).for_each(|_| backoff.ease());
        assert_eq!(backoff.next(), seconds(15));
        backoff.reset();
        assert_eq!(backoff.next(), seconds(15));
        assert_eq!(Backoff::new(Duration::MAX, Duration::MAX).next(), Duration::MAX);
    }
}
