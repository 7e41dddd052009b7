//! The cache manager: its budget, its passes, its settings and its end.
#![cfg(not(any(loom, shuttle)))]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests run on the standard library only, and their helpers unwrap as they do"
)]

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use common::{Tally, Value, outcome};
use folio_cache::{
    Acquired, CacheManager, CacheOptions, CacheOptionsError, Evicted, PermitError, Position, RangeCache,
    Reason, Weigh,
};
use folio_sync::test_util::{ManualClock, ManualExecutor, ManualTimers};
use folio_sync::time::{Clock, Instant};
use folio_sync::timers::Timers;
use folio_sync::{Arc, Executor, Mutex, arc_dyn};

const TICK: Duration = Duration::from_millis(10);
const TTL: Duration = Duration::from_secs(1);

fn options(budget: u64) -> CacheOptions {
    let mut options = CacheOptions::default();
    options.budget = budget;
    options
}

fn manager<V: Send + Sync + 'static>(
    options: CacheOptions,
    executor: &ManualExecutor,
    timers: &ManualTimers,
    clock: &ManualClock,
) -> CacheManager<V> {
    CacheManager::new(
        options,
        arc_dyn!(executor.clone() => dyn Executor),
        arc_dyn!(timers.clone() => dyn Timers),
        arc_dyn!(clock.clone() => dyn Clock),
    )
    .unwrap()
}

struct Scene {
    manager: CacheManager<Value>,
    executor: ManualExecutor,
    timers: ManualTimers,
    clock: ManualClock,
    tally: Tally,
}

impl Scene {
    fn new(options: CacheOptions) -> Self {
        let (executor, clock) = (ManualExecutor::new(), ManualClock::new());
        let timers = ManualTimers::new(&clock);
        let manager = manager(options, &executor, &timers, &clock);
        Self { manager, executor, timers, clock, tally: Tally::new(10_000) }
    }

    fn with(budget: u64) -> Self {
        Self::new(options(budget))
    }

    /// Inserts a value; why it was given back.
    fn put(&self, cache: &RangeCache<Value>, position: Position, weight: u64, reads: u32) -> Option<Reason> {
        outcome(cache.insert(position, self.tally.value(position, weight), reads, self.manager.now()))
    }

    /// Inserts entries of weight 1 into ledger 1.
    #[track_caller]
    fn fill(&self, cache: &RangeCache<Value>, entries: std::ops::Range<i64>) {
        for entry in entries {
            assert_eq!(self.put(cache, (1, entry), 1, 0), None);
        }
    }

    fn charged(&self) -> u64 {
        self.manager.snapshot().charged_weight
    }

    /// Lets one tick fire, and its pass run.
    #[track_caller]
    fn tick(&self) {
        assert_eq!(self.timers.advance(TICK), 1);
        assert_eq!(self.executor.run_all(), 1);
    }

    /// Lets more than the time to live pass, and one pass run, for all the ticks.
    #[track_caller]
    fn age(&self) {
        assert_eq!(self.timers.advance(TTL + TICK), 101);
        assert_eq!(self.executor.run_all(), 1);
    }

    /// Ends the manager after its caches: nothing is left.
    #[track_caller]
    fn end(self) {
        let Self { manager, executor, timers, tally, .. } = self;
        let snapshot = manager.snapshot();
        assert_eq!((snapshot.charged_weight, snapshot.retired_weight, snapshot.pages), (0, 0, 0));
        drop(manager);
        executor.run_all();
        assert_eq!((timers.pending(), executor.queued()), (0, 0));
        tally.assert_all_gone();
    }
}

