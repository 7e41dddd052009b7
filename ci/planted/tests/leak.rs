//! A leak on purpose.

use std::hint::black_box;

/// Passes without a sanitizer; with one the process must fail after it.
#[test]
fn a_box_is_forgotten() {
    black_box(Box::leak(Box::new([7_u64; 100])));
}
