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
pub fn catch<R>(f: impl FnOnce() -> R) -> Result<R, Payload> {
    catch_unwind(AssertUnwindSafe(f))
}

/// Drops a payload whose own destructor may panic again.
///
/// A payload whose destructor keeps panicking with such payloads is leaked after the second.
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
