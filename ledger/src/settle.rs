//! Batches on their way to storage and back: sent, confirmed and told in order, by one owner at a time.
//!
//! # Protocol
//! Batches, and calls that come after what was before them, stand in a line. Whoever puts something in, or has storage's answer, records that with
//! the *turn* and leaves the work to its owner: the ledger's worker, or whoever finds that the worker takes nothing any more. The owner takes two kinds of
//! steps. It gives storage the first batch that is not sent, as long as few are sent and not settled; and it takes what stands first in the line when that is
//! answered, or is a call.
//!
//! | a batch is | next | by whom |
//! |---|---|---|
//! | gathering | sent | the owner, when fewer than [`MOST_SENT`] are sent and not settled; until then the next batch joins it |
//! | sent | answered | storage, on any thread, in any order |
//! | answered | confirmed and told | the owner, when it stands first |
//!
//! Once one has failed, all that stand behind it fail, whatever storage says of them. If storage had no room, this holds for what was sent before that
//! was settled; what is sent later has the places of what was refused.

use std::collections::VecDeque;

use bytes::Bytes;
use folio_cache::EntryInserter;
use folio_sync::time::Instant;
use folio_sync::{Arc, Mutex, SerialExecutor, step};
use folio_turn::{Demand, Next, Ownership, Panicked, Recovery, Stranded, Turn, Work};

use crate::append::{AppendSink, contained, tell};
use crate::cursor::CursorCore;
use crate::done::Done;
use crate::error::AppendError;
use crate::ledger::Core;
use crate::position::Position;
use crate::storage::{ENTRY_OVERHEAD, Limits, StorageError};

/// Something was put into the line, or was answered.
const LOOK: Demand = Demand::soft(0);

/// How many batches storage is given before the first of them is settled: enough that it always has one to work on.
const MOST_SENT: usize = 4;

/// How many entries a batch has at most, and how many bytes, as storage counts them, unless its first entry alone has more.
const MOST: (usize, usize) = (4_096, 1 << 20);

/// How many batches the worker settles before it lets others in.
const BUDGET: u32 = 64;

type Call = Box<dyn FnOnce() + Send>;

/// Entries for storage, and whom to tell of them, in the same order.
pub(crate) struct Batch<T> {
    payloads: Vec<Bytes>,
    tokens: Vec<T>,
    /// As storage counts them.
    bytes: usize,
}

/// How much a batch may have for this storage.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    batch_bytes: usize,
    pub(crate) entry_bytes: usize,
}

impl Room {
    pub(crate) fn of(limits: Limits) -> Self {
        let alone = limits.batch_bytes.saturating_sub(ENTRY_OVERHEAD);
        Self { batch_bytes: limits.batch_bytes.min(MOST.1), entry_bytes: limits.entry_bytes.min(alone) }
    }
}

impl<T> Default for Batch<T> {
    fn default() -> Self {
        Self { payloads: Vec::new(), tokens: Vec::new(), bytes: 0 }
    }
}

impl<T> Batch<T> {
    pub(crate) fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Whether one more fits in, of so many bytes.
    pub(crate) fn has_room_for(&self, payload: usize, room: Room) -> bool {
        self.has_room(1, payload.saturating_add(ENTRY_OVERHEAD), room)
    }

    fn has_room(&self, entries: usize, bytes: usize, room: Room) -> bool {
        self.len() == 0
            || (self.len() + entries <= MOST.0 && self.bytes.saturating_add(bytes) <= room.batch_bytes)
    }

    pub(crate) fn push(&mut self, payload: Bytes, token: T) {
        self.bytes = self.bytes.saturating_add(payload.len()).saturating_add(ENTRY_OVERHEAD);
        self.payloads.push(payload);
        self.tokens.push(token);
    }

    /// Whom to tell; the payloads are dropped.
    pub(crate) fn into_tokens(self) -> Vec<T> {
        let Self { payloads, tokens, .. } = self;
        contained(|| drop(payloads));
        tokens
    }

    /// Takes another one up, whose room is left.
    fn append(&mut self, other: &mut Self) {
        self.bytes = self.bytes.saturating_add(std::mem::take(&mut other.bytes));
        self.payloads.append(&mut other.payloads);
        self.tokens.append(&mut other.tokens);
    }
}

#[derive(Debug)]
enum State {
    Gathering,
    Sent,
    Answered(Result<(), StorageError>),
}

enum Item<T> {
    Batch(Batch<T>, State),
    Call(Call),
}

/// What stands in line.
struct Line<T> {
    items: VecDeque<Item<T>>,
    /// The number of the item that stands first.
    first: u64,
    /// Batches that were sent and are not settled.
    sent: usize,
    gathering: usize,
    /// Entries of batches that are not settled.
    entries: usize,
    /// Empty batches, for their room: as many as are gathered and sent at a time.
    spare: Vec<Batch<T>>,
}

/// The line, for whoever puts something in. Its lock is held for a look only.
pub(crate) struct Desk<T: Send + 'static> {
    line: Arc<Mutex<Line<T>>>,
    turn: Turn<Settler<T>>,
    /// How many entries may gather.
    most_gathering: usize,
    pub(crate) room: Room,
}

