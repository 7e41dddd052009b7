//! Read permits: who gets one, when, and what becomes of those who do not.
#![cfg(not(any(loom, shuttle)))]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests run on the standard library only, and their helpers unwrap as they do"
)]

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

use std::thread;
use std::time::Duration;

use folio_cache::{Acquired, Permit, PermitError, PermitOptions, ReadPermits};
use folio_sync::test_util::{ManualClock, ManualTimers, watch_for_blocking};
use folio_sync::timers::{ThreadTimers, Timers};
use folio_sync::{Arc, Mutex, arc_dyn};

const TIMEOUT: Duration = Duration::from_secs(60);

fn options(budget: u64) -> PermitOptions {
    let mut options = PermitOptions::default();
    options.budget = budget;
    options
}

/// What callbacks were told, in order: which one, and the bytes of its permit or the error.
type Told = Vec<(u32, Result<u64, PermitError>)>;

struct Scene {
    permits: ReadPermits,
    timers: ManualTimers,
    told: Arc<Mutex<Told>>,
    /// Permits that callbacks were given.
    held: Arc<Mutex<Vec<Permit>>>,
}

impl Scene {
    fn new(options: PermitOptions) -> Self {
        let timers = ManualTimers::new(&ManualClock::new());
        Self {
            permits: ReadPermits::new(options, arc_dyn!(timers.clone() => dyn Timers)),
            timers,
            told: Arc::default(),
            held: Arc::default(),
        }
    }

    fn with(budget: u64) -> Self {
        Self::new(options(budget))
    }

    /// Asks for bytes; a callback keeps its permit.
    fn ask(&self, id: u32, bytes: u64) -> Result<Acquired, PermitError> {
        let (told, held) = (Arc::clone(&self.told), Arc::clone(&self.held));
        self.permits.acquire(bytes, move |granted| {
            told.lock().push((id, granted.as_ref().map(Permit::bytes).map_err(|error| *error)));
            held.lock().extend(granted);
        })
    }

    #[track_caller]
    fn now(&self, bytes: u64) -> Permit {
        let Ok(Acquired::Now(permit)) = self.ask(u32::MAX, bytes) else { panic!("there is room") };
        permit
    }

    #[track_caller]
    fn wait(&self, id: u32, bytes: u64) {
        assert!(matches!(self.ask(id, bytes), Ok(Acquired::Queued)), "there is no room");
    }

    fn told(&self) -> Told {
        std::mem::take(&mut self.told.lock())
    }

    fn let_go(&self) {
        let held = std::mem::take(&mut *self.held.lock());
        drop(held);
    }

    /// Nothing is out, nobody waits, no timer is left.
    #[track_caller]
    fn end(self) {
        self.let_go();
        assert_eq!((self.permits.in_use(), self.permits.queued(), self.timers.pending()), (0, 0, 0));
    }
}

/// I33, 4.6: with room a permit comes at once, and its callback is dropped; the bytes come back when it is.
#[test]
fn with_room_a_permit_comes_at_once() {
    let scene = Scene::with(100);
    let kept = Arc::new(());
    let in_callback = Arc::clone(&kept);
    let Ok(Acquired::Now(first)) = scene.permits.acquire(60, move |_| drop(in_callback)) else { panic!() };
    assert_eq!(Arc::strong_count(&kept), 1, "the callback is gone");
    assert_eq!((first.bytes(), scene.permits.available()), (60, 40));
    let second = scene.now(40);
    assert_eq!(scene.permits.available(), 0);
    drop(first);
    assert_eq!(scene.permits.available(), 60);
    drop(second);
    assert_eq!((scene.permits.available(), scene.told()), (100, vec![]));
    scene.end();
}

/// I33, 4.6: without room a request waits, and is granted when enough comes back.
#[test]
fn without_room_a_request_waits_for_what_comes_back() {
    let scene = Scene::with(100);
    let (a, b) = (scene.now(50), scene.now(50));
    scene.wait(1, 80);
    assert_eq!((scene.permits.queued(), scene.timers.pending()), (1, 1));
    drop(a);
    assert_eq!(scene.told(), [], "not enough");
    drop(b);
    assert_eq!(scene.told(), [(1, Ok(80))]);
    assert_eq!((scene.permits.available(), scene.permits.queued()), (20, 0));
    assert_eq!((scene.timers.pending(), scene.timers.cancelled()), (0, 1));
    scene.end();
}

