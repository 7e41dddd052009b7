//! Containing the panics of user code.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What a panic carried.
pub type Payload = Box<dyn Any + Send>;

/// Runs user code and returns the payload if it panics.
///
/// The caller restores its own invariants; nothing that `f` touched is used again unless its owner allows that.
///
/// # Errors
/// What the panic carried.
///
/// ```
/// use folio_sync::unwind;
///
/// assert!(matches!(unwind::catch(|| 7), Ok(7)));
/// let payload = unwind::catch(|| panic!("out of ink")).unwrap_err();
/// assert_eq!(unwind::message(&*payload), "out of ink");
/// unwind::discard(payload);
/// ```
pub fn catch<R>(f: impl FnOnce() -> R) -> Result<R, Payload> {
    catch_unwind(AssertUnwindSafe(f))
}

/// Drops a payload whose own destructor may panic again.
///
/// When it does, what that second panic carried is leaked: its destructor could panic again, and so on.
pub fn discard(payload: Payload) {
    if let Err(again) = catch(move || drop(payload)) {
        std::mem::forget(again);
    }
}

/// The message of a panic, if it was a string.
pub fn message(payload: &(dyn Any + Send)) -> &str {
    if let Some(text) = payload.downcast_ref::<&'static str>() {
        text
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text
    } else {
        "a panic without a message"
    }
}
