//! A leak on purpose.

use std::hint::black_box;

/// Passes without a sanitizer; with one the process must fail after it.
///
/// Many boxes: what was left in a register or on a stack may still point to the last of them.
#[test]
fn boxes_are_forgotten() {
    for content in 0..100 {
        black_box(Box::leak(Box::new([content; 100])));
    }
}
