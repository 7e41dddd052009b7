//! Many threads ask for work that exactly one of them does at a time.
mod demand;
mod frame;
mod outcome;
mod ownership;
mod turn;
mod word;
mod work;

pub use demand::Demand;
pub use outcome::{Joined, Recorded, Scheduled, Stranded, Why};
pub use ownership::Ownership;
pub use turn::{Builder, Turn};
pub use work::{Next, Panicked, Recovery, Work};
