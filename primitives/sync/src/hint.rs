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
    raw::spin_loop();
}
