//! `UnsafeCell` with closure access, by which loom sees every read and write.

#[cfg(loom)]
pub use loom::cell::UnsafeCell;
#[cfg(not(loom))]
pub use plain::UnsafeCell;

#[cfg(not(loom))]
mod plain {
    /// The standard cell, reached through closures as loom's is.
    #[derive(Debug, Default)]
    #[repr(transparent)]
    pub struct UnsafeCell<T: ?Sized>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        /// Makes a cell that holds `value`.
        #[inline]
        pub const fn new(value: T) -> Self {
            Self(std::cell::UnsafeCell::new(value))
        }

        /// Takes the value out.
        #[inline]
        pub fn into_inner(self) -> T {
            self.0.into_inner()
        }
    }

    impl<T: ?Sized> UnsafeCell<T> {
        /// Calls `f` with a pointer for reading; loom reports a write that overlaps.
        #[inline]
        pub fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
            f(self.0.get().cast_const())
        }

        /// Calls `f` with a pointer for writing; loom reports any access that overlaps.
        #[inline]
        pub fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
            f(self.0.get())
        }
    }
}
