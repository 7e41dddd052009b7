//! What is cached of an entry: itself or a copy, and what is parsed out of it.
#![cfg(all(feature = "bytes", not(any(loom, shuttle))))]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests run on the standard library only, and their helpers unwrap as they do"
)]

mod common;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use bytes::Bytes;
use common::{at, threads};
use folio_cache::pending::{ReadDone, ReadStorage, Stored};
use folio_cache::{
    CacheManager, CacheOptions, EntryCache, EntryCacheOptions, Metadata, Parsed, Payload, ReadRequest, Weigh,
};
use folio_sync::test_util::{ManualClock, ManualExecutor, ManualTimers};
use folio_sync::time::Clock;
use folio_sync::timers::Timers;
use folio_sync::{Arc, Executor, arc_dyn, unwind};

/// Answers every read by slices of one frame, or by entries of their own.
struct Frames {
    frame: Bytes,
    sliced: bool,
}

/// Bytes of an entry.
const EACH: usize = 16;

impl Frames {
    fn new(sliced: bool) -> Self {
        Self { frame: (0..=255).collect::<Vec<u8>>().into(), sliced }
    }

    fn slice(&self, entry: i64) -> Bytes {
        let from = usize::try_from(entry).unwrap() * EACH;
        self.frame.slice(from..from + EACH)
    }
}

/// What storage gives, as it is.
struct Plain(Arc<Frames>);

impl ReadStorage<Bytes> for Plain {
    fn read(&self, _ledger: i64, first: i64, count: u32, done: ReadDone<Bytes>) {
        let values = (first..first + i64::from(count)).map(|entry| self.0.slice(entry)).collect();
        done.succeed(if self.0.sliced { Stored::sliced(values) } else { Stored::new(values) });
    }
}

fn manager<V: Payload>() -> CacheManager<V> {
    let clock = ManualClock::new();
    CacheManager::new(
        CacheOptions::default(),
        arc_dyn!(ManualExecutor::new() => dyn Executor),
        arc_dyn!(ManualTimers::new(&clock) => dyn Timers),
        arc_dyn!(clock => dyn Clock),
    )
    .unwrap()
}

fn options(copies: bool) -> EntryCacheOptions {
    let mut options = EntryCacheOptions::default();
    options.copies = copies;
    options
}

/// Reads entries 0 to 3, which are told at once.
fn read<V: Payload>(cache: &EntryCache<V>) -> Vec<V> {
    let (tell, told) = mpsc::channel();
    let request = ReadRequest { ledger: 1, first: 0, count: 4, last_confirmed: (1, 100) };
    cache.read(request, Vec::new(), move |entries| tell.send(entries.unwrap()).unwrap());
    told.recv().unwrap().into_iter().map(folio_cache::ReadEntry::into_value).collect()
}

/// 4.4, 1.7: what storage read is cached as it is, unless it is a slice of a frame, or copies are asked for; the first readers have what storage read.
#[test]
fn slices_are_copied_as_they_are_cached() {
    for (sliced, copies) in [(false, false), (false, true), (true, false), (true, true)] {
        let frames = Arc::new(Frames::new(sliced));
        let manager = manager();
        let cache = EntryCache::new(&manager, Plain(Arc::clone(&frames)), |_| 1, options(copies));
        let within = |value: &Bytes| frames.frame.as_ptr_range().contains(&value.as_ptr());
        let first: Vec<Bytes> = read(&cache);
        assert!(first.iter().all(within), "a reader has no copy");
        let again: Vec<Bytes> = read(&cache);
        assert_eq!(again, first);
        assert!(again.iter().all(|value| within(value) != (sliced || copies)));
        assert_eq!(cache.range_cache().weight(), 4 * EACH as u64);
        assert_eq!(cache.snapshot().hits, 1);
    }
}

/// 1.7: appended entries are copied if copies are asked for.
#[test]
fn appended_entries_are_copied_if_copies_are_asked_for() {
    for copies in [false, true] {
        let manager = manager();
        let cache = EntryCache::new(&manager, Plain(Arc::new(Frames::new(false))), |_| 1, options(copies));
        let payload = Bytes::from(vec![7; 100]);
        let mut inserter = cache.inserter();
        assert!(inserter.insert((1, 0), payload.clone(), 1, at(1)));
        assert!(!inserter.insert((1, 0), payload.clone(), 1, at(1)), "it is there");
        inserter.leave();
        let cached = cache.range_cache().get((1, 0)).unwrap();
        assert_eq!(cached.as_ptr() != payload.as_ptr(), copies);
    }
}

/// 1.7: a copy of bytes has a buffer of its own size.
#[test]
fn a_copy_of_bytes_is_all_there_is_of_it() {
    let frame = Bytes::from(vec![1; 1 << 16]);
    let copy = frame.slice(5..7).copied().unwrap();
    assert_eq!(copy, frame[5..7]);
    assert!(Bytes::new().copied().unwrap().is_empty());
    assert!(frame.is_unique(), "the copy keeps nothing of it");
}

/// A part of a buffer, which knows how large that is.
#[derive(Clone)]
struct Part {
    bytes: Bytes,
    buffer: u64,
    can_copy: bool,
}

impl Weigh for Part {
    fn weight(&self) -> u64 {
        self.buffer
    }
}

