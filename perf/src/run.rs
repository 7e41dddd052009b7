//! One run of a scenario.

use std::fmt;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use folio_broker::{Consumer, Kind, Subscription, SubscriptionOptions, Topic};
use folio_sync::Mutex;
use folio_sync::time::SystemClock;
use folio_sync::timers::ThreadTimers;
use hdrhistogram::Histogram;

use crate::consumers::{Client, Clients, Received};
use crate::payload;
use crate::place::{Pools, open_topic};
use crate::producers::{Driver, Produced, Publishes, Token};
use crate::report::{Report, Verdict};
use crate::settings::{Scenario, Settings};
use crate::verify::{Progress, Tracker, Violations, lost};
use crate::window::{EVERY, Sample, most_backlog, steady};

/// A run in which nothing arrives for so long is given up.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why a run could not begin, or has no result.
#[derive(Debug)]
#[non_exhaustive]
pub enum RunError {
    /// The settings make no run.
    Settings(String),
    /// The files of a run could not be made.
    Storage(String),
    /// The system did not start a thread.
    Thread(std::io::Error),
    /// Messages did not arrive as they were sent.
    Wrong(String),
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Settings(why) | Self::Wrong(why) | Self::Storage(why) => f.write_str(why),
            Self::Thread(error) => write!(f, "a thread did not start: {error}"),
        }
    }
}

impl std::error::Error for RunError {}

impl From<std::io::Error> for RunError {
    fn from(error: std::io::Error) -> Self {
        Self::Thread(error)
    }
}

/// Runs a scenario.
///
/// # Errors
/// [`RunError`] when it could not begin. What goes wrong later is in the report's verdict.
pub fn run(settings: &Settings) -> Result<Report, RunError> {
    check(settings)?;
    let clock = Arc::new(SystemClock::new());
    let pools = Pools::start(settings)?;
    let publishes = Publishes::new(settings.producers);
    let (folder, topic) = open_topic(settings, &pools, &clock, &publishes)?;
    let outcome = Arc::new(Mutex::new(Vec::new()));
    let keys = Progress::new(settings.producers * settings.keys_per_producer);
    let (clients, subscription) = subscribe(settings, &keys, &topic, &pools, &clock, &outcome)?;

    let ledger_worker = &pools.ledger.workers()[0];
    let batches_before = ledger_worker.jobs();
    let (cpu, began) = (cpu_time(), Instant::now());
    let stop = AtomicBool::new(false);
    let sent_all: Vec<_> = (0..settings.producer_threads).map(|_| AtomicBool::new(false)).collect();
    let (mut samples, mut stalled) = (Vec::new(), false);
    let (produced, sending) = thread::scope(|scope| {
        let threads: Vec<_> = (0..)
            .zip(&sent_all)
            .map(|(first, sent_all)| {
                let threads = u32::try_from(settings.producer_threads).unwrap_or(1);
                let share = share(settings, first);
                let driver = Driver {
                    settings,
                    topic: &topic,
                    publishes: &publishes,
                    clock: &clock,
                    sent_all,
                    stop: &stop,
                };
                scope.spawn(move || driver.run(first, threads, share))
            })
            .collect();
        let sending;
        (samples, sending, stalled) = watch(settings, &topic, &clients, began, &sent_all);
        stop.store(true, Ordering::Release);
        let produced: Vec<_> = threads.into_iter().filter_map(|thread| thread.join().ok()).collect();
        (produced, sending)
    });
    let seconds = began.elapsed().as_secs_f64();
    let cpu_nanos = cpu_time().saturating_sub(cpu).as_secs_f64() * 1e9 / settings.messages as f64;
    let batches = ledger_worker.jobs() - batches_before;

    for client in &clients {
        client.end();
    }
    let reads = topic.ledger().cache().snapshot();
    topic.close();
    subscription.close();
    let received = collect(settings, &outcome);
    drop(subscription);
    drop(topic);
    pools.end();
    // The store was dropped with the last of those, and has finished.
    drop(folder);

    let window = steady(&samples, sending);
    let mut verdict = judge(settings, &keys, &produced, &received);
    verdict.failed = publishes.failed();
    verdict.stalled = stalled;
    Ok(Report {
        settings: settings.clone(),
        verdict,
        seconds,
        sending,
        window,
        most_backlog: most_backlog(&samples),
        samples: samples.len(),
        cpu_nanos,
        reads: (reads.entries_hit, reads.storage_entries),
        batch: settings.messages as f64 / batches.max(1) as f64,
        publish: join(produced.iter().map(|produced| &produced.latency).collect()),
        end_to_end: join(received.iter().map(|received| &received.latency).collect()),
    })
}

