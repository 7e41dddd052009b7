//! What the machine charges for the things that everything else is made of.
//!
//! No row is judged. The documented figures are those of the reference machine; the uncontended `fetch_add` scales all of them,
//! here and in the other groups.

mod disk;
mod memory;
mod single;
mod threads;

use crate::runner::{Block, Case, Floor, Group, Metric};

/// Name of the block, in every group, that has the scaling row.
const SCALE_BLOCK: &str = "floor";

/// Name of the scaling case.
const SCALE_CASE: &str = "fetch_add";

/// The floor rows.
pub fn group() -> Group {
    Group {
        name: "floors",
        blocks: vec![
            Block::new(SCALE_BLOCK, single::cases()),
            Block::new("memory", memory::cases()),
            Block::new("threads", threads::cases()),
            Block::new("disk", disk::cases()),
        ],
        targets: Vec::new(),
        floor: Some(scale_floor()),
    }
}

/// The block by which another group scales its documented figures.
pub fn scale_block() -> Block {
    Block::new(SCALE_BLOCK, vec![scale_case()])
}

/// The row by which documented figures are scaled.
pub fn scale_floor() -> Floor {
    Floor { block: SCALE_BLOCK.into(), case: SCALE_CASE.into() }
}

fn scale_case() -> Case {
    single::fetch_add(SCALE_CASE).documented(Metric::Cpu, 3.2)
}
