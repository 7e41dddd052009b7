//! A read of freed memory on purpose.

use std::hint::black_box;

/// Reads a number that is there or is not; with a sanitizer the process must fail here.
#[test]
fn a_freed_box_is_read() {
    let pointer = Box::into_raw(Box::new(7_u64));
    // SAFETY: from `into_raw` above.
    drop(black_box(unsafe { Box::from_raw(pointer) }));
    // SAFETY: there is none; that is the point.
    black_box(unsafe { black_box(pointer).read_volatile() });
}