/// How many messages the producers of a thread send.
fn share(settings: &Settings, thread: u32) -> u64 {
    let threads = settings.producer_threads as u64;
    settings.messages / threads + u64::from(u64::from(thread) < settings.messages % threads)
}

fn check(settings: &Settings) -> Result<(), RunError> {
    let wrong = |why: &str| Err(RunError::Settings(why.to_owned()));
    if settings.producers == 0 || settings.consumers == 0 {
        return wrong("a run needs producers and consumers");
    }
    if !(1..=Settings::MOST_MESSAGES).contains(&settings.messages) {
        return wrong(&format!("a run has between 1 and {} messages", Settings::MOST_MESSAGES));
    }
    if !(1..=64).contains(&settings.outstanding) {
        return wrong("a producer has between 1 and 64 messages outstanding");
    }
    let keys = settings.producers.saturating_mul(settings.keys_per_producer);
    if !(1..=Settings::MOST_KEYS).contains(&keys) {
        return wrong(&format!("each producer needs keys, of at most {} in all", Settings::MOST_KEYS));
    }
    let threads = 1..=Settings::MOST_THREADS;
    if !threads.contains(&settings.producer_threads) || !threads.contains(&settings.consumer_threads) {
        return wrong(&format!(
            "between 1 and {} threads drive producers, and as many consumers",
            Settings::MOST_THREADS
        ));
    }
    if settings.receive_queue == 0 {
        return wrong("consumers need a receive queue");
    }
    if settings.producer_threads > settings.producers as usize {
        return wrong("a thread of producers needs a producer");
    }
    if settings.scenario == Scenario::ReadCompletionIsolation && settings.consumers != 1 {
        return wrong("an exclusive subscription has one consumer");
    }
    if let Some(plant) = settings.plant {
        let needs = plant.needs();
        if share(settings, 0) < needs || u64::from(settings.outstanding) < needs {
            return wrong(&format!(
                "the fault {plant:?} takes {needs} messages of one producer at a time: it needs as many of the first thread, and as many outstanding"
            ));
        }
    }
    Ok(())
}

/// Opens the subscription with its clients, who give their first permits.
fn subscribe(
    settings: &Settings,
    keys: &Progress,
    topic: &Topic<Token>,
    pools: &Pools,
    clock: &Arc<SystemClock>,
    outcome: &Arc<Mutex<Vec<Received>>>,
) -> Result<(Vec<Arc<Client>>, Arc<Subscription>), RunError> {
    let slot = Arc::new(OnceLock::new());
    let clients = Clients {
        clock: Arc::clone(clock),
        subscription: Arc::clone(&slot),
        receive_queue: settings.receive_queue,
        outcome: Arc::clone(outcome),
    };
    let exclusive = settings.scenario == Scenario::ReadCompletionIsolation;
    let workers = pools.consumers.workers();
    let clients: Vec<_> = (0..settings.consumers)
        .map(|number| {
            let producers = exclusive.then(|| Progress::new(settings.producers));
            let tracker = Tracker::new(number, keys.clone(), settings.keys_per_producer, producers);
            clients.client(number, workers[number % workers.len()].clone(), tracker)
        })
        .collect();
    let kind = if exclusive { Kind::Exclusive } else { Kind::KeyShared { key_of: payload::key_of } };
    let consumers = clients.iter().map(|client| Arc::clone(client) as Arc<dyn Consumer>).collect();
    let executor = pools.dispatch.workers()[0].clone();
    let subscription = topic
        .subscribe(SubscriptionOptions::new(kind), consumers, executor, ThreadTimers::new())
        .map_err(|error| RunError::Settings(error.to_string()))?;
    let subscription = Arc::new(subscription);
    slot.get_or_init(|| Arc::downgrade(&subscription));
    (0..settings.consumers).for_each(|consumer| subscription.flow(consumer, settings.receive_queue));
    Ok((clients, subscription))
}

