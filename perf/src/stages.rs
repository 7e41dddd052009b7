//! What each stage of a message's way costs, taken one after the other on one thread.
//!
//! The same topic, subscription and clients' checks as in a run, on executors that are stepped here, so that the time between two boundaries is one
//! stage's. Nothing crosses threads: what is shown is work, not cache misses between processors.

use std::collections::VecDeque;
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use bytes::Bytes;
use folio_broker::{Consumer, Kind, Message, SubscriptionOptions, Topic};
use folio_ledger::{
    AppendError, AppendSink, Done, LedgerOptions, LogStorage, MemoryStorage, Position, StorageError,
};
use folio_sync::time::SystemClock;
use folio_sync::timers::ThreadTimers;
use folio_sync::{Executor, Job, Mutex, Rejected, SerialExecutor};

use crate::payload::{self, Fields};
use crate::place::cache;
use crate::run::RunError;
use crate::settings::Cache;
use crate::verify::{Progress, Tracker};

/// Messages that go the way together.
const BATCH: u32 = 1_000;
/// Consumers that share them by key.
const CONSUMERS: usize = 20;
/// Producers, and keys of each.
const PRODUCERS: u32 = 500;
const KEYS: u32 = 200;

/// The stages, in the order of a message's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The producer makes the message.
    Encode,
    /// It is queued for the ledger's worker.
    Submit,
    /// The worker takes the batch.
    Batch,
    /// Storage appends it.
    Append,
    /// It is put into the cache and confirmed.
    Cache,
    /// Its publisher is told.
    Acknowledge,
    /// A cursor reads it from the cache.
    Read,
    /// The dispatcher finds its consumer.
    Dispatch,
    /// The consumer is given it.
    Deliver,
    /// The consumer checks it.
    Consume,
    /// The consumer acknowledges it; the cache and storage let go of it.
    Ack,
    /// It is dropped.
    Drop,
}

impl Stage {
    /// All of them.
    const ALL: [Self; 12] = [
        Self::Encode,
        Self::Submit,
        Self::Batch,
        Self::Append,
        Self::Cache,
        Self::Acknowledge,
        Self::Read,
        Self::Dispatch,
        Self::Deliver,
        Self::Consume,
        Self::Ack,
        Self::Drop,
    ];
}

/// Nanoseconds a message of each stage, the median over all batches.
#[derive(Clone, Debug)]
pub struct Stages(Vec<(Stage, f64)>);

impl fmt::Display for Stages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<14} {:>14} {:>8}", "stage", "ns a message", "share")?;
        let sum: f64 = self.0.iter().map(|(_, nanos)| nanos).sum();
        for (stage, nanos) in &self.0 {
            let name = format!("{stage:?}").to_lowercase();
            writeln!(f, "{name:<14} {nanos:>14.1} {:>7.1}%", nanos / sum * 100.0)?;
        }
        write!(f, "{:<14} {sum:>14.1}", "all")
    }
}

/// An executor whose jobs run when it is told to, on the thread that tells it.
#[derive(Clone, Debug, Default)]
struct Stepped {
    jobs: Arc<Mutex<VecDeque<Job>>>,
    running: Arc<AtomicBool>,
}

impl Stepped {
    fn run_all(&self) {
        self.running.store(true, Ordering::Relaxed);
        loop {
            let Some(job) = self.jobs.lock().pop_front() else { break };
            job.run();
        }
        self.running.store(false, Ordering::Relaxed);
    }
}

impl Executor for Stepped {
    fn submit(&self, job: Job) -> Result<(), Rejected<Job>> {
        self.jobs.lock().push_back(job);
        Ok(())
    }
}

impl SerialExecutor for Stepped {
    fn is_current(&self) -> bool {
        self.running.load(Ordering::Relaxed)
    }
}

/// When the batch passed the boundaries that lie inside the worker and the dispatcher.
#[derive(Clone, Debug)]
struct Marks(Arc<Mutex<Times>>);

#[derive(Clone, Copy, Debug)]
struct Times {
    append: Instant,
    appended: Instant,
    /// The first message's publisher is told.
    told: Option<Instant>,
    /// Time inside `deliver`.
    delivering: f64,
}

impl Marks {
    fn new() -> Self {
        let now = Instant::now();
        Self(Arc::new(Mutex::new(Times { append: now, appended: now, told: None, delivering: 0.0 })))
    }

