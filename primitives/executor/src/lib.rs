//! Batches the tasks of many producers for one serial executor.
//!
//! That is [`BatchingExecutor`]. Beside it: [`OrderedExecutor`], a keyed pool of serial workers; [`Serial`], which makes any executor
//! serial; and, as features, adapters for rayon and tokio.
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
//!
//! # Ending
//! End from the top: `close` each writer, `flush().wait()`, drop the writers, then `join` the workers.
//!
//! ```
//! use folio_executor::{BatchingExecutor, OrderedExecutor};
//!
//! let workers = OrderedExecutor::builder().threads(1).build()?;
//! let writer = BatchingExecutor::builder(|line: &str| println!("{line}")).build(workers.worker("log").clone())?;
//! writer.submit("the last line")?;
//!
//! writer.close();
//! writer.flush().wait()?;
//! drop(writer);
//! let unrun = workers.join()?;
//! assert!(unrun.is_empty());
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
    BatchingExecutor, Builder, ConfigError, DEFAULT_BLOCK, Failure, Flush, Handler, Linger, Part,
    WouldDeadlock,
};
pub use ordered::{JobPanic, OrderedBuilder, OrderedExecutor, Worker};
pub use serial::Serial;

pub use folio_sync::{Executor, Job, RejectReason, Rejected, SerialExecutor};

/// The example of the README, which is run with those here.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
