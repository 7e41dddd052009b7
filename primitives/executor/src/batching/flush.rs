//! Waiting until earlier tasks are done.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

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
    waiter: Option<Waiter>,
}

/// Who is told that a flush is done.
enum Waiter {
    Task(Waker),
    Thread(thread::Thread),
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
            let waiter = {
                let mut state = told.lock();
                state.done = true;
                state.waiter.take()
            };
            match waiter {
                Some(Waiter::Task(waker)) => waker.wake(),
                Some(Waiter::Thread(thread)) => thread.unpark(),
                None => {}
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
    /// `Ok` says that none is left, not that they ran: what was given back went to [`on_rejected`](crate::Builder::on_rejected).
    ///
    /// # Errors
    /// [`WouldDeadlock`] when this thread is the one that has to run them.
    pub fn wait(self) -> Result<(), WouldDeadlock> {
        if self.wait_as(|| Waiter::Thread(thread::current())) {
            return Ok(());
        }
        if (self.inside)() {
            return Err(WouldDeadlock);
        }
        while !self.is_done() {
            thread::park();
        }
        Ok(())
    }

    /// Has this waiter told, in place of the one before, unless the tasks are done; whether they are.
    fn wait_as(&self, waiter: impl FnOnce() -> Waiter) -> bool {
        // Made and dropped outside of the lock: a waker is user code.
        let waiter = waiter();
        let before = {
            let mut state = self.state.lock();
            if state.done {
                return true;
            }
            state.waiter.replace(waiter)
        };
        drop(before);
        false
    }
}

impl Future for Flush {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.wait_as(|| Waiter::Task(context.waker().clone())) { Poll::Ready(()) } else { Poll::Pending }
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
