//! Random histories of a store on a disk that forgets, tears, fails and is full, held against what was answered.
#![cfg(not(any(loom, shuttle)))]
#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "tests run on real threads")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::collections::BTreeMap;
use std::io::ErrorKind;

use bytes::Bytes;
use folio_ledger::store::conformance::{Answer, ask};
use folio_ledger::store::layer::{Directory, Op, SimDirectory};
use folio_ledger::store::{
    Append, Appended, Durability, FileOptions, FileStore, LogStore, ReadLimits, Seed, Stepper, StoreError,
};

const ALL: ReadLimits = ReadLimits { entries: usize::MAX, bytes: usize::MAX };

/// What is known of a ledger's being there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum There {
    Yes,
    /// Its creation or its deletion was not answered.
    Maybe,
}

/// What must be there of a ledger, and what may be.
#[derive(Debug)]
struct Model {
    there: There,
    epoch: u64,
    /// Answered well, or seen.
    sure: Vec<Bytes>,
    /// Asked after that, without an answer.
    maybe: Vec<Bytes>,
    closed: bool,
    maybe_closed: bool,
}

#[derive(Debug, Default)]
struct Counts {
    appended: u64,
    crashes: u64,
    kills: u64,
    cuts: u64,
    lost: u64,
    torn: u64,
    full: u64,
    failed: u64,
    deleted: u64,
    recovered: u64,
    reopened_alike: u64,
    reused: u64,
}

struct Run {
    seed: Seed,
    directory: SimDirectory,
    options: FileOptions,
    store: Option<(FileStore<SimDirectory>, Stepper<SimDirectory>)>,
    ledgers: BTreeMap<i64, Model>,
    /// The newest owner's epoch of each group, by the last digit of its ledgers' numbers.
    epochs: [u64; 3],
    next: i64,
    attempt: u64,
    counts: Counts,
}

enum Asked {
    Create(i64, Answer<()>),
    Append(i64, i64, Vec<Bytes>, Answer<Appended>),
    Close(i64, Answer<i64>),
    Recover(i64, Answer<i64>),
    Delete(i64, Answer<()>),
}

fn unknown(error: &StoreError) -> bool {
    matches!(error, StoreError::Failed(_) | StoreError::Dropped)
}

