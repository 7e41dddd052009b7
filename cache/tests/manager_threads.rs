//! The cache manager with real threads and timers: everything at once, exact accounts at the end; a pass that stands still.
#![cfg(not(any(loom, shuttle)))]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests run on the standard library only, and their helpers unwrap as they do"
)]

mod common;

use std::collections::VecDeque;
use std::thread;
use std::time::Duration;

use common::{Random, Tally, Value, outcome, threads, until};
use folio_cache::{Acquired, CacheManager, CacheOptions, Reason};
use folio_sync::test_util::pause::{Stop, When};
use folio_sync::test_util::{ManualClock, ManualExecutor, ManualTimers};
use folio_sync::time::{Clock, SystemClock};
use folio_sync::timers::{ThreadTimers, Timers};
use folio_sync::{Arc, Executor, Job, Mutex, Rejected, arc_dyn};

/// Gives jobs to one thread, which ends when this is dropped.
struct Worker(Arc<Mutex<Jobs>>);

#[derive(Default)]
struct Jobs {
    queued: VecDeque<Job>,
    ended: bool,
}

impl Worker {
    fn start() -> (Self, thread::JoinHandle<()>) {
        let jobs: Arc<Mutex<Jobs>> = Arc::default();
        let given = Arc::clone(&jobs);
        let runs = move || {
            loop {
                // A channel or a condition variable would hide from ThreadSanitizer what it should see.
                let (job, ended) = {
                    let mut jobs = given.lock();
                    (jobs.queued.pop_front(), jobs.ended)
                };
                match job {
                    Some(job) => job.run(),
                    None if ended => return,
                    None => thread::sleep(Duration::from_micros(50)),
                }
            }
        };
        (Self(jobs), thread::spawn(runs))
    }
}

impl Executor for Worker {
    fn submit(&self, job: Job) -> Result<(), Rejected<Job>> {
        self.0.lock().queued.push_back(job);
        Ok(())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.0.lock().ended = true;
    }
}

/// I11, I12, I20, I33, 1.8: writers, readers, trimmers, readers of storage, passes by time and by weight, changing settings, caches that come and go,
/// and a close in the midst of it: within five quarters of the budget at all times, and nothing is left.
#[test]
fn everything_at_once_and_then_the_end() {
    const STEPS: i64 = 15_000;
    const VALUES: usize = 62_000;
    const BUDGET: u64 = 20_000;
    for round in 0..3 {
        let (worker, running) = Worker::start();
        let timers = Arc::new(ThreadTimers::new());
        let clock = Arc::new(SystemClock::new());
        let mut options = CacheOptions::default();
        options.budget = BUDGET;
        options.ttl = Duration::from_millis(1);
        options.pass_interval = Duration::from_millis(1);
        options.reads.budget = 1_000;
        options.reads.timeout = Some(Duration::from_millis(1));
        let manager = CacheManager::<Value>::new(
            options,
            arc_dyn!(worker => dyn Executor),
            arc_dyn!(Arc::clone(&timers) => dyn Timers),
            arc_dyn!(Arc::clone(&clock) => dyn Clock),
        )
        .unwrap();
        let tally = Tally::new(VALUES);
        let permits = manager.permits().clone();
        threads(4, |thread| {
            let mut random = Random::new(thread + 4 * round);
            let mut cache = manager.cache();
            let mut inserter = cache.inserter();
            for step in 0..STEPS {
                let position = (i64::try_from(thread).unwrap(), step);
                let value = tally.value(position, 1 + random.below(40));
                let reads = u32::try_from(random.below(3)).unwrap();
                let outcome = outcome(inserter.insert(position, value, reads, clock.coarse()));
                assert!(matches!(outcome, None | Some(Reason::OverBudget)), "{outcome:?}");
                let charged = manager.snapshot().charged_weight;
                assert!(charged <= BUDGET + BUDGET / 4, "{charged}");
                match random.below(64) {
                    0 => drop(cache.range((position.0, step - 50)..position)),
                    1 => assert!(cache.remove_range(..(position.0, step - 600)).entries <= 1 << 20),
                    2 => {
                        inserter.leave();
                        cache.mark_range_read((position.0, step - 50)..);
                    }
                    3 if step % 20 == 0 => {
                        cache = manager.cache();
                        inserter = cache.inserter();
                    }
                    4..10 => {
                        let acquired = permits.acquire(random.below(700), drop);
                        assert!(matches!(acquired, Ok(Acquired::Now(_) | Acquired::Queued)));
                    }
                    10 => {
                        let mut settings = manager.options();
                        settings.budget = BUDGET - random.below(BUDGET / 2);
                        settings.max_requeues = u32::try_from(random.below(4)).unwrap();
                        manager.set_options(settings).unwrap();
                    }
                    _ => {}
                }
            }
        });
        until("a tick was seen", || manager.snapshot().passes > 0);
        let snapshot = manager.snapshot();
        assert!(snapshot.pressed.entries > 0, "{snapshot:?}");
        let left = manager.cache();
        let mut inserter = left.inserter();
        let races = thread::spawn(move || {
            // Until it is closed, and on.
            let mut refused = 0;
            for entry in 0.. {
                let position = (9, entry);
                let value = tally.value(position, 1);
                refused += u32::from(outcome(inserter.insert(position, value, 0, clock.coarse())).is_some());
                if refused > 100 || entry > 1_000 {
                    break;
                }
            }
            tally
        });
        drop(manager);
        let tally = races.join().unwrap();
        until("the last timer is cancelled", || timers.pending() == 0);
        drop(left);
        // The worker ends when the last pass has let go of the executor.
        running.join().unwrap();
        assert_eq!((permits.in_use(), permits.queued()), (0, 0));
        tally.assert_all_gone();
    }
}

