//! Clocks that are given, not reached for.
//!
//! # Guarantees
//! Monotonic times never go back, and the coarse one is never ahead of the exact one. `SystemClock` never waits and allocates nothing
//! once made; its wall time is the machine's, which may jump.
//!
//! # Protocol
//! One word holds the latest time that any thread read: [`now`](Clock::now) raises it, [`coarse`](Clock::coarse) reads it. An `Upkeep`
//! raises it at intervals, until a flag tells its thread to end.
//!
//! # Orderings
//! | operation | word | ordering | pairs with | why |
//! |---|---|---|---|---|
//! | `now` | the latest time | Relaxed | | a number that publishes nothing; the maximum alone keeps it from going back |
//! | `coarse` | the latest time | Relaxed | | as above |
//! | the drop of an `Upkeep`, its thread | the flag | Relaxed | | the thread need only end some time later; it is joined |
//!
//! # Limits
//! A time that one thread read says nothing about what another did before it. Without an `Upkeep` the coarse time stands still while
//! nobody asks for the exact one. The nanoseconds of a clock last for centuries, and then saturate.

use std::ops::{Add, Sub};
use std::time::{Duration, SystemTime};

/// A moment of a monotonic [`Clock`], in nanoseconds since an origin of its own.
///
/// Moments of two clocks must not be compared. Arithmetic saturates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The origin of every clock.
    pub const ORIGIN: Self = Self(0);

    /// The moment this many nanoseconds after the origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The time since an earlier moment; zero if it is a later one.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Whole nanoseconds of a duration, at most what fits.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, later: Duration) -> Self {
        Self(self.0.saturating_add(nanos(later)))
    }
}

impl Sub<Duration> for Instant {
    type Output = Self;

    fn sub(self, earlier: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(earlier)))
    }
}

/// Tells the time.
pub trait Clock: Send + Sync {
    /// The monotonic time, exact; never going back.
    fn now(&self) -> Instant;

    /// A recent monotonic time, for one load instead of a clock read.
    ///
    /// Never ahead of [`now`](Self::now), never going back on one thread; how far behind depends on who keeps the clock up.
    fn coarse(&self) -> Instant;

    /// The time of day, which may jump.
    fn wall(&self) -> SystemTime;
}

impl<C: Clock + ?Sized> Clock for crate::Arc<C> {
    fn now(&self) -> Instant {
        (**self).now()
    }

    fn coarse(&self) -> Instant {
        (**self).coarse()
    }

    fn wall(&self) -> SystemTime {
        (**self).wall()
    }
}

#[cfg(not(any(loom, shuttle)))]
pub use system::{SystemClock, Upkeep};

#[cfg(not(any(loom, shuttle)))]
mod system {
    use std::fmt;

    use super::{Clock, Duration, Instant, SystemTime, nanos};
    use crate::Arc;
    use crate::atomic::{AtomicBool, AtomicU64, Ordering};
    use crate::thread;

    /// The machine's clocks.
    ///
    /// # Progress
    /// Lock-free: one read of the machine's clock and one read-modify-write for `now`, one load for `coarse`.
    ///
    /// Its coarse time is the latest that any thread read by [`now`](Clock::now); an [`Upkeep`] reads it at regular intervals.
    ///
    /// ```
    /// use folio_sync::time::{Clock, SystemClock};
    ///
    /// let clock = SystemClock::new();
    /// let now = clock.now();
    /// assert!(clock.coarse() >= now && clock.coarse() <= clock.now());
    /// ```
    pub struct SystemClock {
        origin: std::time::Instant,
        /// The latest time read, in nanoseconds; 0 before the first.
        recent: AtomicU64,
    }

    impl SystemClock {
        /// A clock whose origin is now.
        pub fn new() -> Self {
            Self { origin: std::time::Instant::now(), recent: AtomicU64::new(0) }
        }
    }

    impl Default for SystemClock {
        fn default() -> Self {
            Self::new()
        }
    }

    impl fmt::Debug for SystemClock {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.debug_struct("SystemClock").finish_non_exhaustive()
        }
    }

    impl Clock for SystemClock {
        fn now(&self) -> Instant {
            let now = nanos(self.origin.elapsed()).max(1);
            // Relaxed: a number that publishes nothing; the maximum keeps both times from going back, whichever thread asks.
            let before = self.recent.fetch_max(now, Ordering::Relaxed);
            Instant(now.max(before))
        }

        fn coarse(&self) -> Instant {
            // Relaxed: a number that publishes nothing.
            match self.recent.load(Ordering::Relaxed) {
                0 => self.now(),
                recent => Instant(recent),
            }
        }

        fn wall(&self) -> SystemTime {
            SystemTime::now()
        }
    }

    /// A thread that keeps a clock's coarse time up, until dropped.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use folio_sync::Arc;
    /// use folio_sync::time::{Clock, SystemClock, Upkeep};
    ///
    /// let clock = Arc::new(SystemClock::new());
    /// let upkeep = Upkeep::start(Arc::clone(&clock), Duration::from_millis(1)).unwrap();
    /// let earlier = clock.coarse();
    /// while clock.coarse() == earlier {
    ///     std::thread::yield_now();
    /// }
    /// drop(upkeep);
    /// ```
    pub struct Upkeep {
        stop: Arc<AtomicBool>,
        thread: Option<thread::JoinHandle<()>>,
    }

    impl Upkeep {
        /// Reads `clock` every `interval`; with an interval of zero without a pause.
        ///
        /// # Errors
        /// The system's, when it starts no thread.
        pub fn start(clock: Arc<SystemClock>, interval: Duration) -> std::io::Result<Self> {
            let stop = Arc::new(AtomicBool::new(false));
            let stopped = Arc::clone(&stop);
            let thread = thread::Builder::new().name("folio-clock".into()).spawn(move || {
                // Relaxed: the thread only has to end some time after the flag is set.
                while !stopped.load(Ordering::Relaxed) {
                    clock.now();
                    thread::park_timeout(interval);
                }
            })?;
            Ok(Self { stop, thread: Some(thread) })
        }
    }

    impl Drop for Upkeep {
        fn drop(&mut self) {
            // Relaxed: the thread only has to end some time after the flag is set.
            self.stop.store(true, Ordering::Relaxed);
            if let Some(thread) = self.thread.take() {
                thread.thread().unpark();
                // The thread runs no user code, so it has no panic to tell of.
                let _ended = thread.join();
            }
        }
    }

    impl fmt::Debug for Upkeep {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.debug_struct("Upkeep").finish_non_exhaustive()
        }
    }
}