impl<T: Send + 'static> Clone for Desk<T> {
    fn clone(&self) -> Self {
        let Self { line, turn, most_gathering, room } = self;
        Self { line: Arc::clone(line), turn: turn.clone(), most_gathering: *most_gathering, room: *room }
    }
}

impl<T: Send + 'static> Desk<T> {
    pub(crate) fn new(
        core: Arc<Core>,
        sink: Arc<dyn AppendSink<T>>,
        worker: impl SerialExecutor + 'static,
        most_gathering: usize,
    ) -> Self {
        let room = Room::of(core.storage.limits());
        let line =
            Line { items: VecDeque::new(), first: 0, sent: 0, gathering: 0, entries: 0, spare: Vec::new() };
        let line = Arc::new(Mutex::new(line));
        let inserter = core.entries.inserter();
        let settler = Settler {
            core,
            sink,
            line: Arc::clone(&line),
            inserter,
            sent: 0,
            confirmed: 0,
            failed: None,
            refused: false,
            waiting: Vec::new(),
        };
        Self {
            line,
            turn: Turn::builder(settler).budget(BUDGET).yield_to_serial(worker),
            most_gathering,
            room,
        }
    }

    /// Puts a batch in; what is left in its place is empty, and has the room of one before.
    ///
    /// # Errors
    /// The batch, when too much has gathered already.
    pub(crate) fn hand_in(&self, batch: &mut Batch<T>) -> Result<(), Batch<T>> {
        let mut line = self.line.lock();
        if line.gathering.saturating_add(batch.len()) > self.most_gathering.max(batch.len()) {
            return Err(std::mem::take(batch));
        }
        line.gather(batch, self.room);
        drop(line);
        self.look_here();
        Ok(())
    }

    /// Puts in a call, which comes after all that is in the line.
    pub(crate) fn call(&self, call: impl FnOnce() + Send + 'static) {
        self.line.lock().items.push_back(Item::Call(Box::new(call)));
        self.look_here();
    }

    /// How many entries were handed in and are not settled.
    pub(crate) fn len(&self) -> usize {
        self.line.lock().entries
    }

    /// Has the line looked at: here, unless somebody does.
    fn look_here(&self) {
        if self.turn.record(LOOK).must_run()
            && let Err(stranded) = self.turn.join()
        {
            go_on(stranded.ownership);
        }
    }
}

/// Takes the steps here, since the worker takes nothing.
fn go_on<T: Send + 'static>(mut ownership: Ownership<Settler<T>>) {
    while let Err(stranded) = ownership.run() {
        ownership = stranded.ownership;
    }
}

impl<T> Line<T> {
    /// Puts a batch in; one that is still gathering takes it up.
    fn gather(&mut self, batch: &mut Batch<T>, room: Room) {
        self.gathering += batch.len();
        self.entries += batch.len();
        match self.items.back_mut() {
            Some(Item::Batch(last, State::Gathering)) if last.has_room(batch.len(), batch.bytes, room) => {
                last.append(batch);
            }
            _ => {
                let spare = self.spare.pop().unwrap_or_default();
                self.items.push_back(Item::Batch(std::mem::replace(batch, spare), State::Gathering));
            }
        }
    }

    /// Notes that a batch of so many entries is settled, and keeps its room.
    fn settled(&mut self, entries: usize, empty: Batch<T>) {
        self.entries -= entries;
        if self.spare.len() <= MOST_SENT {
            self.spare.push(empty);
        }
    }

    /// Notes the answer to a batch.
    fn answered(&mut self, number: u64, answer: Result<(), StorageError>) {
        let at = usize::try_from(number - self.first).unwrap_or(usize::MAX);
        if let Some(Item::Batch(_, state)) = self.items.get_mut(at) {
            *state = State::Answered(answer);
        }
    }

    /// The batch to send next, with its number; its payloads stay, to be cached.
    fn next_to_send(&mut self) -> Option<(u64, Vec<Bytes>)> {
        if self.sent >= MOST_SENT || self.gathering == 0 {
            return None;
        }
        for (number, item) in (self.first..).zip(&mut self.items) {
            if let Item::Batch(batch, state @ State::Gathering) = item {
                *state = State::Sent;
                self.sent += 1;
                self.gathering -= batch.len();
                return Some((number, batch.payloads.clone()));
            }
        }
        None
    }

    /// What stands first, if it is to be taken.
    fn take(&mut self) -> Option<Item<T>> {
        if let Item::Batch(_, State::Gathering | State::Sent) = self.items.front()? {
            return None;
        }
        self.first += 1;
        let taken = self.items.pop_front();
        // Until now it counts: what is answered out of order would pile up behind one that is not.
        self.sent -= usize::from(matches!(taken, Some(Item::Batch(..))));
        taken
    }
}

