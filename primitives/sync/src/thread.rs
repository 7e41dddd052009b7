//! Threads, parking and yielding of the checker in use.

#[cfg(loom)]
use loom::thread as raw;
#[cfg(shuttle)]
use shuttle::thread as raw;
#[cfg(not(any(loom, shuttle)))]
use std::thread as raw;

pub use raw::{Builder, JoinHandle, Thread, ThreadId, current, spawn, yield_now};
pub use std::thread::panicking;

/// Blocks until [`Thread::unpark`] was called for this thread.
///
/// In a callback that a test executor runs, the call is reported as blocking.
#[cfg_attr(loom, track_caller)]
pub fn park() {
    note_blocking("thread::park");
    raw::park();
}

/// Blocks until [`Thread::unpark`] was called for this thread or the time is over.
///
/// In a callback that a test executor runs, the call is reported as blocking. Not offered under loom, which has no time.
#[cfg(not(loom))]
pub fn park_timeout(limit: std::time::Duration) {
    note_blocking("thread::park_timeout");
    raw::park_timeout(limit);
}

/// Blocks for a time.
///
/// In a callback that a test executor runs, the call is reported as blocking. Not offered to models, which have no time.
#[cfg(not(any(loom, shuttle)))]
pub fn sleep(duration: std::time::Duration) {
    note_blocking("thread::sleep");
    raw::sleep(duration);
}

#[inline]
fn note_blocking(what: &'static str) {
    #[cfg(feature = "test-util")]
    crate::test_util::blocking::note(what);
    #[cfg(not(feature = "test-util"))]
    let _ = what;
}
