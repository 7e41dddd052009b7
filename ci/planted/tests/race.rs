//! A data race on purpose.

use std::cell::UnsafeCell;
use std::sync::Arc;
use std::thread;

/// A counter that claims to be shareable and is not.
struct Racy(UnsafeCell<u64>);

// SAFETY: there is none; that is the point.
unsafe impl Sync for Racy {}

impl Racy {
    #[inline(never)]
    fn bump(&self) {
        // SAFETY: there is none; two threads come here at once.
        unsafe { *self.0.get() += 1 };
    }
}

/// Passes without a sanitizer; with one it must fail.
#[test]
fn two_threads_write_one_word() {
    let racy = Arc::new(Racy(UnsafeCell::new(0)));
    let other = Arc::clone(&racy);
    let thread = thread::spawn(move || (0..1000).for_each(|_| other.bump()));
    (0..1000).for_each(|_| racy.bump());
    thread.join().unwrap();
}
