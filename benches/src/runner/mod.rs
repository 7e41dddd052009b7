//! The interleaved ratio runner.
//!
//! # How a row comes about
//! A [`Group`] has [`Block`]s of [`Case`]s. The cases of a block do the same work in different ways. In one *round* each case runs
//! once, one after the other; the case that starts changes from round to round. The first round is thrown away: it warms up.
//! Each round gives one ratio a row, from two trials that ran within moments of each other, and the row is the median of these
//! ratios, with the least and the greatest.
//!
//! Wall time and the CPU time of *all* threads of the process are both taken: CPU time does not see that a thread was pre-empted or
//! asleep, wall time does not see what a second thread burns. Allocations are counted in rounds of their own, because the counters
//! cost time.
//!
//! # Judging
//! A [`Target`] names a row, what it is divided by, a *gate* and a *goal*. A missed gate makes the command fail; a missed goal is
//! printed. A smoke run, or one of fewer than fifteen timed rounds, judges only what does not depend on time. The targets of all
//! groups of a run are one table at its end.
//!
//! # Hangs
//! A trial that takes longer than the limit ends the process with the name of the case, see [`Watchdog`].

mod case;
mod clock;
mod machine;
mod ratio;
mod report;
mod run;
mod sample;
mod table;
mod target;
mod threads;
mod watchdog;

pub use case::{Block, Case, Effort, Floor, Group};
pub use clock::{Mark, ThreadMark, ThreadTime, sample_between};
pub use machine::machine;
pub use ratio::{Spread, geometric_mean, to_f64};
pub use report::{Key, Report};
pub use run::{Settings, rotated, run};
pub use sample::{Metric, Sample};
pub use table::Table;
pub use target::{
    Against, Better, Judged, Row, Target, Verdict, allocations, any_gate_missed, figures, judge, verdicts,
    why_marked,
};
pub use threads::together;
pub use watchdog::{HANG_EXIT_CODE, Watchdog};
