//! Making the next segment while the present one is written, on a thread of its own.
//!
//! # Protocol
//! The store's thread asks for one segment at a time, and takes it when it needs it, waiting if need be. One lock holds what was made; whoever waits leaves its
//! thread there and is unparked.

use std::io;

use folio_sync::thread::{self, Builder, JoinHandle, Thread};
use folio_sync::{Arc, Mutex, unwind};

use super::Shared;
use super::segment::Segment;
use crate::store::inbox::{Bounds, Inbox};
use crate::store::layer::Directory;

type Made<F> = io::Result<Arc<Segment<F>>>;

pub(super) struct Maker<D: Directory> {
    slots: Arc<Inbox<u32>>,
    made: Arc<Mutex<Desk<D::File>>>,
    thread: Option<JoinHandle<()>>,
    /// What is being made, or was and is not taken.
    asked: Option<u32>,
}

/// Where what is made is left.
struct Desk<F> {
    made: Option<Made<F>>,
    waiter: Option<Thread>,
}

impl<D: Directory> Maker<D> {
    pub(super) fn start(shared: Arc<Shared<D>>) -> io::Result<Self> {
        let slots = Arc::new(Inbox::new(Bounds { items: 2, weight: 0 }));
        let made = Arc::new(Mutex::new(Desk { made: None, waiter: None }));
        let (asks, desk) = (Arc::clone(&slots), Arc::clone(&made));
        let thread = Builder::new().name("folio-segments".to_owned()).spawn(move || {
            let mut asked = Vec::new();
            while asks.take(&mut asked, std::time::Duration::ZERO) {
                for slot in asked.drain(..) {
                    leave(&desk, make(&shared, slot));
                }
            }
        })?;
        Ok(Self { slots, made, thread: Some(thread), asked: None })
    }

    /// Whether one is being made, or was and is not taken.
    pub(super) fn is_asked(&self) -> bool {
        self.asked.is_some()
    }

    /// Asks for the file of a slot; not while another is asked.
    pub(super) fn ask(&mut self, slot: u32) {
        // It is never closed before it is dropped, and there is one at a time.
        if self.slots.put(slot, 0).is_ok() {
            self.asked = Some(slot);
        }
    }

    /// Takes what was asked, with its slot.
    pub(super) fn take(&mut self) -> Option<(u32, Made<D::File>)> {
        let slot = self.asked.take()?;
        loop {
            let mut desk = self.made.lock();
            if let Some(made) = desk.made.take() {
                return Some((slot, made));
            }
            desk.waiter = Some(thread::current());
            drop(desk);
            thread::park();
        }
    }
}

fn make<D: Directory>(shared: &Shared<D>, slot: u32) -> Made<D::File> {
    let made = unwind::catch(|| Segment::make(&shared.directory, slot, shared.options.segment_bytes));
    let made = made.unwrap_or_else(|payload| {
        unwind::discard(payload);
        Err(io::Error::other("making it panicked"))
    });
    made.map(Arc::new)
}

fn leave<F>(desk: &Mutex<Desk<F>>, made: Made<F>) {
    let mut desk = desk.lock();
    desk.made = Some(made);
    let waiter = desk.waiter.take();
    drop(desk);
    if let Some(waiter) = waiter {
        waiter.unpark();
    }
}

impl<D: Directory> Drop for Maker<D> {
    fn drop(&mut self) {
        self.slots.close();
        if let Some(Err(payload)) = self.thread.take().map(JoinHandle::join) {
            unwind::discard(payload);
        }
    }
}
