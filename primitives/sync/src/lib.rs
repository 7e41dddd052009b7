//! The std/loom/shuttle switch of the Folio crates, and the traits they take their surroundings by.
//!
//! # The switch
//! Concurrent code that takes its atomics, cells, [`Arc`], [`Mutex`], threads and spin hints from here runs unchanged on the
//! standard library, under the model checker loom (`RUSTFLAGS="--cfg loom"`) and under the random scheduler shuttle
//! (`RUSTFLAGS="--cfg shuttle"`). Without those flags every item is the standard library's own, or inlines to it.
//!
//! # The surroundings
//! A component does not spawn threads, read clocks or start timers: it is given an [`Executor`], a [`Clock`](time::Clock) and
//! [`Timers`](timers::Timers). With the feature `test-util` each of them has a twin in `test_util` that a test steps by hand. That
//! module is there for development only, so it is asked for beside the ordinary dependency:
//!
//! ```toml
//! [dependencies]
//! folio-sync = "0.1"
//!
//! [dev-dependencies]
//! folio-sync = { version = "0.1", features = ["test-util"] }
//! ```
//!
//! ```
//! use folio_sync::{Executor, Job, RejectReason, Rejected};
//!
//! /// Runs every job at once, on the thread that submits it.
//! struct CallerRuns;
//!
//! impl Executor for CallerRuns {
//!     fn submit(&self, job: Job) -> Result<(), Rejected<Job>> {
//!         job.run();
//!         Ok(())
//!     }
//! }
//!
//! let (tell, told) = std::sync::mpsc::channel();
//! CallerRuns.submit(Job::new(move || tell.send(1).unwrap())).unwrap();
//! assert_eq!(told.recv(), Ok(1));
//! ```
//!
//! # Models of your own
//! What takes its parts from here, and what is built on such crates, can be modelled. With the two dependencies above, `Cargo.toml`
//! names the flags and copies a profile, which belongs into the root of the workspace:
//!
//! ```toml
//! [lints.rust]
//! unexpected_cfgs = { level = "warn", check-cfg = ["cfg(loom)", "cfg(shuttle)"] }
//!
//! [profile.loom] # optimised, with every assertion
//! inherits = "release"
//! debug-assertions = true
//! ```
//!
//! Models are a file in `tests/` that is empty without the flag, here `tests/models.rs`:
//!
//! ```text
//! #![cfg(loom)]
//! use folio_sync::test_util::{Tracked, model};
//! use folio_sync::{Arc, Mutex, thread};
//!
//! #[test]
//! fn two_threads_leave_their_values() {
//!     model("two values", || {
//!         let values = Arc::new(Mutex::new(Vec::new()));
//!         let threads = [1, 2].map(|value| {
//!             let values = Arc::clone(&values);
//!             thread::spawn(move || values.lock().push(Tracked::new(value)))
//!         });
//!         threads.into_iter().for_each(|thread| thread.join().unwrap());
//!         assert_eq!(values.lock().iter().map(|value| *value.get()).sum::<u32>(), 3);
//!     });
//! }
//! ```
//!
//! ```sh
//! RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom \
//!     cargo test --profile loom --test models -- --test-threads=1 --nocapture
//! ```
//!
//! The target folder is one of its own, since another flag would rebuild everything each time. The flag reaches every dependency,
//! too: some crates leave parts out under it or do not compile, so keep those off the models' path, if need be by a package that
//! holds nothing but models. A model that prints few executions has seen little: `model` fails below 20.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "this crate is the one place where the standard library's own types are named"
)]

mod arc;
pub mod atomic;
pub mod cell;
mod executor;
pub mod hint;
mod local;
mod mutex;
#[doc(hidden)]
pub mod pause;
#[cfg(feature = "count-allocations")]
pub mod test_util;
pub mod thread;
pub mod time;
pub mod timers;
pub mod unwind;

pub use arc::{Arc, arc_from_std};
pub use executor::{Executor, Job, RejectReason, Rejected, SerialExecutor, SharedJob};
pub use mutex::{Mutex, MutexGuard};

/// What the macros of this crate expand to; not an interface.
#[doc(hidden)]
pub mod __private {
    pub use std::sync::Arc as StdArc;

    #[cfg(loom)]
    pub use loom;
    #[cfg(shuttle)]
    pub use shuttle;
}

/// The example of the README, which is run with those here.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
