//! Pause points, where a test stops a thread before or after a named step.
//!
//! Product code names its steps by [`step!`](crate::step); what a test does with them is in `test_util::pause`. In a model
//! that asks for it, loom tries every order of the steps. Without the feature `test-util` a step is just its expression.

/// Evaluates an expression as a named step: `step!("queue.claim", expression)`.
///
/// A test can stop a thread right before and right after it; the value is the expression's.
#[macro_export]
macro_rules! step {
    ($name:literal, $step:expr) => {{
        $crate::pause::before($name);
        let result = $step;
        $crate::pause::after($name);
        result
    }};
}

/// Whether steps look for a thread that is to stop.
///
/// That costs time: benchmarks refuse to be built so.
pub const COMPILED_IN: bool = cfg!(all(feature = "test-util", not(any(loom, shuttle))));

/// Stops here if this thread is to stop right before the step.
#[inline]
pub fn before(step: &'static str) {
    #[cfg(all(feature = "test-util", not(any(loom, shuttle))))]
    crate::test_util::pause::reached(step, crate::test_util::pause::When::Before);
    #[cfg(all(feature = "test-util", loom))]
    crate::test_util::pulse::beat();
    #[cfg(any(not(feature = "test-util"), loom, shuttle))]
    let _ = step;
}

/// Stops here if this thread is to stop right after the step.
#[inline]
pub fn after(step: &'static str) {
    #[cfg(all(feature = "test-util", not(any(loom, shuttle))))]
    crate::test_util::pause::reached(step, crate::test_util::pause::When::After);
    #[cfg(all(feature = "test-util", loom))]
    crate::test_util::pulse::beat();
    #[cfg(any(not(feature = "test-util"), loom, shuttle))]
    let _ = step;
}
