//! What this thread is doing for which batching executor.

use std::cell::Cell;
use std::ptr;

folio_sync::thread_local! {
    /// The innermost frame of this thread; null outside of all.
    static INNERMOST: Cell<*const Frame> = Cell::new(ptr::null());
}

/// Marks the thread as running or giving back the tasks of one executor, for as long as it stays on the stack.
///
/// By it a delegate that runs jobs at once does not recurse, and a reject handler that submits again is refused.
pub(crate) struct Frame {
    executor: *const (),
    outer: *const Frame,
    /// Tasks are being given back: a submission from inside is refused.
    rejecting: Cell<bool>,
    /// A batch was begun from inside the frame: the frame's owner runs it.
    again: Cell<bool>,
}

impl Frame {
    /// Runs `body` inside a frame of this executor.
    ///
    /// The frame is unlinked when `body` unwinds too, though its callers contain all user code.
    pub(crate) fn within<R>(executor: *const (), rejecting: bool, body: impl FnOnce(&Self) -> R) -> R {
        struct Leave(*const Frame);

        impl Drop for Leave {
            fn drop(&mut self) {
                let _gone = INNERMOST.try_with(|innermost| innermost.set(self.0));
            }
        }

        let outer = INNERMOST.try_with(Cell::get).unwrap_or(ptr::null());
        let frame = Self { executor, outer, rejecting: Cell::new(rejecting), again: Cell::new(false) };
        let leave = Leave(outer);
        let _gone = INNERMOST.try_with(|innermost| innermost.set(&raw const frame));
        let result = body(&frame);
        drop(leave);
        result
    }

    /// Calls `f` with each frame of this thread that belongs to the executor, innermost first, until one says stop.
    fn find(executor: *const (), mut f: impl FnMut(&Self) -> bool) -> bool {
        // A thread that exits has no frames: it is not inside anything.
        let mut frame = INNERMOST.try_with(Cell::get).unwrap_or(ptr::null());
        while !frame.is_null() {
            // SAFETY: a frame is on this thread's stack as long as it is linked: `within` unlinks it before it returns or unwinds.
            let here = unsafe { &*frame };
            if here.executor == executor && f(here) {
                return true;
            }
            frame = here.outer;
        }
        false
    }

    /// Leaves a batch to the frame of this executor that is on this thread's stack, if there is one.
    pub(crate) fn leave_to_outer(executor: *const ()) -> bool {
        Self::find(executor, |frame| {
            frame.again.set(true);
            true
        })
    }

    /// Whether this thread is giving back tasks of the executor.
    pub(crate) fn is_rejecting(executor: *const ()) -> bool {
        Self::find(executor, |frame| frame.rejecting.get())
    }

    /// Whether this thread is inside a batch or a giving back of the executor.
    pub(crate) fn is_inside(executor: *const ()) -> bool {
        Self::find(executor, |_| true)
    }

    /// Says whether tasks are given back from here on.
    pub(crate) fn set_rejecting(&self, rejecting: bool) -> bool {
        self.rejecting.replace(rejecting)
    }

    /// Whether a batch was left to this frame since the last call.
    pub(crate) fn take_again(&self) -> bool {
        self.again.take()
    }
}