/// 1.8: while a pass stands still in the middle of its work, numbers are told, inserts are taken, and no second pass is queued.
#[test]
fn a_pass_that_stands_still_holds_up_nobody() {
    for when in [When::Before, When::After] {
        let (executor, clock) = (ManualExecutor::new(), ManualClock::new());
        let timers = ManualTimers::new(&clock);
        let mut options = CacheOptions::default();
        options.budget = 100;
        let manager = CacheManager::<Value>::new(
            options,
            arc_dyn!(executor.clone() => dyn Executor),
            arc_dyn!(timers.clone() => dyn Timers),
            arc_dyn!(clock => dyn Clock),
        )
        .unwrap();
        let tally = Tally::new(1_000);
        let cache = manager.cache();
        let put = |entry| {
            let value = tally.value((1, entry), 1);
            assert_eq!(outcome(cache.insert((1, entry), value, 0, manager.now())), None);
        };
        (0..99).for_each(put);
        let stop = Stop::new("eviction.judge", when);
        thread::scope(|scope| {
            let pass = scope.spawn(|| stop.run(|| executor.run_all()));
            let stopped = stop.stopped();
            (99..120).for_each(put);
            assert_eq!(manager.snapshot().charged_weight, 120);
            assert!(format!("{manager:?}").contains("charged_weight: 120"));
            assert!(matches!(manager.permits().acquire(1, drop), Ok(Acquired::Now(_))));
            assert_eq!(timers.advance(Duration::from_millis(10)), 1);
            assert_eq!(executor.queued(), 0, "what is demanded now is left to the one that runs");
            drop(stopped);
            assert_eq!(pass.join().unwrap(), 1);
        });
        assert_eq!((manager.snapshot().passes, manager.snapshot().charged_weight), (2, 90));
        drop(cache);
        manager.close();
        tally.assert_all_gone();
    }
}

/// 1.8: whoever stands still at a step of the protocol, as it demands a pass or runs it: inserts go on, numbers are told, and when it has gone on the
/// weight ends below the threshold.
#[test]
fn whoever_stands_still_at_any_step_holds_up_no_insert() {
    let steps = ["manager.demand", "manager.begin", "manager.end"];
    for (step, when) in steps.into_iter().flat_map(|step| [(step, When::Before), (step, When::After)]) {
        let (executor, clock) = (ManualExecutor::new(), ManualClock::new());
        let mut options = CacheOptions::default();
        options.budget = 100;
        let manager = CacheManager::<Value>::new(
            options,
            arc_dyn!(executor.clone() => dyn Executor),
            arc_dyn!(ManualTimers::new(&clock) => dyn Timers),
            arc_dyn!(clock => dyn Clock),
        )
        .unwrap();
        let tally = Tally::new(1_000);
        let cache = manager.cache();
        let put = |entry| {
            let value = tally.value((1, entry), 1);
            assert_eq!(outcome(cache.insert((1, entry), value, 0, manager.now())), None);
        };
        (0..98).for_each(put);
        let pause = Stop::new(step, when);
        let operation = || {
            put(98);
            executor.run_all();
        };
        thread::scope(|scope| {
            let thread = scope.spawn(|| pause.run(operation));
            let stopped = pause.stopped();
            (99..110).for_each(put);
            assert!(manager.snapshot().charged_weight >= 101, "{step} {when:?}");
            assert!(!thread.is_finished(), "it stands {when:?} {step}");
            drop(stopped);
            thread.join().unwrap();
        });
        executor.run_all();
        assert!(manager.snapshot().charged_weight <= 98, "{step} {when:?}: {manager:?}");
        manager.close();
        drop(cache);
        tally.assert_all_gone();
    }
}
