//! A mutex that does not poison.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{PoisonError, TryLockError};

#[cfg(loom)]
use loom::sync as raw;
#[cfg(shuttle)]
use shuttle::sync as raw;
#[cfg(not(any(loom, shuttle)))]
use std::sync as raw;

/// A mutex whose lock survives a panic of its holder.
///
/// For the cold paths of the crates; no user code runs while one of theirs is held.
///
/// ```
/// use folio_sync::{Mutex, unwind};
///
/// # #[cfg(not(any(loom, shuttle)))] {
/// let mutex = Mutex::new(1);
/// let panicked = unwind::catch(|| {
///     *mutex.lock() += 1;
///     let _held = mutex.lock();
///     panic!("while it is held");
/// });
/// assert!(panicked.is_err());
/// assert_eq!(*mutex.lock(), 2);
/// # }
/// ```
pub struct Mutex<T> {
    /// What `ThreadSanitizer` sees of the order in which the lock is held: it does not see into the standard library's.
    #[cfg(tsan)]
    order: crate::atomic::AtomicBool,
    raw: raw::Mutex<T>,
}

impl<T> Mutex<T> {
    /// Makes an unlocked mutex.
    #[cfg_attr(loom, track_caller)]
    pub fn new(value: T) -> Self {
        Self {
            #[cfg(tsan)]
            order: crate::atomic::AtomicBool::new(false),
            raw: raw::Mutex::new(value),
        }
    }

    /// Takes the lock if it is free.
    #[cfg_attr(loom, track_caller)]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let raw = match self.raw.try_lock() {
            Ok(raw) => raw,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(self.guard(raw))
    }

    /// Waits for the lock.
    #[cfg_attr(loom, track_caller)]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.guard(self.raw.lock().unwrap_or_else(PoisonError::into_inner))
    }

    #[cfg_attr(not(tsan), allow(clippy::unused_self, reason = "only what ThreadSanitizer sees needs it"))]
    fn guard<'a>(&'a self, raw: raw::MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        // Acquire: what the last holder did is visible; pairs with the Release of `Released`.
        #[cfg(tsan)]
        self.order.load(crate::atomic::Ordering::Acquire);
        MutexGuard {
            #[cfg(tsan)]
            _released: Released(&self.order),
            raw,
        }
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
pub struct MutexGuard<'a, T> {
    /// Dropped before the lock is.
    #[cfg(tsan)]
    _released: Released<'a>,
    raw: raw::MutexGuard<'a, T>,
}

#[cfg(tsan)]
struct Released<'a>(&'a crate::atomic::AtomicBool);

#[cfg(tsan)]
impl Drop for Released<'_> {
    fn drop(&mut self) {
        // Release: publishes what this holder did; pairs with the Acquire of `lock`.
        self.0.store(true, crate::atomic::Ordering::Release);
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.raw
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.raw
    }
}

impl<T: fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
