//! A storage that counts and misbehaves on demand, a sink that remembers, and a ledger between them.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::ops::Range;
use std::panic::resume_unwind;
use std::time::{Duration, Instant};

use bytes::Bytes;
use folio_ledger::{
    AppendError, AppendSink, CacheManager, CacheOptions, Cursor, Done, Entry, Ledger, LedgerOptions,
    LogStorage, MemoryStorage, Position, ReadError, StorageError, Wait,
};
use folio_sync::test_util::{ManualClock, ManualExecutor, ManualTimers};
use folio_sync::time::Instant as Moment;
use folio_sync::{Arc, Mutex};

/// The ledger's number in all tests.
pub(crate) const ID: i64 = 7;

/// Waits until something is so.
#[track_caller]
pub(crate) fn until(what: &str, so: impl Fn() -> bool) {
    let began = Instant::now();
    while !so() {
        assert!(began.elapsed() < Duration::from_secs(60), "waited too long until {what}");
        std::thread::yield_now();
    }
}

/// Panics without the noise of a panic hook.
pub(crate) fn go_off() -> ! {
    resume_unwind(Box::new("planted"));
}

/// Goes off when it is dropped.
pub(crate) struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        go_off();
    }
}

pub(crate) fn at(entry: i64) -> Position {
    Position { ledger: ID, entry }
}

/// What entry number `n` carries.
pub(crate) fn payload(n: i64) -> Bytes {
    Bytes::from(n.to_string())
}

/// Entries as readers get them.
pub(crate) fn entries(range: Range<i64>) -> Vec<Entry> {
    range.map(|n| Entry::new(at(n), payload(n))).collect()
}

/// What one token was told.
pub(crate) type Told = (i64, Result<Position, AppendError>);

/// Remembers what it was told, in order.
#[derive(Clone, Default)]
pub(crate) struct Heard(Arc<Mutex<Vec<Told>>>);

impl Heard {
    pub(crate) fn take(&self) -> Vec<Told> {
        std::mem::take(&mut *self.0.lock())
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().len()
    }
}

impl AppendSink<i64> for Heard {
    fn appended(&self, token: i64, result: Result<Position, AppendError>, _at: Moment) {
        self.0.lock().push((token, result));
    }
}

/// What tokens are told whose entries have their own numbers.
pub(crate) fn appended(range: Range<i64>) -> Vec<Told> {
    range.map(|n| (n, Ok(at(n)))).collect()
}

/// What tokens are told whose entries were not appended.
pub(crate) fn failed(range: Range<i64>, error: &AppendError) -> Vec<Told> {
    range.map(|n| (n, Err(error.clone()))).collect()
}

/// What storage was asked: the first entry, and how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Append(i64, usize),
    Read(i64, usize),
    Trim(i64),
}

/// How storage answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mood {
    #[default]
    Good,
    Fails,
    Panics,
    /// Reads one entry too few.
    Short,
}

type Hook = Box<dyn Fn() + Send + Sync>;

/// Storage in memory that tells what it was asked.
#[derive(Clone, Default)]
pub(crate) struct Shelf(Arc<Inner>);

#[derive(Default)]
struct Inner {
    memory: MemoryStorage,
    asked: Mutex<Vec<Asked>>,
    mood: Mutex<Mood>,
    on_append: Mutex<Option<Arc<Hook>>>,
    answers: Mutex<Answers>,
}

/// Answers to appends that are told later.
#[derive(Default)]
struct Answers {
    is_held: bool,
    held: Vec<Done<(), StorageError>>,
}

/// The error of storage that fails.
pub(crate) fn broken() -> StorageError {
    StorageError::Failed("planted".to_owned())
}

impl Shelf {
    pub(crate) fn asked(&self) -> Vec<Asked> {
        std::mem::take(&mut *self.0.asked.lock())
    }

    pub(crate) fn reads(&self) -> Vec<(i64, usize)> {
        let asked = self.asked().into_iter();
        asked
            .filter_map(
                |asked| if let Asked::Read(first, count) = asked { Some((first, count)) } else { None },
            )
            .collect()
    }

    pub(crate) fn set(&self, mood: Mood) {
        *self.0.mood.lock() = mood;
    }

    /// Has this called in each append, after the entries are kept.
    pub(crate) fn on_append(&self, hook: impl Fn() + Send + Sync + 'static) {
        *self.0.on_append.lock() = Some(Arc::new(Box::new(hook)));
    }

    /// Answers appends no more by itself.
    pub(crate) fn hold(&self) {
        self.0.answers.lock().is_held = true;
    }

    /// The appends that wait for their answers, in order.
    pub(crate) fn held(&self) -> Vec<Done<(), StorageError>> {
        std::mem::take(&mut self.0.answers.lock().held)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.memory.len()
    }

    fn ask(&self, asked: Asked) -> Result<Mood, StorageError> {
        self.0.asked.lock().push(asked);
        let mood = *self.0.mood.lock();
        match mood {
            Mood::Fails => Err(broken()),
            Mood::Panics => go_off(),
            mood => Ok(mood),
        }
    }
}

impl LogStorage for Shelf {
    fn append(&self, first: Position, entries: Vec<Bytes>, done: Done<(), StorageError>) {
        if let Err(error) = self.ask(Asked::Append(first.entry, entries.len())) {
            return done.tell(Err(error));
        }
        let hook = self.0.on_append.lock().clone();
        self.0.memory.append(first, entries, Done::new(|kept| assert_eq!(kept, Ok(()))));
        if let Some(hook) = hook {
            hook();
        }
        let mut answers = self.0.answers.lock();
        if answers.is_held {
            answers.held.push(done);
        } else {
            drop(answers);
            done.tell(Ok(()));
        }
    }

