//! A payload that misbehaves on demand.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicI64, Ordering};

use folio_cache::{EvictionQueue, Position, RangeCache, Weigh};
use folio_sync::{Arc, Mutex};

use crate::common::{assert_cache_empty, assert_drains, at, options, outcome, removed};

/// What of a payload panics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Weight,
    Copy,
    Drop,
}

pub(crate) type Act = Box<dyn FnOnce() + Send>;

/// A payload that weighs 10, misbehaves on demand, and is counted.
pub(crate) struct Loaded {
    pub(crate) fault: Option<Fault>,
    /// Done as it is dropped.
    pub(crate) act: Mutex<Option<Act>>,
    pub(crate) alive: Arc<AtomicI64>,
}

impl Clone for Loaded {
    fn clone(&self) -> Self {
        assert!(self.fault != Some(Fault::Copy), "a copy that panics");
        self.alive.fetch_add(1, Ordering::Relaxed);
        Self { fault: self.fault, act: Mutex::new(None), alive: Arc::clone(&self.alive) }
    }
}

impl Weigh for Loaded {
    fn weight(&self) -> u64 {
        assert!(self.fault != Some(Fault::Weight), "a weight that panics");
        10
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        // Relaxed: read when the threads are joined.
        self.alive.fetch_sub(1, Ordering::Relaxed);
        if let Some(act) = self.act.lock().take() {
            act();
        }
        assert!(self.fault != Some(Fault::Drop), "a destructor that panics");
    }
}

/// A cache of such payloads.
pub(crate) struct Stage {
    pub(crate) queue: EvictionQueue<Loaded>,
    pub(crate) cache: RangeCache<Loaded>,
    pub(crate) alive: Arc<AtomicI64>,
}

impl Stage {
    pub(crate) fn new() -> Self {
        let queue = EvictionQueue::new(options(0, false));
        Self { cache: RangeCache::new(&queue), queue, alive: Arc::default() }
    }

    pub(crate) fn loaded(&self, fault: Option<Fault>, act: Option<Act>) -> Loaded {
        self.alive.fetch_add(1, Ordering::Relaxed);
        Loaded { fault, act: Mutex::new(act), alive: Arc::clone(&self.alive) }
    }

    #[track_caller]
    pub(crate) fn put(&self, position: Position, fault: Option<Fault>) {
        assert_eq!(outcome(self.cache.insert(position, self.loaded(fault, None), 0, at(1))), None);
    }

    #[track_caller]
    pub(crate) fn put_acting(&self, position: Position, act: impl FnOnce() + Send + 'static) {
        let loaded = self.loaded(None, Some(Box::new(act)));
        assert_eq!(outcome(self.cache.insert(position, loaded, 0, at(1))), None);
    }

    pub(crate) fn alive(&self) -> i64 {
        self.alive.load(Ordering::Relaxed)
    }

    /// Nothing is left.
    #[track_caller]
    pub(crate) fn assert_empty(&self) {
        assert_cache_empty(&self.cache);
        assert_drains(&self.queue);
        assert_eq!(self.alive(), 0);
    }

    /// Everything can still be removed, each place taken again, and nothing is left.
    #[track_caller]
    pub(crate) fn end(self) {
        let cached = self.cache.range(..).into_iter().map(|(position, _)| position).collect::<Vec<_>>();
        assert_eq!(self.cache.retired_weight(), 0, "no reader is inside");
        assert_eq!(removed(self.cache.clear()).0, cached.len() as u64);
        self.assert_empty();
        for position in cached {
            self.put(position, None);
        }
        self.cache.clear();
        self.assert_empty();
    }
}

/// Runs what is to panic.
#[track_caller]
pub(crate) fn panics<R>(work: impl FnOnce() -> R) -> String {
    let payload = catch_unwind(AssertUnwindSafe(work)).map(drop).expect_err("it panics");
    folio_sync::unwind::message(&*payload).to_owned()
}
