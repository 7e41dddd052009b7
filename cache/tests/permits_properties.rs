//! Random histories of read permits, each step held against a plain queue: who is told what, and when; what is out.
// ThreadSanitizer has nothing to see in one thread, and does not see into the locks of what runs it.
#![cfg(not(any(loom, shuttle, tsan)))]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests run on the standard library only, and their helpers unwrap as they do"
)]

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use folio_cache::{Acquired, Permit, PermitError, PermitOptions, ReadPermits};
use folio_sync::arc_dyn;
use folio_sync::test_util::{ManualClock, ManualTimers};
use folio_sync::timers::Timers;
use proptest::prelude::*;

#[derive(Clone, Copy, Debug)]
enum Step {
    Acquire { bytes: u64, drops: bool },
    Drop(usize),
    Shrink(usize, u64),
    Advance(u64),
    Budget(u64),
    Options { budget: u64, max_queued: usize, timeout: Option<u64> },
    RefuseTimer,
    Close,
}

fn bytes() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 0..60_u64, 4 => 60..140_u64, 1 => Just(u64::MAX)]
}

fn budget() -> impl Strategy<Value = u64> {
    prop_oneof![1 => Just(0_u64), 8 => 1..200_u64]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (bytes(), any::<bool>()).prop_map(|(bytes, drops)| Step::Acquire { bytes, drops }),
        10 => (0..100_usize).prop_map(Step::Drop),
        3 => (0..100_usize, bytes()).prop_map(|(which, to)| Step::Shrink(which, to)),
        4 => (0..40_u64).prop_map(Step::Advance),
        2 => budget().prop_map(Step::Budget),
        1 => (budget(), 0..6_usize, prop::option::of(0..60_u64))
            .prop_map(|(budget, max_queued, timeout)| Step::Options { budget, max_queued, timeout }),
        1 => Just(Step::RefuseTimer),
        1 => prop_oneof![30 => Just(Step::RefuseTimer), 1 => Just(Step::Close)],
    ]
}

/// What a request was told: bytes, or why not.
type Outcome = Result<u64, PermitError>;

struct Waiter {
    id: u32,
    bytes: u64,
    deadline: Option<u64>,
    drops: bool,
}

/// What is to be.
struct Plain {
    budget: u64,
    max_queued: usize,
    timeout: Option<u64>,
    now: u64,
    closed: bool,
    out: BTreeMap<u32, u64>,
    queue: VecDeque<Waiter>,
    told: Vec<(u32, Outcome)>,
}

impl Plain {
    fn limit(&self) -> u64 {
        if self.budget == 0 { u64::MAX >> 1 } else { self.budget }
    }

    fn in_use(&self) -> u64 {
        self.out.values().sum()
    }

    fn fits(&self, bytes: u64) -> Option<u64> {
        let cut = bytes.min(self.limit());
        (u128::from(self.in_use()) + u128::from(cut) <= u128::from(self.limit())).then_some(cut)
    }

    /// Grants from the head of the queue on.
    fn grant(&mut self) {
        let mut dropped = Vec::new();
        while let Some(cut) = self.queue.front().and_then(|first| self.fits(first.bytes)) {
            let Waiter { id, drops, .. } = self.queue.pop_front().unwrap();
            self.told.push((id, Ok(cut)));
            self.out.insert(id, cut);
            if drops {
                dropped.push(id);
            }
        }
        // The callbacks run when all who fit are known.
        for id in dropped {
            self.out.remove(&id);
            self.grant();
        }
    }

    fn advance(&mut self, by: u64) {
        let end = self.now + by;
        loop {
            let due = self.queue.iter().filter_map(|waiter| Some((waiter.deadline?, waiter.id))).min();
            let Some((deadline, id)) = due.filter(|due| due.0 <= end) else { break };
            self.now = deadline;
            let at = self.queue.iter().position(|waiter| waiter.id == id).unwrap();
            self.queue.remove(at);
            self.told.push((id, Err(PermitError::TimedOut)));
            self.grant();
        }
        self.now = end;
    }
}

fn options(budget: u64, max_queued: usize, timeout: Option<u64>) -> PermitOptions {
    let mut options = PermitOptions::default();
    (options.budget, options.max_queued) = (budget, max_queued);
    options.timeout = timeout.map(Duration::from_millis);
    options
}

/// Permits, and what is to be of them.
struct Run {
    plain: Plain,
    permits: ReadPermits,
    timers: ManualTimers,
    /// Permits that are out, by request.
    held: Arc<Mutex<BTreeMap<u32, Permit>>>,
    told: Arc<Mutex<Vec<(u32, Outcome)>>>,
    /// The next timer is refused.
    refuses: bool,
}

impl Run {
    fn new() -> Self {
        let plain = Plain {
            budget: 100,
            max_queued: 5,
            timeout: Some(50),
            now: 0,
            closed: false,
            out: BTreeMap::new(),
            queue: VecDeque::new(),
            told: Vec::new(),
        };
        let timers = ManualTimers::new(&ManualClock::new());
        let permits = ReadPermits::new(options(100, 5, Some(50)), arc_dyn!(timers.clone() => dyn Timers));
        Self { plain, permits, timers, held: Arc::default(), told: Arc::default(), refuses: false }
    }