impl Run {
    fn new(seed: u64, durability: Durability) -> Self {
        let options = FileOptions { segment_bytes: 32 * 1024, durability, ..FileOptions::default() };
        let mut run = Self {
            seed: Seed::new(seed),
            directory: SimDirectory::new(),
            options,
            store: None,
            ledgers: BTreeMap::new(),
            epochs: [1; 3],
            next: 0,
            attempt: 0,
            counts: Counts::default(),
        };
        run.open();
        run
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.seed.below(end as u64)).unwrap()
    }

    fn payload(&mut self, ledger: i64) -> Bytes {
        self.attempt += 1;
        let size = if self.seed.happens(400) { self.below(900) } else { self.below(300) };
        let mut payload = format!("{ledger} {} ", self.attempt).into_bytes();
        payload.resize(payload.len() + size, b'.');
        payload.into()
    }

    /// Opens the store, which may take several tries while the power goes off.
    fn open(&mut self) {
        loop {
            if self.seed.happens(100) {
                let after = self.seed.below(30);
                self.directory.power_off_after(after);
            }
            match FileStore::open_stepped(self.directory.clone(), self.options.clone()) {
                Ok((store, stepper, report)) => {
                    self.directory.power_off_after(u64::MAX);
                    self.counts.cuts += u64::from(report.cut.is_some());
                    self.store = Some((store, stepper));
                    return;
                }
                Err(folio_ledger::store::OpenError::Io(_)) => self.crash(),
                Err(other) => panic!("{other}"),
            }
        }
    }

    fn crash(&mut self) {
        // Of what is only written the process's death is all that it survives.
        if self.options.durability == Durability::Written || self.seed.happens(250) {
            let off = self.directory.clone();
            off.kill();
            self.counts.kills += 1;
            if self.options.durability == Durability::Written {
                return;
            }
        }
        let crash = self.directory.crash(&mut self.seed);
        self.counts.crashes += 1;
        self.counts.lost += crash.lost as u64;
        self.counts.torn += crash.torn as u64;
    }

    fn ask(&mut self) -> Vec<Asked> {
        let (store, stepper) = self.store.take().unwrap();
        let mut asked = Vec::new();
        // What is there once all that is asked here is done.
        let mut ends: BTreeMap<i64, i64> = BTreeMap::new();
        for _ in 0..=self.below(6) {
            let alive: Vec<i64> = self.ledgers.keys().copied().collect();
            let dice = self.below(100);
            if alive.len() < 2 || (dice < 8 && alive.len() < 7) {
                let ledger = self.next;
                self.next += 1;
                let group = ledger % 3;
                let epoch = self.epochs[usize::try_from(group).unwrap()];
                let model = Model {
                    there: There::Maybe,
                    epoch,
                    sure: Vec::new(),
                    maybe: Vec::new(),
                    closed: false,
                    maybe_closed: false,
                };
                self.ledgers.insert(ledger, model);
                let answer = ask(|done| store.create(&format!("group {group}"), ledger, epoch, done));
                asked.push(Asked::Create(ledger, answer));
                continue;
            }
            let ledger = alive[self.below(alive.len())];
            let group = usize::try_from(ledger % 3).unwrap();
            let epoch = self.ledgers[&ledger].epoch;
            match dice {
                8..12 => asked.push(Asked::Close(ledger, ask(|done| store.close(ledger, epoch, done)))),
                12..15 => {
                    self.epochs[group] += 1;
                    let epoch = self.epochs[group];
                    asked.push(Asked::Recover(ledger, ask(|done| store.recover(ledger, epoch, done))));
                }
                15..21 => {
                    let epoch = self.epochs[group];
                    asked.push(Asked::Delete(ledger, ask(|done| store.delete(ledger, epoch, done))));
                }
                _ => {
                    let sure = i64::try_from(self.ledgers[&ledger].sure.len()).unwrap();
                    let first = *ends.get(&ledger).unwrap_or(&sure);
                    let entries: Vec<_> = (0..=self.below(7)).map(|_| self.payload(ledger)).collect();
                    ends.insert(ledger, first + i64::try_from(entries.len()).unwrap());
                    let append = Append { ledger, epoch, first, entries: entries.clone() };
                    let answer = ask(|done| store.append(append, done));
                    asked.push(Asked::Append(ledger, first, entries, answer));
                }
            }
        }
        self.store = Some((store, stepper));
        asked
    }

    /// What the answers say.
    fn take(&mut self, asked: Vec<Asked>) {
        for one in asked {
            match one {
                Asked::Create(ledger, answer) => match answer.wait() {
                    Ok(()) => self.ledgers.get_mut(&ledger).unwrap().there = There::Yes,
                    Err(error) if unknown(&error) => self.counts.failed += 1,
                    Err(StoreError::Full) => drop(self.ledgers.remove(&ledger)),
                    Err(other) => panic!("{other}"),
                },
                Asked::Append(ledger, first, entries, answer) => {
                    let answer = answer.wait();
                    let Some(model) = self.ledgers.get_mut(&ledger) else {
                        assert!(answer.is_err(), "it was deleted");
                        continue;
                    };
                    let fenced = model.epoch < self.epochs[usize::try_from(ledger % 3).unwrap()];
                    match answer {
                        Ok(appended) => {
                            assert!(!model.closed && first == i64::try_from(model.sure.len()).unwrap());
                            self.counts.appended += entries.len() as u64;
                            model.sure.extend(entries);
                            assert_eq!(appended.last + 1, i64::try_from(model.sure.len()).unwrap());
                        }
                        Err(error) if unknown(&error) => {
                            self.counts.failed += 1;
                            model.maybe.extend(entries);
                        }
                        Err(StoreError::Full) => self.counts.full += 1,
                        Err(StoreError::LedgerClosed { .. }) => assert!(model.closed || model.maybe_closed),
                        Err(StoreError::Fenced { .. } | StoreError::Invalid(_)) => assert!(fenced),
                        Err(StoreError::OutOfOrder { expected }) => assert_ne!(expected, first),
                        Err(StoreError::NoSuchLedger(_)) => assert_eq!(model.there, There::Maybe),
                        Err(other) => panic!("{other}"),
                    }
                }
                Asked::Close(ledger, answer) => self.closed(ledger, answer.wait()),
                Asked::Recover(ledger, answer) => {
                    let answer = answer.wait();
                    self.counts.recovered += u64::from(answer.is_ok());
                    self.closed(ledger, answer);
                }
                Asked::Delete(ledger, answer) => match answer.wait() {
                    Ok(()) => {
                        self.counts.deleted += 1;
                        self.ledgers.remove(&ledger);
                    }
                    Err(error) if unknown(&error) => {
                        if let Some(model) = self.ledgers.get_mut(&ledger) {
                            model.there = There::Maybe;
                        }
                    }
                    Err(StoreError::Full | StoreError::NoSuchLedger(_) | StoreError::Fenced { .. }) => {}
                    Err(other) => panic!("{other}"),
                },
            }
        }
    }

    fn closed(&mut self, ledger: i64, answer: Result<i64, StoreError>) {
        let Some(model) = self.ledgers.get_mut(&ledger) else {
            assert!(answer.is_err(), "it was deleted");
            return;
        };
        match answer {
            Ok(last) => {
                assert_eq!(last + 1, i64::try_from(model.sure.len()).unwrap());
                model.closed = true;
            }
            Err(error) if unknown(&error) => model.maybe_closed = true,
            Err(_) => {}
        }
    }

    /// What is there must be what was answered, and may be what was asked; it is known from now on.
    fn check(&mut self) {
        let (store, _) = self.store.as_ref().unwrap();
        let mut there = BTreeMap::new();
        for group in 0..3 {
            for info in ask(|done| store.list(&format!("group {group}"), done)).wait().unwrap() {
                there.insert(info.ledger, info);
            }
        }
        for ledger in there.keys() {
            assert!(self.ledgers.contains_key(ledger), "ledger {ledger} has come back, or from nowhere");
        }
        self.ledgers.retain(|ledger, model| {
            let Some(info) = there.get(ledger) else {
                assert_eq!(model.there, There::Maybe, "ledger {ledger} is lost");
                return false;
            };
            let count = usize::try_from(info.last + 1).unwrap();
            assert!(count >= model.sure.len(), "{ledger}: {count} entries of {}", model.sure.len());
            let mut all = std::mem::take(&mut model.sure);
            all.append(&mut model.maybe);
            assert!(count <= all.len(), "{ledger}: {count} entries, {} were asked", all.len());
            all.truncate(count);
            let mut read = Vec::new();
            while read.len() < count {
                let first = i64::try_from(read.len()).unwrap();
                read.extend(ask(|done| store.read(*ledger, first, ALL, done)).wait().unwrap());
            }
            assert_eq!(read, all, "ledger {ledger}");
            assert!(info.closed || !model.closed, "ledger {ledger} is open again");
            assert!(!info.closed || model.closed || model.maybe_closed, "ledger {ledger} was never closed");
            (model.sure, model.closed, model.maybe_closed) = (all, info.closed, false);
            model.there = There::Yes;
            true
        });
    }

    fn round(&mut self) {
        let fault = self.below(100);
        let operations = self.seed.below(12);
        match fault {
            0..12 => self.directory.power_off_after(operations),
            12..16 => self.directory.fail(Op::Sync, operations / 4, ErrorKind::Other),
            16..18 => self.directory.fail(Op::Write, operations / 4, ErrorKind::Other),
            18..22 => self.directory.fail(Op::Write, operations / 4, ErrorKind::StorageFull),
            22..25 => self.directory.set_room(Some(self.directory.used() + 40_000)),
            25..35 => self.directory.set_room(None),
            _ => {}
        }
        let asked = self.ask();
        let failed = self.counts.failed;
        self.store.as_mut().unwrap().1.step();
        self.take(asked);
        if fault < 12 || failed != self.counts.failed {
            self.crash();
            self.store = None;
            self.open();
            self.check();
        } else if fault > 95 {
            // Shut and opened again: nothing may differ.
            let (store, stepper) = self.store.take().unwrap();
            drop(store);
            stepper.finish();
            self.directory.kill();
            self.counts.reopened_alike += 1;
            self.open();
            self.check();
        }
    }
}

