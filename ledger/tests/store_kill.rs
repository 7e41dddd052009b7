//! A process that writes is killed, again and again: nothing that it was answered is lost.
// What redb and the child processes stand on reports itself under ThreadSanitizer.
#![cfg(not(any(loom, shuttle, tsan)))]
#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "tests run on real threads")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod support_dir;

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use folio_ledger::store::conformance::ask;
use folio_ledger::store::layer::{Directory, Hold, Mode, RealDirectory, RealFile, RealLock, StoreFile};
use folio_ledger::store::{
    Append, Done, FileOptions, FileStore, LogStore, OpenReport, ReadLimits, Seed, StoreError,
};
use support_dir::TempDir;

const ALL: ReadLimits = ReadLimits { entries: usize::MAX, bytes: usize::MAX };
/// Where the child is to write, and how many segments the disk has room for, by these names in its environment.
const CHILD: &str = "FOLIO_KILL_CHILD";
const ROOM: &str = "FOLIO_KILL_ROOM";
const LEDGERS: i64 = 3;
/// Less is tried where the disk is slow.
const MOST: Duration = Duration::from_secs(30);

/// More segments than any disk here is filled with.
const AMPLE: usize = 1_000_000;

/// On a tight disk the segments are small, so that it is full soon.
fn options(room: usize) -> FileOptions {
    let segment_bytes = if room < AMPLE { 64 * 1024 } else { 256 * 1024 };
    FileOptions { segment_bytes, ..FileOptions::default() }
}

fn open(path: &Path, room: usize) -> (FileStore, OpenReport) {
    FileStore::open(RealDirectory::new(path), options(room)).unwrap()
}

/// A directory on a disk that has room for so many segments.
struct Tight {
    real: RealDirectory,
    room: usize,
}

struct TightFile {
    real: RealFile,
    full: bool,
}

impl Directory for Tight {
    type File = TightFile;
    type Lock = RealLock;

    fn open(&self, name: &str, mode: Mode) -> io::Result<TightFile> {
        let real = self.real.open(name, mode)?;
        let segments = self.list()?.iter().filter(|name| name.starts_with("segment-")).count();
        Ok(TightFile { real, full: segments > self.room })
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.real.list()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.real.remove(name)
    }

    fn sync(&self) -> io::Result<()> {
        self.real.sync()
    }

    fn lock(&self, name: &str, how: Hold) -> io::Result<RealLock> {
        self.real.lock(name, how)
    }
}

impl StoreFile for TightFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.real.write_at(offset, bytes)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.real.read_at(offset, into)
    }

    fn sync(&self) -> io::Result<()> {
        self.real.sync()
    }

    fn preallocate(&self, bytes: u64) -> io::Result<()> {
        if self.full {
            // Some of it is there already.
            self.real.preallocate(bytes / 3)?;
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.real.preallocate(bytes)
    }

    fn size(&self) -> io::Result<u64> {
        self.real.size()
    }
}

fn payload(ledger: i64, entry: i64) -> Bytes {
    let size = usize::try_from((ledger * 13 + entry * 29) % 400).unwrap();
    let mut payload = format!("{ledger}:{entry} ").into_bytes();
    payload.resize(payload.len() + size, b'-');
    payload.into()
}

fn next<S: LogStore>(store: &S, ledger: i64) -> Option<i64> {
    match ask(|done| store.last_confirmed(ledger, done)).wait() {
        Ok(last) => Some(last + 1),
        Err(StoreError::NoSuchLedger(_)) => None,
        Err(other) => panic!("{other}"),
    }
}

fn say(line: &str) {
    let mut out = io::stdout().lock();
    // Whoever listened may be gone.
    drop(writeln!(out, "{line}").and_then(|()| out.flush()));
}

/// Not a test of its own: what the others start, and kill. Appends for ever, and says what it was answered.
#[test]
fn child() {
    let Some(path) = std::env::var_os(CHILD) else { return };
    // What the test runner has begun to say ends here.
    say("");
    let room = std::env::var(ROOM).unwrap().parse().unwrap();
    let real = RealDirectory::new(Path::new(&path));
    let store = FileStore::open(Tight { real, room }, options(room)).unwrap().0;
    let mut nexts = BTreeMap::new();
    for ledger in 0..LEDGERS {
        if next(&store, ledger).is_none() {
            ask(|done| store.create("g", ledger, 1, done)).wait().unwrap();
        }
        nexts.insert(ledger, next(&store, ledger).unwrap());
    }
    // A ledger that comes and goes, so that segments are used again.
    let mut passing = 0;
    while let Some(there) = ask(|done| store.list("passing", done)).wait().unwrap().first() {
        ask(|done| store.delete(there.ledger, 1, done)).wait().unwrap();
    }
    for round in 0_i64.. {
        let (tell, told) = std::sync::mpsc::channel();
        for (&ledger, first) in &mut nexts {
            let count = 1 + (round + ledger) % 5;
            let entries = (*first..*first + count).map(|entry| payload(ledger, entry)).collect();
            let tell = tell.clone();
            let done = Done::new(move |answer: Result<_, StoreError>| {
                match answer {
                    Ok(_) => say(&format!("+{ledger}:{count}")),
                    Err(StoreError::Full) => say("full"),
                    // What is behind one that found no room.
                    Err(StoreError::OutOfOrder { .. }) => {}
                    Err(other) => panic!("{other}"),
                }
                tell.send(()).unwrap();
            });
            store.append(Append { ledger, epoch: 1, first: *first, entries }, done);
            *first += count;
        }
        if round % 20 == 0 {
            if passing > 0 {
                ask(|done| store.delete(passing, 1, done)).wait().unwrap();
                say(&format!("-{passing}"));
            }
            passing = 1000 + round + i64::from(std::process::id()) * 100_000;
            if ask(|done| store.create("passing", passing, 1, done)).wait() == Err(StoreError::Full) {
                passing = 0;
            }
        }
        for _ in 0..LEDGERS {
            told.recv().unwrap();
        }
        for (&ledger, first) in &mut nexts {
            *first = next(&store, ledger).unwrap();
        }
    }
}

