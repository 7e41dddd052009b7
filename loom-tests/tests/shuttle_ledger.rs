//! The ledger under shuttle: appends against readers that wait, trims against cursors that open, closing against everything; exact accounts.
#![cfg(shuttle)]
#![allow(clippy::unwrap_used, reason = "a checked body fails where it unwraps")]
#![allow(clippy::disallowed_types, reason = "what is noted must be no step of the schedule")]

use std::collections::BTreeMap;
use std::sync::Mutex as Unseen;

use bytes::Bytes;
use folio_executor::OrderedExecutor;
use folio_ledger::{
    AppendError, AppendSink, CacheManager, CacheOptions, Cursor, Done, Entry, Handover, Ledger,
    LedgerOptions, LogStorage, MemoryStorage, Policy, Position, StorageError, Wait,
};
use folio_sync::atomic::{AtomicUsize, Ordering};
use folio_sync::test_util::{
    ManualClock, ManualExecutor, ManualTimers, Tracked, shuttle_check, spurious_every,
};
use folio_sync::time::Instant;
use folio_sync::{Arc, Mutex, thread};

const APPENDERS: i64 = 2;
const EACH: i64 = 4;
const ALL: i64 = APPENDERS * EACH;
const SCHEDULES: usize = 300;

/// What became of the appends, in the order in which they were told.
#[derive(Clone, Default)]
struct Heard(Arc<Unseen<Vec<(i64, Option<i64>)>>>);

/// An append's token: who appended, and as which of his.
struct Token(Tracked<i64>);

impl AppendSink<Token> for Heard {
    fn appended(&self, token: Token, result: Result<Position, AppendError>, _at: Instant) {
        let entry = match result {
            Ok(position) => Some(position.entry),
            Err(error) => {
                assert_eq!(error, AppendError::Closed);
                None
            }
        };
        self.0.lock().unwrap().push((*token.0.get(), entry));
    }
}

impl Heard {
    /// Each append was told once, in the order of positions; those that were appended, by position.
    fn settle(&self) -> Vec<i64> {
        let heard = self.0.lock().unwrap();
        let mut tokens: Vec<_> = heard.iter().map(|(token, _)| *token).collect();
        tokens.sort_unstable();
        assert_eq!(tokens, (0..ALL).collect::<Vec<_>>(), "each append is told once");
        let appended: Vec<_> = heard.iter().filter(|(_, entry)| entry.is_some()).collect();
        let entries: Vec<_> = appended.iter().filter_map(|(_, entry)| *entry).collect();
        assert_eq!(
            entries,
            (0..i64::try_from(entries.len()).unwrap()).collect::<Vec<_>>(),
            "in order, without gaps"
        );
        let tokens: Vec<_> = appended.iter().map(|(token, _)| *token).collect();
        for appender in 0..APPENDERS {
            let own: Vec<_> = tokens.iter().filter(|token| **token / EACH == appender).collect();
            assert!(own.is_sorted(), "appender {appender}: {own:?}");
        }
        tokens
    }
}

/// Caches for one test, whose passes nobody runs.
fn cache() -> CacheManager<Bytes> {
    let clock = ManualClock::new();
    let timers = ManualTimers::new(&clock);
    CacheManager::new(CacheOptions::default(), ManualExecutor::new(), timers, clock).unwrap()
}

struct Scene {
    pool: OrderedExecutor,
    heard: Heard,
    ledger: Arc<Ledger<Token>>,
}

impl Scene {
    fn new(completion: Policy) -> Self {
        Self::over(MemoryStorage::new(), completion)
    }

    fn over(storage: impl LogStorage, completion: Policy) -> Self {
        let pool = OrderedExecutor::builder().threads(1).spins(1).build().unwrap();
        let heard = Heard::default();
        let options =
            LedgerOptions { completion, handover: Handover::Batched(3), ..LedgerOptions::default() };
        let worker = pool.workers()[0].clone();
        let ledger = Ledger::open(options, storage, &cache(), worker, heard.clone());
        Self { pool, heard, ledger: Arc::new(ledger.unwrap()) }
    }

    fn appenders(&self) -> Vec<thread::JoinHandle<()>> {
        let appender = |appender| {
            let ledger = Arc::clone(&self.ledger);
            thread::spawn(move || {
                for n in appender * EACH..(appender + 1) * EACH {
                    ledger.append(Bytes::from(vec![u8::try_from(n).unwrap()]), Token(Tracked::new(n)));
                }
            })
        };
        (0..APPENDERS).map(appender).collect()
    }

