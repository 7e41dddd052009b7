//! Timers with a thread of their own.
// ThreadSanitizer sees neither the channels of the standard library nor the last drop of its `Arc`, on which every test here stands;
// the timers themselves are safe code under one lock.
#![cfg(not(any(loom, shuttle, tsan)))]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests use the standard library directly, and fail where they unwrap"
)]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::time::{Duration, SystemTime};

use folio_sync::test_util::{ManualClock, watch_for_blocking};
use folio_sync::time::{Clock, Instant, SystemClock};
use folio_sync::timers::{ThreadTimers, Timers};
use folio_sync::{Arc, Job, RejectReason, SharedJob, unwind};

const SOON: Duration = Duration::from_millis(1);
const NEVER: Duration = Duration::from_secs(3600);

/// Says so when it is dropped, and touches the timers on that occasion.
struct OnDrop(Arc<ThreadTimers>, Sender<usize>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        let _nobody_listens = self.1.send(self.0.pending());
    }
}

fn telling<T: Send + 'static>(tell: &Sender<T>, what: T) -> Job {
    let tell = tell.clone();
    Job::new(move || tell.send(what).unwrap())
}

#[cfg(target_os = "linux")]
fn threads_named(name: &str) -> usize {
    std::fs::read_dir("/proc/self/task")
        .unwrap()
        .filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).ok())
        .filter(|comm| comm.trim_end() == name)
        .count()
}

#[cfg(target_os = "linux")]
#[test]
fn one_thread_starts_with_the_first_timer_and_ends_with_the_shutdown() {
    let timers = ThreadTimers::builder().thread_name("only-one").build();
    assert_eq!(threads_named("only-one"), 0);
    let (tell, told) = mpsc::channel();
    for _ in 0..50 {
        timers.once(SOON, telling(&tell, ())).unwrap();
    }
    for _ in 0..50 {
        told.recv().unwrap();
    }
    assert_eq!(threads_named("only-one"), 1);
    assert!(timers.shutdown().is_empty());
    // The system lists a thread for a moment after it was joined.
    while threads_named("only-one") > 0 {
        std::thread::yield_now();
    }
}

#[test]
fn jobs_run_when_due_in_the_order_of_their_moments() {
    let clock = Arc::new(SystemClock::new());
    let timers = ThreadTimers::builder().clock(clock.clone()).build();
    let (tell, told) = mpsc::channel();
    let began = clock.now();
    for (number, delay) in [(1_u64, 9), (2, 3), (3, 6), (4, 3)] {
        let (tell, clock) = (tell.clone(), Arc::clone(&clock));
        let delay = Duration::from_millis(delay);
        timers
            .once(delay, Job::new(move || tell.send((number, clock.now().since(began) >= delay)).unwrap()))
            .unwrap();
    }
    let order: Vec<_> = (0..4).map(|_| told.recv().unwrap()).collect();
    assert_eq!(order, [(2, true), (4, true), (3, true), (1, true)]);
}

#[test]
fn a_sooner_timer_wakes_a_thread_that_waits_for_a_later_one() {
    let timers = ThreadTimers::new();
    let (tell, told) = mpsc::channel();
    timers.once(NEVER, telling(&tell, "later")).unwrap();
    timers.once(Duration::ZERO, telling(&tell, "sooner")).unwrap();
    assert_eq!(told.recv(), Ok("sooner"));
    timers.once(SOON, telling(&tell, "after an idle moment")).unwrap();
    assert_eq!(told.recv(), Ok("after an idle moment"));
    assert_eq!(timers.pending(), 1);
}

#[test]
fn a_cancelled_job_comes_back_once_and_one_that_ran_does_not() {
    let timers = ThreadTimers::new();
    let (tell, told) = mpsc::channel();
    let timer = timers.once(NEVER, telling(&tell, 1)).unwrap();
    let job = timers.cancel(timer).unwrap();
    assert!(timers.cancel(timer).is_none());
    assert_eq!(timers.pending(), 0);
    job.run();
    assert_eq!(told.recv(), Ok(1), "the same job");

    let timer = timers.once(Duration::ZERO, telling(&tell, 2)).unwrap();
    assert_eq!(told.recv(), Ok(2));
    assert!(timers.cancel(timer).is_none());
}

