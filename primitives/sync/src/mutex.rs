//! A mutex that does not poison.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;

#[cfg(loom)]
use loom::sync as raw;
#[cfg(shuttle)]
use shuttle::sync as raw;
#[cfg(not(any(loom, shuttle)))]
use std::sync as raw;

/// A mutex whose lock survives a panic of its holder.
///
/// For the cold paths of the crates; no user code runs while one of theirs is held.
pub struct Mutex<T>(raw::Mutex<T>);

impl<T> Mutex<T> {
    /// Makes an unlocked mutex.
    #[cfg_attr(loom, track_caller)]
    pub fn new(value: T) -> Self {
        Self(raw::Mutex::new(value))
    }

    /// Waits for the lock.
    #[cfg_attr(loom, track_caller)]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mutex").finish_non_exhaustive()
    }
}

/// The held lock of a [`Mutex`]; unlocks when dropped.
pub struct MutexGuard<'a, T>(raw::MutexGuard<'a, T>);

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T: fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
