//! A payload that the checker watches.

use crate::cell::UnsafeCell;

/// A value that loom watches: a leak, a second drop and an unsynchronised access fail the model.
///
/// Without loom it is the bare value.
#[derive(Debug)]
pub struct Tracked<T> {
    /// Read by every `get`, written by drop: loom reports those that do not happen one before the other.
    access: UnsafeCell<()>,
    #[cfg(loom)]
    value: loom::alloc::Track<T>,
    #[cfg(not(loom))]
    value: T,
}

impl<T> Tracked<T> {
    /// Begins to track `value`.
    #[cfg_attr(loom, track_caller)]
    pub fn new(value: T) -> Self {
        #[cfg(loom)]
        let value = loom::alloc::Track::new(value);
        Self { access: UnsafeCell::new(()), value }
    }

    /// Reads the value.
    #[cfg_attr(loom, track_caller)]
    pub fn get(&self) -> &T {
        self.access.with(|_| ());
        #[cfg(loom)]
        {
            self.value.get_ref()
        }
        #[cfg(not(loom))]
        {
            &self.value
        }
    }
}

impl<T> Drop for Tracked<T> {
    fn drop(&mut self) {
        self.access.with_mut(|_| ());
    }
}

// SAFETY: the cell holds `()`: there is nothing in it that two threads could race for. What is shared is the value.
unsafe impl<T: Sync> Sync for Tracked<T> {}
