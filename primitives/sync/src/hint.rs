//! Hints for loops that wait a bounded moment.

#[cfg(loom)]
pub use loom::hint::spin_loop;
#[cfg(shuttle)]
pub use shuttle::hint::spin_loop;
#[cfg(not(any(loom, shuttle)))]
pub use std::hint::spin_loop;