/// What a child was answered.
#[derive(Default)]
struct Said {
    /// How many entries of each ledger.
    entries: BTreeMap<i64, i64>,
    /// Ledgers that are deleted.
    deleted: Vec<i64>,
    /// How often the disk was full.
    full: u64,
}

/// Starts a child, kills it after a while, and reads what it was answered.
fn run_child(path: &Path, room: usize, after: Duration) -> Said {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture", "--test-threads=1"])
        .env(CHILD, path)
        .env(ROOM, room.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let out = child.stdout.take().unwrap();
    let reader = std::thread::spawn(move || {
        let mut said = Said::default();
        for line in BufReader::new(out).lines().map_while(Result::ok) {
            if let Some((ledger, count)) = line.strip_prefix('+').and_then(|rest| rest.split_once(':')) {
                let (Ok(ledger), Ok(count)) = (ledger.parse::<i64>(), count.parse::<i64>()) else { continue };
                *said.entries.entry(ledger).or_insert(0) += count;
            } else if let Some(ledger) = line.strip_prefix('-').and_then(|rest| rest.parse().ok()) {
                said.deleted.push(ledger);
            }
            said.full += u64::from(line == "full");
        }
        said
    });
    std::thread::sleep(after);
    child.kill().unwrap();
    child.wait().unwrap();
    reader.join().unwrap()
}

/// Nothing that was answered is lost, nothing is there twice, and the order is kept, however often the process is killed.
#[test]
fn a_process_that_is_killed_loses_nothing_that_it_was_answered() {
    let full = kill_rounds(100, |_| AMPLE);
    assert_eq!(full, 0);
}

/// The same where the disk is full most of the time, and has a little more room now and then.
#[test]
fn a_process_that_is_killed_on_a_full_disk_loses_nothing_either() {
    let full = kill_rounds(40, |round| 2 + round / 4);
    assert!(full > 5, "it was full {full} times");
}

/// Kills so many children, and checks what is there after each; how often they found the disk full.
///
/// With `FOLIO_KILLS` in the environment as many as that says, however long they take.
fn kill_rounds(most: usize, room: impl Fn(usize) -> usize) -> u64 {
    let asked: Option<usize> = std::env::var("FOLIO_KILLS").ok().map(|kills| kills.parse().unwrap());
    let temp = TempDir::new("kill");
    let began = Instant::now();
    let mut seed = Seed::new(5);
    let (mut known, mut rounds, mut cuts, mut grew) = (BTreeMap::<i64, i64>::new(), 0, 0, 0);
    let mut full = 0;
    for round in 0..asked.unwrap_or(most) {
        if asked.is_none() && began.elapsed() > MOST {
            break;
        }
        let said = run_child(temp.path(), room(round), Duration::from_millis(40 + seed.below(160)));
        full += said.full;
        rounds += 1;
        let (store, report) = open(temp.path(), room(round));
        cuts += i32::from(report.cut.is_some());
        for ledger in 0..LEDGERS {
            let was = known.get(&ledger).copied().unwrap_or(0);
            let more = said.entries.get(&ledger).copied().unwrap_or(0);
            let Some(there) = next(&store, ledger) else {
                assert_eq!(was + more, 0, "ledger {ledger} is lost");
                continue;
            };
            assert!(there >= was + more, "{ledger}: {there} entries, {was} and {more} were answered");
            assert!(there <= was + more + 5, "{ledger}: {there} entries, {was} and {more} were answered");
            let mut read = Vec::new();
            while i64::try_from(read.len()).unwrap() < there - was {
                let first = was + i64::try_from(read.len()).unwrap();
                read.extend(ask(|done| store.read(ledger, first, ALL, done)).wait().unwrap());
            }
            let expected: Vec<_> = (was..there).map(|entry| payload(ledger, entry)).collect();
            assert_eq!(read, expected, "ledger {ledger}");
            grew += i32::from(more > 0);
            known.insert(ledger, there);
        }
        for info in ask(|done| store.list("passing", done)).wait().unwrap() {
            assert!(!said.deleted.contains(&info.ledger), "ledger {} has come back", info.ledger);
        }
    }
    println!("{rounds} rounds, {cuts} tails cut, {grew} times a ledger grew");
    assert!(rounds >= 10 && grew > 5, "{rounds} rounds, {grew}");
    let (store, _) = open(temp.path(), room(0));
    for (&ledger, &count) in &known {
        let mut at = 0;
        while at < count {
            for one in ask(|done| store.read(ledger, at, ALL, done)).wait().unwrap() {
                assert_eq!(one, payload(ledger, at));
                at += 1;
            }
        }
    }
    full
}
