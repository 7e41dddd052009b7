//! One thread writes a log that many threads feed, with a hand-over a message and with a hand-over a batch.
//!
//! Run with `cargo run --release -p folio-executor --example log_writer`. It takes a few seconds, writes to a temporary file, reads it
//! back, and fails if a line is missing, is there twice, or has changed places with another of the same producer.
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "an example uses the standard library's own types"
)]

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use folio_executor::{BatchingExecutor, OrderedExecutor};
use folio_sync::RejectReason;

const PRODUCERS: usize = 8;
const MESSAGES_EACH: usize = 50_000;
const TEXT: &str = "a line of a log, about as long as such lines are";

/// What a producer hands to the writer.
struct Message {
    producer: usize,
    number: usize,
}

/// How a run hands messages over.
struct Setting {
    name: &'static str,
    max_items: usize,
    /// Beyond this a producer is told that the queue is full, lets others run and tries again.
    max_queued: Option<usize>,
}

const SETTINGS: [Setting; 3] = [
    Setting { name: "one by one", max_items: 1, max_queued: None },
    Setting { name: "in batches", max_items: 1024, max_queued: None },
    Setting { name: "in batches, 4,096 queued at most", max_items: 1024, max_queued: Some(4096) },
];

/// What a run has to tell.
struct Outcome {
    elapsed: Duration,
    cpu: Option<Duration>,
    batches: u64,
    full: usize,
}

/// The log, and the first error in writing it.
struct LogFile {
    lines: BufWriter<File>,
    failed: io::Result<()>,
}

