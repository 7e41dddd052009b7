//! Hints for loops that wait a bounded moment.

#[cfg(loom)]
use loom::hint as raw;
#[cfg(shuttle)]
use shuttle::hint as raw;
#[cfg(not(any(loom, shuttle)))]
use std::hint as raw;

/// Tells the processor, or the checker, that this thread waits for another one.
#[inline]
pub fn spin_loop() {
    #[cfg(all(feature = "test-util", not(any(loom, shuttle))))]
    crate::test_util::idle::note_spin();
    raw::spin_loop();
}

/// Waits a little longer at each call, for a loop whose compare-and-set failed.
///
/// Who fails leaves the word to the other for a while, instead of taking its cache line back at once. The n-th call gives 2^n spin hints,
/// at most 64. In models it does nothing: there is no time to wait for.
#[derive(Debug, Default)]
pub struct Backoff {
    step: u32,
}

impl Backoff {
    /// A loop that has not failed yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Waits, after a failure.
    #[inline]
    pub fn wait(&mut self) {
        if cfg!(any(loom, shuttle)) {
            return;
        }
        for _ in 0..1_u32 << self.step {
            raw::spin_loop();
        }
        self.step = (self.step + 1).min(6);
    }
}
