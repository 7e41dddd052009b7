//! A dispatcher's `read_more` as a turn: whoever asks drives, and one follow-up is remembered.
#![cfg(not(any(loom, shuttle)))]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests of the standard build use the standard library's own types, and unwrap also in their helpers"
)]

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use folio_sync::test_util::pause::{Stop, When};
use folio_sync::unwind::catch;
use folio_sync::{Executor, Job, Mutex, Rejected};
use folio_turn::{Demand, Joined, Next, Panicked, Recorded, Recovery, Stranded, Turn, Work};

const READ: Demand = Demand::soft(0);

type OnPass = Box<dyn FnMut(&Dispatcher) + Send>;

#[derive(Default)]
struct Dispatcher {
    passes: AtomicUsize,
    /// How many requests were made, each counted before it is.
    asked: AtomicUsize,
    /// How many of them the last pass found made.
    covered: AtomicUsize,
    inside: AtomicUsize,
    /// What the coming passes do beyond counting.
    scripts: Mutex<VecDeque<OnPass>>,
    turn: Mutex<Option<Turn<Pass>>>,
}

/// The state of a pass; what the dispatcher's lock would guard.
struct Pass {
    dispatcher: Arc<Dispatcher>,
}

impl Work for Pass {
    fn step(&mut self, _turn: &Turn<Self>, demand: Demand) -> Next {
        assert_eq!(demand, READ, "a pass is run for a request");
        assert_eq!(self.dispatcher.inside.fetch_add(1, Ordering::Relaxed), 0, "passes nest");
        self.dispatcher.passes.fetch_add(1, Ordering::Relaxed);
        // The demand that brought the pass here publishes the count before it.
        self.dispatcher.covered.store(self.dispatcher.asked.load(Ordering::Relaxed), Ordering::Relaxed);
        let script = self.dispatcher.scripts.lock().pop_front();
        let ran = catch(|| {
            if let Some(mut script) = script {
                script(&self.dispatcher);
            }
        });
        self.dispatcher.inside.fetch_sub(1, Ordering::Relaxed);
        if let Err(payload) = ran {
            std::panic::resume_unwind(payload);
        }
        Next::Idle
    }

    fn panicked(&mut self, _turn: &Turn<Self>, _panicked: Panicked<'_>) -> Recovery {
        Recovery::Propagate(Demand::NONE)
    }

    fn stranded(_: Stranded<Self>) {
        unreachable!("the driver goes on by itself");
    }
}

/// The driver goes on until no request is left, however many passes that takes.
struct CallerRuns;

impl Executor for CallerRuns {
    fn submit(&self, job: Job) -> Result<(), Rejected<Job>> {
        job.run();
        Ok(())
    }
}

impl Dispatcher {
    fn new() -> Arc<Self> {
        let dispatcher = Arc::new(Self::default());
        let turn = Turn::builder(Pass { dispatcher: Arc::clone(&dispatcher) }).yield_to(CallerRuns);
        *dispatcher.turn.lock() = Some(turn);
        dispatcher
    }

    fn turn(&self) -> Turn<Pass> {
        self.turn.lock().clone().expect("not closed")
    }

    fn read_more(&self) -> Joined {
        let turn = self.turn();
        if turn.record(READ).must_run() { turn.join().unwrap() } else { Joined::Elsewhere }
    }

    fn then(&self, script: impl FnMut(&Self) + Send + 'static) {
        self.scripts.lock().push_back(Box::new(script));
    }

    fn passes(&self) -> usize {
        self.passes.swap(0, Ordering::Relaxed)
    }

    fn close(&self) {
        self.turn.lock().take();
    }
}

/// D1: a request that finds nobody makes its caller the driver.
#[test]
fn a_request_in_idle_drives() {
    let dispatcher = Dispatcher::new();
    assert_eq!(dispatcher.read_more(), Joined::Ran);
    assert_eq!(dispatcher.passes(), 1);
    assert_eq!(dispatcher.read_more(), Joined::Ran);
    assert_eq!(dispatcher.passes(), 1);
    dispatcher.close();
}