/// Samples the run until all has arrived, or nothing does any more; the samples, when the last message was sent, and whether it stalled.
fn watch(
    settings: &Settings,
    topic: &Topic<Token>,
    clients: &[Arc<Client>],
    began: Instant,
    sent_all: &[AtomicBool],
) -> (Vec<Sample>, f64, bool) {
    let mut samples: Vec<Sample> = Vec::new();
    let mut sending = None;
    let mut progress = (0, Instant::now());
    let mut told = Instant::now();
    let mut next = began;
    loop {
        // The state of things is looked at more often than it is sampled, so that the end is seen when it comes.
        thread::sleep(Duration::from_millis(5));
        let at = began.elapsed().as_secs_f64();
        if sending.is_none() && sent_all.iter().all(|flag| flag.load(Ordering::Acquire)) {
            sending = Some(at);
        }
        // In this order: once all is sent and nothing is queued, no more is published.
        let all_published = sending.is_some() && topic.ledger().queued() == 0;
        let published = u64::try_from(topic.ledger().confirmed()).unwrap_or(0);
        let received = clients.iter().map(|client| client.received()).sum();
        let ended = all_published && received >= published;
        if Instant::now() >= next || ended {
            next += EVERY;
            samples.push(Sample { at, published, received });
        }
        if received != progress.0 {
            progress = (received, Instant::now());
        }
        if settings.progress && told.elapsed() > Duration::from_secs(1) {
            told = Instant::now();
            let line =
                format!("  {at:5.1} s: {published} published, {received} received of {}", settings.messages);
            // Nobody may read it.
            let _told = writeln!(std::io::stderr(), "{line}");
        }
        let stalled = progress.1.elapsed() > PATIENCE;
        if ended || stalled {
            return (samples, sending.unwrap_or(at), stalled);
        }
        // A message that was published and lost never arrives: once all is sent, a moment without progress is the end.
        if sending.is_some() && progress.1.elapsed() > Duration::from_secs(1) {
            return (samples, sending.unwrap_or(at), false);
        }
    }
}

/// Waits until every client has handed out what it found.
fn collect(settings: &Settings, outcome: &Mutex<Vec<Received>>) -> Vec<Received> {
    let began = Instant::now();
    while outcome.lock().len() < settings.consumers && began.elapsed() < PATIENCE {
        thread::sleep(Duration::from_millis(1));
    }
    std::mem::take(&mut *outcome.lock())
}

fn judge(settings: &Settings, arrived: &Progress, produced: &[Produced], received: &[Received]) -> Verdict {
    let mut keys = vec![Vec::new(); settings.producers as usize];
    for (producer, sent) in produced.iter().flat_map(|produced| &produced.keys) {
        keys[*producer as usize].clone_from(sent);
    }
    let trackers: Vec<&Tracker> = received.iter().map(|received| &received.tracker).collect();
    let (lost, lost_of) = lost(arrived, &trackers, &keys);
    let mut violations = Violations::default();
    for tracker in &trackers {
        violations.add(tracker.violations.clone());
    }
    Verdict {
        sent: settings.messages,
        unique: trackers.iter().map(|tracker| tracker.unique).sum(),
        lost,
        lost_of,
        violations,
        ..Verdict::default()
    }
}

fn join(histograms: Vec<&Histogram<u64>>) -> Histogram<u64> {
    let mut all = Histogram::new(3).expect("three digits can be kept");
    for histogram in histograms {
        all.add(histogram).expect("it grows as it needs");
    }
    all
}

/// Processor time of the process so far.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}
