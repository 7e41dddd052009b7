//! The surroundings of the replicator under test: entries, a cursor, a producer, a timer, all in memory and told what to do.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};

use folio_sync::Mutex;

std::thread_local! {
    /// Whether this thread holds the producer's monitor: no cursor call may come then.
    pub(crate) static MONITOR_HELD: Cell<bool> = const { Cell::new(false) };
}

/// An entry that the cursor handed out; released when dropped, so exactly once.
pub(crate) struct Entry {
    pub(crate) position: u64,
    live: Arc<AtomicIsize>,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.live.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadError {
    TooManyRequests,
    /// The completion could not be handed on; the cursor has advanced.
    Rejected,
}

pub(crate) type ReadResult = Result<Vec<Entry>, ReadError>;
pub(crate) type OnRead = Box<dyn FnOnce(ReadResult) + Send>;
/// What a call into the surroundings does on its way.
pub(crate) type Hook = Box<dyn FnOnce() + Send>;

/// What happened, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Read(u64),
    Cancel(bool),
    Rewind,
    Sent(u64),
    ProducerStart,
    ProducerClosed,
}

#[derive(Default)]
pub(crate) struct World {
    pub(crate) events: Mutex<Vec<Event>>,
    pub(crate) cursor: Mutex<Cursor>,
    pub(crate) producer: Mutex<Producer>,
    /// Entries handed out and not released.
    pub(crate) live: Arc<AtomicIsize>,
    depth: AtomicUsize,
    pub(crate) deepest: AtomicUsize,
}

#[derive(Default)]
pub(crate) struct Cursor {
    pub(crate) read_position: u64,
    pub(crate) deleted: Vec<u64>,
    /// Batches that are cached: a read takes the first and completes inside the call.
    pub(crate) cached: VecDeque<usize>,
    pub(crate) pending: Option<OnRead>,
    /// What the next cancellations answer; false when none is left.
    pub(crate) cancels: VecDeque<bool>,
    pub(crate) before_read: Option<Hook>,
    pub(crate) after_read: Option<Hook>,
    pub(crate) on_cancel: Option<Hook>,
    pub(crate) on_rewind: Option<Hook>,
}

#[derive(Default)]
pub(crate) struct Producer {
    /// Called with each position that was sent, outside of any lock.
    pub(crate) on_send: Option<Arc<dyn Fn(u64) + Send + Sync>>,
    pub(crate) on_start: Option<Hook>,
    pub(crate) closing: Option<Hook>,
}

fn assert_no_monitor() {
    assert!(!MONITOR_HELD.get(), "cursor work under the producer's monitor");
}

impl World {
    pub(crate) fn log(&self, event: Event) {
        self.events.lock().push(event);
    }

    pub(crate) fn take_events(&self) -> Vec<Event> {
        std::mem::take(&mut self.events.lock())
    }

    pub(crate) fn sent(&self) -> Vec<u64> {
        let events = self.events.lock();
        events
            .iter()
            .filter_map(|event| if let Event::Sent(position) = event { Some(*position) } else { None })
            .collect()
    }

    pub(crate) fn reads(&self) -> usize {
        self.events.lock().iter().filter(|event| matches!(event, Event::Read(_))).count()
    }

    pub(crate) fn live(&self) -> isize {
        self.live.load(Ordering::Relaxed)
    }

    pub(crate) fn entries(&self, first: u64, count: usize) -> Vec<Entry> {
        self.live.fetch_add(isize::try_from(count).unwrap(), Ordering::Relaxed);
        (first..).take(count).map(|position| Entry { position, live: Arc::clone(&self.live) }).collect()
    }

    fn run_hook(hook: Option<Hook>) {
        if let Some(hook) = hook {
            hook();
        }
    }

    /// Reads: a cached batch completes inside the call, otherwise the callback waits for [`complete`](Self::complete).
    pub(crate) fn read_or_wait(&self, on_read: OnRead) {
        assert_no_monitor();
        let hook = self.cursor.lock().before_read.take();
        Self::run_hook(hook);
        let (first, cached) = {
            let mut cursor = self.cursor.lock();
            assert!(cursor.pending.is_none(), "a second read is outstanding");
            (cursor.read_position, cursor.cached.pop_front())
        };
        self.log(Event::Read(first));
        match cached {
            Some(count) => {
                self.cursor.lock().read_position += count as u64;
                self.call(on_read, Ok(self.entries(first, count)));
            }
            None => self.cursor.lock().pending = Some(on_read),
        }
        let hook = self.cursor.lock().after_read.take();
        Self::run_hook(hook);
    }

    fn call(&self, on_read: OnRead, result: ReadResult) {
        let depth = self.depth.fetch_add(1, Ordering::Relaxed) + 1;
        self.deepest.fetch_max(depth, Ordering::Relaxed);
        on_read(result);
        self.depth.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn is_pending(&self) -> bool {
        self.cursor.lock().pending.is_some()
    }

    /// The outstanding read succeeds.
    pub(crate) fn complete(&self, count: usize) {
        let (on_read, first) = {
            let mut cursor = self.cursor.lock();
            let first = cursor.read_position;
            cursor.read_position += count as u64;
            (cursor.pending.take().expect("a read is outstanding"), first)
        };
        self.call(on_read, Ok(self.entries(first, count)));
    }

    /// The outstanding read fails, after the cursor advanced by `advanced`.
    pub(crate) fn fail(&self, error: ReadError, advanced: u64) {
        let on_read = {
            let mut cursor = self.cursor.lock();
            cursor.read_position += advanced;
            cursor.pending.take().expect("a read is outstanding")
        };
        self.call(on_read, Err(error));
    }

    pub(crate) fn cancel_pending_read(&self) -> bool {
        assert_no_monitor();
        let (answer, hook) = {
            let mut cursor = self.cursor.lock();
            let answer = cursor.cancels.pop_front().unwrap_or(false);
            if answer {
                cursor.pending = None;
            }
            (answer, cursor.on_cancel.take())
        };
        self.log(Event::Cancel(answer));
        Self::run_hook(hook);
        answer
    }

    pub(crate) fn rewind(&self) {
        assert_no_monitor();
        self.log(Event::Rewind);
        let hook = self.cursor.lock().on_rewind.take();
        Self::run_hook(hook);
        let mut cursor = self.cursor.lock();
        let mut first = 0;
        while cursor.deleted.contains(&first) {
            first += 1;
        }
        cursor.read_position = first;
    }

    pub(crate) fn delete(&self, position: u64) {
        self.cursor.lock().deleted.push(position);
    }

    pub(crate) fn send(&self, entry: &Entry) {
        self.log(Event::Sent(entry.position));
        let hook = self.producer.lock().on_send.clone();
        if let Some(hook) = hook {
            hook(entry.position);
        }
    }

    pub(crate) fn start_producer(&self) {
        self.log(Event::ProducerStart);
        let hook = self.producer.lock().on_start.take();
        Self::run_hook(hook);
    }

    pub(crate) fn close_producer(&self) {
        self.log(Event::ProducerClosed);
        let hook = self.producer.lock().closing.take();
        Self::run_hook(hook);
    }
}