impl LogFile {
    fn write(&mut self, message: &Message) {
        if self.failed.is_ok() {
            self.failed = writeln!(self.lines, "{} {} {TEXT}", message.producer, message.number);
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        std::mem::replace(&mut self.failed, Ok(()))?;
        self.lines.flush()
    }
}

/// The time that this process's threads have run so far, where the system tells it.
fn cpu_time() -> Option<Duration> {
    // The fields after the program's name, which ends with the last parenthesis: the 12th and 13th are user and system time.
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let ticks = fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?;
    Some(Duration::from_millis(ticks * 10))
}

/// Submits a producer's messages; how many times the queue was full.
fn produce(log: &BatchingExecutor<Message>, producer: usize) -> Result<usize, String> {
    let mut full = 0;
    for number in 0..MESSAGES_EACH {
        let mut message = Message { producer, number };
        while let Err(rejected) = log.submit(message) {
            if rejected.reason != RejectReason::Full {
                return Err(format!("a message was refused: {}", rejected.reason));
            }
            full += 1;
            message = rejected.into_inner();
            thread::yield_now();
        }
    }
    Ok(full)
}

/// Writes a log to this path.
fn run(setting: &Setting, path: &Path) -> Result<Outcome, String> {
    let told = |error: io::Error| error.to_string();
    let file = File::create(path).map_err(told)?;
    let file = Arc::new(Mutex::new(LogFile { lines: BufWriter::new(file), failed: Ok(()) }));
    let threads = OrderedExecutor::builder().name("log-writer").threads(1).build().map_err(told)?;
    let writer = threads.workers()[0].clone();

    let written = Arc::clone(&file);
    let mut builder = BatchingExecutor::builder(move |message: Message| {
        written.lock().expect("nothing panics under it").write(&message);
    })
    .max_items(setting.max_items);
    if let Some(most) = setting.max_queued {
        builder = builder.max_queued(most);
    }
    let log = builder.build(writer.clone()).map_err(|error| error.to_string())?;

    let (began, cpu_before) = (Instant::now(), cpu_time());
    let full = thread::scope(|scope| {
        let producers: Vec<_> = (0..PRODUCERS)
            .map(|producer| {
                scope.spawn({
                    let log = &log;
                    move || produce(log, producer)
                })
            })
            .collect();
        let mut full = 0;
        for producer in producers {
            full += producer.join().map_err(|_| "a producer panicked".to_owned())??;
        }
        Ok::<_, String>(full)
    })?;
    log.flush().wait().map_err(|error| error.to_string())?;
    let (elapsed, cpu_after) = (began.elapsed(), cpu_time());

    drop(log);
    let unrun = threads.join().map_err(|error| error.to_string())?;
    if !unrun.is_empty() {
        return Err(format!("{} batches were left unrun", unrun.len()));
    }
    file.lock().expect("nothing panics under it").finish().map_err(told)?;
    let cpu = cpu_after.zip(cpu_before).map(|(after, before)| after.saturating_sub(before));
    Ok(Outcome { elapsed, cpu, batches: writer.jobs(), full })
}

/// Checks that a log has each message once, and those of one producer in order.
fn check(log: &str, producers: usize, each: usize) -> Result<(), String> {
    let mut next = vec![0; producers];
    for (place, line) in (1..).zip(log.lines()) {
        let mut words = line.splitn(3, ' ');
        let mut number = || words.next().and_then(|word| word.parse::<usize>().ok());
        let (Some(producer), Some(number), Some(TEXT)) = (number(), number(), words.next()) else {
            return Err(format!("line {place} is no message: {line:?}"));
        };
        let Some(expected) = next.get_mut(producer) else {
            return Err(format!("line {place} is of producer {producer}, whom nobody knows"));
        };
        if number != *expected {
            return Err(format!(
                "line {place} is message {number} of producer {producer} instead of {expected}"
            ));
        }
        *expected += 1;
    }
    match next.iter().position(|written| *written != each) {
        Some(producer) => {
            Err(format!("producer {producer} has {} messages in the log instead of {each}", next[producer]))
        }
        None => Ok(()),
    }
}

/// Checks that the check sees what it is for.
fn check_the_check() -> Result<(), String> {
    let line = |producer: usize, number: usize| format!("{producer} {number} {TEXT}\n");
    let good = [line(0, 0), line(1, 0), line(0, 1), line(1, 1)].concat();
    let lost = [line(0, 0), line(1, 0), line(0, 1)].concat();
    let twice = [line(0, 0), line(0, 0), line(1, 0), line(0, 1), line(1, 1)].concat();
    let swapped = [line(0, 1), line(1, 0), line(0, 0), line(1, 1)].concat();
    let seen = [good, lost, twice, swapped].map(|log| check(&log, 2, 2).is_ok());
    if seen == [true, false, false, false] {
        Ok(())
    } else {
        Err(format!("the check itself is wrong: {seen:?}"))
    }
}

fn per_message(time: Option<Duration>) -> String {
    let messages = (PRODUCERS * MESSAGES_EACH) as u128;
    time.map_or_else(|| "-".into(), |time| format!("{} ns", time.as_nanos() / messages))
}

fn ratio(messages: u64, batches: u64) -> f64 {
    let small = |number: u64| f64::from(u32::try_from(number).unwrap_or(u32::MAX));
    small(messages) / small(batches.max(1))
}

fn compare() -> Result<(), String> {
    check_the_check()?;
    println!("{PRODUCERS} threads write {MESSAGES_EACH} messages each through one writer thread.\n");
    println!(
        "{:<33} {:>9} {:>9} {:>11} {:>22} {:>15} {:>15}",
        "", "messages", "time", "hand-overs", "messages per hand-over", "CPU per message", "refused as full"
    );
    let mut times = Vec::new();
    let path = std::env::temp_dir().join(format!("folio-log-writer-{}.log", std::process::id()));
    for setting in &SETTINGS {
        let outcome = run(setting, &path);
        let log = fs::read_to_string(&path).map_err(|error| format!("the log cannot be read back: {error}"));
        let removed = fs::remove_file(&path).map_err(|error| format!("the log cannot be removed: {error}"));
        let outcome = outcome?;
        check(&log?, PRODUCERS, MESSAGES_EACH)?;
        removed?;
        let messages = (PRODUCERS * MESSAGES_EACH) as u64;
        if setting.max_items == 1 && outcome.batches < messages {
            return Err(format!(
                "{} hand-overs cannot have carried {messages} single messages",
                outcome.batches
            ));
        }
        println!(
            "{:<33} {:>9} {:>6} ms {:>11} {:>22.1} {:>15} {:>15}",
            setting.name,
            messages,
            outcome.elapsed.as_millis(),
            outcome.batches,
            ratio(messages, outcome.batches),
            per_message(outcome.cpu),
            outcome.full,
        );
        times.push(outcome.elapsed);
    }
    if let [one_by_one, in_batches, ..] = times[..] {
        let times = one_by_one.as_secs_f64() / in_batches.as_secs_f64();
        println!("\nIn batches: {times:.1} times as fast as one by one.");
    }
    println!("Each log had every message once, and those of each producer in order.");
    Ok(())
}

fn main() -> ExitCode {
    match compare() {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            eprintln!("log_writer: something is wrong: {what}.");
            ExitCode::FAILURE
        }
    }
}
