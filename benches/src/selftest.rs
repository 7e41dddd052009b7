//! Planted groups by which the tests see that the command fails when it must.

use std::hint::black_box;
use std::thread;
use std::time::Duration;

use crate::runner::{Against, Block, Case, Group, Metric, Row, Target};

/// What is planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// A case that does not end.
    Hang,
    /// A time far above its gate.
    SlowCase,
    /// A time far below its gate.
    QuickCase,
    /// One allocation an operation where none is allowed.
    Allocation,
}

/// The planted group.
pub fn group(planted: Planted) -> Group {
    let reference = Case::looped("reference", 100_000, spin);
    let row = Row::case("planted", "case");
    let of_reference = Against::Row(Row::case("planted", "reference"));
    let (case, target) = match planted {
        Planted::Hang => (
            Case::new("case", |_| {
                loop {
                    thread::sleep(Duration::from_secs(1));
                }
            }),
            None,
        ),
        Planted::SlowCase | Planted::QuickCase => {
            let gate = if planted == Planted::SlowCase { 0.01 } else { 100.0 };
            let target = Target::lower("planted time", row, of_reference, Metric::Cpu, gate, gate / 2.0);
            (Case::looped("case", 100_000, spin), Some(target))
        }
        Planted::Allocation => {
            let target =
                Target::lower("planted allocations", row, Against::Nothing, Metric::Allocations, 0.05, 0.01);
            (Case::looped("case", 100_000, allocate), Some(target))
        }
    };
    Group {
        name: "planted",
        blocks: vec![Block::new("planted", vec![reference, case])],
        targets: target.into_iter().collect(),
        floor: None,
    }
}

fn spin(turns: u64) {
    for turn in 0..turns {
        black_box(turn);
    }
}

fn allocate(turns: u64) {
    for turn in 0..turns {
        black_box(Box::new(turn));
    }
}