/// 1.8: an insert above 98 % of the budget queues one pass, however many follow, and that goes down to 90 %.
#[test]
fn above_the_threshold_one_pass_is_queued_that_goes_down_to_the_watermark() {
    let scene = Scene::with(100);
    let cache = scene.manager.cache();
    scene.fill(&cache, 0..98);
    assert_eq!(scene.executor.queued(), 0, "98 are not above 98");
    scene.fill(&cache, 98..110);
    assert_eq!((scene.executor.queued(), scene.charged()), (1, 110), "inserts go on");
    assert_eq!(scene.executor.run_all(), 1);
    assert_eq!((scene.charged(), cache.len()), (90, 90));
    assert!(!cache.contains((1, 19)) && cache.contains((1, 20)), "first in, first out");
    let snapshot = scene.manager.snapshot();
    assert_eq!((snapshot.passes, snapshot.pressed.entries, snapshot.pressed.weight), (1, 20, 20));
    assert_eq!(snapshot.expired, Evicted::default());
    scene.fill(&cache, 110..119);
    assert_eq!(scene.executor.queued(), 1, "and again");
    drop(cache);
    assert_eq!(scene.executor.run_all(), 1);
    scene.end();
}

/// 1.8, I20: with the pass held up, inserts go on to five quarters of the budget, are given back then, and taken again after it.
#[test]
fn inserts_are_not_held_up_by_a_pass_that_does_not_run() {
    let scene = Scene::with(100);
    let cache = scene.manager.cache();
    scene.fill(&cache, 0..125);
    assert_eq!(scene.put(&cache, (1, 125), 1, 0), Some(Reason::OverBudget));
    assert_eq!(scene.manager.snapshot().refused_inserts, 1);
    assert_eq!(scene.executor.run_all(), 1);
    assert_eq!(scene.put(&cache, (1, 125), 1, 0), None);
    drop(cache);
    scene.end();
}

/// 1.8: the budget is one over all caches, and the oldest go whichever cache they are in.
#[test]
fn all_caches_share_one_budget() {
    let scene = Scene::with(100);
    let (a, b) = (scene.manager.cache(), scene.manager.cache());
    scene.fill(&a, 0..60);
    scene.fill(&b, 0..39);
    assert_eq!(scene.executor.run_all(), 1);
    assert_eq!((a.len(), b.len(), scene.charged()), (51, 39, 90));
    drop(a);
    assert_eq!(scene.charged(), 39, "a cache that is dropped has its bytes back");
    assert_eq!(b.clear().weight, 39);
    drop(b);
    scene.end();
}

/// 1.8, I23: at each interval a pass evicts what is older than the time to live, and drops keys of pages that are gone.
#[test]
fn what_is_too_old_goes_at_the_next_tick() {
    let scene = Scene::with(1_000);
    let cache = scene.manager.cache();
    scene.fill(&cache, 0..10);
    scene.tick();
    scene.fill(&cache, 100..110);
    for _ in 0..99 {
        scene.tick();
    }
    assert_eq!(cache.len(), 20, "a second old, and not older");
    scene.tick();
    assert_eq!(cache.len(), 10);
    scene.tick();
    assert_eq!(cache.len(), 0);
    let snapshot = scene.manager.snapshot();
    assert_eq!((snapshot.expired.entries, snapshot.expired.weight, snapshot.passes), (20, 20, 102));
    assert_eq!(snapshot.pressed, Evicted::default());
    scene.fill(&cache, 0..10);
    cache.clear();
    assert_eq!(scene.manager.snapshot().keys, 1);
    scene.tick();
    assert_eq!(scene.manager.snapshot().keys, 0);
    assert_eq!(scene.timers.pending(), 1);
    drop(cache);
    scene.end();
}

