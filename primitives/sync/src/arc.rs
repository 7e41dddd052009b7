//! `Arc`, with the coercion to trait objects that loom's lacks.

#[cfg(loom)]
pub use loom::sync::Arc;
/// A shared owner: `std::sync::Arc`, or loom's twin of it.
///
/// Loom's has no `Weak`, no const constructor and no coercion to `Arc<dyn Trait>`; for the last there is [`arc_dyn!`](crate::arc_dyn).
#[cfg(not(any(loom, tsan)))]
pub use std::sync::Arc;
#[cfg(tsan)]
pub use visible::Arc;

/// Takes over a standard `Arc` that has no other owner yet.
///
/// # Panics
/// Under loom, when `arc` has another owner.
#[cfg_attr(loom, track_caller)]
#[cfg_attr(not(loom), inline)]
pub fn arc_from_std<T: ?Sized>(arc: crate::__private::StdArc<T>) -> Arc<T> {
    #[cfg(any(loom, tsan))]
    {
        Arc::from_std(arc)
    }
    #[cfg(not(any(loom, tsan)))]
    {
        arc
    }
}

/// An `Arc` whose last drop `ThreadSanitizer` can follow: the standard one ends in a fence, which it does not see.
#[cfg(tsan)]
mod visible {
    use std::fmt;
    use std::mem::ManuallyDrop;
    use std::ops::Deref;

    use crate::__private::StdArc;
    use crate::atomic::{AtomicUsize, Ordering};

    /// One standard `Arc`, shared by owners that are counted beside it.
    pub struct Arc<T: ?Sized> {
        /// The same standard `Arc` in every owner; its own count stays at one.
        value: ManuallyDrop<StdArc<T>>,
        /// The number of owners. Leaked with the last: this is a build for tests.
        owners: &'static AtomicUsize,
    }

    impl<T> Arc<T> {
        /// As the standard one's.
        pub fn new(value: T) -> Self {
            Self::from_std(StdArc::new(value))
        }
    }

    impl<T: ?Sized> Arc<T> {
        pub(super) fn from_std(value: StdArc<T>) -> Self {
            let owners = Box::leak(Box::new(AtomicUsize::new(1)));
            Self { value: ManuallyDrop::new(value), owners }
        }

        /// As the standard one's.
        pub fn ptr_eq(this: &Self, other: &Self) -> bool {
            StdArc::ptr_eq(&this.value, &other.value)
        }

        /// As the standard one's.
        pub fn downgrade(this: &Self) -> Weak<T> {
            Weak { value: ManuallyDrop::new(StdArc::downgrade(&this.value)), owners: this.owners }
        }

        /// As the standard one's.
        pub fn as_ptr(this: &Self) -> *const T {
            StdArc::as_ptr(&this.value)
        }

        /// As the standard one's.
        pub fn strong_count(this: &Self) -> usize {
            // Relaxed: a number that publishes nothing.
            this.owners.load(Ordering::Relaxed)
        }
    }

    /// As the standard one; leaked, so that its last drop hides nothing either.
    pub struct Weak<T: ?Sized> {
        value: ManuallyDrop<std::sync::Weak<T>>,
        owners: &'static AtomicUsize,
    }

    impl<T: ?Sized> Weak<T> {
        /// As the standard one's.
        pub fn upgrade(&self) -> Option<Arc<T>> {
            // Acquire: what was done with the value before; Relaxed on failure: it is gone or tried again.
            let one_more = |owners: usize| (owners > 0).then_some(owners + 1);
            self.owners.fetch_update(Ordering::Acquire, Ordering::Relaxed, one_more).ok()?;
            // This owner is counted, so the one standard `Arc` is there.
            let value = self.value.upgrade()?;
            // SAFETY: a copy of the one standard `Arc`, whose own count goes back to one as `value` is dropped.
            let copy = unsafe { std::ptr::read(&raw const value) };
            Some(Arc { value: ManuallyDrop::new(copy), owners: self.owners })
        }
    }

    impl<T: ?Sized> fmt::Debug for Weak<T> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("(Weak)")
        }
    }

    impl<T: ?Sized> Clone for Arc<T> {
        fn clone(&self) -> Self {
            // Relaxed: a number that publishes nothing; this owner keeps it above zero.
            self.owners.fetch_add(1, Ordering::Relaxed);
            // SAFETY: the copies of the standard `Arc` stand for one owner of it, which only the last of these drops.
            let value = unsafe { std::ptr::read(&raw const self.value) };
            Self { value, owners: self.owners }
        }
    }

    impl<T: ?Sized> Drop for Arc<T> {
        fn drop(&mut self) {
            // Release: what this owner did comes before the end of the value.
            if self.owners.fetch_sub(1, Ordering::Release) == 1 {
                // Acquire: pairs with the Release of every other owner. A load, since a fence is not seen.
                self.owners.load(Ordering::Acquire);
                // SAFETY: this is the last owner, and it is dropped once.
                unsafe { ManuallyDrop::drop(&mut self.value) };
            }
        }
    }

    impl<T: ?Sized> Deref for Arc<T> {
        type Target = T;

        fn deref(&self) -> &T {
            &self.value
        }
    }

    impl<T: Default> Default for Arc<T> {
        fn default() -> Self {
            Self::new(T::default())
        }
    }

    impl<T: fmt::Debug + ?Sized> fmt::Debug for Arc<T> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            (**self).fmt(f)
        }
    }
}

/// Makes an `Arc<dyn Trait>` of a value: `arc_dyn!(value => dyn Trait)`.
///
/// ```
/// use folio_sync::{Arc, arc_dyn};
///
/// let shown: Arc<dyn std::fmt::Debug + Send + Sync> = arc_dyn!(7 => dyn std::fmt::Debug + Send + Sync);
/// assert_eq!(format!("{shown:?}"), "7");
/// ```
#[macro_export]
macro_rules! arc_dyn {
    ($value:expr => $object:ty) => {{
        #[allow(clippy::disallowed_types, reason = "taken over by the switch's own Arc at once")]
        let arc: $crate::__private::StdArc<$object> = $crate::__private::StdArc::new($value);
        $crate::arc_from_std(arc)
    }};
}
