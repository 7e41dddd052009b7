//! Many producers hand work to one serial executor, one submission a batch; and a keyed pool of serial workers.
//!
//! ```
//! use folio_executor::BatchingExecutor;
//! use folio_sync::test_util::ManualExecutor;
//!
//! let worker = ManualExecutor::new();
//! let (log, lines) = std::sync::mpsc::channel();
//! let writer = BatchingExecutor::builder(move |line: &str| log.send(line).unwrap()).build(worker.clone())?;
//!
//! for line in ["one", "two", "three"] {
//!     writer.submit(line)?;
//! }
//! assert_eq!(worker.queued(), 1, "one submission for three tasks");
//! worker.run_next();
//! assert_eq!(lines.try_iter().collect::<Vec<_>>(), ["one", "two", "three"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod adapters;
mod batching;
mod ordered;
mod queue;
mod serial;

#[cfg(feature = "rayon")]
pub use adapters::RayonExecutor;
#[cfg(feature = "tokio")]
pub use adapters::TokioExecutor;
pub use batching::{
    BatchingExecutor, Builder, ConfigError, DEFAULT_BLOCK, Failure, Flush, Linger, Part, WouldDeadlock,
};
pub use ordered::{JobPanic, OrderedBuilder, OrderedExecutor, Worker};
pub use serial::Serial;
