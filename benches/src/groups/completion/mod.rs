//! Completing an operation where its result is.
//!
//! *Inline*: one completion that may run here, against a boxed call. *Chain*: each completion asks for the next, to a depth limit, then
//! goes on in rayon's pool. *B5*: a read whose result is completed by a dispatcher, at once or through the ledger's thread. *B6*: a
//! chain of 100 with every kind of overflow. The completer written by hand here is a thread-local counter and nothing else: it
//! contains no panic and gives nothing back when refused.

mod chain;
mod depth;
mod executors;
mod handoff;
mod inline;

use super::floors;
use crate::runner::{Block, Group};

/// The completion rows.
pub fn group() -> Group {
    let mut blocks: Vec<Block> = inline::blocks().into();
    blocks.push(chain::block());
    blocks.extend(handoff::blocks());
    blocks.extend(depth::blocks());
    blocks.push(executors::block());
    blocks.push(floors::scale_block());
    let mut targets = inline::targets();
    targets.extend(chain::targets());
    targets.extend(handoff::targets());
    Group { name: "completion", blocks, targets, floor: Some(floors::scale_floor()) }
}

/// Bodies of the inline cases, for other harnesses.
pub mod bodies {
    pub use super::inline::{Counted, Payload, Plain, boxed_call, guarded_call, inline_completer};
}
