//! B6: a chain of 100 completions, with each kind of overflow and limits 10 and 1.
//!
//! An operation is one chain, begun by the driver, who waits for its end.

use std::sync::Arc;

use folio_completer::{InlineCompleter, Policy};

use super::chain::{Completer, HandWritten, Overflow, forever, hop};
use super::executors::{ChannelExecutor, OrderedWorker, Waiter};
use crate::runner::{Block, Case};

const HOPS: u64 = 100;

/// Chains a trial.
const CHAINS: u64 = 300;

fn case<C: Completer>(name: &str, completer: &'static C) -> Case {
    Case::looped(name, CHAINS, move |turns| {
        let waiter = Arc::new(Waiter::new());
        for turn in 1..=turns {
            let end = Arc::clone(&waiter);
            hop(completer, HOPS, move || end.complete());
            waiter.wait(turn);
        }
    })
}

fn block(pool: bool, limit: u32) -> Block {
    let ours = InlineCompleter::builder(Policy::Inline, OrderedWorker::start()).depth_limit(limit);
    let (ours, overflow, place) = if pool {
        (ours.build(), Overflow::Rayon, "the common pool")
    } else {
        let ledger: Arc<dyn folio_sync::SerialExecutor> = Arc::new(ChannelExecutor::start());
        (ours.overflow(OrderedWorker::start()).build(), Overflow::Serial(ledger), "the ledger")
    };
    Block::new(
        format!("B6, chain of 100, overflow to {place}, limit {limit}"),
        vec![
            case("InlineCompleter, chained", forever(ours)),
            case("hand-written guard", forever(HandWritten { limit, overflow })),
        ],
    )
}

/// The rows of B6.
pub(super) fn blocks() -> [Block; 4] {
    [(false, 10), (false, 1), (true, 10), (true, 1)].map(|(pool, limit)| block(pool, limit))
}
