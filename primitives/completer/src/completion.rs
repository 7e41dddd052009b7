//! What is completed.

use std::fmt;

use folio_sync::RejectReason;

/// The end of an operation: its result delivered, or its failure told.
///
/// Exactly one of the two is called, once, unless the completer gave the completion back. Every `FnOnce()` is a completion; one
/// that is refused after it was queued is dropped, with what it captured. An operation that must hear of its failure is made by
/// [`refusable`], or implements this trait.
pub trait Completion: Send + 'static {
    /// Delivers the result.
    ///
    /// Called on whatever thread the policy allows, perhaps inside the call that asked. It must not block. A panic is contained:
    /// the result counts as delivered.
    fn run(self);

    /// Fails the operation: it was queued, and will never run.
    ///
    /// Called where that came to light, also while a thread unwinds. It must neither block nor ask again on the spot.
    fn refused(self, reason: RejectReason);
}

impl<F: FnOnce() + Send + 'static> Completion for F {
    #[inline]
    fn run(self) {
        self();
    }

    /// Drops the closure.
    #[inline]
    fn refused(self, _reason: RejectReason) {}
}

/// A value, and what is done with it either way; made by [`refusable`].
#[must_use = "a completion that nobody runs or refuses leaves its operation open"]
pub struct Refusable<T, D, R> {
    value: T,
    deliver: D,
    refuse: R,
}

/// A completion that delivers `value` by the first function, or fails by the second.
///
/// ```
/// use folio_completer::{Completed, Completion, InlineCompleter, refusable};
/// use folio_sync::test_util::ManualExecutor;
/// use folio_sync::{RejectReason, Rejected};
///
/// let worker = ManualExecutor::new();
/// let completer = InlineCompleter::affine(worker.clone());
/// let (tell, told) = std::sync::mpsc::channel();
/// let read = refusable(
///     (vec!["an entry"], tell),
///     |(entries, tell)| tell.send(Ok(entries)).unwrap(),
///     |(_entries, tell), reason| tell.send(Err(reason)).unwrap(),
/// );
///
/// worker.close();
/// match completer.complete(read) {
///     Ok(_) => unreachable!("the worker is closed, and this thread is not it"),
///     Err(Rejected { value, reason }) => value.refused(reason),
/// }
/// assert_eq!(told.recv(), Ok(Err(RejectReason::Closed)));
/// ```
pub fn refusable<T, D, R>(value: T, deliver: D, refuse: R) -> Refusable<T, D, R>
where
    T: Send + 'static,
    D: FnOnce(T) + Send + 'static,
    R: FnOnce(T, RejectReason) + Send + 'static,
{
    Refusable { value, deliver, refuse }
}

impl<T, D, R> Refusable<T, D, R> {
    /// The value, without either of its ends.
    pub fn into_value(self) -> T {
        self.value
    }
}

impl<T, D, R> Completion for Refusable<T, D, R>
where
    T: Send + 'static,
    D: FnOnce(T) + Send + 'static,
    R: FnOnce(T, RejectReason) + Send + 'static,
{
    #[inline]
    fn run(self) {
        (self.deliver)(self.value);
    }

    fn refused(self, reason: RejectReason) {
        (self.refuse)(self.value, reason);
    }
}

impl<T: fmt::Debug, D, R> fmt::Debug for Refusable<T, D, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refusable").field("value", &self.value).finish_non_exhaustive()
    }
}
