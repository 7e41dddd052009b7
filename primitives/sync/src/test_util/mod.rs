//! What tests and models of concurrent code need.
//!
//! Hand-stepped executors, clocks and timers, pause points, tracked payloads, the runners of models, a counting allocator.
//! Public, so that whoever builds on these crates can test in the same way; behind the feature `test-util`, which belongs into
//! development dependencies only. The counting allocator alone is behind `count-allocations`.
//!
//! `model`, `Model` and `FreshAddresses` are there under `--cfg loom`, `shuttle_check` under `--cfg shuttle`, `alloc` and `pause` without either: the
//! [crate's page](crate#models-of-your-own) tells how to run models.

#[cfg(all(feature = "test-util", any(loom, all(doc, not(doctest)))))]
mod addresses;
#[cfg(not(any(loom, shuttle)))]
pub mod alloc;
#[cfg(feature = "test-util")]
pub(crate) mod blocking;
#[cfg(feature = "test-util")]
mod clock;
#[cfg(feature = "test-util")]
mod executor;
#[cfg(all(feature = "test-util", not(any(loom, shuttle))))]
pub(crate) mod idle;
#[cfg(feature = "test-util")]
pub(crate) mod inject;
// Documented without a checker too, but not tested: its examples need one.
#[cfg(all(feature = "test-util", any(loom, all(doc, not(doctest)))))]
mod model;
#[cfg(all(feature = "test-util", not(any(loom, shuttle))))]
pub mod pause;
#[cfg(all(feature = "test-util", any(shuttle, all(doc, not(doctest)))))]
mod shuttle;
#[cfg(feature = "test-util")]
mod timers;
#[cfg(feature = "test-util")]
mod tracked;
#[cfg(all(feature = "test-util", not(any(loom, shuttle))))]
mod watchdog;

#[cfg(all(feature = "test-util", any(loom, all(doc, not(doctest)))))]
#[cfg_attr(docsrs, doc(cfg(loom)))]
pub use addresses::FreshAddresses;
#[cfg(feature = "test-util")]
pub use blocking::{Blocked, watch_for_blocking};
#[cfg(feature = "test-util")]
pub use clock::ManualClock;
#[cfg(feature = "test-util")]
pub use executor::ManualExecutor;
#[cfg(all(feature = "test-util", not(any(loom, shuttle))))]
pub use idle::{Idled, idled};
#[cfg(feature = "test-util")]
pub use inject::{Spurious, spurious_every};
#[cfg(all(feature = "test-util", loom))]
pub(crate) use model::pulse;
#[cfg(all(feature = "test-util", any(loom, all(doc, not(doctest)))))]
#[cfg_attr(docsrs, doc(cfg(loom)))]
pub use model::{Model, model};
#[cfg(all(feature = "test-util", any(shuttle, all(doc, not(doctest)))))]
#[cfg_attr(docsrs, doc(cfg(shuttle)))]
pub use shuttle::shuttle_check;
#[cfg(feature = "test-util")]
pub use timers::ManualTimers;
#[cfg(feature = "test-util")]
pub use tracked::Tracked;