    fn acquire(&mut self, id: u32, bytes: u64, drops: bool) -> Result<(), TestCaseError> {
        let plain = &mut self.plain;
        let fits = if plain.queue.is_empty() { plain.fits(bytes) } else { None };
        let expected = if plain.closed {
            Err(PermitError::Closed)
        } else if let Some(cut) = fits {
            plain.out.insert(id, cut);
            Ok(Some(cut))
        } else if plain.queue.len() >= plain.max_queued {
            Err(PermitError::QueueFull)
        } else if plain.timeout.is_some() && std::mem::take(&mut self.refuses) {
            Err(PermitError::NoTimer)
        } else {
            let deadline = plain.timeout.map(|timeout| plain.now + timeout);
            plain.queue.push_back(Waiter { id, bytes, deadline, drops });
            Ok(None)
        };
        let (kept, tells) = (Arc::clone(&self.held), Arc::clone(&self.told));
        let acquired = self.permits.acquire(bytes, move |granted| {
            let outcome = granted.as_ref().map(Permit::bytes).map_err(|error| *error);
            tells.lock().unwrap().push((id, outcome));
            if let (Ok(permit), false) = (granted, drops) {
                kept.lock().unwrap().insert(id, permit);
            }
        });
        let acquired = acquired.map(|acquired| match acquired {
            Acquired::Now(permit) => {
                let bytes = permit.bytes();
                self.held.lock().unwrap().insert(id, permit);
                Some(bytes)
            }
            Acquired::Queued => None,
        });
        prop_assert_eq!(acquired, expected);
        Ok(())
    }

    /// The request that holds the permit of this number, if there are any.
    fn holder(&self, which: usize) -> Option<u32> {
        self.plain.out.keys().nth(which % self.plain.out.len().max(1)).copied()
    }

    fn step(&mut self, id: u32, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Acquire { bytes, drops } => self.acquire(id, bytes, drops)?,
            Step::Drop(which) => {
                let Some(id) = self.holder(which) else { return Ok(()) };
                self.plain.out.remove(&id);
                self.plain.grant();
                let permit = self.held.lock().unwrap().remove(&id);
                prop_assert!(permit.is_some());
                drop(permit);
            }
            Step::Shrink(which, to) => {
                let Some(id) = self.holder(which) else { return Ok(()) };
                let bytes = self.plain.out.get_mut(&id).unwrap();
                *bytes = to.min(*bytes);
                self.plain.grant();
                let mut permit = self.held.lock().unwrap().remove(&id).unwrap();
                permit.shrink(to);
                self.held.lock().unwrap().insert(id, permit);
            }
            Step::Advance(by) => {
                self.plain.advance(by);
                self.timers.advance(Duration::from_millis(by));
            }
            Step::Budget(budget) => {
                self.plain.budget = budget;
                self.plain.grant();
                self.permits.set_budget(budget);
            }
            Step::Options { budget, max_queued, timeout } => {
                (self.plain.budget, self.plain.max_queued, self.plain.timeout) =
                    (budget, max_queued, timeout);
                self.plain.grant();
                self.permits.set_options(options(budget, max_queued, timeout));
            }
            Step::RefuseTimer => {
                self.refuses = true;
                self.timers.refuse_next(1);
            }
            Step::Close => {
                self.plain.closed = true;
                let waiting = std::mem::take(&mut self.plain.queue);
                let closed = |waiter: &Waiter| (waiter.id, Err(PermitError::Closed));
                self.plain.told.extend(waiting.iter().map(closed));
                self.permits.close();
            }
        }
        Ok(())
    }

    fn compare(&self) -> Result<(), TestCaseError> {
        let Self { plain, permits, timers, told, .. } = self;
        prop_assert_eq!(&*told.lock().unwrap(), &plain.told);
        prop_assert_eq!(permits.in_use(), plain.in_use());
        prop_assert_eq!(permits.queued(), plain.queue.len());
        let timed = plain.queue.iter().filter(|waiter| waiter.deadline.is_some()).count();
        prop_assert_eq!(timers.pending(), timed, "who waits no more has no timer");
        if plain.limit() == plain.budget {
            prop_assert_eq!(permits.available(), plain.budget.saturating_sub(plain.in_use()));
        }
        Ok(())
    }

    /// All that is out comes back, round by round.
    fn end(self) -> Result<(), TestCaseError> {
        while self.permits.in_use() > 0 {
            let all = std::mem::take(&mut *self.held.lock().unwrap());
            prop_assert!(!all.is_empty(), "what is out is somebody's");
            drop(all);
        }
        prop_assert_eq!((self.permits.queued(), self.timers.pending()), (0, 0));
        let mut ids: Vec<_> = self.told.lock().unwrap().iter().map(|told| told.0).collect();
        let told = ids.len();
        ids.sort_unstable();
        ids.dedup();
        prop_assert_eq!(ids.len(), told, "each was told once");
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    /// I24, I33, 4.6: whatever is asked, given back, refused, timed out, changed and closed in whichever order: what went out came back, in the queue's
    /// order, and each request was told once.
    #[test]
    fn permits_are_a_plain_queue(steps in prop::collection::vec(step(), 1..60)) {
        let mut run = Run::new();
        for (id, step) in (0_u32..).zip(steps) {
            run.step(id, step)?;
            run.compare()?;
        }
        run.end()?;
    }
}
