//! Reads through the cache of a ledger on many threads.
#![cfg(all(feature = "bytes", not(any(loom, shuttle))))]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests run on the standard library only, and their helpers unwrap as they do"
)]

mod common;
#[path = "common/entries.rs"]
mod entries;
#[path = "common/storage.rs"]
mod storage;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant as Wall};

use bytes::Bytes;
use common::{LONG, Random, Value, threads, until};
use entries::{Scene, cache_options, request};
use folio_cache::pending::{ReadDone, ReadStorage, StorageFailure, Stored};
use folio_cache::{
    ActiveCursors, CacheManager, CacheOptions, EntryCache, EntryCacheOptions, ReadEntry, ReadError,
    ReadRequest,
};
use folio_sync::test_util::{ManualClock, ManualTimers};
use folio_sync::time::{Clock, Instant};
use folio_sync::timers::Timers;
use folio_sync::{Arc, Executor, Job, Mutex, Rejected, arc_dyn};
use storage::WEIGHT;

/// Entries that are read, appended and invalidated.
const ENTRIES: i64 = 200;

/// Reads of each reader.
const READS: usize = 400;

/// How many readers there are.
const READERS: usize = 3;

/// What became of the reads.
#[derive(Default)]
struct Ends {
    told: AtomicUsize,
    read: AtomicUsize,
    missing: AtomicUsize,
    failed: AtomicUsize,
    too_many: AtomicUsize,
}

impl Ends {
    /// How many were what they should be.
    fn all(&self) -> usize {
        let ends = [&self.read, &self.missing, &self.failed, &self.too_many];
        ends.iter().map(|ends| ends.load(Ordering::Acquire)).sum()
    }

    /// Whether all reads were told.
    fn is_over(&self, began: Wall) -> bool {
        assert!(began.elapsed() < 2 * LONG, "a reader waits in vain, or has panicked");
        self.told.load(Ordering::Acquire) == READERS * READS
    }

    /// Looks at what a read came to.
    fn add(
        &self,
        cache: &EntryCache<Value>,
        first: i64,
        count: i64,
        outcome: Result<Vec<ReadEntry<Value>>, ReadError>,
    ) {
        let ended = match outcome {
            Ok(entries) => {
                assert!(!entries.is_empty() && entries.len() <= usize::try_from(count).unwrap());
                assert!(entries.iter().all(|entry| entry.position == entry.value.position));
                let positions = entries.iter().map(|entry| entry.position.1);
                assert!(positions.eq((first..).take(entries.len())), "in order, without a gap");
                cache.mark_read(&entries);
                &self.read
            }
            Err(ReadError::Missing(_)) => &self.missing,
            Err(ReadError::Storage(_)) => &self.failed,
            Err(ReadError::TooManyReads(_)) => &self.too_many,
            Err(error) => panic!("{error}"),
        };
        ended.fetch_add(1, Ordering::Release);
    }
}

/// Counts a read as told, also when its result is not what it should be.
struct Told<'a>(&'a Ends);

impl Drop for Told<'_> {
    fn drop(&mut self) {
        self.0.told.fetch_add(1, Ordering::Release);
    }
}

/// Reads, with up to eight at a time.
fn read_some(scene: &Scene, ends: &Arc<Ends>, random: &mut Random) {
    let told_here = Arc::new(AtomicUsize::new(0));
    for read in 0..READS {
        let (first, count) = (random.entry(ENTRIES), 1 + random.entry(24));
        let (ends, cache, told) = (Arc::clone(ends), scene.cache.clone(), Arc::clone(&told_here));
        scene.cache.read(request(first, first + count - 1), Vec::new(), move |outcome| {
            told.fetch_add(1, Ordering::Release);
            let _told = Told(&ends);
            ends.add(&cache, first, count, outcome);
        });
        until("earlier ones are told", || read < told_here.load(Ordering::Acquire) + 8);
    }
}

