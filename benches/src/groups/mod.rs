//! The groups of rows, one module each.

pub mod completion;
pub mod floors;
pub mod handover;

use crate::runner::Group;

/// The names of all groups, in the order in which they run.
pub const NAMES: [&str; 3] = ["floors", "handover", "completion"];

/// The group of this name.
pub fn by_name(name: &str) -> Option<Group> {
    match name {
        "floors" => Some(floors::group()),
        "handover" => Some(handover::group()),
        "completion" => Some(completion::group()),
        _ => None,
    }
}