/// The state of the turn.
pub(crate) struct Settler<T> {
    core: Arc<Core>,
    sink: Arc<dyn AppendSink<T>>,
    line: Arc<Mutex<Line<T>>>,
    inserter: EntryInserter<Bytes>,
    /// The number of the first entry that is not sent.
    sent: i64,
    /// The number of the first entry that is not confirmed.
    confirmed: i64,
    failed: Option<StorageError>,
    /// Storage had no room; what was sent behind that is not kept either.
    refused: bool,
    /// Cursors to tell; empty between steps.
    waiting: Vec<Arc<CursorCore>>,
}

impl<T: Send + 'static> Settler<T> {
    /// Gives storage the next batch.
    fn send(&mut self, turn: &Turn<Self>, number: u64, payloads: Vec<Bytes>) {
        let first = Position { ledger: self.core.id, entry: self.sent };
        self.sent += count(payloads.len());
        let (turn, line) = (turn.clone(), Arc::clone(&self.line));
        let worker = Arc::clone(&self.core.worker);
        let done = Done::new(move |answer| {
            line.lock().answered(number, answer);
            if turn.record(LOOK).must_run()
                && let Err(stranded) = turn.schedule(&*worker)
            {
                go_on(stranded.ownership);
            }
        });
        if let Some(error) = &self.failed {
            return done.tell(Err(error.clone()));
        }
        // A panic drops the completion, which is an answer.
        step!("ledger.append", contained(|| self.core.storage.append(first, payloads, done)));
    }

    /// Puts a batch into the cache, if somebody will read it.
    fn cache(&mut self, first: i64, payloads: &mut Vec<Bytes>, now: Instant) {
        let active = &self.core.active;
        if !active.worth_caching(now) {
            return;
        }
        let (ledger, expected) = (self.core.id, active.len());
        let entries = (first..).zip(payloads.drain(..));
        let entries = entries.map(|(entry, payload)| ((ledger, entry), payload, expected));
        // What was not taken over is read from storage.
        self.inserter.insert_batch(entries, now);
    }

    /// Why a batch that was answered so is not confirmed, if it is not.
    fn refusal(&mut self, answer: Result<(), StorageError>) -> Option<StorageError> {
        if self.failed.is_none() {
            match (answer, self.refused) {
                (Ok(()), false) => return None,
                (Err(StorageError::Full), _) | (Err(StorageError::OutOfOrder { .. }), true) => {
                    self.refused = true;
                    return Some(StorageError::Full);
                }
                (Err(error), _) => self.failed = Some(error),
                (Ok(()), true) => {
                    let why = "it kept what was behind an entry that it had refused";
                    self.failed = Some(StorageError::Failed(why.to_owned()));
                }
            }
        }
        self.failed.clone()
    }

    /// Confirms a batch and tells everybody.
    fn settle(&mut self, mut batch: Batch<T>, answer: Result<(), StorageError>) {
        let len = batch.len();
        let mut now = Instant::ORIGIN;
        contained(|| now = self.core.clock.now());
        let mut next = Position { ledger: self.core.id, entry: self.confirmed };
        let refusal = self.refusal(answer);
        if refusal.is_none() {
            self.confirmed += count(len);
            contained(|| self.cache(next.entry, &mut batch.payloads, now));
            // Before anybody is told: who is can read the entries by any cursor.
            self.core.confirm(self.confirmed, &mut self.waiting);
        }
        // What was not cached.
        contained(|| batch.payloads.clear());
        tell(batch.tokens.drain(..), |token| {
            let position = next;
            next = next.next();
            let result = refusal.clone().map_or(Ok(position), |error| Err(AppendError::Storage(error)));
            self.sink.appended(token, result, now);
        });
        batch.bytes = 0;
        self.line.lock().settled(len, batch);
        tell(self.waiting.drain(..), |cursor| cursor.tell());
    }
}

/// How many, as entries are numbered.
fn count(len: usize) -> i64 {
    i64::try_from(len).expect("a batch has few entries")
}

impl<T: Send + 'static> Work for Settler<T> {
    fn step(&mut self, turn: &Turn<Self>, _demand: Demand) -> Next {
        let mut line = self.line.lock();
        // What is answered comes first: after a failure nothing more is sent.
        let taken = line.take();
        if self.refused && taken.is_none() && line.sent == 0 {
            // Nothing is behind what was refused any more: what comes has its place.
            self.refused = false;
            self.sent = self.confirmed;
        }
        let to_send = if taken.is_none() && !self.refused { line.next_to_send() } else { None };
        drop(line);
        match (taken, to_send) {
            (Some(Item::Batch(batch, State::Answered(answer))), _) => self.settle(batch, answer),
            (Some(Item::Call(call)), _) => contained(call),
            (_, Some((number, payloads))) => self.send(turn, number, payloads),
            // A batch is not taken before it is answered.
            (Some(Item::Batch(_, State::Gathering | State::Sent)) | None, None) => return Next::Idle,
        }
        Next::Again
    }

    fn panicked(&mut self, _turn: &Turn<Self>, panicked: Panicked<'_>) -> Recovery {
        // User code never panics here: what had been asked is asked again.
        Recovery::Contain(panicked.demand)
    }

    fn stranded(stranded: Stranded<Self>) {
        go_on(stranded.ownership);
    }
}