/// 4.6, bug 24: a request waits for as long as it may, and is told once; its place is gone.
#[test]
fn a_request_that_waited_too_long_is_told_so() {
    let scene = Scene::with(100);
    let all = scene.now(100);
    scene.wait(1, 10);
    scene.timers.advance(TIMEOUT / 2);
    scene.wait(2, 10);
    scene.timers.advance(TIMEOUT / 2);
    assert_eq!(scene.told(), [(1, Err(PermitError::TimedOut))]);
    assert_eq!(scene.permits.snapshot().timed_out, 1);
    drop(all);
    assert_eq!(scene.told(), [(2, Ok(10))]);
    scene.timers.advance(TIMEOUT);
    assert_eq!(scene.told(), []);
    scene.end();
}

/// bug 24: those behind a large request that gives up are granted then, not with the next bytes that come back.
#[test]
fn who_waits_behind_one_that_gives_up_is_granted_at_once() {
    let scene = Scene::with(100);
    let most = scene.now(90);
    scene.wait(1, 50);
    scene.timers.advance(TIMEOUT / 2);
    scene.wait(2, 5);
    scene.wait(3, 5);
    scene.wait(4, 5);
    scene.timers.advance(TIMEOUT / 2);
    assert_eq!(scene.told(), [(1, Err(PermitError::TimedOut)), (2, Ok(5)), (3, Ok(5))]);
    drop(most);
    assert_eq!(scene.told(), [(4, Ok(5))]);
    scene.end();
}

/// bug 24: first come, first served: nobody passes one who waits, not even a small one that would fit.
#[test]
fn nobody_passes_one_who_waits() {
    let scene = Scene::with(100);
    let first = scene.now(60);
    scene.wait(1, 70);
    scene.wait(2, 10);
    scene.wait(3, 0);
    assert_eq!(scene.permits.available(), 40);
    drop(first);
    assert_eq!(scene.told(), [(1, Ok(70)), (2, Ok(10)), (3, Ok(0))]);
    let now = scene.now(20);
    assert_eq!(now.bytes(), 20, "nobody waits any more: it comes at once again");
    drop(now);
    scene.end();
}

/// bug 25: a request above the whole budget is cut down to it, by the budget of the moment when it is granted.
#[test]
fn a_request_above_the_whole_budget_is_cut_down_to_it() {
    let scene = Scene::with(100);
    let all = scene.now(5_000);
    assert_eq!(all.bytes(), 100);
    scene.wait(1, u64::MAX);
    scene.permits.set_budget(70);
    assert_eq!((scene.told(), scene.permits.available()), (vec![], 0));
    drop(all);
    assert_eq!(scene.told(), [(1, Ok(70))]);
    scene.end();
}

/// 4.6: a budget of zero is no limit; what is out counts all the same.
#[test]
fn a_budget_of_zero_is_no_limit() {
    let scene = Scene::with(0);
    let permits: Vec<_> = (0..100).map(|_| scene.now(1 << 40)).collect();
    assert_eq!((scene.permits.available(), scene.permits.in_use()), (u64::MAX, 100 << 40));
    scene.permits.set_budget(1 << 40);
    assert_eq!(scene.permits.available(), 0);
    scene.wait(1, 1);
    drop(permits);
    assert_eq!(scene.told(), [(1, Ok(1))]);
    assert_eq!(scene.permits.available(), (1 << 40) - 1);
    scene.permits.set_budget(0);
    scene.let_go();
    let most = scene.now(u64::MAX);
    assert_eq!(most.bytes(), u64::MAX >> 1);
    drop(most);
    scene.end();
}