/// I18, I19, I20: what is expected to be read outlives its time for so many rounds, which is counted; what was read goes; pressure takes all.
#[test]
fn what_is_expected_is_kept_for_some_rounds_unless_there_is_too_much() {
    let mut settings = options(100);
    settings.max_requeues = 2;
    let scene = Scene::new(settings);
    let cache = scene.manager.cache();
    assert_eq!(scene.put(&cache, (1, 0), 7, 2), None);
    assert_eq!(scene.put(&cache, (1, 100), 5, 1), None);
    scene.age();
    assert_eq!((cache.len(), scene.manager.snapshot().retained_weight), (2, 12));
    assert!(cache.mark_read((1, 100)));
    scene.age();
    assert_eq!((cache.len(), scene.manager.snapshot().retained_weight), (1, 19));
    scene.age();
    assert_eq!((cache.len(), scene.manager.snapshot().expired.weight), (0, 12));
    for entry in 0..110 {
        assert_eq!(scene.put(&cache, (1, entry), 1, 9), None);
    }
    scene.executor.run_all();
    assert_eq!(scene.charged(), 90, "memory pressure wins in one pass");
    drop(cache);
    scene.end();
}

/// 1.8, I11: what is removed while a reader is in its page counts until that has left, in all caches together.
#[test]
fn what_a_reader_keeps_counts_until_it_has_left() {
    let scene = Scene::with(100);
    let (a, b) = (scene.manager.cache(), scene.manager.cache());
    scene.fill(&a, 0..3);
    assert_eq!(scene.put(&b, (1, 0), 7, 0), None);
    a.for_each_in_range(..=(1, 0), |_, _| {
        b.for_each_in_range(.., |_, _| {
            assert_eq!((a.clear().entries, b.clear().entries), (3, 1));
            let snapshot = scene.manager.snapshot();
            assert_eq!((snapshot.retired_weight, snapshot.charged_weight), (10, 10));
        });
        assert_eq!(scene.manager.snapshot().retired_weight, 3);
    });
    assert_eq!(scene.manager.snapshot().retired_weight, 0);
    drop((a, b));
    scene.end();
}

/// bug 26, I33: with a budget of zero nothing is cached, be it without weight, and the read permits hold.
#[test]
fn without_a_budget_nothing_is_cached_and_permits_hold() {
    let mut settings = options(0);
    settings.reads.budget = 100;
    let scene = Scene::new(settings);
    let cache = scene.manager.cache();
    assert_eq!(scene.put(&cache, (1, 0), 1, 0), Some(Reason::OverBudget));
    assert_eq!(scene.put(&cache, (1, 0), 0, 0), Some(Reason::OverBudget));
    let value = |entry| ((1, entry), scene.tally.value((1, entry), 0), 1);
    let refused = cache.inserter().insert_batch((0..3).map(value), scene.manager.now());
    assert_eq!((refused.len(), cache.len()), (3, 0));
    drop(refused);
    let Ok(Acquired::Now(permit)) = scene.manager.permits().acquire(200, |_| unreachable!()) else {
        panic!()
    };
    assert_eq!(permit.bytes(), 100);
    let queued = scene.manager.permits().acquire(1, |granted| drop(granted.unwrap()));
    assert!(matches!(queued, Ok(Acquired::Queued)));
    assert_eq!(scene.manager.snapshot().reads.queued, 1);
    drop(permit);
    assert_eq!((scene.manager.snapshot().reads.queued, scene.manager.snapshot().reads.in_use), (0, 0));
    scene.tick();
    assert_eq!(scene.manager.snapshot().pressed, Evicted::default());
    drop(cache);
    scene.end();
}

