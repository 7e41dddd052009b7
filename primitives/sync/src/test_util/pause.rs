//! Stopping a thread at a named step of the code under test.

use std::cell::RefCell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use crate::Arc;

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
const MISSED: u8 = 3;

#[derive(Debug)]
struct Shared {
    step: &'static str,
    when: When,
    /// `ARMED`; then `STOPPED` by the thread that stops and `RELEASED` by the test; or `MISSED` when the operation ended before.
    phase: AtomicU8,
    /// Where the thread stops after it has gone on from here.
    next: OnceLock<Arc<Shared>>,
}

impl Shared {
    fn new(step: &'static str, when: When) -> Arc<Self> {
        Arc::new(Self { step, when, phase: AtomicU8::new(ARMED), next: OnceLock::new() })
    }

    /// Looks again and again until the phase is another one.
    ///
    /// A condition variable would hide from `ThreadSanitizer` what it should see.
    fn wait_while(&self, phase: u8) -> u8 {
        loop {
            // Acquire: what the thread that changed the phase did before is visible; pairs with the Release of `leave` and `release`.
            let found = self.phase.load(Ordering::Acquire);
            if found != phase {
                return found;
            }
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    fn is_armed(&self) -> bool {
        // Relaxed: asked by the thread that would have stopped; what the test did before a release is none of its business.
        self.phase.load(Ordering::Relaxed) == ARMED
    }

    /// This one, and those that come after it.
    fn way(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |stop| stop.next.get().map(|next| &**next))
    }

    fn leave(&self, from: u8, to: u8) -> bool {
        // Release: publishes what this thread did up to the stop; pairs with `wait_while`'s Acquire. Acquire: sees what the test did
        // before a release that came first.
        self.phase.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

std::thread_local! {
    static STOP: RefCell<Option<Arc<Shared>>> = const { RefCell::new(None) };
}

/// Stops one thread once, at one step.
///
/// The thread that is to stop runs its operation inside [`Stop::run`]; the test waits until it has stopped, does what it wants to
/// do meanwhile, and lets it go on. A test that fails meanwhile lets it go on too if it holds the thread by [`Stop::stopped`].
///
/// ```
/// use folio_sync::step;
/// use folio_sync::test_util::pause::{Stop, When};
///
/// let stop = Stop::new("door.open", When::Before);
/// std::thread::scope(|scope| {
///     let thread = scope.spawn(|| stop.run(|| step!("door.open", 7)));
///     let stopped = stop.stopped();
///     assert!(!thread.is_finished());
///     drop(stopped);
///     assert_eq!(thread.join().unwrap(), 7);
/// });
/// ```
#[derive(Debug)]
pub struct Stop {
    shared: Arc<Shared>,
}

impl Stop {
    /// A stop at this side of the step; nothing stops before [`Stop::run`].
    pub fn new(step: &'static str, when: When) -> Self {
        Self { shared: Shared::new(step, when) }
    }

    /// A stop of the same thread at another step, once it has gone on from this one.
    ///
    /// ```
    /// use folio_sync::step;
    /// use folio_sync::test_util::pause::{Stop, When};
    ///
    /// let take = Stop::new("drawer.take", When::After);
    /// let put = take.then("drawer.put", When::Before);
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| {
    ///         take.run(|| {
    ///             step!("drawer.take", ());
    ///             step!("drawer.put", ());
    ///         })
    ///     });
    ///     drop(take.stopped());
    ///     drop(put.stopped());
    /// });
    /// ```
    ///
    /// # Panics
    /// When it has one already.
    #[must_use]
    pub fn then(&self, step: &'static str, when: When) -> Self {
        let next = Shared::new(step, when);
        assert!(self.shared.next.set(Arc::clone(&next)).is_ok(), "a thread goes one way");
        Self { shared: next }
    }

    /// Runs `operation`, stopping the calling thread the first time that it reaches the step.
    ///
    /// Runs nest: the inner one has the thread until it ends.
    ///
    /// # Panics
    /// When the operation does, and when it ends without having reached the step: such a test shows nothing.
    pub fn run<R>(&self, operation: impl FnOnce() -> R) -> R {
        let outer = STOP.with_borrow_mut(|current| current.replace(Arc::clone(&self.shared)));
        let _leave = Leave { outer, running: &self.shared };
        let result = operation();
        // Whoever waits hears of it when `_leave` goes, after this panic was told: both tell of it one after the other.
        for stop in self.shared.way() {
            assert!(!stop.is_armed(), "step {:?} was never reached", stop.step);
        }
        result
    }

    /// Has the calling thread stop the first time it reaches the step.
    ///
    /// Whenever that is: for a step outside of every operation that a test could wrap, such as one of a worker's own loop. Nobody
    /// notices when it is never reached. A [`run`](Self::run) on the same thread sets it aside until it ends.
    pub fn arm(&self) {
        STOP.with_borrow_mut(|current| *current = Some(Arc::clone(&self.shared)));
    }

    /// Waits until the thread stands at the step.
    ///
    /// A thread that was released before it came there does not stop, and is not waited for.
    ///
    /// # Panics
    /// When the operation ended without having reached the step, so that nobody waits forever.
    pub fn wait_until_stopped(&self) {
        let phase = self.shared.wait_while(ARMED);
        assert!(phase != MISSED, "step {:?} was never reached", self.shared.step);
    }

    /// Waits until the thread stands at the step, and holds it there.
    ///
    /// It goes on when the result is dropped.
    ///
    /// # Panics
    /// As [`wait_until_stopped`](Self::wait_until_stopped).
    pub fn stopped(&self) -> Stopped<'_> {
        self.wait_until_stopped();
        Stopped(self)
    }

    /// Lets the thread go on.
    ///
    /// One that has not reached the step yet will not stop.
    pub fn release(&self) {
        // Release: publishes what the test did while the thread stood; pairs with `wait_while`'s Acquire.
        self.shared.phase.store(RELEASED, Ordering::Release);
    }
}

/// Holds a thread at its step; lets it go on when dropped.
#[derive(Debug)]
#[must_use = "the thread goes on when this is dropped"]
pub struct Stopped<'a>(&'a Stop);

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        self.0.release();
    }
}

/// Ends a run, also when the operation panics.
struct Leave<'a> {
    outer: Option<Arc<Shared>>,
    running: &'a Shared,
}

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        // One that has stopped, or was released before, stays what it is.
        for stop in self.running.way() {
            let _missed = stop.leave(ARMED, MISSED);
        }
        STOP.with_borrow_mut(|current| *current = self.outer.take());
    }
}

/// Stops here if this thread runs inside a [`Stop`] for this step.
pub(crate) fn reached(name: &'static str, when: When) {
    // Thread-locals may be gone while the thread exits: then nothing stops it.
    let Some(stop) = STOP.try_with(|current| current.borrow().clone()).ok().flatten() else { return };
    if stop.step == name && stop.when == when && stop.leave(ARMED, STOPPED) {
        stop.wait_while(STOPPED);
        if let Some(next) = stop.next.get() {
            STOP.with_borrow_mut(|current| *current = Some(Arc::clone(next)));
        }
    }
}