/// D1, D2: requests made inside a pass return at once, and all of them together make one further pass.
#[test]
fn requests_during_a_pass_make_one_more_and_do_not_recurse() {
    let dispatcher = Dispatcher::new();
    dispatcher.then(|dispatcher| {
        for _ in 0..5 {
            assert_eq!(dispatcher.read_more(), Joined::Elsewhere);
        }
    });
    assert_eq!(dispatcher.read_more(), Joined::Ran);
    assert_eq!(dispatcher.passes(), 2);
    dispatcher.close();
}

/// D1, D2: the same from other threads, which never wait for the pass.
#[test]
fn requests_of_other_threads_during_a_pass_make_one_more() {
    let dispatcher = Dispatcher::new();
    let stop = Stop::new("turn.take", When::After);
    std::thread::scope(|scope| {
        // Stopped after the first pass has taken its request.
        let driver = scope.spawn(|| stop.run(|| dispatcher.read_more()));
        stop.wait_until_stopped();
        let others: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| (0..100).for_each(|_| assert_eq!(dispatcher.read_more(), Joined::Elsewhere)))
            })
            .collect();
        for other in others {
            other.join().unwrap();
        }
        assert_eq!(dispatcher.passes.load(Ordering::Relaxed), 0);
        stop.release();
        assert_eq!(driver.join().unwrap(), Joined::Ran);
    });
    assert_eq!(dispatcher.passes(), 2);
    dispatcher.close();
}

/// D4: a request that arrives before the pass starts is covered by it.
#[test]
fn a_request_before_the_pass_is_covered_by_it() {
    let dispatcher = Dispatcher::new();
    let stop = Stop::new("turn.own", When::After);
    std::thread::scope(|scope| {
        let driver = scope.spawn(|| stop.run(|| dispatcher.read_more()));
        stop.wait_until_stopped();
        assert_eq!(dispatcher.turn().record(READ), Recorded::Seen);
        stop.release();
        assert_eq!(driver.join().unwrap(), Joined::Ran);
    });
    assert_eq!(dispatcher.passes(), 1);
    dispatcher.close();
}

/// D3: a pass that throws propagates to its driver and leaves nobody owning.
#[test]
fn a_pass_that_panics_propagates_and_resets() {
    let dispatcher = Dispatcher::new();
    dispatcher.then(|_| std::panic::resume_unwind(Box::new("a pass")));
    assert!(catch(|| dispatcher.read_more()).is_err());
    assert_eq!(dispatcher.turn().join().unwrap(), Joined::Nothing, "the request went with the pass");
    assert_eq!(dispatcher.read_more(), Joined::Ran);
    assert_eq!(dispatcher.passes(), 2);
    dispatcher.close();
}

/// D1, D2, D4: under any interleaving each request is followed by the start of a pass, and passes never overlap.
#[test]
fn each_request_is_followed_by_a_pass() {
    const REQUESTS: usize = 10_000;
    let dispatcher = Dispatcher::new();
    std::thread::scope(|scope| {
        let ask = || {
            for _ in 0..REQUESTS {
                let before = dispatcher.passes.load(Ordering::Relaxed);
                dispatcher.asked.fetch_add(1, Ordering::Relaxed);
                if dispatcher.read_more() == Joined::Ran {
                    assert!(dispatcher.passes.load(Ordering::Relaxed) > before);
                }
            }
        };
        let askers = [scope.spawn(ask), scope.spawn(ask), scope.spawn(ask)];
        for asker in askers {
            asker.join().unwrap();
        }
    });
    let passes = dispatcher.passes();
    assert!((1..=3 * REQUESTS).contains(&passes), "{passes}");
    assert_eq!(dispatcher.covered.load(Ordering::Relaxed), 3 * REQUESTS, "a request had no pass after it");
    assert_eq!(dispatcher.turn().join().unwrap(), Joined::Nothing, "no request is left");
    dispatcher.close();
}
