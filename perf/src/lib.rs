//! Performance scenarios of the Folio broker, in one process, with every delivery verified.
//!
//! [`run()`] runs one scenario and says what it measured and whether anything was wrong; [`ideas`] runs a scenario with the project's ideas switched
//! on and off in turns; [`stages`] says what each step of a message's way costs.
#![forbid(unsafe_code)]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "scenarios run on the machine's own threads and clock"
)]
#![allow(clippy::cast_precision_loss, reason = "counts become rates, which are shown with few digits")]

mod consumers;
pub mod ideas;
pub mod payload;
mod place;
mod producers;
mod report;
mod run;
mod settings;
pub mod stages;
mod stored;
pub mod verify;
mod window;

pub use report::{KeptUp, Report, Verdict};
pub use run::{RunError, run};
pub use settings::{Cache, Completion, Handover, Plant, Scenario, Settings, Storage};
pub use window::Window;