/// I33: a budget that changes while permits are out is exact afterwards.
#[test]
fn a_budget_changes_while_permits_are_out() {
    let scene = Scene::with(100);
    let (a, b) = (scene.now(60), scene.now(40));
    scene.wait(1, 30);
    scene.wait(2, 30);
    scene.permits.set_budget(130);
    assert_eq!((scene.told(), scene.permits.available()), (vec![(1, Ok(30))], 0));
    scene.permits.set_budget(50);
    drop(a);
    assert_eq!((scene.told(), scene.permits.in_use(), scene.permits.available()), (vec![], 70, 0));
    drop(b);
    assert_eq!(scene.told(), [], "30 of 50 are out");
    scene.let_go();
    assert_eq!(scene.told(), [(2, Ok(30))]);
    assert_eq!(scene.permits.available(), 20);
    scene.end();
}

/// I33: a full queue refuses, without a callback and without a permit; so does one that takes nobody.
#[test]
fn a_full_queue_refuses() {
    let mut settings = options(100);
    settings.max_queued = 2;
    let scene = Scene::new(settings);
    let all = scene.now(100);
    scene.wait(1, 10);
    scene.wait(2, 10);
    assert_eq!(scene.ask(3, 10).unwrap_err(), PermitError::QueueFull);
    settings.max_queued = 0;
    scene.permits.set_options(settings);
    assert_eq!(scene.permits.queued(), 2, "who waits is not sent away");
    drop(all);
    assert_eq!(scene.told(), [(1, Ok(10)), (2, Ok(10))]);
    let rest = scene.now(80);
    assert_eq!(scene.ask(4, 1).unwrap_err(), PermitError::QueueFull);
    drop(rest);
    let now = scene.now(80);
    drop(now);
    assert_eq!(scene.permits.snapshot().refused, 2);
    scene.end();
}

/// I33: a request that cannot be given a time is refused, and those behind it lose nothing.
#[test]
fn a_request_without_a_timer_is_refused() {
    let scene = Scene::with(100);
    let all = scene.now(100);
    scene.timers.refuse_next(1);
    assert_eq!(scene.ask(1, 10).unwrap_err(), PermitError::NoTimer);
    assert_eq!(scene.permits.queued(), 0);
    scene.wait(2, 10);
    drop(all);
    assert_eq!(scene.told(), [(2, Ok(10))]);
    let now = scene.now(90);
    drop(now);
    scene.end();
}

/// I24, I33: timers that are given up end the requests that wait by them; without a time-out none is needed.
#[test]
fn timers_that_are_given_up_end_who_waits_by_them() {
    let mut settings = options(100);
    let scene = Scene::new(settings);
    let all = scene.now(100);
    scene.wait(1, 10);
    settings.timeout = None;
    scene.permits.set_options(settings);
    scene.wait(2, 10);
    drop(scene.timers.close());
    assert_eq!(scene.told(), [(1, Err(PermitError::TimedOut))]);
    scene.wait(3, 10);
    drop(all);
    assert_eq!(scene.told(), [(2, Ok(10)), (3, Ok(10))]);
    scene.end();
}

/// I34, bug 22, bug 23: callbacks run without the lock: they may call everything.
#[test]
fn a_callback_may_call_everything() {
    let scene = Scene::with(100);
    let all = scene.now(100);
    let permits = scene.permits.clone();
    let told = Arc::clone(&scene.told);
    let queued = scene.permits.acquire(10, move |granted| {
        let permit = granted.unwrap();
        let Ok(Acquired::Now(more)) = permits.acquire(60, |_| unreachable!()) else {
            panic!("there is room")
        };
        let later = Arc::clone(&told);
        let waits = permits.acquire(80, move |granted| {
            later.lock().push((2, granted.map(|permit| permit.bytes())));
        });
        assert!(matches!(waits, Ok(Acquired::Queued)));
        drop(more);
        assert_eq!(
            (permits.available(), permits.queued()),
            (10, 0),
            "granted, and told when this has returned"
        );
        assert_eq!(*told.lock(), []);
        permits.set_budget(90);
        drop(permit);
        told.lock().push((1, Ok(10)));
    });
    assert!(matches!(queued, Ok(Acquired::Queued)));
    let ((), blocked) = watch_for_blocking(|| drop(all));
    assert_eq!((scene.told(), blocked), (vec![(1, Ok(10)), (2, Ok(80))], vec![]));
    assert_eq!(scene.permits.available(), 90);
    scene.end();
}

