//! Reporting callbacks that block.

use std::cell::RefCell;

/// A blocking call that was made inside a callback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// The blocking function, or that the callback did not return within its limit.
    pub call: &'static str,
}

impl Blocked {
    /// The [`call`](Self::call) of a callback that had not returned after its limit.
    pub const OVERDUE: &'static str = "not returned within the limit";
}

std::thread_local! {
    /// The reports of the watch that is open on this thread, if one is.
    static REPORTS: RefCell<Option<Vec<Blocked>>> = const { RefCell::new(None) };
}

/// Runs `callback` and returns with its result each blocking call of [`thread`](crate::thread) that it made.
///
/// Park, timed park, sleep and join of this crate are seen when they are called, whether or not they then had to wait; a lock is not.
/// What blocks in other ways, such as a channel of the standard library, only a time limit sees: see `ManualExecutor::report_after`.
/// Watches nest: the inner one has what happened inside it. In models nothing is reported.
///
/// ```
/// use folio_sync::test_util::watch_for_blocking;
/// use folio_sync::thread;
///
/// # #[cfg(not(any(loom, shuttle)))] {
/// let (_, blocked) = watch_for_blocking(|| thread::sleep(std::time::Duration::ZERO));
/// assert_eq!(blocked[0].call, "thread::sleep");
/// # }
/// ```
pub fn watch_for_blocking<R>(callback: impl FnOnce() -> R) -> (R, Vec<Blocked>) {
    struct Restore(Option<Vec<Blocked>>);

    impl Drop for Restore {
        fn drop(&mut self) {
            REPORTS.with_borrow_mut(|reports| *reports = self.0.take());
        }
    }

    let outer = REPORTS.with_borrow_mut(|reports| reports.replace(Vec::new()));
    let restore = Restore(outer);
    let result = callback();
    let reported = REPORTS.with_borrow_mut(Option::take).unwrap_or_default();
    drop(restore);
    (result, reported)
}

/// Notes a blocking call, if this thread is inside a watched callback.
pub(crate) fn note(call: &'static str) {
    // A checker runs all its threads on one: what one of them calls says nothing about the callback of another.
    if cfg!(any(loom, shuttle)) {
        return;
    }
    // Thread-locals may be gone while the thread exits: then nothing is watched.
    let _gone = REPORTS.try_with(|reports| {
        if let Some(reports) = reports.borrow_mut().as_mut() {
            reports.push(Blocked { call });
        }
    });
}
