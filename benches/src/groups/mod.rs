//! The groups of rows, one module each.

pub mod cache;
pub mod completion;
pub mod floors;
pub mod handover;

use crate::runner::Group;

/// The names of all groups, in the order in which they run.
pub const NAMES: [&str; 4] = ["floors", "handover", "completion", "cache"];

/// The group of this name.
pub fn by_name(name: &str) -> Option<Group> {
    match name {
        "floors" => Some(floors::group()),
        "handover" => Some(handover::group()),
        "completion" => Some(completion::group()),
        "cache" => Some(cache::group()),
        _ => None,
    }
}