    fn read(&self, first: Position, count: usize, done: Done<Vec<Bytes>, StorageError>) {
        match self.ask(Asked::Read(first.entry, count)) {
            Ok(mood) => self.0.memory.read(first, count - usize::from(mood == Mood::Short), done),
            Err(error) => done.tell(Err(error)),
        }
    }

    fn trim(&self, before: Position) {
        // Storage that fails has nobody to tell.
        if self.ask(Asked::Trim(before.entry)).is_ok() {
            self.0.memory.trim(before);
        }
    }
}

/// What caches; nobody runs its passes.
pub(crate) fn manager(clock: &ManualClock, budget: u64) -> CacheManager<Bytes> {
    let mut options = CacheOptions::default();
    options.budget = budget;
    let manager = CacheManager::new(options, ManualExecutor::new(), ManualTimers::new(clock), clock.clone());
    manager.expect("the options are good")
}

/// A ledger whose worker the test steps.
pub(crate) struct Scene {
    pub(crate) worker: ManualExecutor,
    pub(crate) clock: ManualClock,
    pub(crate) storage: Shelf,
    pub(crate) heard: Heard,
    pub(crate) ledger: Ledger<i64>,
    _ends: Ends,
}

/// Drops what an executor still has, which would keep the executor alive.
struct Ends(ManualExecutor);

impl Drop for Ends {
    fn drop(&mut self) {
        while let Some(job) = self.0.take_next() {
            drop(job);
        }
    }
}

impl Scene {
    pub(crate) fn new() -> Self {
        Self::with(|_| ())
    }

    pub(crate) fn with(change: impl FnOnce(&mut LedgerOptions)) -> Self {
        Self::on(ManualExecutor::new(), change)
    }

    /// Nothing is cached.
    pub(crate) fn uncached() -> Self {
        Self::over(ManualExecutor::new(), 0, |_| ())
    }

    pub(crate) fn on(worker: ManualExecutor, change: impl FnOnce(&mut LedgerOptions)) -> Self {
        Self::over(worker, CacheOptions::default().budget, change)
    }

    fn over(worker: ManualExecutor, budget: u64, change: impl FnOnce(&mut LedgerOptions)) -> Self {
        let (clock, storage, heard) = (ManualClock::new(), Shelf::default(), Heard::default());
        let mut options = LedgerOptions { id: ID, ..LedgerOptions::default() };
        change(&mut options);
        let cache = &manager(&clock, budget);
        let ledger = Ledger::open(options, storage.clone(), cache, worker.clone(), heard.clone());
        let ledger = ledger.expect("the settings are good");
        Self { _ends: Ends(worker.clone()), worker, clock, storage, heard, ledger }
    }

    /// Gives entries to the ledger, whose worker does not run.
    pub(crate) fn give(&self, range: Range<i64>) {
        range.for_each(|n| self.ledger.append(payload(n), n));
    }

    /// Appends entries, and forgets what storage was asked and the sink was told.
    pub(crate) fn fill(&self, range: Range<i64>) {
        self.give(range);
        self.worker.run_all();
        drop((self.storage.asked(), self.heard.take()));
    }

    /// Drops entries from the cache.
    pub(crate) fn uncache(&self, range: Range<i64>) {
        self.ledger.cache().range_cache().remove_range((ID, range.start)..(ID, range.end));
    }

    /// A cursor, and how often it was told.
    pub(crate) fn cursor(&self, first: i64) -> (Cursor, Calls) {
        let calls = Calls::default();
        let told = calls.clone();
        (self.ledger.cursor(first, move || told.note()), calls)
    }
}

/// Counts calls.
#[derive(Clone, Default)]
pub(crate) struct Calls(Arc<Mutex<usize>>);

impl Calls {
    pub(crate) fn note(&self) {
        *self.0.lock() += 1;
    }

    pub(crate) fn count(&self) -> usize {
        *self.0.lock()
    }
}

/// What a read is told.
pub(crate) type Read = Result<Vec<Entry>, ReadError>;

/// What a read came to.
#[derive(Clone, Default)]
pub(crate) struct Answer(Arc<Mutex<Vec<Read>>>);

impl Answer {
    /// Asks for a read.
    pub(crate) fn of(cursor: &Cursor, most: usize) -> Self {
        let answer = Self::default();
        let told = answer.clone();
        cursor.read(most, Vec::new(), move |result| told.0.lock().push(result));
        answer
    }

    pub(crate) fn is_there(&self) -> bool {
        !self.0.lock().is_empty()
    }

    /// The answer, which must have come exactly once.
    #[track_caller]
    pub(crate) fn once(&self) -> Read {
        let mut told = self.0.lock();
        assert_eq!(told.len(), 1, "a read is told what it came to once");
        told.remove(0)
    }
}

/// Reads inside the call.
#[track_caller]
pub(crate) fn read(cursor: &Cursor, most: usize) -> Read {
    Answer::of(cursor, most).once()
}

/// Reads until there is nothing more.
pub(crate) fn read_all(cursor: &Cursor) -> Vec<Entry> {
    let mut all = Vec::new();
    while cursor.wait() == Wait::More {
        let mut some = read(cursor, 10).expect("it can be read");
        assert!(!some.is_empty(), "there was more");
        all.append(&mut some);
    }
    all
}
