//! Run a completion where its result is, bounded in depth.
//!
//! An operation that finds its result at once would have its callback called at once. But a callback that asks for the next result
//! is called inside the last one's call, and a long run of such answers ends the stack. To queue every callback costs a change of
//! threads each. [`InlineCompleter`] runs completions inside one another up to a limit, and hands only the one at the limit to an
//! executor, where the chain begins again on a fresh stack.
//!
//! ```
//! use folio_completer::{Completed, InlineCompleter, Policy};
//! use folio_sync::test_util::ManualExecutor;
//!
//! /// Asks for the next answer in the callback of the last.
//! fn chain(completer: &InlineCompleter, left: u32) {
//!     if left > 0 {
//!         let next = completer.clone();
//!         completer.complete(move || chain(&next, left - 1)).expect("nothing refuses here");
//!     }
//! }
//!
//! let worker = ManualExecutor::new();
//! let overflow = ManualExecutor::new();
//! let completer =
//!     InlineCompleter::builder(Policy::Inline, worker).depth_limit(10).overflow(overflow.clone()).build();
//! chain(&completer, 25);
//! assert_eq!(overflow.run_all(), 2, "the 11th and the 21st changed threads");
//! ```
//!
//! # Rules for the asker
//! * **Set your pending state before you ask.** The completion may run before the call that asked returns.
//! * **Hold no lock while you ask** that the completion, or anything that it calls, could want. This holds also where the asker's own
//!   code looks harmless: the completion of another operation may run here, too.
//! * **Do not block in a completion.** It runs on a thread that has other things to do, which you do not know.
//! * **Expect no order.** A completion that runs at once overtakes one that was queued. One outstanding operation at a time is the
//!   asker's own duty.
//! * **Act on a refusal.** The completion comes back; or, if it was queued before, [`Completion::refused`] is called.
//!
//! # When not to complete inline
//! * The callback blocks, or computes for long: it would hold up whoever has the result, a storage thread perhaps.
//! * The callback belongs to an owner with state of its own, which expects its own thread: hop explicitly, or use [`Policy::Affine`].
//! * The result is delivered under a lock that the callback may want, such as a list of waiting readers: take them out, unlock, then
//!   complete.
//! * Callbacks must come in order: give them one queue.
//!
//! # Overflow
//! By default (feature `rayon`) what reaches the limit goes to rayon's global pool, first in first out. **Building an inline completer
//! without an overflow executor starts that pool** if nothing in the process has. A host that wants to set it up itself does so before
//! it builds the first completer. The pool is shared: **the host's own jobs delay overflow**. A worker that waits in the host's
//! `join` steals jobs meanwhile: **a completion may run inside the host's `join`, under the locks that the host holds there**. A host
//! that holds locks across `join` gives the builder an executor of its own. On a worker of another rayon pool, what reaches the limit
//! stays in that pool, unless it has one worker only.
//!
//! # Panics
//! A completion that panics has had its result: it counts as delivered, on whichever thread it ran, and the panic goes to the sink
//! that the builder was given. It does not unwind into the caller of [`complete`](InlineCompleter::complete), who may have more to
//! deliver.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod builder;
mod completer;
mod completion;
mod depth;
mod limit;
mod parcel;
#[cfg(all(feature = "rayon", not(any(loom, shuttle))))]
mod pool;

pub use builder::Builder;
pub use completer::{Completed, Counts, InlineCompleter, Policy};
pub use completion::{Completion, Refusable, refusable};
pub use depth::current_depth;
pub use limit::{
    DEFAULT_DEPTH_LIMIT, DEPTH_LIMIT_VARIABLE, DepthLimitSource, depth_limit, depth_limit_source,
};

/// The example of the README, which is run with those here.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