/// Appends, invalidates, evicts and has time pass.
fn change(scene: &Scene, random: &mut Random, is_over: impl Fn() -> bool) {
    let mut inserter = scene.cache.inserter();
    while !is_over() {
        if scene.tally.made() < 100_000 {
            let position = (1, random.entry(ENTRIES));
            inserter.insert(position, scene.tally.value(position, WEIGHT), 1, scene.manager.now());
        }
        match random.below(80) {
            0 => drop(scene.cache.invalidate_all(1)),
            1 => drop(scene.cache.invalidate_before((1, random.entry(ENTRIES)))),
            2 => drop(scene.timers.advance(Duration::from_millis(3))),
            3..8 => drop(scene.executor.run_all()),
            _ => {}
        }
        thread::yield_now();
    }
}

/// Answers reads of storage, in every way there is.
fn answer_some(scene: &Scene, random: &mut Random, is_over: impl Fn() -> bool) {
    while !is_over() {
        let waiting = scene.shelf.waiting() as u64;
        let read = scene.shelf.try_take(usize::try_from(random.below(waiting.max(1))).unwrap());
        let Some(read) = read else {
            thread::yield_now();
            continue;
        };
        let wanted = read.wish.2;
        match random.below(8) {
            0 => read.fail(),
            1 => drop(read),
            2 => read.answer_with(wanted + 2),
            3 => read.answer_with(u32::try_from(random.below(wanted.into())).unwrap()),
            4 => read.answer_sliced(),
            5 => read.done.fail(StorageFailure::Closed),
            _ => read.answer(),
        }
    }
}

/// I12, I24, I32, I33, I34, I35, 4.6, bug 4, bug 10, bug 24: whatever happens at the same time, each read is told once, in order and without a gap.
///
/// Readers, a writer, invalidations, passes, time, and storage that answers late, out of order, short, long, not at all, with errors and closed. All permits
/// are back at the end, and every entry is dropped once.
///
/// Which of these happen is for the system's schedule: each run is exact, and in one of several all of them have happened.
#[test]
fn everything_at_once() {
    let runs = (0..50).take_while(|_| !all_at_once()).count();
    assert!(runs < 50, "something has never happened");
}

/// One run; whether everything happened in it.
fn all_at_once() -> bool {
    let mut options = cache_options(160 * (WEIGHT + 64));
    options.budget = 120 * WEIGHT;
    options.reads.max_queued = 12;
    options.reads.timeout = Some(Duration::from_millis(5));
    let scene = Scene::with_values(options, EntryCacheOptions::default(), 1, 200_000);
    scene.append(0..1);
    let (ends, began) = (Arc::new(Ends::default()), Wall::now());
    threads(READERS + 3, |thread| {
        let mut random = Random::new(thread);
        match thread {
            0..READERS => read_some(&scene, &ends, &mut random),
            READERS => change(&scene, &mut random, || ends.is_over(began)),
            _ => answer_some(&scene, &mut random, || ends.is_over(began)),
        }
    });
    let (all, read) = (ends.all(), ends.read.load(Ordering::Relaxed));
    assert_eq!(all, READERS * READS, "each once");
    let counts = scene.counts();
    assert_eq!(counts.failures, (all - read) as u64);
    scene.end();
    let happened =
        [counts.hits, counts.partial, counts.fallbacks, ends.failed.load(Ordering::Relaxed) as u64];
    read > READS / 4 && happened.iter().all(|&count| count > 0)
}

/// Runs each job at once, on the thread that submits it.
struct CallerRuns;

impl Executor for CallerRuns {
    fn submit(&self, job: Job) -> Result<(), Rejected<Job>> {
        job.run();
        Ok(())
    }
}

/// Bytes of an entry.
const BYTES: usize = 128;

/// The payload of an entry: its number, and more.
fn payload(entry: i64) -> Bytes {
    let mut payload = vec![0; BYTES];
    payload[..8].copy_from_slice(&entry.to_le_bytes());
    payload.into()
}

/// Has every entry, and notes how often each was asked for; answers on a thread of its own.
struct Archive {
    reads: Arc<Vec<AtomicU64>>,
    work: Arc<Work>,
}

/// Reads that the archive's thread is to answer; none, when there are none to come.
type Work = Mutex<VecDeque<Option<(i64, u32, ReadDone<Bytes>)>>>;

