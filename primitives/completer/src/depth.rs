//! How deep this thread is in completions that run inside one another.

use std::cell::Cell;
use std::marker::PhantomData;

folio_sync::thread_local! {
    /// The completions that this thread is inside of, whichever completers they belong to.
    static DEPTH: Cell<u32> = Cell::new(0);
}

/// How many completions the calling thread is inside of, of all completers together.
///
/// ```
/// assert_eq!(folio_completer::current_depth(), 0);
/// ```
pub fn current_depth() -> u32 {
    DEPTH.try_with(Cell::get).unwrap_or(0)
}

/// One level of depth; lowers the thread's depth when dropped, also while a panic unwinds.
///
/// Stays on the thread that made it.
#[derive(Debug)]
pub(crate) struct Level(PhantomData<*const ()>);

impl Level {
    /// Goes one level deeper, unless the thread is at the limit.
    ///
    /// A thread whose counter is gone, because it exits, counts as being at the limit: an executor can still run the completion.
    #[inline]
    pub(crate) fn enter(limit: u32) -> Option<Self> {
        DEPTH
            .try_with(|depth| {
                let now = depth.get();
                if now < limit {
                    depth.set(now + 1);
                    Some(Self(PhantomData))
                } else {
                    None
                }
            })
            .ok()
            .flatten()
    }
}

impl Drop for Level {
    #[inline]
    fn drop(&mut self) {
        // If the counter is gone meanwhile there is nothing left to lower.
        let _gone = DEPTH.try_with(|depth| depth.set(depth.get() - 1));
    }
}