/// 1.8: all settings change while it works: what is above a smaller budget goes by a pass that is queued at once.
#[test]
fn settings_change_while_it_works() {
    let scene = Scene::with(1_000);
    let cache = scene.manager.cache();
    scene.fill(&cache, 0..200);
    let mut settings = scene.manager.options();
    settings.budget = 100;
    settings.evict_above_permille = 500;
    settings.evict_to_permille = 100;
    settings.ttl = Duration::from_millis(50);
    settings.pass_interval = Duration::from_millis(30);
    settings.reads.budget = 7;
    scene.manager.set_options(settings).unwrap();
    assert_eq!(scene.manager.options(), settings);
    assert_eq!(scene.executor.run_all(), 1);
    assert_eq!((cache.len(), scene.manager.snapshot().budget), (10, 100));
    assert_eq!(scene.manager.permits().available(), 7);
    assert_eq!(scene.timers.pending(), 1, "the old timer was taken back");
    assert_eq!(scene.timers.advance(Duration::from_millis(29)), 0);
    assert_eq!((scene.timers.advance(Duration::from_millis(1)), scene.executor.run_all()), (1, 1));
    assert_eq!(cache.len(), 10);
    assert_eq!((scene.timers.advance(Duration::from_millis(30)), scene.executor.run_all()), (1, 1));
    assert_eq!(cache.len(), 0, "60 ms are more than 50");
    settings.max_requeues = 0;
    settings.extend_recently_accessed = true;
    scene.manager.set_options(settings).unwrap();
    scene.fill(&cache, 0..1);
    assert_eq!(scene.put(&cache, (1, 64), 1, 5), None);
    assert!(cache.get((1, 0)).is_some());
    scene.executor.run_all();
    scene.timers.advance(Duration::from_millis(90));
    scene.executor.run_all();
    assert_eq!((cache.contains((1, 0)), cache.contains((1, 64))), (true, false));
    drop(cache);
    scene.end();
}

/// 1.8: a setting that is no good is refused by name, and nothing changes.
#[test]
fn settings_that_are_no_good_are_refused() {
    let scene = Scene::with(1_000);
    let good = scene.manager.options();
    let refused = |change: fn(&mut CacheOptions)| {
        let mut settings = good;
        settings.budget = 1;
        change(&mut settings);
        let error = scene.manager.set_options(settings).unwrap_err();
        assert_eq!((scene.manager.options(), scene.manager.snapshot().budget), (good, 1_000));
        let new = CacheManager::<Value>::new(
            settings,
            arc_dyn!(scene.executor.clone() => dyn Executor),
            arc_dyn!(scene.timers.clone() => dyn Timers),
            arc_dyn!(scene.clock.clone() => dyn Clock),
        );
        assert_eq!(new.unwrap_err(), error);
        error
    };
    let above = refused(|settings| settings.evict_above_permille = 1_001);
    assert_eq!(above, CacheOptionsError::EvictAbove { permille: 1_001 });
    let to = refused(|settings| settings.evict_to_permille = 981);
    assert_eq!(to, CacheOptionsError::EvictTo { permille: 981, above: 980 });
    assert_eq!(refused(|settings| settings.pass_interval = Duration::ZERO), CacheOptionsError::ZeroInterval);
    assert_eq!((scene.timers.pending(), scene.executor.queued()), (1, 0));
    let mut most = good;
    (most.budget, most.ttl, most.pass_interval) = (u64::MAX, Duration::MAX, Duration::MAX);
    (most.evict_above_permille, most.evict_to_permille) = (1_000, 1_000);
    scene.manager.set_options(most).unwrap();
    let cache = scene.manager.cache();
    assert_eq!(scene.put(&cache, (1, 0), 1 << 60, 0), None);
    scene.executor.run_all();
    assert_eq!(cache.len(), 1);
    drop(cache);
    scene.end();
}

