//! Atomic integers, booleans, pointers and fences of the checker in use.
//!
//! Under loom and shuttle `compare_exchange_weak` can be made to fail as it may on real machines:
//! see `test_util::spurious_every`.

pub use std::sync::atomic::Ordering;

use std::fmt;
use std::ops::Deref;

#[cfg(loom)]
use loom::sync::atomic as raw;
#[cfg(shuttle)]
use shuttle::sync::atomic as raw;
#[cfg(not(any(loom, shuttle)))]
use std::sync::atomic as raw;

/// A fence of the checker in use.
#[inline]
#[cfg_attr(loom, track_caller)]
pub fn fence(order: Ordering) {
    raw::fence(order);
}

/// Whether the injector wants this weak compare-and-set to fail.
#[cfg(any(loom, shuttle))]
fn fails_now() -> bool {
    #[cfg(feature = "test-util")]
    {
        crate::test_util::inject::fails_now()
    }
    #[cfg(not(feature = "test-util"))]
    {
        false
    }
}

macro_rules! switched {
    ($($name:ident $(<$param:ident>)? : $value:ty;)*) => {$(
        /// The atomic of the checker in use.
        ///
        /// In models its weak compare-and-set also fails when the injector says so.
        #[repr(transparent)]
        pub struct $name $(<$param>)? (raw::$name $(<$param>)?);

        impl $(<$param>)? $name $(<$param>)? {
            /// Makes an atomic with this value.
            #[cfg(not(any(loom, shuttle)))]
            #[inline]
            pub const fn new(value: $value) -> Self {
                Self(raw::$name::new(value))
            }

            /// Makes an atomic with this value.
            #[cfg(any(loom, shuttle))]
            #[track_caller]
            pub fn new(value: $value) -> Self {
                Self(raw::$name::new(value))
            }

            /// As the standard library's; fails also when the injector says so.
            ///
            /// # Errors
            /// The value found, when it is another one or the injector intervened.
            #[cfg(any(loom, shuttle))]
            #[track_caller]
            pub fn compare_exchange_weak(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                if fails_now() {
                    return Err(self.0.load(failure));
                }
                self.0.compare_exchange(current, new, success, failure)
            }

            /// As the standard library's, by the weak compare-and-set.
            ///
            /// # Errors
            /// The value found, when `f` returned `None` for it.
            #[cfg(any(loom, shuttle))]
            #[track_caller]
            pub fn fetch_update(
                &self,
                success: Ordering,
                failure: Ordering,
                mut f: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                let mut found = self.0.load(failure);
                while let Some(new) = f(found) {
                    match self.compare_exchange_weak(found, new, success, failure) {
                        Ok(before) => return Ok(before),
                        Err(now) => found = now,
                    }
                }
                Err(found)
            }
        }

        impl $(<$param>)? Default for $name $(<$param>)? {
            fn default() -> Self {
                Self(raw::$name::default())
            }
        }

        impl $(<$param>)? Deref for $name $(<$param>)? {
            type Target = raw::$name $(<$param>)?;

            #[inline]
            fn deref(&self) -> &Self::Target {
                &self.0
            }
        }

        impl $(<$param>)? fmt::Debug for $name $(<$param>)? {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(stringify!($name))
            }
        }
    )*};
}

switched! {
    AtomicBool: bool;
    AtomicI32: i32;
    AtomicI64: i64;
    AtomicU8: u8;
    AtomicU16: u16;
    AtomicU32: u32;
    AtomicU64: u64;
    AtomicUsize: usize;
    AtomicPtr<T>: *mut T;
}
