//! The injector of spurious failures.

use std::cell::Cell;

// A checker runs all threads of one execution on one thread of the system, so this is one counter an execution.
std::thread_local! {
    /// Fail every k-th weak compare-and-set (0: none), and how many there have been since the last that failed.
    static STATE: Cell<(u32, u32)> = const { Cell::new((0, 0)) };
}

/// Injects failures until dropped; made by [`spurious_every`].
#[derive(Debug)]
#[must_use = "the injection ends when this is dropped"]
pub struct Spurious(());

/// Makes every `k`-th `compare_exchange_weak` of this execution fail although the value is as expected.
///
/// Called at the beginning of a model's body, kept to its end. The counter begins at zero in every execution and counts those of all
/// threads, in the order of the schedule: a schedule that is run again sees the same failures. The failed call still loads the value
/// with its failure ordering. Under the standard library it does nothing: there the machine decides.
///
/// A loop of `n` weak compare-and-sets a round may never end when `k` divides `n`: it meets the failure at the same place each time.
///
/// # Panics
/// When `k` is below 2: with every compare-and-set failing, no loop around one ends.
///
/// ```
/// use folio_sync::atomic::{AtomicU64, Ordering};
/// use folio_sync::test_util::spurious_every;
///
/// /// The body of a model, written with the loop that a weak compare-and-set needs.
/// fn body() {
///     let _spurious = spurious_every(2);
///     let count = AtomicU64::new(0);
///     let mut seen = count.load(Ordering::Relaxed);
///     while let Err(now) = count.compare_exchange_weak(seen, seen + 1, Ordering::Relaxed, Ordering::Relaxed) {
///         seen = now;
///     }
///     assert_eq!(count.load(Ordering::Relaxed), 1);
/// }
/// # #[cfg(not(any(loom, shuttle)))]
/// body();
/// ```
pub fn spurious_every(k: u32) -> Spurious {
    assert!(k >= 2, "a loop around a compare-and-set that always fails never ends");
    STATE.set((k, 0));
    Spurious(())
}

impl Drop for Spurious {
    fn drop(&mut self) {
        STATE.set((0, 0));
    }
}

/// Ends what an execution that failed may have left behind.
#[cfg(any(loom, shuttle))]
pub(crate) fn reset() {
    STATE.set((0, 0));
}

/// Counts one weak compare-and-set and says whether it must fail.
#[cfg_attr(not(any(loom, shuttle)), allow(dead_code, reason = "only the checkers' atomics ask"))]
pub(crate) fn fails_now() -> bool {
    let (k, count) = STATE.get();
    if k == 0 {
        return false;
    }
    let count = if count + 1 == k { 0 } else { count + 1 };
    STATE.set((k, count));
    count == 0
}
