//! Models of the read permits: each request is told once, nobody is forgotten, and all bytes come back.
#![cfg(loom)]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "counters and timers of the test itself, which the checker must not see as synchronisation; models fail where they unwrap"
)]

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc as StdArc, Mutex as StdMutex};
use std::time::Duration;

use folio_cache::{Acquired, Permit, PermitError, PermitOptions, ReadPermits};
use folio_sync::test_util::{Tracked, model};
use folio_sync::timers::{TimerId, Timers};
use folio_sync::{Arc, Job, Mutex, Rejected, arc_dyn, thread};

/// Timers that fire when a model says so.
///
/// Their lock is the checker's, which has to see that a timer is taken back or fires: it runs only those orders that it knows to matter. That hides
/// nothing, since all that permits share is behind their own lock, but for one word that is a number.
#[derive(Clone, Default)]
struct Fake(Arc<Mutex<Vec<(u64, Job)>>>, StdArc<AtomicU64>);

impl Timers for Fake {
    fn once(&self, _delay: Duration, job: Job) -> Result<TimerId, Rejected<Job>> {
        let id = self.1.fetch_add(1, Relaxed);
        self.0.lock().push((id, job));
        Ok(TimerId::from_raw(id))
    }

    fn cancel(&self, timer: TimerId) -> Option<Job> {
        let mut jobs = self.0.lock();
        let at = jobs.iter().position(|(id, _)| *id == timer.as_raw())?;
        Some(jobs.remove(at).1)
    }
}

impl Fake {
    /// Fires the oldest timer, if there is one.
    fn fire(&self) {
        let first = {
            let mut jobs = self.0.lock();
            if jobs.is_empty() { None } else { Some(jobs.remove(0).1) }
        };
        if let Some(job) = first {
            job.run();
        }
    }

    fn pending(&self) -> usize {
        self.0.lock().len()
    }
}

/// What requests were told: bytes, or why not.
#[derive(Clone, Default)]
struct Told(StdArc<StdMutex<Vec<Result<u64, PermitError>>>>);

impl Told {
    fn get(&self) -> Vec<Result<u64, PermitError>> {
        self.0.lock().unwrap().clone()
    }

    fn tell(&self, outcome: Result<u64, PermitError>) {
        self.0.lock().unwrap().push(outcome);
    }
}

fn permits(budget: u64, timers: &Fake) -> ReadPermits {
    let mut options = PermitOptions::default();
    options.budget = budget;
    ReadPermits::new(options, arc_dyn!(timers.clone() => dyn Timers))
}

/// Asks for bytes; whatever becomes of the request is told, and a permit dropped at once.
fn ask(permits: &ReadPermits, bytes: u64, told: &Told) {
    let tells = told.clone();
    let captured = Tracked::new(0);
    let outcome = permits.acquire(bytes, move |granted| {
        assert_eq!(*captured.get(), 0);
        tells.tell(granted.map(|permit| permit.bytes()));
    });
    match outcome {
        Ok(Acquired::Now(permit)) => told.tell(Ok(permit.bytes())),
        Ok(Acquired::Queued) => {}
        Err(error) => told.tell(Err(error)),
    }
}

/// A permit that there is room for.
fn take(permits: &ReadPermits, bytes: u64) -> Permit {
    let Ok(Acquired::Now(permit)) = permits.acquire(bytes, |_| unreachable!()) else {
        panic!("there is room")
    };
    permit
}

/// Nobody waits, nothing is out, no timer is left, and the next request finds nobody in its way.
fn ends(permits: &ReadPermits, timers: &Fake) {
    assert_eq!((permits.in_use(), permits.queued(), timers.pending()), (0, 0, 0));
    drop(take(permits, 1));
}

/// I33, I24: who finds no room as the last bytes come back has them.
#[test]
fn acquire_racing_drop() {
    model("acquire racing drop", || {
        let (timers, told) = (Fake::default(), Told::default());
        let permits = permits(1, &timers);
        let one = take(&permits, 1);
        let (asks, tells) = (permits.clone(), told.clone());
        let thread = thread::spawn(move || ask(&asks, 1, &tells));
        drop(one);
        thread.join().unwrap();
        assert_eq!(told.get(), [Ok(1)]);
        ends(&permits, &timers);
    });
}

/// I33, I24: two give back what one waits for, which neither of them could grant by itself.
#[test]
fn two_drops_racing_acquire() {
    model("two drops racing acquire", || {
        let (timers, told) = (Fake::default(), Told::default());
        let permits = permits(2, &timers);
        let drops = [take(&permits, 1), take(&permits, 1)];
        let threads = drops.map(|permit| thread::spawn(move || drop(permit)));
        ask(&permits, 2, &told);
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(told.get(), [Ok(2)]);
        ends(&permits, &timers);
    });
}

