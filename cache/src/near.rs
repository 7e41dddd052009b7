//! Telling the processor what will be read soon.

/// Has the cache line of this address fetched. Any address will do: nothing is read.
#[inline]
pub(crate) fn fetch<T>(address: *const T) {
    #[cfg(all(target_arch = "x86_64", not(any(loom, shuttle))))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a hint reads nothing, whatever the address; every x86-64 processor has it.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(any(loom, shuttle)))))]
    let _ = address;
}
