//! The std/loom/shuttle switch of the Folio crates, and the traits they take their surroundings by.
//!
//! # The switch
//! Concurrent code that takes its atomics, cells, [`Arc`], [`Mutex`], threads and spin hints from here runs unchanged on the
//! standard library, under the model checker loom (`RUSTFLAGS="--cfg loom"`) and under the random scheduler shuttle
//! (`RUSTFLAGS="--cfg shuttle"`). Without those flags every item is the standard library's own, or inlines to it.
//!
//! # The surroundings
//! A component does not spawn threads, read clocks or start timers: it is given an [`Executor`], a [`Clock`](time::Clock) and
//! [`Timers`](timers::Timers). With the feature `test-util` each of them has a twin that a test steps by hand.
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
