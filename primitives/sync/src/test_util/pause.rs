//! Stopping a thread at a named step of the code under test.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

/// On which side of a step a thread stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// The step has not happened yet.
    Before,
    /// The step has happened, and nothing after it.
    After,
}

const ARMED: u8 = 0;
const STOPPED: u8 = 1;
const RELEASED: u8 = 2;

#[derive(Debug)]
struct Shared {
    step: &'static str,
    when: When,
    /// `ARMED`, then `STOPPED` by the thread that stops, then `RELEASED` by the test.
    phase: AtomicU8,
}

impl Shared {
    /// Looks again and again, since a condition variable would hide from `ThreadSanitizer` what it should see.
    fn wait_until_not(&self, phase: u8) {
        while self.phase.load(Ordering::Acquire) == phase {
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}

std::thread_local! {
    static STOP: RefCell<Option<Arc<Shared>>> = const { RefCell::new(None) };
}

/// Stops one thread once, at one step.
///
/// The thread that is to stop runs its operation inside [`Stop::run`]; the test waits until it has stopped, does what it wants to
/// do meanwhile, and releases it. Dropping the stop releases the thread too.
///
/// ```
/// use folio_sync::step;
/// use folio_sync::test_util::pause::{Stop, When};
///
/// let stop = Stop::new("door.open", When::Before);
/// std::thread::scope(|scope| {
///     let stopped = scope.spawn(|| stop.run(|| step!("door.open", 7)));
///     stop.wait_until_stopped();
///     stop.release();
///     assert_eq!(stopped.join().unwrap(), 7);
/// });
/// ```
#[derive(Debug)]
pub struct Stop {
    shared: Arc<Shared>,
}

impl Stop {
    /// A stop at this side of the step; nothing stops before [`Stop::run`].
    pub fn new(step: &'static str, when: When) -> Self {
        Self { shared: Arc::new(Shared { step, when, phase: AtomicU8::new(ARMED) }) }
    }

    /// Runs `operation`, stopping the calling thread the first time that it reaches the step.
    ///
    /// # Panics
    /// When the operation does, and when it ends without having reached the step: such a test shows nothing.
    pub fn run<R>(&self, operation: impl FnOnce() -> R) -> R {
        struct Leave(Option<Arc<Shared>>);

        impl Drop for Leave {
            fn drop(&mut self) {
                STOP.with_borrow_mut(|current| *current = self.0.take());
            }
        }

        let outer = STOP.with_borrow_mut(|current| current.replace(Arc::clone(&self.shared)));
        let leave = Leave(outer);
        let result = operation();
        drop(leave);
        assert!(
            self.shared.phase.load(Ordering::Acquire) != ARMED,
            "step {:?} was never reached",
            self.shared.step
        );
        result
    }

    /// Waits until the thread stands at the step.
    pub fn wait_until_stopped(&self) {
        self.shared.wait_until_not(ARMED);
    }

    /// Lets the thread go on.
    pub fn release(&self) {
        self.shared.phase.store(RELEASED, Ordering::Release);
    }
}

impl Drop for Stop {
    fn drop(&mut self) {
        self.release();
    }
}

/// Stops here if this thread runs inside a [`Stop`] for this step.
pub(crate) fn reached(name: &'static str, when: When) {
    // Thread-locals may be gone while the thread exits: then nothing stops it.
    let Some(stop) = STOP.try_with(|current| current.borrow().clone()).ok().flatten() else { return };
    if stop.step == name
        && stop.when == when
        && stop.phase.compare_exchange(ARMED, STOPPED, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    {
        stop.wait_until_not(STOPPED);
    }
}