impl Payload for Part {
    fn copied_weight(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn copied(&self) -> Option<Self> {
        assert_ne!(self.bytes, "panic", "as it is meant to");
        self.can_copy.then(|| Self {
            bytes: self.bytes.clone(),
            buffer: self.copied_weight(),
            can_copy: true,
        })
    }
}

/// 1.7: a small part of a large buffer is copied, a large one is charged for all that it keeps; without memory for the copy, or if it panics, it is not cached.
#[test]
fn the_budget_is_charged_for_what_is_held() {
    struct None;
    impl ReadStorage<Part> for None {
        fn read(&self, _: i64, _: i64, _: u32, done: ReadDone<Part>) {
            drop(done);
        }
    }
    let manager = manager();
    let cache = EntryCache::new(&manager, None, |_| 1, options(false));
    let mut inserter = cache.inserter();
    let part = |bytes: &'static str, buffer, can_copy| Part { bytes: bytes.into(), buffer, can_copy };
    assert!(inserter.insert((1, 0), part("whole", 5, false), 1, at(1)));
    assert!(inserter.insert((1, 1), part("half", 8, false), 1, at(1)));
    assert!(inserter.insert((1, 2), part("less", 9, true), 1, at(1)));
    assert!(!inserter.insert((1, 3), part("none", 900, false), 1, at(1)));
    assert!(!inserter.insert((1, 4), part("panic", 900, true), 1, at(1)));
    drop(inserter);
    let weights: Vec<_> = cache.range_cache().range(..).iter().map(|(_, part)| part.buffer).collect();
    assert_eq!(weights, [5, 8, 4]);
    assert_eq!(cache.range_cache().weight(), 17);
    assert_eq!(cache.estimate(), 17 / 3 + 64, "of what was added");
}

/// How often payloads were parsed.
static PARSED: AtomicUsize = AtomicUsize::new(0);

/// The first byte, as a slice of what it was parsed from.
struct First(Bytes);

impl Metadata<Bytes> for First {
    fn parse(payload: &Bytes) -> Self {
        PARSED.fetch_add(1, Ordering::Relaxed);
        Self(payload.slice(..1))
    }
}

/// Bytes with their first byte.
type Message = Parsed<Bytes, First>;

/// What storage gives, as a message.
struct Messages(Arc<Frames>);

impl ReadStorage<Message> for Messages {
    fn read(&self, _ledger: i64, first: i64, count: u32, done: ReadDone<Message>) {
        let values =
            (first..first + i64::from(count)).map(|entry| Parsed::new(self.0.slice(entry))).collect();
        done.succeed(if self.0.sliced { Stored::sliced(values) } else { Stored::new(values) });
    }
}

/// I22, bug 8, 4.4: metadata are parsed once an entry, by who asks first; a copy has its own, out of itself; they stay when the entry is gone.
#[test]
fn metadata_are_parsed_once_and_belong_to_their_buffer() {
    let before = PARSED.load(Ordering::Relaxed);
    let parsed = || PARSED.load(Ordering::Relaxed) - before;
    for sliced in [false, true] {
        let base = parsed();
        let frames = Arc::new(Frames::new(sliced));
        let manager = manager();
        let cache = EntryCache::new(&manager, Messages(Arc::clone(&frames)), |_| 1, options(false));
        let first = read(&cache);
        assert_eq!(parsed() - base, 0, "nobody has asked");
        first[0].metadata();
        let (again, third) = (read(&cache), read(&cache));
        assert_eq!(again[0].parsed().is_some(), !sliced, "a copy shares nothing with its source");
        for reader in [&again, &third, &again] {
            assert_eq!(reader[0].metadata().0, &[0][..]);
            assert_eq!(reader[1].metadata().0, &[16][..]);
        }
        assert_eq!(parsed() - base, if sliced { 3 } else { 2 });
        let inside = |entry: &Message| entry.payload().as_ptr() == entry.metadata().0.as_ptr();
        assert!(again.iter().chain(&first).all(inside), "each is out of its own buffer");
        let kept = again[1].clone();
        drop((first, again, third, cache));
        assert_eq!(kept.metadata().0, &[16][..]);
        if sliced {
            assert!(frames.frame.is_unique(), "copies keep nothing of the frame");
        }
    }
}

/// Parses at the second attempt, if at all.
struct Brittle(Result<u32, String>);

static TRIED: AtomicUsize = AtomicUsize::new(0);

impl Metadata<u32> for Brittle {
    fn parse(payload: &u32) -> Self {
        assert_ne!(TRIED.fetch_add(1, Ordering::Relaxed), 0, "as it is meant to");
        Self(if *payload == 0 { Err("nothing there".into()) } else { Ok(*payload) })
    }
}

/// 1.3, I22: a failure to parse is remembered; a panic is not, and leaves the entry as it was.
#[test]
fn failures_to_parse_are_remembered() {
    let entry = Parsed::<u32, Brittle>::new(0);
    assert!(unwind::catch(|| entry.metadata().0.is_ok()).is_err());
    assert!(entry.parsed().is_none());
    assert_eq!(entry.metadata().0, Err("nothing there".into()));
    assert_eq!(entry.clone().metadata().0, Err("nothing there".into()));
    assert_eq!(TRIED.load(Ordering::Relaxed), 2);
    assert_eq!(Parsed::<u32, Brittle>::new(7).metadata().0, Ok(7));
}

/// Counts for itself.
struct Slow(usize);

static SLOW: AtomicUsize = AtomicUsize::new(0);

impl Metadata<()> for Slow {
    fn parse((): &()) -> Self {
        std::thread::yield_now();
        Self(SLOW.fetch_add(1, Ordering::Relaxed))
    }
}

/// I22: readers that ask at the same time have the same, parsed once.
// What the standard library's cell orders is not seen by ThreadSanitizer.
#[cfg(not(tsan))]
#[test]
fn readers_at_the_same_time_parse_once() {
    for round in 0..200 {
        let entry = Parsed::<(), Slow>::new(());
        threads(4, |_| assert_eq!(entry.clone().metadata().0, round));
    }
}
