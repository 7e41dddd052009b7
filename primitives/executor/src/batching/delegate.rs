//! The delegate of an executor, until the executor is shut.
//!
//! # Guarantees
//! *Progress*: using it is lock-free, as far as the delegate is. *Memory*: nothing is allocated.
//!
//! # Protocol
//! One word counts those who are inside and has two flags. A user comes in by adding one, and goes without the delegate if `GONE` is
//! set; letting go sets it. Whoever finds nobody inside under `GONE`, as it sets the flag or as it leaves, tries to set `TAKEN` by
//! compare-and-set from just `GONE`; the one that succeeds takes the delegate and drops it. If it fails somebody has come in, who will
//! try when it leaves, or it is taken already.
//!
//! # Orderings
//! | operation | ordering | pairs with | why |
//! |---|---|---|---|
//! | come in: `fetch_add` | Relaxed | nothing | the delegate is there from the beginning, and stays while the flag is not set |
//! | leave: `fetch_sub` | Release | take | what every user did comes before the drop |
//! | let go: `fetch_or` | Relaxed | nothing | all changes of the word are read-modify-writes of one word |
//! | take: compare-and-set | Acquire, failing Relaxed | leave | what every user did comes before the drop |
//!
//! # Limits
//! A delegate that is being used when it is let go of lives until that use ends.

use folio_sync::atomic::{AtomicUsize, Ordering};
use folio_sync::cell::UnsafeCell;
use folio_sync::{SerialExecutor, unwind};

/// Set in the word when the delegate is let go of.
const GONE: usize = 1 << (usize::BITS - 1);
/// Set in the word when somebody takes the delegate to drop it.
const TAKEN: usize = 1 << (usize::BITS - 2);

/// See the [module](self).
pub(super) struct Delegate {
    /// The flags and the number of those who are inside.
    word: AtomicUsize,
    /// Read by users that came in before `GONE`; taken by who set `TAKEN`.
    executor: UnsafeCell<Option<Box<dyn SerialExecutor>>>,
}

// SAFETY: the box is shared among users, hence the executor is `Sync` by its trait; it is taken by one thread, when no other can be inside.
unsafe impl Sync for Delegate {}

impl Delegate {
    pub(super) fn new(executor: impl SerialExecutor + 'static) -> Self {
        Self { word: AtomicUsize::new(0), executor: UnsafeCell::new(Some(Box::new(executor))) }
    }

    /// Calls `f` with the delegate, unless it was let go of.
    ///
    /// # Errors
    /// What `f` panicked with. The panic of the delegate's own destructor, if this use was the last, goes to `dropped`.
    pub(super) fn using<R>(
        &self,
        f: impl FnOnce(&dyn SerialExecutor) -> R,
        dropped: impl FnOnce(unwind::Payload),
    ) -> Option<Result<R, unwind::Payload>> {
        // Relaxed: the delegate is there from the beginning; without `GONE` it stays until this user leaves.
        let before = self.word.fetch_add(1, Ordering::Relaxed);
        let result = if before & GONE == 0 {
            self.executor.with(|executor| {
                // SAFETY: this user is counted and came before `GONE`: nobody takes the delegate before it leaves.
                let executor = unsafe { &*executor };
                executor.as_deref().map(|executor| unwind::catch(|| f(executor)))
            })
        } else {
            None
        };
        // Release: this use comes before the drop; pairs with take's Acquire.
        if self.word.fetch_sub(1, Ordering::Release) == GONE | 1 {
            self.try_to_drop(dropped);
        }
        result
    }

    /// Has the delegate dropped when nobody uses it; the panic of its destructor, if it is dropped here, goes to `dropped`.
    pub(super) fn let_go(&self, dropped: impl FnOnce(unwind::Payload)) {
        // Relaxed: whoever comes in later changes the same word, and sees the flag.
        if self.word.fetch_or(GONE, Ordering::Relaxed) == 0 {
            self.try_to_drop(dropped);
        }
    }

    fn try_to_drop(&self, dropped: impl FnOnce(unwind::Payload)) {
        // Acquire: every use comes before the drop; pairs with the Release of each that left. Relaxed on failure: it is left alone.
        if self.word.compare_exchange(GONE, GONE | TAKEN, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return;
        }
        let executor = self.executor.with_mut(|executor| {
            // SAFETY: `TAKEN` is set once, when nobody was inside, and under `GONE` nobody comes to the delegate any more.
            unsafe { (*executor).take() }
        });
        if let Err(payload) = unwind::catch(|| drop(executor)) {
            dropped(payload);
        }
    }
}