impl Archive {
    fn new(entries: i64) -> (Self, Arc<Vec<AtomicU64>>) {
        let reads: Arc<Vec<_>> = Arc::new((0..entries).map(|_| AtomicU64::new(0)).collect());
        let work = Arc::new(Work::default());
        let asked = Arc::clone(&work);
        thread::spawn(move || {
            loop {
                let next = asked.lock().pop_front();
                match next {
                    Some(Some((first, count, done))) => {
                        let entries = first..first + i64::from(count);
                        done.succeed(Stored::new(entries.map(payload).collect()));
                    }
                    Some(None) => break,
                    None => thread::yield_now(),
                }
            }
        });
        (Self { reads: Arc::clone(&reads), work }, reads)
    }
}

impl ReadStorage<Bytes> for Archive {
    fn read(&self, _ledger: i64, first: i64, count: u32, done: ReadDone<Bytes>) {
        for entry in first..first + i64::from(count) {
            self.reads[usize::try_from(entry).unwrap()].fetch_add(1, Ordering::Relaxed);
        }
        self.work.lock().push_back(Some((first, count, done)));
    }
}

impl Drop for Archive {
    fn drop(&mut self) {
        self.work.lock().push_back(None);
    }
}

/// A ledger whose writer appends, and whose readers follow him.
struct Log {
    manager: CacheManager<Bytes>,
    cache: EntryCache<Bytes>,
    cursors: ActiveCursors,
    confirmed: AtomicI64,
    reads: Arc<Vec<AtomicU64>>,
}

impl Log {
    fn new(entries: i64, confirmed: i64, budget: u64) -> Self {
        let clock = ManualClock::new();
        let mut options = CacheOptions::default();
        options.budget = budget;
        options.reads.budget = budget / 4;
        let manager = CacheManager::new(
            options,
            arc_dyn!(CallerRuns => dyn Executor),
            arc_dyn!(ManualTimers::new(&clock) => dyn Timers),
            arc_dyn!(clock.clone() => dyn Clock),
        )
        .unwrap();
        let cursors = ActiveCursors::new(Duration::ZERO, arc_dyn!(clock => dyn Clock));
        let (archive, reads) = Archive::new(entries);
        let cache = EntryCache::new(&manager, archive, cursors.clone(), EntryCacheOptions::default());
        Self { manager, cache, cursors, confirmed: AtomicI64::new(confirmed), reads }
    }

    /// Appends up to here, at most so far ahead of the slowest reader after `old`; how often it waited for that one.
    fn append(&self, old: i64, end: i64, ahead: i64, slowest: impl Fn() -> i64) -> u64 {
        let mut inserter = self.cache.inserter();
        let most = self.manager.options().budget / 4 * 5;
        let (mut allowed, mut waits) = (old, 0);
        for entry in old..end {
            if entry >= allowed {
                waits += u64::from(entry >= slowest() + ahead);
                until("the readers follow", || entry < slowest() + ahead);
                allowed = slowest() + ahead;
            }
            inserter.insert((1, entry), payload(entry), self.cursors.len(), Instant::ORIGIN);
            self.confirmed.store(entry + 1, Ordering::Release);
            assert!(self.manager.snapshot().charged_weight <= most, "the memory is bounded");
        }
        waits
    }

    /// Reads from here to there, at most so many at a time.
    fn follow(&self, first: i64, end: i64, most: i64, place: Option<&AtomicI64>) {
        let mut cursor = self.cursors.add((1, first));
        let told = Arc::new(Mutex::new(None));
        let (mut next, mut buffer) = (first, Vec::new());
        while next < end {
            until("more is appended", || self.confirmed.load(Ordering::Acquire) > next);
            let confirmed = self.confirmed.load(Ordering::Acquire);
            let count = u32::try_from((confirmed - next).min(most).min(end - next)).unwrap();
            let request = ReadRequest { ledger: 1, first: next, count, last_confirmed: (1, confirmed - 1) };
            let tell = Arc::clone(&told);
            self.cache.read(request, buffer, move |entries| *tell.lock() = Some(entries.unwrap()));
            until("the read is told", || told.lock().is_some());
            let entries: Vec<_> = told.lock().take().expect("it is told");
            for entry in &entries {
                assert_eq!(entry.position, (1, next));
                assert_eq!(entry.value[..8], next.to_le_bytes());
                next += 1;
            }
            self.cache.mark_read(&entries);
            cursor.advance_to((1, next));
            if let Some(place) = place {
                place.store(next, Ordering::Relaxed);
            }
            buffer = entries;
            buffer.clear();
        }
    }