fn run(seed: u64, durability: Durability, rounds: usize) -> Counts {
    let mut run = Run::new(seed, durability);
    for _ in 0..rounds {
        run.round();
    }
    run.crash();
    run.store = None;
    run.open();
    run.check();
    // More uses than files: one was used again.
    let names: Vec<_> =
        run.directory.list().unwrap().into_iter().filter(|name| name.starts_with("segment-")).collect();
    let newest = names.iter().filter_map(|name| run.directory.bytes(name).get(12).copied()).max().unwrap();
    run.counts.reused = u64::from(usize::from(newest) > names.len());
    run.counts
}

/// Histories of so many seeds, or of as many as the environment asks for.
fn histories(seeds: u64, durability: Durability) -> Counts {
    let mut all = Counts::default();
    let asked = std::env::var("FOLIO_SEEDS").ok().map(|seeds| seeds.parse().unwrap());
    for seed in 0..asked.unwrap_or(seeds) {
        // Of each kind its own.
        let seed = if durability == Durability::Synced { seed } else { !seed };
        let ran = std::panic::catch_unwind(|| run(seed, durability, 60));
        let Ok(counts) = ran else { panic!("with seed {seed}") };
        all.appended += counts.appended;
        all.crashes += counts.crashes;
        all.kills += counts.kills;
        all.cuts += counts.cuts;
        all.lost += counts.lost;
        all.torn += counts.torn;
        all.full += counts.full;
        all.failed += counts.failed;
        all.deleted += counts.deleted;
        all.recovered += counts.recovered;
        all.reopened_alike += counts.reopened_alike;
        all.reused += counts.reused;
    }
    all
}

/// What was answered as synced survives the loss of power, what was refused is never there, and what was deleted never comes back.
#[test]
fn what_was_synced_survives_a_loss_of_power() {
    // A sanitizer takes its time.
    let counts = histories(if cfg!(tsan) { 10 } else { 200 }, Durability::Synced);
    println!("{counts:?}");
    let floors = [
        (counts.appended, 20_000),
        (counts.crashes, 1000),
        (counts.kills, 100),
        (counts.cuts, 50),
        (counts.lost, 500),
        (counts.torn, 50),
        (counts.full, 100),
        (counts.failed, 500),
        (counts.deleted, 500),
        (counts.recovered, 200),
        (counts.reopened_alike, 200),
        (counts.reused, 20),
    ];
    assert!(
        cfg!(tsan) || floors.iter().all(|(count, floor)| count >= floor),
        "too little of something: {counts:?}"
    );
}

/// What was answered as written survives the end of the process.
#[test]
fn what_was_written_survives_the_end_of_the_process() {
    let counts = histories(if cfg!(tsan) { 5 } else { 60 }, Durability::Written);
    assert!(cfg!(tsan) || counts.kills > 200 && counts.appended > 4000 && counts.deleted > 100, "{counts:?}");
}
