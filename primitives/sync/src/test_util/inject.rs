//! The injector of spurious failures.

use std::cell::Cell;

// A checker runs all threads of one execution on one thread of the system, so this is one counter an execution.
std::thread_local! {
    /// Fail every k-th weak compare-and-set (0: none), and how many there have been.
    static STATE: Cell<(u32, u32)> = const { Cell::new((0, 0)) };
}

/// Injects failures until dropped; made by [`spurious_every`].
#[derive(Debug)]
#[must_use = "the injection ends when this is dropped"]
pub struct Spurious(());

/// Makes every `k`-th `compare_exchange_weak` of this execution fail although the value is as expected.
///
/// Called at the beginning of a model's body; counts from there, so that every execution sees the same failures. Under the standard
/// library it does nothing: there the machine decides.
///
/// # Panics
/// When `k` is below 2: with every compare-and-set failing, no loop around one ends.
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
    STATE.set((k, count.wrapping_add(1)));
    (count + 1).is_multiple_of(k)
}