    /// A thread that follows the ledger to its end; the tokens of the entries.
    fn follower(&self) -> thread::JoinHandle<Vec<i64>> {
        let ledger = Arc::clone(&self.ledger);
        thread::spawn(move || follow(&Reader::open(&ledger)))
    }

    /// All is told and read; what was appended.
    fn settle(self, followers: Vec<thread::JoinHandle<Vec<i64>>>) -> Vec<i64> {
        let read: Vec<_> = followers.into_iter().map(|follower| follower.join().unwrap()).collect();
        drop(self.ledger);
        assert!(self.pool.join().unwrap().is_empty());
        let appended = self.heard.settle();
        for read in read {
            assert_eq!(read, appended, "each entry is read once");
        }
        appended
    }
}

/// A cursor whose listener wakes the thread that opened it.
struct Reader {
    cursor: Cursor,
    told: Arc<AtomicUsize>,
}

impl Reader {
    fn open(ledger: &Ledger<Token>) -> Self {
        let (told, listener) = Self::listener();
        Self { cursor: ledger.cursor(0, listener), told }
    }

    fn open_at_tail(ledger: &Ledger<Token>) -> Self {
        let (told, listener) = Self::listener();
        Self { cursor: ledger.cursor_at_tail(listener), told }
    }

    fn listener() -> (Arc<AtomicUsize>, impl Fn() + Send + Sync + 'static) {
        let (told, reader) = (Arc::new(AtomicUsize::new(0)), thread::current());
        let tells = Arc::clone(&told);
        let listener = move || {
            tells.fetch_add(1, Ordering::Release);
            reader.unpark();
        };
        (told, listener)
    }
}

/// Reads some entries; waits until the read is told.
fn read(cursor: &Cursor) -> Vec<Entry> {
    let (answer, reader) = (Arc::new(Mutex::new(None)), thread::current());
    let put = Arc::clone(&answer);
    cursor.read(2, Vec::new(), move |result| {
        assert!(put.lock().replace(result).is_none(), "told once");
        reader.unpark();
    });
    loop {
        if let Some(result) = answer.lock().take() {
            return result.unwrap();
        }
        thread::park();
    }
}

/// Reads to the end and deletes what it reads; the tokens. A reader that nobody tells would park for ever, which the checker reports.
fn follow(reader: &Reader) -> Vec<i64> {
    let (mut tokens, mut waits, begins) = (Vec::new(), 0, reader.cursor.position());
    loop {
        match reader.cursor.wait() {
            Wait::More => {
                let entries = read(&reader.cursor);
                assert!(!entries.is_empty(), "there was more");
                let positions: Vec<_> = entries.iter().map(|entry| entry.position).collect();
                for (entry, next) in entries.iter().zip(begins + i64::try_from(tokens.len()).unwrap()..) {
                    assert_eq!(entry.position.entry, next);
                }
                tokens.extend(entries.iter().map(|entry| i64::from(entry.payload[0])));
                assert_eq!(reader.cursor.delete(&positions), positions.len());
            }
            Wait::Waiting => {
                waits += 1;
                while reader.told.load(Ordering::Acquire) < waits {
                    thread::park();
                }
            }
            Wait::Closed => {
                assert_eq!(reader.told.load(Ordering::Acquire), waits, "told once a wait");
                return tokens;
            }
        }
    }
}

/// I24, I25, I38, I40: appends against two readers that wait at the tail: each is told, and reads every entry once, in order.
#[test]
fn appends_against_readers_that_wait() {
    for completion in [Policy::Inline, Policy::Affine] {
        shuttle_check("append, waiting readers", SCHEDULES, move || {
            let _spurious = spurious_every(5);
            let scene = Scene::new(completion);
            // The first one keeps the entries until the second has been opened.
            let keeps = scene.ledger.cursor(0, || ());
            let followers = vec![scene.follower(), scene.follower()];
            for appender in scene.appenders() {
                appender.join().unwrap();
            }
            scene.ledger.close();
            assert_eq!(scene.settle(followers).len(), usize::try_from(ALL).unwrap());
            drop(keeps);
        });
    }
}

/// I25, I38: cursors that open at the tail amid appends read everything from there on, and nothing that was confirmed before.
#[test]
fn appends_against_cursors_that_open_at_the_tail() {
    shuttle_check("append, open at the tail", 4 * SCHEDULES, || {
        let scene = Scene::new(Policy::Inline);
        let keeps = scene.ledger.cursor(0, || ());
        let appenders = scene.appenders();
        let open = || {
            let before = scene.ledger.confirmed();
            let reader = Reader::open_at_tail(&scene.ledger);
            let begins = reader.cursor.position();
            assert!(before <= begins && begins <= scene.ledger.confirmed());
            (begins, reader)
        };
        let opened: Vec<_> = (0..6).map(|_| open()).collect();
        for appender in appenders {
            appender.join().unwrap();
        }
        scene.ledger.close();
        let read: Vec<_> = opened.into_iter().map(|(begins, reader)| (begins, follow(&reader))).collect();
        let appended = scene.settle(Vec::new());
        for (begins, read) in read {
            assert_eq!(read, appended[usize::try_from(begins).unwrap()..]);
        }
        drop(keeps);
    });
}

