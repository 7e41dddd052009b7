//! Threads, parking and yielding of the checker in use.

use std::fmt;

#[cfg(loom)]
use loom::thread as raw;
#[cfg(shuttle)]
use shuttle::thread as raw;
#[cfg(not(any(loom, shuttle)))]
use std::thread as raw;

pub use raw::{Thread, ThreadId};
pub use std::thread::panicking;

/// The calling thread, for others to unpark it.
#[cfg_attr(loom, track_caller)]
pub fn current() -> Thread {
    raw::current()
}

/// Lets other threads run.
#[cfg_attr(loom, track_caller)]
pub fn yield_now() {
    #[cfg(all(feature = "test-util", not(any(loom, shuttle))))]
    crate::test_util::idle::note_yield();
    raw::yield_now();
}

/// Starts a thread.
///
/// # Panics
/// When the system starts none; [`Builder::spawn`] returns the error.
#[cfg_attr(loom, track_caller)]
pub fn spawn<F, T>(work: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    JoinHandle(raw::spawn(work))
}

/// Starts a thread that has a name or a stack of another size.
pub struct Builder(raw::Builder);

impl Builder {
    /// A builder of a thread without a name, with the usual stack.
    pub fn new() -> Self {
        Self(raw::Builder::new())
    }

    /// Names the thread.
    #[must_use]
    pub fn name(self, name: String) -> Self {
        Self(self.0.name(name))
    }

    /// Sets the size of its stack.
    #[must_use]
    pub fn stack_size(self, bytes: usize) -> Self {
        Self(self.0.stack_size(bytes))
    }

    /// Starts the thread.
    ///
    /// # Errors
    /// The system's, when it starts none.
    ///
    /// # Panics
    /// When the name contains a zero byte.
    #[cfg_attr(loom, track_caller)]
    pub fn spawn<F, T>(self, work: F) -> std::io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        self.0.spawn(work).map(JoinHandle)
    }
}

impl Default for Builder {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").finish_non_exhaustive()
    }
}

/// A thread that was started, to wait for its end.
pub struct JoinHandle<T>(raw::JoinHandle<T>);

impl<T> JoinHandle<T> {
    /// Waits for the end of the thread and returns what it returned.
    ///
    /// In a callback that a test executor runs, the call is reported as blocking.
    ///
    /// # Errors
    /// The payload of the panic that ended the thread.
    #[cfg_attr(loom, track_caller)]
    pub fn join(self) -> std::thread::Result<T> {
        note_blocking("thread::join");
        self.0.join()
    }

    /// The thread itself, to unpark it.
    pub fn thread(&self) -> &Thread {
        self.0.thread()
    }

    /// Whether the thread has ended. Not offered to models.
    #[cfg(not(any(loom, shuttle)))]
    pub fn is_finished(&self) -> bool {
        self.0.is_finished()
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle").finish_non_exhaustive()
    }
}

/// Blocks until [`Thread::unpark`] was called for this thread.
///
/// It may also return without reason: callers look again. In a callback that a test executor runs, the call is reported as blocking.
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