/// Has so many requests wait for one byte, each of which gives it back at once: how many callbacks were ever inside each other.
fn deepest_of_a_chain(requests: usize) -> usize {
    thread_local! { static DEPTH: Cell<usize> = const { Cell::new(0) }; }
    let scene = Scene::with(1);
    let one = scene.now(1);
    let (granted, deepest) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    for _ in 0..requests {
        let (granted, deepest) = (Arc::clone(&granted), Arc::clone(&deepest));
        let queued = scene.permits.acquire(1, move |permit| {
            DEPTH.set(DEPTH.get() + 1);
            deepest.fetch_max(DEPTH.get(), Ordering::Relaxed);
            drop(permit.unwrap());
            granted.fetch_add(1, Ordering::Relaxed);
            DEPTH.set(DEPTH.get() - 1);
        });
        assert!(matches!(queued, Ok(Acquired::Queued)));
    }
    assert_eq!(scene.permits.queued(), requests);
    drop(one);
    assert_eq!(granted.load(Ordering::Relaxed), requests);
    scene.end();
    deepest.load(Ordering::Relaxed)
}

/// I34, bug 13: grants that give back at once and so grant the next one do not nest.
#[test]
fn a_chain_of_grants_does_not_nest() {
    assert_eq!(deepest_of_a_chain(10), 1);
    assert_eq!(deepest_of_a_chain(50_000), 1);
}

/// I33, I34: a callback that panics harms nobody, and its permit comes back.
#[test]
fn a_callback_that_panics_harms_nobody() {
    let scene = Scene::with(100);
    let all = scene.now(100);
    for id in 0..3 {
        let told = Arc::clone(&scene.told);
        let queued = scene.permits.acquire(60, move |granted| {
            told.lock().push((id, granted.as_ref().map(Permit::bytes).map_err(|error| *error)));
            panic!("in a callback");
        });
        assert!(matches!(queued, Ok(Acquired::Queued)));
    }
    scene.wait(3, 100);
    scene.permits.set_budget(160);
    assert_eq!(scene.told(), [(0, Ok(60)), (1, Ok(60)), (2, Ok(60))]);
    drop(all);
    assert_eq!(scene.told(), [(3, Ok(100))]);
    scene.end();
}

/// I33: a permit gives part of it back when less was read than was asked for; it never grows.
#[test]
fn a_permit_shrinks() {
    let scene = Scene::with(100);
    let mut permit = scene.now(100);
    scene.wait(1, 30);
    permit.shrink(80);
    assert_eq!((permit.bytes(), scene.told()), (80, vec![]));
    permit.shrink(70);
    assert_eq!(scene.told(), [(1, Ok(30))]);
    permit.shrink(90);
    assert_eq!((permit.bytes(), scene.permits.available()), (70, 0));
    permit.shrink(0);
    assert_eq!(scene.permits.available(), 70);
    drop(permit);
    assert_eq!(scene.permits.available(), 70);
    scene.end();
}

/// I33: a permit that rides on all entries of a batch comes back once, with the last of them, wherever that is dropped.
#[test]
fn a_permit_comes_back_with_the_last_entry_of_its_batch() {
    let scene = Scene::with(100);
    let permit = Arc::new(scene.now(100));
    let batch: Vec<_> = (0..10).map(|_| Arc::clone(&permit)).collect();
    drop(permit);
    let threads: Vec<_> = batch
        .into_iter()
        .map(|entry| {
            assert_eq!(scene.permits.available(), 0);
            thread::spawn(move || entry.bytes())
        })
        .collect();
    for thread in threads {
        assert_eq!(thread.join().unwrap(), 100);
    }
    assert_eq!(scene.permits.available(), 100);
    scene.end();
}