#[test]
fn each_of_many_timers_runs_or_is_cancelled_exactly_once() {
    const THREADS: usize = 4;
    const EACH: usize = 2_000;
    let timers = ThreadTimers::new();
    let ran = Arc::new(AtomicUsize::new(0));
    let cancelled = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for seed in 0..THREADS {
            let (timers, ran, cancelled) = (&timers, &ran, &cancelled);
            scope.spawn(move || {
                let mut set = Vec::new();
                for round in 0..EACH {
                    let ran = Arc::clone(ran);
                    let delay = Duration::from_micros(((round * 7 + seed * 13) % 50) as u64);
                    let job = Job::new(move || {
                        ran.fetch_add(1, Ordering::Relaxed);
                    });
                    set.push(timers.once(delay, job).unwrap());
                    if round % 3 == 0 && timers.cancel(set[round / 2]).is_some() {
                        cancelled.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    while timers.pending() > 0 {
        std::thread::yield_now();
    }
    assert!(timers.shutdown().is_empty());
    assert_eq!(ran.load(Ordering::Relaxed) + cancelled.load(Ordering::Relaxed), THREADS * EACH);
}

#[test]
fn at_the_limit_of_pending_timers_the_job_comes_back() {
    let timers = ThreadTimers::builder().max_pending(2).build();
    let first = timers.once(NEVER, Job::new(|| ())).unwrap();
    timers.once(NEVER, Job::new(|| ())).unwrap();
    let (tell, told) = mpsc::channel();
    let rejected = timers.once(NEVER, telling(&tell, ())).unwrap_err();
    assert_eq!(rejected.reason, RejectReason::Full);
    rejected.into_inner().run();
    assert_eq!(told.recv(), Ok(()));
    drop(timers.cancel(first));
    timers.once(NEVER, Job::new(|| ())).unwrap();
}

#[test]
fn a_system_that_starts_no_thread_means_refused_and_a_later_try_may_succeed() {
    // No address space has room for such a stack.
    let timers = ThreadTimers::builder().stack_bytes(1 << 60).build();
    let (tell, told) = mpsc::channel();
    for _ in 0..2 {
        let rejected = timers.once(SOON, telling(&tell, ())).unwrap_err();
        assert_eq!(rejected.reason, RejectReason::Refused);
        rejected.into_inner().run();
        assert_eq!(told.recv(), Ok(()));
    }
    assert_eq!(timers.pending(), 0);
    assert!(timers.shutdown().is_empty());
}

#[test]
fn a_job_that_panics_is_reported_and_the_next_ones_run() {
    let (report, reported) = mpsc::channel();
    let timers = ThreadTimers::builder()
        .on_panic(move |payload| {
            report.send(unwind::message(&*payload).to_owned()).unwrap();
            unwind::discard(payload);
            panic!("the sink panics too");
        })
        .build();
    let (tell, told) = mpsc::channel();
    timers.once(SOON, Job::new(|| panic!("no paper"))).unwrap();
    timers.once(SOON, Job::new(|| panic!("no ink"))).unwrap();
    timers.once(2 * SOON, telling(&tell, ())).unwrap();
    drop(tell);
    assert_eq!(told.recv(), Ok(()));
    assert_eq!(reported.try_iter().collect::<Vec<_>>(), ["no paper", "no ink"]);

    let (tell, told) = mpsc::channel();
    let silent = ThreadTimers::default();
    silent.once(Duration::ZERO, Job::new(|| panic!("to nobody"))).unwrap();
    silent.once(SOON, telling(&tell, ())).unwrap();
    assert_eq!(told.recv(), Ok(()));
}

#[test]
fn jobs_and_destructors_may_use_the_timers() {
    let timers = Arc::new(ThreadTimers::new());
    let (tell, told) = mpsc::channel();
    let (dropped, drops) = mpsc::channel();
    let inner = Arc::clone(&timers);
    let job = Job::new(move || {
        let held = OnDrop(Arc::clone(&inner), dropped.clone());
        let never = inner.once(NEVER, Job::new(move || drop(held))).unwrap();
        let again = OnDrop(Arc::clone(&inner), dropped);
        inner.once(Duration::ZERO, Job::new(move || drop(again))).unwrap();
        assert_eq!(inner.pending(), 2);
        assert!(!format!("{inner:?}").is_empty());
        drop(inner.cancel(never));
        tell.send(()).unwrap();
    });
    timers.once(Duration::ZERO, job).unwrap();
    told.recv().unwrap();
    assert_eq!(drops.recv(), Ok(1), "a cancelled job was dropped while no lock was held");
    assert_eq!(drops.recv(), Ok(0), "a job that ran was dropped while no lock was held");
}

#[test]
fn closing_hands_the_pending_jobs_back_in_order_and_refuses_the_rest() {
    let timers = ThreadTimers::new();
    let (tell, told) = mpsc::channel();
    timers.once(2 * NEVER, telling(&tell, 2)).unwrap();
    timers.once(NEVER, telling(&tell, 1)).unwrap();
    let pending = timers.close();
    assert_eq!(timers.once(SOON, telling(&tell, 3)).unwrap_err().reason, RejectReason::Closed);
    assert!(timers.close().is_empty() && timers.shutdown().is_empty());
    for job in pending {
        job.run();
    }
    drop(tell);
    assert_eq!(told.iter().collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn dropping_the_timers_tells_the_owners_of_pending_jobs_and_survives_their_destructors() {
    struct Owner(AtomicUsize);

    impl SharedJob for Owner {
        fn run(&self, _this: &Arc<dyn SharedJob>) {
            unreachable!("never due");
        }

        fn abandoned(&self, _this: &Arc<dyn SharedJob>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    struct Bomb;

    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("a destructor");
        }
    }

    let (report, reported) = mpsc::channel();
    let timers = ThreadTimers::builder().on_panic(move |payload| report.send(payload).unwrap()).build();
    let owner = Arc::new(Owner(AtomicUsize::new(0)));
    let shared: Arc<dyn SharedJob> = Arc::<Owner>::clone(&owner);
    let bomb = Bomb;
    timers.once(NEVER, Job::shared(Arc::clone(&shared))).unwrap();
    timers.once(NEVER, Job::new(move || std::mem::forget(bomb))).unwrap();
    timers.once(NEVER, Job::shared(shared)).unwrap();
    drop(timers);
    assert_eq!(owner.0.load(Ordering::Relaxed), 2);
    assert_eq!(unwind::message(&*reported.recv().unwrap()), "a destructor");
}

#[test]
fn a_timer_job_may_drop_the_last_reference_to_its_own_timers() {
    struct Tell(Sender<&'static str>);

    impl Drop for Tell {
        fn drop(&mut self) {
            self.0.send("pending job dropped").unwrap();
        }
    }

    let (tell, told) = mpsc::channel();
    let (dropped, drops) = mpsc::channel();
    let timers = Arc::new(ThreadTimers::new());
    let last = Arc::clone(&timers);
    let pending = Tell(dropped);
    timers.once(NEVER, Job::new(move || drop(pending))).unwrap();
    let (go, gone) = mpsc::channel::<()>();
    timers
        .once(
            Duration::ZERO,
            Job::new(move || {
                gone.recv().unwrap_err();
                assert_eq!(Arc::strong_count(&last), 1);
                drop(last);
                tell.send("job went on").unwrap();
            }),
        )
        .unwrap();
    drop(timers);
    drop(go);
    assert_eq!(drops.recv(), Ok("pending job dropped"));
    assert_eq!(told.recv(), Ok("job went on"));
    assert!(told.recv().is_err(), "the thread has let go of everything");
}

#[test]
fn a_timer_job_that_shuts_its_timers_down_waits_for_nothing() {
    let timers = Arc::new(ThreadTimers::new());
    let (tell, told) = mpsc::channel();
    let inner = Arc::clone(&timers);
    timers.once(NEVER, Job::new(|| ())).unwrap();
    timers.once(Duration::ZERO, Job::new(move || tell.send(inner.shutdown().len()).unwrap())).unwrap();
    assert_eq!(told.recv(), Ok(1));
    assert!(timers.shutdown().is_empty(), "and another thread can still wait for its end");
    assert!(told.recv().is_err());
    assert_eq!(Arc::strong_count(&timers), 1);
}

#[test]
fn dropping_does_not_wait_for_a_running_job_and_a_shutdown_is_seen_to_block() {
    let timers = ThreadTimers::new();
    let (inside, is_inside) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let (tell, told) = mpsc::channel();
    timers
        .once(
            Duration::ZERO,
            Job::new(move || {
                inside.send(()).unwrap();
                released.recv().unwrap();
                tell.send(()).unwrap();
            }),
        )
        .unwrap();
    is_inside.recv().unwrap();
    drop(timers);
    release.send(()).unwrap();
    assert_eq!(told.recv(), Ok(()), "the job ran to its end");

    let timers = ThreadTimers::new();
    timers.once(NEVER, Job::new(|| ())).unwrap();
    let (pending, blocked) = watch_for_blocking(|| timers.shutdown());
    assert_eq!((pending.len(), blocked.len()), (1, 1));
    assert_eq!(blocked[0].call, "thread::join");
}

/// A hand-set clock that counts how often it is read.
struct Watched {
    clock: ManualClock,
    reads: AtomicUsize,
    broken_after: usize,
}

impl Clock for Watched {
    fn now(&self) -> Instant {
        let reads = self.reads.fetch_add(1, Ordering::SeqCst);
        assert!(reads < self.broken_after, "the clock is broken");
        self.clock.now()
    }

    fn coarse(&self) -> Instant {
        self.clock.coarse()
    }

    fn wall(&self) -> SystemTime {
        self.clock.wall()
    }
}

#[test]
fn a_timer_is_due_when_the_clock_says_so_and_not_before() {
    let manual = ManualClock::new();
    let clock =
        Arc::new(Watched { clock: manual.clone(), reads: AtomicUsize::new(0), broken_after: usize::MAX });
    let timers = ThreadTimers::builder().clock(clock.clone()).build();
    let (tell, told) = mpsc::channel();
    timers.once(SOON, telling(&tell, ())).unwrap();
    while clock.reads.load(Ordering::SeqCst) < 20 {
        assert!(told.try_recv().is_err(), "the clock stands still, however often the thread looks");
        std::thread::yield_now();
    }
    manual.advance(SOON);
    assert_eq!(told.recv(), Ok(()));
}

#[test]
fn a_clock_that_breaks_closes_the_timers_and_tells_the_owners() {
    let (report, reported) = mpsc::channel();
    let clock = Watched { clock: ManualClock::new(), reads: AtomicUsize::new(0), broken_after: 2 };
    let timers = ThreadTimers::builder()
        .clock(Arc::new(clock))
        .on_panic(move |payload| report.send(payload).unwrap())
        .build();
    let (tell, told) = mpsc::channel::<()>();
    timers.once(SOON, telling(&tell, ())).unwrap();
    drop(tell);
    assert!(told.recv().is_err(), "the job was dropped unrun");
    assert_eq!(unwind::message(&*reported.recv().unwrap()), "the clock is broken");
    assert!(unwind::catch(|| timers.once(SOON, Job::new(|| ()))).is_err(), "it breaks for whoever asks");
    assert_eq!(timers.pending(), 0);
}

#[test]
fn delays_without_end_are_accepted() {
    let timers = ThreadTimers::new();
    let timer = timers.once(Duration::MAX, Job::new(|| unreachable!("not in this age"))).unwrap();
    let (tell, told) = mpsc::channel();
    timers.once(SOON, telling(&tell, ())).unwrap();
    assert_eq!(told.recv(), Ok(()));
    assert!(timers.cancel(timer).is_some());
}

#[test]
#[should_panic(expected = "a thread's name contains no zero byte")]
fn a_name_with_a_zero_byte_is_refused_when_given() {
    drop(ThreadTimers::builder().thread_name("a\0b"));
}