    /// How often entries of a range were read from storage: the sum, and the most of one.
    fn storage_reads(&self, entries: std::ops::Range<usize>) -> (u64, u64) {
        let reads = self.reads[entries].iter().map(|reads| reads.load(Ordering::Relaxed));
        (reads.clone().sum(), reads.max().unwrap_or(0))
    }
}

/// bug 9, bug 10, 1.7, 1.11: twenty readers that follow a writer find nearly all in a small cache, and one that is far behind pushes nothing of it out.
#[test]
fn twenty_readers_follow_a_writer_and_one_is_far_behind() {
    const READERS: usize = 20;
    const OLD: i64 = 20_000;
    const END: i64 = OLD + 12_000;
    let log = Log::new(END, OLD, 400 << 10);
    let places: Vec<_> = (0..READERS).map(|_| AtomicI64::new(OLD)).collect();
    let slowest = || places.iter().map(|place| place.load(Ordering::Relaxed)).min().unwrap();
    threads(READERS + 2, |thread| match thread {
        0 => _ = log.append(OLD, END, 1_000, slowest),
        1 => log.follow(0, OLD, 100, None),
        reader => log.follow(OLD, END, 1 + (reader * 10).cast_signed() as i64, Some(&places[reader - 2])),
    });
    let (missed, _) = log.storage_reads(usize::try_from(OLD).unwrap()..usize::try_from(END).unwrap());
    let read = READERS as u64 * (END - OLD).unsigned_abs();
    assert!(missed * 100 <= read, "{missed} of {read} were not cached");
    assert_eq!(
        log.storage_reads(0..usize::try_from(OLD).unwrap()),
        (OLD.unsigned_abs(), 1),
        "read once by the slow one"
    );
    assert_eq!(log.manager.permits().in_use(), 0);
    let cached = log.manager.snapshot();
    assert!(cached.charged_weight <= log.manager.options().budget);
}

/// 1.9, 4.5, I18, bug 11: twenty readers of what is cold have each entry read from storage once, whatever parts of it they ask for at the same time.
#[test]
fn twenty_readers_of_a_cold_range_read_it_once() {
    const READERS: usize = 20;
    const ENTRIES: i64 = 3_000;
    let log = Log::new(ENTRIES, ENTRIES, 2 << 20);
    let waits: Vec<_> = (0..READERS).map(|_| log.cursors.add((1, 0))).collect();
    threads(READERS, |reader| log.follow(0, ENTRIES, 20 + (reader * 7).cast_signed() as i64, None));
    assert_eq!(log.storage_reads(0..usize::try_from(ENTRIES).unwrap()), (ENTRIES.unsigned_abs(), 1));
    let counts = log.cache.snapshot();
    assert_eq!(counts.entries_hit + counts.entries_missed, READERS as u64 * ENTRIES.unsigned_abs());
    drop(waits);
    assert_eq!(log.manager.permits().in_use(), 0);
}

/// The most that was seen, and what was wrong.
#[derive(Debug, Default)]
struct Seen {
    samples: u64,
    charged: u64,
    retired: u64,
    pages: u64,
    /// Times that an entry was missing of the last thousand that were confirmed.
    holes: u64,
}

impl Log {
    /// Looks again and again at what memory is taken and whether the tail is there, until the others are done.
    fn watch(&self, old: i64, others: &AtomicUsize) -> Seen {
        let mut seen = Seen::default();
        while others.load(Ordering::Acquire) > 0 {
            let now = self.manager.snapshot();
            seen.samples += 1;
            seen.charged = seen.charged.max(now.charged_weight);
            seen.retired = seen.retired.max(now.retired_weight);
            seen.pages = seen.pages.max(now.pages);
            let end = self.confirmed.load(Ordering::Acquire);
            let (first, mut found) = (old.max(end - 1_000), 0);
            self.cache.range_cache().for_each_in_range((1, first)..(1, end), |_, _| found += 1);
            seen.holes += u64::from(found < end - first);
            thread::sleep(Duration::from_micros(200));
        }
        seen
    }
}

