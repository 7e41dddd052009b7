//! Atomic integers, booleans, pointers and fences of the checker in use.
//!
//! Under loom and shuttle `compare_exchange_weak` can be made to fail as it may on real machines:
//! see [`test_util::spurious_every`](crate::test_util).

pub use std::sync::atomic::Ordering;

#[cfg(not(any(loom, shuttle)))]
pub use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicI64, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize,
    fence,
};

#[cfg(loom)]
pub use loom::sync::atomic::fence;
#[cfg(shuttle)]
pub use shuttle::sync::atomic::fence;

#[cfg(any(loom, shuttle))]
pub use modelled::*;

#[cfg(any(loom, shuttle))]
mod modelled {
    use std::fmt;
    use std::ops::Deref;

    use super::Ordering;

    #[cfg(loom)]
    use loom::sync::atomic as raw;
    #[cfg(shuttle)]
    use shuttle::sync::atomic as raw;

    /// Whether the injector wants this weak compare-and-set to fail.
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

    macro_rules! modelled {
        ($($name:ident $(<$param:ident>)? : $value:ty;)*) => {$(
            /// The checker's atomic, whose weak compare-and-set also fails when the injector says so.
            pub struct $name $(<$param>)? (raw::$name $(<$param>)?);

            impl $(<$param>)? $name $(<$param>)? {
                /// Makes an atomic with this value.
                #[track_caller]
                pub fn new(value: $value) -> Self {
                    Self(raw::$name::new(value))
                }

                /// As the standard library's; fails also when the injector says so.
                ///
                /// # Errors
                /// The value found, when it is another one or the injector intervened.
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
            }

            impl $(<$param>)? Deref for $name $(<$param>)? {
                type Target = raw::$name $(<$param>)?;

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

    modelled! {
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
}
