//! Waiting until earlier tasks are done.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
#[allow(clippy::disallowed_types, reason = "std::task::Wake takes the standard Arc, also in models")]
use std::sync::Arc as StdArc;
use std::task::{Context, Poll, Wake, Waker};

use folio_sync::{Arc, Mutex, thread};

use crate::queue::Queue;
use crate::queue::word::{FLUSH, reached};

/// A completion that is called when all tasks before a ticket are done.
struct Waiting {
    ticket: u32,
    done: Box<dyn FnOnce() + Send>,
}

/// Those who wait for earlier tasks of one executor.
///
/// The word's `FLUSH` flag is set whenever somebody is on the list, and it is set and cleared under the list's lock.
#[derive(Default)]
pub(super) struct Waiters(Mutex<Vec<Waiting>>);

impl Waiters {
    /// Has `done` called when everything claimed before now has been done with; gives it back if that is so already.
    pub(super) fn add<T, const N: usize>(
        &self,
        queue: &Queue<T, N>,
        done: Box<dyn FnOnce() + Send>,
    ) -> Option<Box<dyn FnOnce() + Send>> {
        let mut list = self.0.lock();
        let word = queue.set(FLUSH);
        if word.pending() == 0 {
            if list.is_empty() {
                queue.clear_flush();
            }
            return Some(done);
        }
        list.push(Waiting { ticket: word.ticket(), done });
        None
    }

    /// Takes the completions whose tasks are done; called by whoever ended a turn with `FLUSH` set.
    pub(super) fn take_done<T, const N: usize>(&self, queue: &Queue<T, N>) -> Vec<Box<dyn FnOnce() + Send>> {
        let mut list = self.0.lock();
        let done = queue.word().done();
        let (ready, rest) = std::mem::take(&mut *list)
            .into_iter()
            .partition::<Vec<_>, _>(|waiting| reached(done, waiting.ticket));
        *list = rest;
        if list.is_empty() {
            queue.clear_flush();
        }
        drop(list);
        ready.into_iter().map(|waiting| waiting.done).collect()
    }
}

#[derive(Default)]
struct State {
    done: bool,
    waker: Option<Waker>,
}

/// Completes when the tasks submitted before it have run or been given back.
///
/// A future that works on any executor, or a thing to [`wait`](Self::wait) for. Dropping it changes nothing for the tasks.
#[must_use = "a flush does nothing until it is awaited"]
pub struct Flush {
    state: Arc<Mutex<State>>,
    /// Whether waiting on this thread would wait for itself.
    inside: Box<dyn Fn() -> bool + Send + Sync>,
}

impl Flush {
    pub(super) fn new(inside: Box<dyn Fn() -> bool + Send + Sync>) -> (Self, Box<dyn FnOnce() + Send>) {
        let state = Arc::new(Mutex::new(State::default()));
        let told = Arc::clone(&state);
        let done = Box::new(move || {
            let waker = {
                let mut state = told.lock();
                state.done = true;
                state.waker.take()
            };
            if let Some(waker) = waker {
                waker.wake();
            }
        });
        (Self { state, inside }, done)
    }

    /// Whether the tasks are done.
    pub fn is_done(&self) -> bool {
        self.state.lock().done
    }

    /// Blocks until the tasks are done.
    ///
    /// # Errors
    /// [`WouldDeadlock`] when this thread is the one that has to run them.
    pub fn wait(mut self) -> Result<(), WouldDeadlock> {
        struct Unpark(thread::Thread);

        impl Wake for Unpark {
            fn wake(self: StdArc<Self>) {
                self.0.unpark();
            }
        }

        if self.is_done() {
            return Ok(());
        }
        if (self.inside)() {
            return Err(WouldDeadlock);
        }
        let waker = Waker::from(StdArc::new(Unpark(thread::current())));
        let mut context = Context::from_waker(&waker);
        while Pin::new(&mut self).poll(&mut context).is_pending() {
            thread::park();
        }
        Ok(())
    }
}

impl Future for Flush {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let waker = context.waker().clone();
        let before = {
            let mut state = self.state.lock();
            if state.done {
                return Poll::Ready(());
            }
            state.waker.replace(waker)
        };
        drop(before);
        Poll::Pending
    }
}

impl fmt::Debug for Flush {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flush").field("done", &self.is_done()).finish_non_exhaustive()
    }
}

/// Waiting here would wait for this very thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WouldDeadlock;

impl fmt::Display for WouldDeadlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the thread that waits is the one that would do the work")
    }
}

impl Error for WouldDeadlock {}
