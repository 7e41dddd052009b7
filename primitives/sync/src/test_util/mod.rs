//! What tests and models of concurrent code need: hand-stepped executors, clocks and timers, pause points, tracked payloads.
//!
//! Public, so that whoever builds on these crates can test in the same way; behind the feature `test-util`, which belongs into
//! development dependencies only.

#[cfg(not(any(loom, shuttle)))]
pub mod alloc;
pub(crate) mod blocking;
mod executor;
pub(crate) mod inject;
#[cfg(loom)]
mod model;
#[cfg(not(any(loom, shuttle)))]
pub mod pause;
#[cfg(shuttle)]
mod shuttle;
mod tracked;

pub use blocking::{Blocked, watch_for_blocking};
pub use executor::ManualExecutor;
pub use inject::{Spurious, spurious_every};
#[cfg(loom)]
pub use model::{Model, model};
#[cfg(shuttle)]
pub use shuttle::shuttle_check;
pub use tracked::Tracked;