/// 1.8, I24: closing stops timer and passes, ends the reads that wait, empties the caches and takes no entry again; so does dropping the last handle.
#[test]
fn a_closed_manager_is_empty_and_takes_nothing() {
    for drops in [false, true] {
        let mut settings = options(100);
        settings.reads.budget = 10;
        let scene = Scene::new(settings);
        let (cache, permits) = (scene.manager.cache(), scene.manager.permits().clone());
        scene.fill(&cache, 0..99);
        assert_eq!(scene.executor.queued(), 1, "a pass is queued as it closes");
        let Ok(Acquired::Now(permit)) = permits.acquire(10, |_| unreachable!()) else { panic!() };
        let told: Arc<Mutex<Vec<_>>> = Arc::default();
        let tells = Arc::clone(&told);
        let queued = permits.acquire(1, move |granted| tells.lock().push(granted.err()));
        assert!(matches!(queued, Ok(Acquired::Queued)));
        let other = scene.manager.clone();
        let Scene { manager, executor, timers, tally, .. } = scene;
        drop(manager);
        assert_eq!(cache.len(), 99, "there is another handle");
        let snapshot = if drops {
            drop(other);
            None
        } else {
            other.close();
            other.close();
            let changed = other.set_options(settings);
            assert_eq!(changed, Err(CacheOptionsError::Closed));
            let late = other.cache();
            assert!(late.insert((1, 0), tally.value((1, 0), 0), 0, other.now()).is_err());
            Some(other.snapshot())
        };
        assert_eq!((cache.len(), cache.weight(), timers.pending()), (0, 0, 0));
        assert_eq!(*told.lock(), [Some(PermitError::Closed)]);
        let given_back = cache.insert((1, 0), tally.value((1, 0), 1), 0, Instant::ORIGIN);
        assert_eq!(outcome(given_back), Some(Reason::OverBudget));
        assert!(executor.run_next());
        assert_eq!((executor.queued(), executor.submissions()), (0, 1), "it has nothing to do, and ends");
        if let Some(snapshot) = snapshot {
            assert_eq!((snapshot.charged_weight, snapshot.passes, snapshot.budget), (0, 0, 0));
        }
        drop(permit);
        assert_eq!(permits.in_use(), 0);
        tally.assert_all_gone();
    }
}

/// 1.8: a pass that the executor refuses, or drops unrun, is tried again with the next demand.
#[test]
fn a_pass_that_is_refused_is_tried_again() {
    let scene = Scene::with(100);
    let cache = scene.manager.cache();
    scene.executor.refuse_next(1);
    scene.fill(&cache, 0..99);
    assert_eq!((scene.executor.queued(), scene.manager.snapshot().refused_passes), (0, 1));
    scene.fill(&cache, 99..100);
    assert_eq!(scene.executor.queued(), 1);
    drop(scene.executor.take_next());
    scene.fill(&cache, 100..101);
    assert_eq!(scene.executor.run_all(), 1);
    assert_eq!((cache.len(), scene.manager.snapshot().passes), (90, 1));
    drop(cache);
    scene.end();
}

/// 1.8: a tick that the timers refuse is set by the next pass, or when a cache is opened.
#[test]
fn a_tick_that_is_refused_is_set_later() {
    let scene = Scene::with(100);
    let cache = scene.manager.cache();
    scene.timers.refuse_next(1);
    assert_eq!(scene.timers.advance(TICK), 1);
    assert_eq!(scene.timers.pending(), 0);
    assert_eq!(scene.executor.run_all(), 1);
    assert_eq!(scene.timers.pending(), 1, "by the pass of that tick");
    scene.timers.refuse_next(2);
    assert_eq!((scene.timers.advance(TICK), scene.executor.run_all()), (1, 1));
    assert_eq!(scene.timers.pending(), 0);
    drop(scene.manager.cache());
    assert_eq!(scene.timers.pending(), 1);
    assert_eq!(scene.timers.advance(TICK), 1);
    drop(cache);
    scene.executor.run_all();
    scene.end();
}

/// What is dropped does something first.
struct Heavy {
    weight: u64,
    dropped: Option<Box<dyn FnOnce() + Send + Sync>>,
}

impl Heavy {
    fn of(weight: u64) -> Self {
        Self { weight, dropped: None }
    }
}

impl Weigh for Heavy {
    fn weight(&self) -> u64 {
        self.weight
    }
}

impl Drop for Heavy {
    fn drop(&mut self) {
        if let Some(dropped) = self.dropped.take() {
            dropped();
        }
    }
}

