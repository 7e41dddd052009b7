//! Counting how often a thread gave others a chance.

use std::cell::Cell;

/// How often a thread hinted that it spins, and yielded, through this crate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Idled {
    /// Calls of [`hint::spin_loop`](crate::hint::spin_loop).
    pub spins: u64,
    /// Calls of [`thread::yield_now`](crate::thread::yield_now).
    pub yields: u64,
}

std::thread_local! {
    static IDLED: Cell<Idled> = const { Cell::new(Idled { spins: 0, yields: 0 }) };
}

/// What this thread has spun and yielded since it began. Not offered to models, which run all threads on one.
///
/// ```
/// use folio_sync::test_util::idled;
/// use folio_sync::{hint, thread};
///
/// let before = idled();
/// hint::spin_loop();
/// thread::yield_now();
/// assert_eq!((idled().spins - before.spins, idled().yields - before.yields), (1, 1));
/// ```
pub fn idled() -> Idled {
    IDLED.get()
}

pub(crate) fn note_spin() {
    // Thread-locals that need no destructor are there until the thread is gone.
    IDLED.with(|idled| idled.set(Idled { spins: idled.get().spins + 1, ..idled.get() }));
}

pub(crate) fn note_yield() {
    IDLED.with(|idled| idled.set(Idled { yields: idled.get().yields + 1, ..idled.get() }));
}
