//! The interleaved ratio runner, and the rows it judges.
//!
//! Times on a shared machine drift by more than the differences that matter. So every figure here is a *ratio inside one run*:
//! the cases of a comparison take turns in one process, and a row is the median of the ratios of each turn (see [`runner`]).
//!
//! ```text
//! cargo run --release -p folio-benches -- ratios                 every group
//! cargo run --release -p folio-benches -- ratios handover        one group
//! cargo run --release -p folio-benches -- ratios --smoke         does everything run? do the allocation rows hold?
//! cargo run --release -p folio-benches -- callgrind              instructions an operation, against the committed figures
//! cargo bench -p folio-benches                                   criterion, to explore
//! ```
//! Build it with `-p folio-benches` alone: a build of the whole workspace compiles the test features of the other crates into the
//! code that is measured, and the command refuses to time such a build.
#![forbid(unsafe_code)]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "nothing here is model-checked: benchmarks run on the standard library's own threads, atomics and clock"
)]

pub mod callgrind;
pub mod groups;
pub mod runner;
pub mod selftest;
