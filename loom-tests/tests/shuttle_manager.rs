//! The cache manager under shuttle: writers, readers of storage, passes, ticks, new settings and the close at once, random and PCT schedules.
#![cfg(shuttle)]
#![allow(clippy::unwrap_used, reason = "a checked body fails where it unwraps")]

use std::time::Duration;

use folio_cache::{
    Acquired, CacheManager, CacheOptions, CacheOptionsError, Permit, PermitError, Position, RangeCache, Weigh,
};
use folio_sync::atomic::{AtomicU64, Ordering};
use folio_sync::test_util::{ManualClock, ManualExecutor, ManualTimers, Tracked, shuttle_check};
use folio_sync::time::Clock;
use folio_sync::timers::Timers;
use folio_sync::{Arc, Executor, Mutex, arc_dyn, thread};

const TICK: Duration = Duration::from_millis(10);
const BUDGET: u64 = 20;

/// What is cached: it knows where it belongs, and weighs 1 to 4.
struct Load(Tracked<Position>);

impl Weigh for Load {
    fn weight(&self) -> u64 {
        1 + self.0.get().1.cast_unsigned() % 4
    }
}

struct Scene {
    manager: Mutex<Option<CacheManager<Load>>>,
    executor: ManualExecutor,
    timers: ManualTimers,
    /// Requests for permits that have to wait, and those of them that were told.
    queued: AtomicU64,
    told: AtomicU64,
}

impl Scene {
    fn new() -> Arc<Self> {
        let (executor, clock) = (ManualExecutor::new(), ManualClock::new());
        let timers = ManualTimers::new(&clock);
        let manager = CacheManager::new(
            options(BUDGET),
            arc_dyn!(executor.clone() => dyn Executor),
            arc_dyn!(timers.clone() => dyn Timers),
            arc_dyn!(clock => dyn Clock),
        );
        Arc::new(Self {
            manager: Mutex::new(Some(manager.unwrap())),
            executor,
            timers,
            queued: AtomicU64::new(0),
            told: AtomicU64::new(0),
        })
    }

    /// Runs a part on a thread of its own, with a handle of the manager.
    fn spawn(
        self: &Arc<Self>,
        part: impl FnOnce(&Arc<Self>, &CacheManager<Load>) + Send + 'static,
    ) -> thread::JoinHandle<()> {
        let scene = Arc::clone(self);
        let manager = self.manager.lock().clone().unwrap();
        thread::spawn(move || part(&scene, &manager))
    }

    fn ask(self: &Arc<Self>, manager: &CacheManager<Load>, bytes: u64) -> Option<Permit> {
        let scene = Arc::clone(self);
        let acquired = manager.permits().acquire(bytes, move |granted| {
            // Relaxed, here and below: read when all threads are joined.
            scene.told.fetch_add(1, Ordering::Relaxed);
            drop(granted);
        });
        match acquired {
            Ok(Acquired::Now(permit)) => Some(permit),
            Ok(Acquired::Queued) => {
                self.queued.fetch_add(1, Ordering::Relaxed);
                None
            }
            Err(error) => {
                assert_eq!(error, PermitError::Closed);
                None
            }
        }
    }

    /// With all threads joined and the manager closed: nothing is left.
    fn end(&self, manager: &CacheManager<Load>) {
        assert_eq!(manager.set_options(options(BUDGET)), Err(CacheOptionsError::Closed));
        self.executor.run_all();
        let snapshot = manager.snapshot();
        assert_eq!((snapshot.charged_weight, snapshot.retired_weight, snapshot.pages), (0, 0, 0));
        assert_eq!((snapshot.reads.in_use, snapshot.reads.queued, snapshot.budget), (0, 0, 0));
        assert_eq!((self.timers.pending(), self.executor.queued()), (0, 0));
        assert_eq!(self.told.load(Ordering::Relaxed), self.queued.load(Ordering::Relaxed));
    }
}

fn options(budget: u64) -> CacheOptions {
    let mut options = CacheOptions::default();
    options.budget = budget;
    options.max_requeues = 1;
    options.ttl = TICK * 2;
    options.reads.budget = 4;
    options.reads.timeout = Some(TICK * 3);
    options
}

fn write(manager: &CacheManager<Load>, cache: &RangeCache<Load>, entries: std::ops::Range<i64>) {
    let mut inserter = cache.inserter();
    for entry in entries {
        let _given_back = inserter.insert((1, entry), Load(Tracked::new((1, entry))), 1, manager.now());
        assert!(manager.snapshot().charged_weight <= BUDGET + BUDGET / 4);
    }
}

/// I11, I12, I24, I33, 1.8: two writers, reads of storage, an executor, timers, new settings, and a close in the midst of it.
#[test]
fn everything_at_once_and_the_close() {
    shuttle_check("manager", 1_000, || {
        let scene = Scene::new();
        let threads = [
            scene.spawn(|_, manager| write(manager, &manager.cache(), 0..8)),
            scene.spawn(|_, manager| {
                let cache = manager.cache();
                write(manager, &cache, 60..68);
                cache.remove_range(..(1, 64));
                write(manager, &manager.cache(), 0..4);
            }),
            scene.spawn(|scene, manager| {
                let first = scene.ask(manager, 3);
                let second = scene.ask(manager, 9);
                drop(first);
                drop(scene.ask(manager, 1));
                drop(second);
            }),
            scene.spawn(|scene, manager| {
                drop(scene.ask(manager, 2));
                let mut changed = options(BUDGET / 2);
                changed.reads.budget = 1;
                let set = manager.set_options(changed);
                assert!(matches!(set, Ok(()) | Err(CacheOptionsError::Closed)));
                drop(scene.ask(manager, 2));
            }),
            scene.spawn(|scene, _| {
                for _ in 0..3 {
                    scene.timers.advance(TICK);
                    scene.executor.run_all();
                }
            }),
            scene.spawn(|_, manager| manager.close()),
        ];
        let manager = scene.manager.lock().take().unwrap();
        for thread in threads {
            thread.join().unwrap();
        }
        scene.end(&manager);
    });
}

/// 1.8: pressure from two writers as passes run, without a tick: when all is quiet, the weight is below the threshold.
#[test]
fn pressure_is_never_lost() {
    shuttle_check("pressure", 2_000, || {
        let scene = Scene::new();
        let manager = scene.manager.lock().take().unwrap();
        let caches = [manager.cache(), manager.cache()];
        let writers = [0, 1].map(|which: usize| {
            let (manager, cache) = (manager.clone(), caches[which].clone());
            thread::spawn(move || write(&manager, &cache, 0..10))
        });
        let other = Arc::clone(&scene);
        let runs = thread::spawn(move || {
            for _ in 0..4 {
                other.executor.run_next();
            }
        });
        for thread in writers {
            thread.join().unwrap();
        }
        runs.join().unwrap();
        scene.executor.run_all();
        let charged = manager.snapshot().charged_weight;
        assert!(charged <= BUDGET * 98 / 100, "{charged} are left, and nobody is told");
        manager.close();
        drop(caches);
        scene.end(&manager);
    });
}