/// I33, bug 24: two ask while one gives back: the budget is never exceeded, and both are served.
#[test]
fn two_acquires_racing_drop() {
    model("two acquires racing drop", || {
        let (timers, told) = (Fake::default(), Told::default());
        let permits = permits(1, &timers);
        let one = take(&permits, 1);
        let threads = [(); 2].map(|()| {
            let (permits, told) = (permits.clone(), told.clone());
            thread::spawn(move || ask(&permits, 1, &told))
        });
        assert!(permits.in_use() <= 1);
        drop(one);
        assert!(permits.in_use() <= 1);
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(told.get(), [Ok(1), Ok(1)]);
        ends(&permits, &timers);
    });
}

/// I24, I33: the time of one who waits is over as it is granted: it is told one of the two, and the bytes come back.
#[test]
fn grant_racing_timeout() {
    model("grant racing timeout", || {
        let (timers, told) = (Fake::default(), Told::default());
        let permits = permits(1, &timers);
        let one = take(&permits, 1);
        ask(&permits, 1, &told);
        let fires = timers.clone();
        let thread = thread::spawn(move || fires.fire());
        drop(one);
        thread.join().unwrap();
        assert!(matches!(told.get()[..], [Ok(1) | Err(PermitError::TimedOut)]), "{:?}", told.get());
        ends(&permits, &timers);
    });
}

/// I24, I33: a timer that fires, or a grant, before the timer is noted with the request that it belongs to.
#[test]
fn timer_being_set_racing_its_end() {
    model("timer being set racing its end", || {
        let (timers, told) = (Fake::default(), Told::default());
        let permits = permits(1, &timers);
        let one = take(&permits, 1);
        let (asks, tells) = (permits.clone(), told.clone());
        let thread = thread::spawn(move || ask(&asks, 1, &tells));
        timers.fire();
        drop(one);
        thread.join().unwrap();
        assert!(matches!(told.get()[..], [Ok(1) | Err(PermitError::TimedOut)]), "{:?}", told.get());
        ends(&permits, &timers);
    });
}

/// bug 24, I33: a large request gives up while bytes come back: the small one behind it is not forgotten.
#[test]
fn timeout_of_the_first_racing_drop() {
    model("timeout of the first racing drop", || {
        let (timers, told) = (Fake::default(), Told::default());
        let permits = permits(2, &timers);
        let kept = take(&permits, 1);
        let one = take(&permits, 1);
        ask(&permits, 2, &told);
        ask(&permits, 1, &told);
        let fires = timers.clone();
        let thread = thread::spawn(move || fires.fire());
        drop(one);
        thread.join().unwrap();
        let timed_out = vec![Err(PermitError::TimedOut), Ok(1)];
        assert_eq!(told.get().iter().filter(|told| told.is_err()).count(), 1, "it had no room");
        assert!(told.get() == timed_out || told.get() == [Ok(1), Err(PermitError::TimedOut)]);
        drop(kept);
        ends(&permits, &timers);
    });
}

/// I24: a request races with the close: it is told once, and later ones are refused.
#[test]
fn acquire_racing_close() {
    model("acquire racing close", || {
        let (timers, told) = (Fake::default(), Told::default());
        let permits = permits(1, &timers);
        let one = take(&permits, 1);
        let (asks, tells) = (permits.clone(), told.clone());
        let thread = thread::spawn(move || ask(&asks, 1, &tells));
        permits.close();
        ask(&permits, 1, &told);
        assert!(told.get().contains(&Err(PermitError::Closed)));
        thread.join().unwrap();
        assert_eq!(told.get(), [Err(PermitError::Closed), Err(PermitError::Closed)]);
        drop(one);
        assert_eq!((permits.in_use(), permits.queued(), timers.pending()), (0, 0, 0));
    });
}

/// I33: a drop races with the close while one waits: it is told one of the two, and the bytes come back.
#[test]
fn drop_racing_close() {
    model("drop racing close", || {
        let (timers, told) = (Fake::default(), Told::default());
        let permits = permits(1, &timers);
        let one = Arc::new(take(&permits, 1));
        ask(&permits, 1, &told);
        let other = Arc::clone(&one);
        let thread = thread::spawn(move || drop(other));
        drop(one);
        permits.close();
        thread.join().unwrap();
        assert!(matches!(told.get()[..], [Ok(1) | Err(PermitError::Closed)]), "{:?}", told.get());
        assert_eq!((permits.in_use(), permits.queued(), timers.pending()), (0, 0, 0));
    });
}

/// I33: a request that finds no room as the budget grows is not forgotten.
#[test]
fn acquire_racing_a_larger_budget() {
    model("acquire racing a larger budget", || {
        let (timers, told) = (Fake::default(), Told::default());
        let permits = permits(1, &timers);
        let one = take(&permits, 1);
        let (asks, tells) = (permits.clone(), told.clone());
        let thread = thread::spawn(move || ask(&asks, 1, &tells));
        permits.set_budget(2);
        thread.join().unwrap();
        assert_eq!(told.get(), [Ok(1)]);
        drop(one);
        ends(&permits, &timers);
    });
}
