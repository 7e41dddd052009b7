//! Models of the cache manager: two inserts that press, and a close against everything.
//!
//! In models a page has four slots and a node four words: entries 0 to 3 of a ledger share a page.
#![cfg(loom)]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "counters of the test itself, which the checker must not see as synchronisation; models fail where they unwrap"
)]

use std::sync::Arc as StdArc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use folio_cache::{CacheManager, CacheOptions, CacheOptionsError, RangeCache, Weigh};
use folio_sync::test_util::{FreshAddresses, ManualClock, Model, Tracked, model};
use folio_sync::time::{Clock, Instant};
use folio_sync::timers::{TimerId, Timers};
use folio_sync::{Arc, Executor, Job, Mutex, Rejected, arc_dyn, thread};

/// Pages are known by their addresses.
#[global_allocator]
static ALLOCATOR: FreshAddresses = FreshAddresses;

/// What is cached: what it weighs.
struct Load(Tracked<u64>);

impl Weigh for Load {
    fn weight(&self) -> u64 {
        *self.0.get()
    }
}

/// What passes and ticks are given to, for the model to run.
///
/// The locks are the checker's, which has to see that a job is taken or given; what passes and inserters share is more than they order.
#[derive(Clone, Default)]
struct Jobs(Arc<Mutex<Vec<(u64, Job)>>>, StdArc<AtomicU64>);

impl Jobs {
    fn give(&self, job: Job) -> u64 {
        // Relaxed: a number that no other one gets.
        let id = self.1.fetch_add(1, Ordering::Relaxed);
        self.0.lock().push((id, job));
        id
    }

    /// Runs the oldest job, if there is one.
    fn run(&self) -> bool {
        let first = {
            let mut jobs = self.0.lock();
            if jobs.is_empty() { None } else { Some(jobs.remove(0).1) }
        };
        let runs = first.is_some();
        if let Some(job) = first {
            job.run();
        }
        runs
    }

    fn len(&self) -> usize {
        self.0.lock().len()
    }
}

impl Executor for Jobs {
    fn submit(&self, job: Job) -> Result<(), Rejected<Job>> {
        self.give(job);
        Ok(())
    }
}

impl Timers for Jobs {
    fn once(&self, _delay: Duration, job: Job) -> Result<TimerId, Rejected<Job>> {
        Ok(TimerId::from_raw(self.give(job)))
    }

    fn cancel(&self, timer: TimerId) -> Option<Job> {
        let mut jobs = self.0.lock();
        let at = jobs.iter().position(|(id, _)| *id == timer.as_raw())?;
        Some(jobs.remove(at).1)
    }
}

struct Scene {
    manager: CacheManager<Load>,
    passes: Jobs,
    timers: Jobs,
}

/// A manager of a budget of 4: above 3 a pass goes down to 3.
fn scene() -> Scene {
    let (passes, timers) = (Jobs::default(), Jobs::default());
    let manager = CacheManager::new(
        options(4),
        arc_dyn!(passes.clone() => dyn Executor),
        arc_dyn!(timers.clone() => dyn Timers),
        arc_dyn!(ManualClock::new() => dyn Clock),
    );
    Scene { manager: manager.unwrap(), passes, timers }
}

fn options(budget: u64) -> CacheOptions {
    let mut options = CacheOptions::default();
    options.budget = budget;
    options.max_requeues = 0;
    options
}

fn put(cache: &RangeCache<Load>, entry: i64, weight: u64) -> bool {
    cache.insert((1, entry), Load(Tracked::new(weight)), 0, Instant::ORIGIN).is_ok()
}

/// 1.8: two inserts that only together are above the threshold queue one pass.
#[test]
fn two_inserts_queue_one_pass() {
    model("two inserts queue one pass", || {
        let Scene { manager, passes, .. } = scene();
        let (one, two) = (manager.cache(), manager.cache());
        let cache = one.clone();
        let thread = thread::spawn(move || assert!(put(&cache, 0, 2)));
        assert!(put(&two, 0, 2));
        thread.join().unwrap();
        assert_eq!(passes.len(), 1);
        assert!(passes.run() && !passes.run());
        assert_eq!(manager.snapshot().charged_weight, 2);
    });
}