    fn take(&self) -> Times {
        let mut times = self.0.lock();
        let taken = *times;
        times.told = None;
        times.delivering = 0.0;
        taken
    }
}

/// Storage with a mark on either side.
struct MarkedStorage(MemoryStorage, Marks);

impl LogStorage for MarkedStorage {
    fn append(&self, first: Position, entries: Vec<Bytes>, done: Done<(), StorageError>) {
        let began = Instant::now();
        let marks = self.1.clone();
        marks.0.lock().append = began;
        self.0.append(
            first,
            entries,
            Done::new(move |kept| {
                marks.0.lock().appended = Instant::now();
                done.tell(kept);
            }),
        );
    }

    fn read(&self, first: Position, count: usize, done: Done<Vec<Bytes>, StorageError>) {
        self.0.read(first, count, done);
    }

    fn trim(&self, before: Position) {
        self.0.trim(before);
    }
}

/// A publisher that is told as a run's producers are, with a mark at the first message of a batch.
struct MarkedSink {
    marks: Marks,
    acknowledged: AtomicU64,
    at_nanos: [AtomicU64; 64],
}

impl AppendSink<u64> for MarkedSink {
    fn appended(&self, sequence: u64, _: Result<Position, AppendError>, at: folio_sync::time::Instant) {
        if sequence.is_multiple_of(BATCH.into()) {
            self.marks.0.lock().told = Some(Instant::now());
        }
        let slot = usize::try_from(sequence % 64).unwrap_or(0);
        self.at_nanos[slot].store(at.as_nanos(), Ordering::Relaxed);
        self.acknowledged.store(sequence + 1, Ordering::Release);
    }
}

/// A consumer that keeps what it is given, and marks how long that took.
struct Kept(Mutex<Vec<Message>>, Marks);

impl Consumer for Kept {
    fn deliver(&self, messages: &mut Vec<Message>) {
        let began = Instant::now();
        self.0.lock().append(messages);
        self.1.0.lock().delivering += began.elapsed().as_secs_f64();
    }
}

/// How many batches may be taken through all stages.
pub const BATCHES: RangeInclusive<usize> = 10..=100_000;

