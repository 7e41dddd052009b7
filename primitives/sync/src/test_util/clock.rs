//! The hand-set clock.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use crate::time::{Clock, Instant, nanos};

/// A clock that stands still until the test moves it.
///
/// Its monotonic time begins at [`Instant::ORIGIN`], its wall time at the Unix epoch. Clones are the same clock. In models reading it is
/// not a step of the schedule and orders nothing.
///
/// ```
/// use std::time::{Duration, SystemTime};
///
/// use folio_sync::test_util::ManualClock;
/// use folio_sync::time::Clock;
///
/// let clock = ManualClock::new();
/// let began = clock.now();
/// clock.advance(Duration::from_secs(2));
/// assert_eq!(clock.now().since(began), Duration::from_secs(2));
/// assert_eq!(clock.coarse(), clock.now());
///
/// clock.hold_coarse();
/// clock.advance(Duration::from_millis(7));
/// assert_eq!(clock.now().since(clock.coarse()), Duration::from_millis(7), "the coarse time lags");
/// clock.release_coarse();
/// assert_eq!(clock.coarse(), clock.now());
///
/// clock.set_wall(SystemTime::UNIX_EPOCH);
/// assert_eq!(clock.now().since(began), Duration::from_millis(2007), "setting the time of day moves no other");
/// ```
#[derive(Clone)]
pub struct ManualClock {
    shared: Arc<Shared>,
}

// Relaxed everywhere: numbers that publish nothing. The standard atomics, in models too: the clock is not what is checked.
#[derive(Default)]
struct Shared {
    /// The monotonic time in nanoseconds.
    now: AtomicU64,
    /// The coarse time in nanoseconds; follows `now` unless it is held.
    coarse: AtomicU64,
    coarse_held: AtomicBool,
    /// The time of day in nanoseconds since the Unix epoch.
    wall: AtomicU64,
}

impl ManualClock {
    /// A clock at its origin.
    pub fn new() -> Self {
        Self { shared: Arc::new(Shared::default()) }
    }

    /// Moves the clock on: the monotonic, the wall and, unless held, the coarse time.
    ///
    /// Fires no timers: [`ManualTimers::advance`](super::ManualTimers::advance) or [`fire_due`](super::ManualTimers::fire_due) does.
    pub fn advance(&self, by: Duration) {
        let by = nanos(by);
        let later = |time: u64| Some(time.saturating_add(by));
        // Relaxed: see `Shared`.
        let _always = self.shared.now.fetch_update(Ordering::Relaxed, Ordering::Relaxed, later);
        let _always = self.shared.wall.fetch_update(Ordering::Relaxed, Ordering::Relaxed, later);
        if !self.shared.coarse_held.load(Ordering::Relaxed) {
            self.catch_up();
        }
    }

    /// Moves the clock on to this moment; does nothing when it is past.
    pub fn advance_to(&self, moment: Instant) {
        self.advance(moment.since(self.now()));
    }

    /// Lets the coarse time stand where it is while the clock moves on.
    pub fn hold_coarse(&self) {
        // Relaxed: see `Shared`.
        self.shared.coarse_held.store(true, Ordering::Relaxed);
    }

    /// Sets the coarse time to this moment and holds it there.
    ///
    /// # Panics
    /// When the moment is ahead of the clock or before the present coarse time: no clock does that.
    pub fn set_coarse(&self, moment: Instant) {
        assert!(moment <= self.now(), "the coarse time is never ahead of the exact one");
        assert!(moment >= self.coarse(), "the coarse time never goes back");
        self.hold_coarse();
        // Relaxed: see `Shared`.
        self.shared.coarse.store(moment.as_nanos(), Ordering::Relaxed);
    }

    /// Lets the coarse time catch up and follow the clock again.
    pub fn release_coarse(&self) {
        // Relaxed: see `Shared`.
        self.shared.coarse_held.store(false, Ordering::Relaxed);
        self.catch_up();
    }

    /// Sets the time of day, forward or back.
    ///
    /// A time before the Unix epoch becomes the epoch.
    pub fn set_wall(&self, time: SystemTime) {
        let since_epoch = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        // Relaxed: see `Shared`.
        self.shared.wall.store(nanos(since_epoch), Ordering::Relaxed);
    }

    fn catch_up(&self) {
        // Relaxed: see `Shared`. The maximum keeps the time from going back when two threads move the clock.
        self.shared.coarse.fetch_max(self.now().as_nanos(), Ordering::Relaxed);
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for ManualClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ManualClock")
            .field("now", &self.now())
            .field("coarse", &self.coarse())
            .field("wall", &self.wall())
            .finish()
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Instant {
        // Relaxed: see `Shared`.
        Instant::from_nanos(self.shared.now.load(Ordering::Relaxed))
    }

    fn coarse(&self) -> Instant {
        // Relaxed: see `Shared`.
        Instant::from_nanos(self.shared.coarse.load(Ordering::Relaxed))
    }

    fn wall(&self) -> SystemTime {
        // Relaxed: see `Shared`.
        SystemTime::UNIX_EPOCH + Duration::from_nanos(self.shared.wall.load(Ordering::Relaxed))
    }
}