/// 1.8: a close races with an insert: what it took goes with its cache, and no weight is left.
#[test]
fn close_racing_insert() {
    model("close racing insert", || {
        let Scene { manager, passes, timers } = scene();
        let cache = manager.cache();
        let other = cache.clone();
        let thread = thread::spawn(move || put(&other, 0, 4));
        manager.close();
        let _taken = thread.join().unwrap();
        assert!(!put(&cache, 1, 0), "nothing is taken any more");
        while passes.run() {}
        drop(cache);
        let snapshot = manager.snapshot();
        assert_eq!((snapshot.charged_weight, snapshot.pages, timers.len()), (0, 0, 0));
    });
}

/// 1.8: a close races with a pass: both end, what is cached goes once, and nothing is set afterwards.
#[test]
fn close_racing_a_pass() {
    model("close racing a pass", || {
        let Scene { manager, passes, timers } = scene();
        let cache = manager.cache();
        assert!(put(&cache, 0, 4));
        let runs = passes.clone();
        let thread = thread::spawn(move || runs.run());
        manager.close();
        thread.join().unwrap();
        while passes.run() {}
        let snapshot = manager.snapshot();
        assert_eq!((snapshot.charged_weight, snapshot.pages), (0, 0));
        assert_eq!((timers.len(), passes.len()), (0, 0));
    });
}

/// 1.8: a close races with a tick, which sets the next one: no timer is left, and none fires for nothing.
#[test]
fn close_racing_a_tick() {
    model("close racing a tick", || {
        let Scene { manager, passes, timers } = scene();
        let fires = timers.clone();
        let thread = thread::spawn(move || fires.run());
        manager.close();
        thread.join().unwrap();
        while passes.run() {}
        assert_eq!((timers.len(), passes.len()), (0, 0));
    });
}

/// 1.8: new settings race with a tick: there is one timer afterwards.
#[test]
fn settings_racing_a_tick() {
    model("settings racing a tick", || {
        let Scene { manager, passes, timers } = scene();
        let fires = timers.clone();
        let thread = thread::spawn(move || fires.run());
        manager.set_options(options(8)).unwrap();
        thread.join().unwrap();
        assert_eq!((timers.len(), passes.len()), (1, 1));
        manager.close();
        while passes.run() {}
        assert_eq!((timers.len(), passes.len()), (0, 0));
    });
}

/// 1.8: new settings race with the close: they bring nothing back.
#[test]
fn settings_racing_the_close() {
    let model = Model::new("settings racing the close").few_executions("one lock decides which comes first");
    model.check(|| {
        let Scene { manager, passes, timers } = scene();
        let other = manager.clone();
        let thread = thread::spawn(move || other.set_options(options(8)));
        manager.close();
        let set = thread.join().unwrap();
        assert!(matches!(set, Ok(()) | Err(CacheOptionsError::Closed)));
        let cache = manager.cache();
        assert!(!put(&cache, 0, 1));
        assert_eq!(manager.snapshot().budget, 0);
        while passes.run() {}
        assert_eq!((timers.len(), passes.len()), (0, 0));
    });
}

/// 1.8: the last handles go on two threads: the manager is closed once, by whichever is the last.
#[test]
fn last_handles_racing() {
    let model = Model::new("last handles racing").few_executions("one count decides which is the last");
    model.check(|| {
        let Scene { manager, passes, timers } = scene();
        let cache = manager.cache();
        assert!(put(&cache, 0, 1));
        let other = manager.clone();
        let kept = StdArc::new(());
        let counts = StdArc::clone(&kept);
        let thread = thread::spawn(move || {
            drop(other);
            drop(counts);
        });
        drop(manager);
        thread.join().unwrap();
        assert_eq!((cache.len(), cache.weight()), (0, 0));
        assert_eq!((timers.len(), passes.len(), StdArc::strong_count(&kept)), (0, 0, 1));
    });
}