/// One of the threads that others wait for; it is done also when it panics.
struct Busy<'a>(&'a AtomicUsize);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

/// As `twenty_readers_follow_a_writer_and_one_is_far_behind`, in 64 MiB, and a million entries behind; memory is looked at all along.
///
/// The writer is held up only by a reader that is a quarter of what the budget holds behind: that one does not follow any more.
#[test]
#[ignore = "takes long: run by hand"]
fn a_reader_that_is_a_million_entries_behind_pushes_nothing_of_the_tail_out() {
    const READERS: usize = 20;
    const BUDGET: u64 = 64 << 20;
    const OLD: i64 = 1_000_000;
    const TAIL: i64 = 2_000_000;
    const AHEAD: i64 = (BUDGET / BYTES as u64 / 4).cast_signed();
    /// Entries of a page.
    const PLACES: u64 = 64;
    let (log, began) = (Log::new(OLD + TAIL, OLD, BUDGET), Wall::now());
    let places: Vec<_> = (0..READERS).map(|_| AtomicI64::new(OLD)).collect();
    let slowest = || places.iter().map(|place| place.load(Ordering::Relaxed)).min().unwrap();
    let others = AtomicUsize::new(READERS + 2);
    // How often the writer waited, when it had written, and when the slow reader had read.
    let told: Mutex<(u64, [Duration; 2], Seen)> = Mutex::default();
    threads(READERS + 3, |thread| {
        let busy = (thread > 0).then(|| Busy(&others));
        match thread {
            0 => {
                let seen = log.watch(OLD, &others);
                told.lock().2 = seen;
            }
            1 => {
                let waits = log.append(OLD, OLD + TAIL, AHEAD, slowest);
                let mut told = told.lock();
                (told.0, told.1[0]) = (waits, began.elapsed());
            }
            2 => {
                log.follow(0, OLD, 100, None);
                told.lock().1[1] = began.elapsed();
            }
            reader => {
                let most = 10 * (reader - 2).cast_signed() as i64;
                log.follow(OLD, OLD + TAIL, most, Some(&places[reader - 3]));
            }
        }
        drop(busy);
    });
    let (counts, end) = (log.cache.snapshot(), log.manager.snapshot());
    let (waits, [written, slow], seen) = std::mem::take(&mut *told.lock());
    let (old, tail) = (OLD.unsigned_abs(), TAIL.unsigned_abs());
    let cold = log.storage_reads(0..usize::try_from(OLD).unwrap());
    let of_tail = log.storage_reads(usize::try_from(OLD).unwrap()..usize::try_from(OLD + TAIL).unwrap());
    // Nobody else reads what is old, and it is not cached before it is read: it is missed once, all of it.
    let (read, missed) = (READERS as u64 * tail, counts.entries_missed - old);
    println!("{counts:?}\n{end:?}\n{seen:?}");
    println!(
        "{TAIL} appended in {written:?}, with {waits} waits; the slow reader took {slow:?}, all {:?}",
        began.elapsed()
    );
    println!(
        "of the tail {missed} of {read} reads of an entry were no hits, and {of_tail:?} entries read from storage"
    );
    println!("{} reads of storage for {cold:?} cold entries", counts.storage_reads);
    assert_eq!(counts.entries_hit + missed, read, "all of the tail was read by all");
    assert!(missed * 100 <= read, "{missed} of {read} were not cached");
    assert_eq!(cold, (old, 1), "each once");
    assert!(of_tail.1 <= 1, "an entry of the tail was read more than once");
    assert!(counts.storage_reads <= old / 100 + of_tail.0, "a range is one read");
    assert!(seen.samples > 1_000 && seen.charged <= BUDGET / 4 * 5, "{seen:?}");
    assert!(
        seen.pages * PLACES * BYTES as u64 <= BUDGET / 4 * 5 / 10 * 11,
        "nine tenths of the places at least are used when it is full: {seen:?}"
    );
    assert!(end.pressed.weight > BUDGET, "the budget was used up: {end:?}");
    assert_eq!(seen.holes, 0, "the tail is cached");
    assert_eq!(end.reads.in_use, 0);
}