/// 1.12, I38, I42: a close amid appends, readers and cursors that open: each append is told once, and readers end with what was appended.
#[test]
fn ledger_closed_against_everything() {
    for drops in [false, true] {
        shuttle_check("close, everything", SCHEDULES, move || {
            let _spurious = spurious_every(5);
            let mut scene = Scene::new(Policy::Inline);
            let keeps = scene.ledger.cursor(0, || ());
            let mut followers = vec![scene.follower()];
            let appenders = scene.appenders();
            let ledger = Arc::clone(&scene.ledger);
            let closer = thread::spawn(move || ledger.close());
            scene.ledger.close();
            followers.push(scene.follower());
            closer.join().unwrap();
            for appender in appenders {
                appender.join().unwrap();
            }
            if drops {
                // Readers hold the ledger until they have opened their cursors.
                let placeholder = Scene::new(Policy::Inline);
                drop(std::mem::replace(&mut scene.ledger, placeholder.ledger));
                assert!(placeholder.pool.join().is_ok());
            }
            scene.settle(followers);
            drop(keeps);
        });
    }
}

/// I42: a ledger that is dropped amid what its worker does: each append is told once, and a reader ends with what was appended.
#[test]
fn a_drop_against_its_worker() {
    shuttle_check("drop, worker", SCHEDULES, || {
        let _spurious = spurious_every(5);
        let Scene { pool, heard, ledger } = Scene::new(Policy::Inline);
        let reader = Reader::open(&ledger);
        for n in 0..ALL {
            ledger.append(Bytes::from(vec![u8::try_from(n).unwrap()]), Token(Tracked::new(n)));
        }
        let dropper = thread::spawn(move || drop(ledger));
        // Its listener wakes the thread that opened it, which is this one.
        let read = follow(&reader);
        dropper.join().unwrap();
        drop(reader);
        assert!(pool.join().unwrap().is_empty());
        assert_eq!(read, heard.settle());
    });
}

/// Storage that forgets what it may at once.
#[derive(Default)]
struct Forgetful(Mutex<BTreeMap<i64, Bytes>>);

impl LogStorage for Forgetful {
    fn append(&self, first: Position, entries: Vec<Bytes>, done: Done<(), StorageError>) {
        self.0.lock().extend((first.entry..).zip(entries));
        done.tell(Ok(()));
    }

    fn read(&self, first: Position, count: usize, done: Done<Vec<Bytes>, StorageError>) {
        let kept = self.0.lock();
        let payloads: Vec<_> =
            (first.entry..).map_while(|entry| kept.get(&entry).cloned()).take(count).collect();
        drop(kept);
        done.tell(if payloads.is_empty() { Err(StorageError::Missing(first)) } else { Ok(payloads) });
    }

    fn trim(&self, before: Position) {
        self.0.lock().retain(|entry, _| *entry >= before.entry);
    }
}

/// I51: cursors that open while another one deletes and is dropped begin where they can read.
#[test]
fn trims_against_cursors_that_open() {
    shuttle_check("trim, open", SCHEDULES, || {
        let scene = Scene::over(Forgetful::default(), Policy::Inline);
        let deleter = scene.ledger.cursor(0, || ());
        for appender in scene.appenders() {
            appender.join().unwrap();
        }
        let ledger = Arc::clone(&scene.ledger);
        let trims = thread::spawn(move || {
            // Entries go as cursors go.
            for end in [3, 6, ALL] {
                deleter.mark_delete(end);
                drop(ledger.cursor(end, || ()));
            }
            drop(deleter);
        });
        for _ in 0..2 {
            let cursor = scene.ledger.cursor(0, || ());
            let begins = cursor.position();
            let end = begins + i64::try_from(cursor.backlog()).unwrap();
            if begins < end {
                let entries = read(&cursor);
                let expected = begins..(begins + 2).min(end);
                assert_eq!(
                    entries.iter().map(|entry| entry.position.entry).collect::<Vec<_>>(),
                    expected.collect::<Vec<_>>()
                );
            }
        }
        trims.join().unwrap();
        scene.settle(Vec::new());
    });
}