/// I24, I33: closing ends who waits, refuses who comes, and leaves what is out to come back.
#[test]
fn closing_ends_who_waits() {
    let scene = Scene::with(100);
    let all = scene.now(100);
    scene.wait(1, 10);
    scene.wait(2, 10);
    scene.permits.close();
    assert_eq!(scene.told(), [(1, Err(PermitError::Closed)), (2, Err(PermitError::Closed))]);
    assert_eq!((scene.permits.queued(), scene.timers.pending()), (0, 0));
    drop(all);
    assert_eq!(scene.ask(3, 10).unwrap_err(), PermitError::Closed);
    scene.permits.set_budget(1_000);
    scene.permits.close();
    assert_eq!(scene.ask(4, 0).unwrap_err(), PermitError::Closed);
    assert_eq!((scene.told(), scene.permits.available()), (vec![], 1_000));
    scene.end();
}

/// I33: the handles go while one waits: it is granted all the same, and nothing is left.
#[test]
fn who_waits_outlives_the_handles() {
    let Scene { permits, timers, .. } = Scene::with(100);
    let Ok(Acquired::Now(all)) = permits.acquire(100, |_| unreachable!()) else { panic!() };
    let told = Arc::new(Mutex::new(None));
    let tells = Arc::clone(&told);
    let queued =
        permits.acquire(10, move |granted| *tells.lock() = Some(granted.map(|permit| permit.bytes())));
    assert!(matches!(queued, Ok(Acquired::Queued)));
    drop(permits);
    drop(all);
    assert_eq!(
        (told.lock().take(), Arc::strong_count(&told)),
        (Some(Ok(10)), 1),
        "told, and the callback is gone"
    );
    assert_eq!(timers.pending(), 0);
}

/// I24, I33, I34: many threads ask, give back, shrink, and wait in vain, while the budget changes: each is told once, and all comes back.
#[test]
fn many_threads_ask_and_give_back() {
    const THREADS: u64 = 4;
    const ROUNDS: u64 = 3_000;
    let timers = Arc::new(ThreadTimers::new());
    let mut settings = options(1_000);
    settings.timeout = Some(Duration::from_millis(2));
    settings.max_queued = 16;
    let permits = ReadPermits::new(settings, arc_dyn!(Arc::clone(&timers) => dyn Timers));
    let told = Arc::new(AtomicUsize::new(0));
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let (permits, told) = (permits.clone(), Arc::clone(&told));
            thread::spawn(move || {
                let (mut queued, mut held) = (0, Vec::new());
                let given: Arc<Mutex<Vec<Permit>>> = Arc::default();
                for round in 0..ROUNDS {
                    let bytes = (round * 7 + thread * 13) % 400;
                    let (told, kept) = (Arc::clone(&told), Arc::clone(&given));
                    match permits.acquire(bytes, move |granted| {
                        told.fetch_add(1, Ordering::Relaxed);
                        kept.lock().extend(granted);
                    }) {
                        Ok(Acquired::Now(permit)) => held.push(permit),
                        Ok(Acquired::Queued) => queued += 1,
                        Err(error) => assert_eq!(error, PermitError::QueueFull),
                    }
                    if let Some(permit) = held.last_mut() {
                        permit.shrink(permit.bytes() / 2);
                    }
                    if round % 3 == 0 {
                        held.clear();
                        let given = std::mem::take(&mut *given.lock());
                        drop(given);
                    }
                    if round % 500 == thread {
                        permits.set_budget(500 + round % 1_000);
                    }
                }
                drop(held);
                // What is granted from now on comes back by the next of these, or by a time-out.
                (queued, given)
            })
        })
        .collect();
    let (mut queued, mut given) = (0, Vec::new());
    for thread in threads {
        let (of_thread, kept) = thread.join().unwrap();
        queued += of_thread;
        given.push(kept);
    }
    while permits.queued() > 0 || told.load(Ordering::Relaxed) < queued {
        for kept in &given {
            let kept = std::mem::take(&mut *kept.lock());
            drop(kept);
        }
        thread::yield_now();
    }
    given.clear();
    while permits.in_use() > 0 {
        // A callback has counted itself and not dropped its permit yet.
        thread::yield_now();
    }
    assert_eq!(told.load(Ordering::Relaxed), queued);
    assert!(queued > 0, "some had to wait");
    assert_eq!((permits.queued(), timers.pending()), (0, 0));
}
