//! How a completer is set up.

use std::fmt;

use folio_sync::unwind::{self, Payload};
use folio_sync::{Arc, Executor, SerialExecutor, arc_dyn};

use crate::completer::{InlineCompleter, Overflow, Policy, Shared};
use crate::limit::depth_limit;

/// Sets up an [`InlineCompleter`]; made by [`InlineCompleter::builder`].
///
/// ```
/// use folio_completer::{InlineCompleter, Policy};
/// use folio_sync::test_util::ManualExecutor;
/// use folio_sync::unwind;
///
/// let (worker, overflow) = (ManualExecutor::new(), ManualExecutor::new());
/// let completer = InlineCompleter::builder(Policy::Inline, worker)
///     .depth_limit(4)
///     .overflow(overflow)
///     .on_panic(|payload| eprintln!("a callback panicked: {}", unwind::message(&*payload)))
///     .build();
/// assert_eq!(completer.depth_limit(), 4);
/// ```
#[must_use = "a builder does nothing until it builds"]
pub struct Builder {
    policy: Policy,
    serial: Arc<dyn SerialExecutor>,
    limit: Option<u32>,
    overflow: Option<Arc<dyn Executor>>,
    on_panic: Box<dyn Fn(Payload) + Send + Sync>,
}

impl Builder {
    pub(crate) fn new(policy: Policy, serial: Arc<dyn SerialExecutor>) -> Self {
        Self { policy, serial, limit: None, overflow: None, on_panic: Box::new(unwind::discard) }
    }

    /// Runs at most `limit` completions inside one another; 0 means 1. Unset, it is [`depth_limit`].
    pub fn depth_limit(mut self, limit: u32) -> Self {
        self.limit = Some(limit.max(1));
        self
    }

    /// Sends what reaches the limit to `executor`, in inline mode.
    ///
    /// In affine mode it is not used: there everything goes to the serial executor.
    pub fn overflow(mut self, executor: impl Executor + 'static) -> Self {
        self.overflow = Some(arc_dyn!(executor => dyn Executor));
        self
    }

    /// Hears of every completion that panicked, on the thread where it did.
    ///
    /// Unset, nothing is done beyond the process's panic hook, and a count.
    pub fn on_panic(mut self, sink: impl Fn(Payload) + Send + Sync + 'static) -> Self {
        self.on_panic = Box::new(sink);
        self
    }

    /// The completer. What it was given here never changes.
    ///
    /// An inline completer without an overflow executor looks here, once, for rayon's global pool (feature `rayon`): where it cannot
    /// start, or has a single worker, overflow goes to the serial executor.
    ///
    /// # Threads
    /// That look starts rayon's global pool, with its threads, if nothing in the process has; on a worker of another rayon pool it
    /// starts nothing. With an [`overflow`](Self::overflow) executor, in affine mode, or without the feature no thread is started.
    pub fn build(self) -> InlineCompleter {
        let overflow = match (self.policy, self.overflow) {
            (Policy::Affine, _) => Overflow::Serial,
            (Policy::Inline, Some(executor)) => Overflow::Given(executor),
            (Policy::Inline, None) => Overflow::by_default(),
        };
        let limit = self.limit.unwrap_or_else(depth_limit);
        InlineCompleter::new(Shared::new(self.policy, limit, self.serial, overflow, self.on_panic))
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("policy", &self.policy)
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}
