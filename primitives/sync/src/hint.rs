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
