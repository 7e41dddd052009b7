//! What waits for a store's thread: many put in, one takes all.
//!
//! # Guarantees
//! Everything that is put in is taken once, in the order in which the lock was had; whoever finds it full or closed gets it back. Putting in never waits for the
//! thread's work. The thread sleeps while there is nothing.
//!
//! # Protocol
//! One lock guards everything. The taker says under the lock that it sleeps, and parks when it has left it; whoever puts in takes that back under the lock, and
//! then unparks. A park that returns for another reason looks again.
//!
//! # Limits
//! A number of items and their weight, those in work included: what was taken counts until the next take.

use std::time::Duration;

use folio_sync::Mutex;
use folio_sync::thread::{self, Thread};

use super::error::StoreError;

/// The most that may wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) items: usize,
    pub(crate) weight: usize,
}

#[derive(Debug)]
pub(crate) struct Inbox<T> {
    bounds: Bounds,
    state: Mutex<State<T>>,
}

#[derive(Debug)]
struct State<T> {
    items: Vec<T>,
    /// How many, and how heavy, with those in work.
    count: usize,
    weight: usize,
    in_work: (usize, usize),
    sleeper: Option<Thread>,
    closed: bool,
}

impl<T> Inbox<T> {
    pub(crate) fn new(bounds: Bounds) -> Self {
        let state =
            State { items: Vec::new(), count: 0, weight: 0, in_work: (0, 0), sleeper: None, closed: false };
        Self { bounds, state: Mutex::new(state) }
    }

    /// Puts in, unless it is closed or full; what is alone is never too heavy.
    pub(crate) fn put(&self, item: T, weight: usize) -> Result<(), (T, StoreError)> {
        let mut state = self.state.lock();
        if state.closed {
            return Err((item, StoreError::Shut));
        }
        let heavy = state.weight.saturating_add(weight) > self.bounds.weight && state.count > 0;
        if heavy || state.count >= self.bounds.items {
            return Err((item, StoreError::Busy));
        }
        state.items.push(item);
        state.count += 1;
        state.weight = state.weight.saturating_add(weight);
        let sleeper = state.sleeper.take();
        drop(state);
        if let Some(sleeper) = sleeper {
            sleeper.unpark();
        }
        Ok(())
    }

    /// Nothing is put in any more.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        let sleeper = state.sleeper.take();
        drop(state);
        if let Some(sleeper) = sleeper {
            sleeper.unpark();
        }
    }

    /// Takes all there is into an empty vector; what was taken before is done.
    pub(crate) fn take_now(&self, into: &mut Vec<T>) {
        let mut state = self.state.lock();
        let (count, weight) = state.in_work;
        state.count -= count;
        state.weight -= weight;
        state.in_work = (state.count, state.weight);
        std::mem::swap(&mut state.items, into);
    }

    /// Waits for something and takes all there is; whether there may be more. For one thread.
    pub(crate) fn take(&self, into: &mut Vec<T>, linger: Duration) -> bool {
        loop {
            self.take_now(into);
            if !into.is_empty() {
                if !linger.is_zero() {
                    self.linger(into, linger);
                }
                return true;
            }
            let mut state = self.state.lock();
            if !state.items.is_empty() {
                continue;
            }
            if state.closed {
                return false;
            }
            state.sleeper = Some(thread::current());
            drop(state);
            thread::park();
            self.state.lock().sleeper = None;
        }
    }

    /// Waits for company.
    fn linger(&self, into: &mut Vec<T>, linger: Duration) {
        thread::park_timeout(linger);
        let mut state = self.state.lock();
        state.in_work = (state.count, state.weight);
        into.append(&mut state.items);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

    use folio_sync::Arc;

    use super::*;

    #[test]
    fn what_is_in_work_counts_until_the_next_take() {
        let inbox = Inbox::new(Bounds { items: 3, weight: 10 });
        inbox.put(1, 100).unwrap();
        assert_eq!(inbox.put(2, 1), Err((2, StoreError::Busy)), "too heavy together");
        let mut taken = Vec::new();
        assert!(inbox.take(&mut taken, Duration::ZERO));
        assert_eq!(inbox.put(2, 1), Err((2, StoreError::Busy)), "it is in work");
        taken.clear();
        inbox.take_now(&mut taken);
        assert_eq!(taken, []);
        (0..3).for_each(|n| inbox.put(n, 1).unwrap());
        assert_eq!(inbox.put(3, 1), Err((3, StoreError::Busy)), "too many");
        inbox.close();
        assert_eq!(inbox.put(3, 1), Err((3, StoreError::Shut)));
        assert!(inbox.take(&mut taken, Duration::from_millis(1)));
        assert_eq!(taken, [0, 1, 2]);
        taken.clear();
        assert!(!inbox.take(&mut taken, Duration::ZERO));
    }

    #[test]
    fn everything_of_many_threads_is_taken_once_in_each_threads_order() {
        let inbox = Arc::new(Inbox::new(Bounds { items: usize::MAX, weight: usize::MAX }));
        let threads: Vec<_> = (0..3_u32)
            .map(|thread| {
                let inbox = Arc::clone(&inbox);
                thread::spawn(move || (0..2000_u32).for_each(|n| inbox.put((thread, n), 1).unwrap()))
            })
            .collect();
        let closer = Arc::clone(&inbox);
        let closer = thread::spawn(move || {
            for thread in threads {
                thread.join().unwrap();
            }
            closer.close();
        });
        let (mut next, mut taken) = ([0; 3], Vec::new());
        while inbox.take(&mut taken, Duration::ZERO) {
            for (thread, n) in taken.drain(..) {
                assert_eq!(next[thread as usize], n);
                next[thread as usize] += 1;
            }
        }
        assert_eq!(next, [2000; 3]);
        closer.join().unwrap();
    }
}