/// Takes batches through all stages, and says what each costs.
///
/// # Errors
/// [`RunError`] when there are not as many batches as [may be](BATCHES), or messages do not arrive.
pub fn stages(batches: usize) -> Result<Stages, RunError> {
    if !BATCHES.contains(&batches) {
        let (least, most) = (BATCHES.start(), BATCHES.end());
        return Err(RunError::Settings(format!(
            "between {least} and {most} batches are taken, not {batches}"
        )));
    }
    let refused = |error: &dyn fmt::Display| RunError::Settings(error.to_string());
    let wrong = |error: &dyn fmt::Display| RunError::Wrong(error.to_string());
    let marks = Marks::new();
    let (worker, dispatcher) = (Stepped::default(), Stepped::default());
    let clock = Arc::new(SystemClock::new());
    let sink = MarkedSink {
        marks: marks.clone(),
        acknowledged: AtomicU64::new(0),
        at_nanos: std::array::from_fn(|_| AtomicU64::new(0)),
    };
    let storage = MarkedStorage(MemoryStorage::new(), marks.clone());
    let cache = cache(&clock, Stepped::default(), Cache::Paged)?;
    let topic = Topic::open(LedgerOptions::default(), storage, &cache, worker.clone(), sink)
        .map_err(|error| refused(&error))?;
    let consumers: Vec<_> = (0..CONSUMERS).map(|_| Arc::new(Kept(Mutex::default(), marks.clone()))).collect();
    let options = SubscriptionOptions::new(Kind::KeyShared { key_of: payload::key_of });
    let given = consumers.iter().map(|consumer| Arc::clone(consumer) as Arc<dyn Consumer>).collect();
    let subscription = topic
        .subscribe(options, given, dispatcher.clone(), ThreadTimers::new())
        .map_err(|error| refused(&error))?;
    (0..CONSUMERS).for_each(|consumer| subscription.flow(consumer, u32::MAX));
    dispatcher.run_all();
    let cursor = topic.ledger().cursor_at_tail(|| ());
    let mut tracker = Tracker::new(0, Progress::new(PRODUCERS * KEYS), KEYS, None);
    let mut keys = vec![0; (PRODUCERS * KEYS) as usize];
    let mut random = 1_u64;
    let mut sequence = 0;
    let mut costs: Vec<Vec<f64>> = vec![Vec::new(); Stage::ALL.len()];
    let (mut read_buffer, mut positions) = (Some(Vec::new()), Vec::new());

    for batch in 0..batches {
        let mut took = |stage: Stage, seconds: f64| {
            // The first tenth fills caches and grows what grows.
            if batch >= batches / 10 {
                costs[stage as usize].push(seconds * 1e9 / f64::from(BATCH));
            }
        };
        let began = Instant::now();
        let messages: Vec<_> = (0..BATCH)
            .map(|_| {
                random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                let key = u32::try_from(random >> 33).unwrap_or(0) % (PRODUCERS * KEYS);
                let key_sequence = keys[key as usize];
                keys[key as usize] += 1;
                let fields = Fields { key, producer: key / KEYS, sequence, key_sequence, sent_nanos: 0 };
                payload::encode(&fields)
            })
            .collect();
        took(Stage::Encode, began.elapsed().as_secs_f64());

        let began = Instant::now();
        for message in messages {
            topic.publish(message, sequence);
            sequence += 1;
        }
        took(Stage::Submit, began.elapsed().as_secs_f64());

        let began = Instant::now();
        worker.run_all();
        let ended = Instant::now();
        let times = marks.take();
        let told = times.told.unwrap_or(ended);
        took(Stage::Batch, (times.append - began).as_secs_f64());
        took(Stage::Append, (times.appended - times.append).as_secs_f64());
        took(Stage::Cache, (told - times.appended).as_secs_f64());
        took(Stage::Acknowledge, (ended - told).as_secs_f64());

        // A cursor of its own, since the dispatcher's read has no boundary of its own.
        let began = Instant::now();
        let (tell, told) = std::sync::mpsc::channel();
        cursor.read(BATCH as usize, read_buffer.take().unwrap_or_default(), move |result| {
            let _receiver_waits = tell.send(result);
        });
        let mut read = told.recv().map_err(|error| wrong(&error))?.map_err(|error| wrong(&error))?;
        let reading = began.elapsed().as_secs_f64();
        took(Stage::Read, reading);
        read.clear();
        read_buffer = Some(read);
        cursor.mark_delete(cursor.position());

        let began = Instant::now();
        dispatcher.run_all();
        let dispatching = began.elapsed().as_secs_f64();
        let delivering = marks.take().delivering;
        took(Stage::Dispatch, (dispatching - delivering - reading).max(0.0));
        took(Stage::Deliver, delivering);

        for (stage, seconds) in consume(&consumers, &mut tracker, &mut positions, |positions| {
            subscription.acknowledge(positions.drain(..));
        }) {
            took(stage, seconds);
        }
    }
    let all = batches as u64 * u64::from(BATCH);
    if tracker.unique != all || !tracker.violations.samples.is_empty() {
        return Err(RunError::Wrong(format!("{} of {all} messages arrived", tracker.unique)));
    }
    let stages = Stage::ALL.into_iter().zip(costs);
    Ok(Stages(stages.map(|(stage, costs)| (stage, median(costs))).collect()))
}

/// The consumers' part of a batch.
fn consume(
    consumers: &[Arc<Kept>],
    tracker: &mut Tracker,
    positions: &mut Vec<Position>,
    mut acknowledge: impl FnMut(&mut Vec<Position>),
) -> [(Stage, f64); 3] {
    let [mut consuming, mut acknowledging, mut dropping] = [0.0; 3];
    for consumer in consumers {
        let began = Instant::now();
        let mut messages = consumer.0.lock();
        for message in messages.iter() {
            tracker.arrived(message.position.entry, payload::decode(&message.payload));
            positions.push(message.position);
        }
        consuming += began.elapsed().as_secs_f64();
        let began = Instant::now();
        acknowledge(positions);
        acknowledging += began.elapsed().as_secs_f64();
        let began = Instant::now();
        messages.clear();
        dropping += began.elapsed().as_secs_f64();
    }
    [(Stage::Consume, consuming), (Stage::Ack, acknowledging), (Stage::Drop, dropping)]
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}
