//! A store in memory that is slow and fails, as a seed says.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use folio_sync::timers::Timers;
use folio_sync::{Arc, Job, Mutex};

use super::done::Done;
use super::error::StoreError;
use super::log::{Append, Appended, Capabilities, LedgerInfo, LogStore, ReadLimits};
use super::memory::MemoryStore;

/// Numbers that look random and are the same for the same seed; after `SplitMix64` by Steele, Lea and Flood.
#[derive(Clone, Copy, Debug)]
pub struct Seed(u64);

impl Seed {
    /// From this number on.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub const fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below this one; 0 if that is 0.
    pub const fn below(&mut self, end: u64) -> u64 {
        if end == 0 { 0 } else { self.draw() % end }
    }

    /// Whether it happens this time, which it does so often in a thousand.
    pub const fn happens(&mut self, in_a_thousand: u64) -> bool {
        self.below(1000) < in_a_thousand
    }
}

/// What goes wrong, and how often in a thousand calls.
#[derive(Clone, Debug)]
pub struct Faults {
    /// How long an answer takes.
    pub latency: Range<Duration>,
    /// An append fails and nothing of it is kept.
    pub failed_appends: u64,
    /// An append fails and some of its entries are kept.
    pub torn_appends: u64,
    /// An append fails and all of it is kept.
    pub lost_answers: u64,
    /// A read fails.
    pub failed_reads: u64,
}

/// A [`MemoryStore`] that is slow and fails, as a seed says.
///
/// Answers come after a time of their own, so that they overtake each other; those of one ledger's appends stay in order. A ledger whose
/// append has failed fails the ones after it, until it is recovered.
pub struct FaultyStore {
    inner: MemoryStore,
    timers: Box<dyn Timers>,
    faults: Faults,
    state: Arc<Mutex<State>>,
}

struct State {
    seed: Seed,
    failed: HashSet<i64>,
    /// The answers of each ledger's appends, in order.
    answers: HashMap<i64, VecDeque<Job>>,
}

impl FaultyStore {
    /// Empty; answers come from these timers.
    pub fn new(seed: u64, faults: Faults, timers: impl Timers + 'static) -> Self {
        let state = State { seed: Seed::new(seed), failed: HashSet::new(), answers: HashMap::new() };
        Self {
            inner: MemoryStore::new(),
            timers: Box::new(timers),
            faults,
            state: Arc::new(Mutex::new(state)),
        }
    }

    fn delay(&self) -> Duration {
        let Range { start, end } = self.faults.latency;
        let span = u64::try_from(end.saturating_sub(start).as_nanos()).unwrap_or(u64::MAX);
        start + Duration::from_nanos(self.state.lock().seed.below(span))
    }

    fn later(&self, job: Job) {
        if let Err(rejected) = self.timers.once(self.delay(), job) {
            rejected.into_inner().run();
        }
    }

    fn answer<T: Send + 'static>(&self, done: Done<T>, answer: Result<T, StoreError>) {
        self.later(Job::new(move || done.tell(answer)));
    }

    fn append_now(&self, mut append: Append) -> Result<Appended, StoreError> {
        let failed = |what: &str| Err(StoreError::Failed(what.into()));
        let mut state = self.state.lock();
        if state.failed.contains(&append.ledger) {
            return failed("an append before it failed");
        }
        let faults = &self.faults;
        let (none, torn) = (faults.failed_appends, faults.failed_appends + faults.torn_appends);
        let kept = match state.seed.below(1000) {
            dice if dice < none => 0,
            dice if dice < torn => {
                let count = state.seed.below(append.entries.len() as u64);
                usize::try_from(count).unwrap_or(0)
            }
            dice if dice < torn + faults.lost_answers => append.entries.len(),
            _ => {
                drop(state);
                return self.inner.append_now(append);
            }
        };
        let ledger = append.ledger;
        append.entries.truncate(kept);
        // What is refused is refused without a fault.
        if kept > 0 {
            self.inner.append_now(append)?;
        }
        state.failed.insert(ledger);
        drop(state);
        failed("a planted fault")
    }
}

impl LogStore for FaultyStore {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn create(&self, group: &str, ledger: i64, epoch: u64, done: Done<()>) {
        let made = now(|done| self.inner.create(group, ledger, epoch, done));
        self.answer(done, made);
    }

    fn append(&self, append: Append, done: Done<Appended>) {
        let ledger = append.ledger;
        let answer = self.append_now(append);
        let job = Job::new(move || done.tell(answer));
        self.state.lock().answers.entry(ledger).or_default().push_back(job);
        let state = Arc::clone(&self.state);
        self.later(Job::new(move || {
            let answer = state.lock().answers.get_mut(&ledger).and_then(VecDeque::pop_front);
            if let Some(answer) = answer {
                answer.run();
            }
        }));
    }

    fn read(&self, ledger: i64, first: i64, limits: ReadLimits, done: Done<Vec<Bytes>>) {
        let fails = self.state.lock().seed.happens(self.faults.failed_reads);
        let read = if fails {
            Err(StoreError::ReadFailed("a planted fault".into()))
        } else {
            now(|done| self.inner.read(ledger, first, limits, done))
        };
        self.answer(done, read);
    }

    fn last_confirmed(&self, ledger: i64, done: Done<i64>) {
        let last = now(|done| self.inner.last_confirmed(ledger, done));
        self.answer(done, last);
    }

    fn close(&self, ledger: i64, epoch: u64, done: Done<i64>) {
        let closed = now(|done| self.inner.close(ledger, epoch, done));
        self.answer(done, closed);
    }

    fn recover(&self, ledger: i64, epoch: u64, done: Done<i64>) {
        let recovered = now(|done| self.inner.recover(ledger, epoch, done));
        if recovered.is_ok() {
            self.state.lock().failed.remove(&ledger);
        }
        self.answer(done, recovered);
    }

    fn delete(&self, ledger: i64, epoch: u64, done: Done<()>) {
        let deleted = now(|done| self.inner.delete(ledger, epoch, done));
        if deleted.is_ok() {
            self.state.lock().failed.remove(&ledger);
        }
        self.answer(done, deleted);
    }

    fn list(&self, group: &str, done: Done<Vec<LedgerInfo>>) {
        let list = now(|done| self.inner.list(group, done));
        self.answer(done, list);
    }
}

/// The answer of a store that answers before it returns.
fn now<T: Send + 'static>(call: impl FnOnce(Done<T>)) -> Result<T, StoreError> {
    let (tell, told) = std::sync::mpsc::channel();
    call(Done::new(move |answer| drop(tell.send(answer))));
    told.try_recv().unwrap_or(Err(StoreError::Dropped))
}

impl fmt::Debug for FaultyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultyStore").field("faults", &self.faults).finish_non_exhaustive()
    }
}
