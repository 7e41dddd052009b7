//! An allocator for models, which gives no address twice.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr;

/// What is written into memory that waits for the end of its execution.
struct Kept {
    next: *mut Self,
    layout: Layout,
}

// A checker runs all threads of one execution on one thread of the system, so this is one list an execution.
std::thread_local! {
    /// Without a destructor: there until the thread's last free.
    static KEPT: Cell<*mut Kept> = const { Cell::new(ptr::null_mut()) };
}

/// The least alignment of what is kept: a cache line.
const LEAST: usize = 64;

/// The system's allocator, which gives memory that is aligned to 64 bytes or more no second time within an execution of a model.
///
/// A model must do the same again when loom runs a schedule again. A compare-and-set of a word that holds an address does not, if what it
/// expects is an old value: whether that is the new one's address depends on where the allocator happened to put it. Loom then goes on by
/// what it noted for another run, and fails in its own account (`assertion left != right failed` in its `atomic.rs`), or misses schedules.
///
/// There under `--cfg loom` only.
///
/// ```
/// #[global_allocator]
/// static ALLOCATOR: folio_sync::test_util::FreshAddresses = folio_sync::test_util::FreshAddresses;
/// ```
#[derive(Debug)]
pub struct FreshAddresses;

// SAFETY: what `alloc` gives is the system's. What `dealloc` takes is given back to the system later, with the layout that it came with, or
// at once.
unsafe impl GlobalAlloc for FreshAddresses {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's obligation.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        if layout.align() < LEAST || layout.size() < size_of::<Kept>() {
            // SAFETY: the caller's obligation.
            unsafe { System.dealloc(memory, layout) };
            return;
        }
        #[expect(clippy::cast_ptr_alignment, reason = "aligned to a cache line")]
        let kept = memory.cast::<Kept>();
        // SAFETY: the memory is the caller's to free, large enough and aligned.
        unsafe { kept.write(Kept { next: KEPT.get(), layout }) };
        KEPT.set(kept);
    }
}

/// Begins an execution: frees what was kept from the one before.
pub(crate) fn reset() {
    let mut next = KEPT.replace(ptr::null_mut());
    while !next.is_null() {
        // SAFETY: written by `dealloc`, and in the list once.
        let kept = unsafe { next.read() };
        // SAFETY: `dealloc` took it over, with this layout, and it is not in the list any more.
        unsafe { System.dealloc(next.cast(), kept.layout) };
        next = kept.next;
    }
}

#[cfg(all(test, loom))]
mod tests {
    use super::*;

    /// Allocates and frees as often; tells how many addresses there were.
    fn addresses(layout: Layout) -> usize {
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..100 {
            // SAFETY: the layout has a size.
            let memory = unsafe { FreshAddresses.alloc(layout) };
            seen.insert(memory.addr());
            // SAFETY: allocated above, with this layout.
            unsafe { FreshAddresses.dealloc(memory, layout) };
        }
        seen.len()
    }

    #[test]
    fn an_address_comes_back_in_another_execution_alone() {
        let line = Layout::from_size_align(1024, LEAST).expect("a layout");
        assert_eq!(addresses(line), 100);
        reset();
        assert_eq!(KEPT.get(), ptr::null_mut());
        let less = Layout::from_size_align(1024, 8).expect("a layout");
        assert!(addresses(less) < 100, "what is aligned to less comes back");
        reset();
    }
}