/// 1.8: pressure that comes while a pass runs, here from a destructor of what it evicts, is seen before it ends.
#[test]
fn pressure_during_a_pass_is_seen_before_it_ends() {
    let (executor, clock) = (ManualExecutor::new(), ManualClock::new());
    let timers = ManualTimers::new(&clock);
    let manager = manager(options(100), &executor, &timers, &clock);
    let cache = manager.cache();
    let again = cache.clone();
    let inserts = move || {
        for entry in 100..130 {
            let _refused = again.insert((1, entry), Heavy::of(1), 0, Instant::ORIGIN).is_err();
        }
    };
    let first = Heavy { weight: 10, dropped: Some(Box::new(inserts)) };
    assert!(cache.insert((1, 0), first, 0, Instant::ORIGIN).is_ok());
    for entry in 1..90 {
        assert!(cache.insert((1, entry), Heavy::of(1), 0, Instant::ORIGIN).is_ok());
    }
    assert_eq!((executor.run_all(), executor.submissions()), (1, 1));
    assert_eq!((manager.snapshot().passes, manager.snapshot().charged_weight), (2, 90));
    drop(cache);
}

/// A clock that panics once.
struct Broken(ManualClock, AtomicBool);

impl Clock for Broken {
    fn now(&self) -> Instant {
        assert!(!self.1.swap(false, Ordering::Relaxed), "the clock is broken");
        self.0.now()
    }

    fn coarse(&self) -> Instant {
        self.0.coarse()
    }

    fn wall(&self) -> SystemTime {
        self.0.wall()
    }
}

/// 1.8: a pass that panics, here by its clock, keeps no later one from running.
#[test]
fn a_pass_that_panics_keeps_no_later_one_from_running() {
    let (executor, clock) = (ManualExecutor::new(), ManualClock::new());
    let timers = ManualTimers::new(&clock);
    let broken = Broken(clock, AtomicBool::new(true));
    let manager = CacheManager::new(
        options(100),
        arc_dyn!(executor.clone() => dyn Executor),
        arc_dyn!(timers.clone() => dyn Timers),
        arc_dyn!(broken => dyn Clock),
    )
    .unwrap();
    let cache = manager.cache();
    for entry in 0..99 {
        assert!(cache.insert((1, entry), Heavy::of(1), 0, Instant::ORIGIN).is_ok());
    }
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| executor.run_next()));
    assert!(panicked.is_err());
    assert_eq!(timers.advance(TICK), 1);
    assert_eq!(executor.run_all(), 1);
    assert_eq!(cache.len(), 90);
    drop(cache);
}

/// Runs every job inside `submit`.
struct Inline;

impl Executor for Inline {
    fn submit(&self, job: folio_sync::Job) -> Result<(), folio_sync::Rejected<folio_sync::Job>> {
        job.run();
        Ok(())
    }
}

/// 1.8: an executor that runs the pass inside the insert keeps the weight below the threshold all the time.
#[test]
fn an_executor_that_runs_passes_at_once_will_do() {
    let clock = ManualClock::new();
    let timers = ManualTimers::new(&clock);
    let manager = CacheManager::new(
        options(100),
        arc_dyn!(Inline => dyn Executor),
        arc_dyn!(timers.clone() => dyn Timers),
        arc_dyn!(clock => dyn Clock),
    )
    .unwrap();
    let cache = manager.cache();
    let mut inserter = cache.inserter();
    for entry in 0..1_000 {
        assert!(inserter.insert((1, entry), Heavy::of(1), 0, Instant::ORIGIN).is_ok());
        assert!(cache.len() <= 98);
    }
    let batch = (1_000..2_000).map(|entry| ((1, entry), Heavy::of(1), 0));
    assert!(inserter.insert_batch(batch, Instant::ORIGIN).is_empty());
    drop(inserter);
    assert!(cache.len() <= 98);
    manager.close();
    assert_eq!((cache.len(), timers.pending()), (0, 0));
}
