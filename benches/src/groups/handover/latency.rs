//! One task submitted to an idle executor, until it runs.
//!
//! The driver sleeps a moment, so that the consumer has given up spinning and is parked, then takes the time, submits and spins until
//! the task has run. The task takes the time again: what lies between is the latency of a wake-up, with the way there.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::{CROSSBEAM, CROSSFIRE, KANAL, OURS, STD_MPSC, ours};
use crate::runner::{Against, Block, Case, Effort, Metric, Row, Sample, Target, to_f64};

const BLOCK: &str = "one task to an idle executor";

/// Longer than any of the executors spins before it parks.
const IDLE: Duration = Duration::from_millis(1);

/// Where a task says how long it took to reach the consumer.
#[derive(Clone, Debug, Default)]
pub(super) struct Arrival(Arc<AtomicU64>);

impl Arrival {
    /// The task, run by the consumer.
    pub(super) fn arrived(&self, submitted: Instant) {
        let nanoseconds = u64::try_from(submitted.elapsed().as_nanos()).unwrap_or(u64::MAX).max(1);
        // Release: the driver goes on; pairs with its Acquire.
        self.0.store(nanoseconds, Ordering::Release);
    }

    /// Waits for the task.
    fn wait(&self) -> u64 {
        let mut tries = 0_u32;
        loop {
            // Acquire: pairs with the task's Release.
            let nanoseconds = self.0.load(Ordering::Acquire);
            if nanoseconds != 0 {
                // Relaxed: the next task is submitted after this, and the submission publishes it.
                self.0.store(0, Ordering::Relaxed);
                return nanoseconds;
            }
            tries = tries.wrapping_add(1);
            if tries.is_multiple_of(1024) { thread::yield_now() } else { spin_loop() }
        }
    }
}

/// Submits one task after the other to an executor that has become idle.
pub(super) fn measure(effort: Effort, arrival: &Arrival, mut submit: impl FnMut(Instant)) -> Sample {
    let mut histogram = Histogram::<u64>::new_with_bounds(1, 60_000_000_000, 3)
        .expect("these bounds and three digits are valid");
    for _ in 0..effort.pick(300, 5) {
        thread::sleep(IDLE);
        submit(Instant::now());
        histogram.saturating_record(arrival.wait());
    }
    let at = |quantile| to_f64(histogram.value_at_quantile(quantile));
    Sample::new().with(Metric::P50, at(0.5)).with(Metric::P99, at(0.99))
}

/// Drains a channel of submission times until it is closed.
macro_rules! channel {
    ($name:expr, $open:expr) => {
        Case::new($name, |effort| {
            let (sender, receiver) = $open;
            let arrival = Arrival::default();
            let tell = arrival.clone();
            let consumer = thread::spawn(move || {
                while let Ok(submitted) = receiver.recv() {
                    tell.arrived(submitted);
                }
            });
            let sample = measure(effort, &arrival, |now| sender.send(now).expect("the consumer listens"));
            drop(sender);
            consumer.join().expect("the consumer does not panic");
            sample
        })
    };
}

/// The latency rows.
pub(super) fn block() -> Block {
    Block::new(
        BLOCK,
        vec![
            Case::new(OURS, ours::latency),
            channel!(CROSSFIRE, crossfire::mpsc::unbounded_blocking::<Instant>()),
            channel!(CROSSBEAM, crossbeam_channel::unbounded::<Instant>()),
            channel!(KANAL, kanal::unbounded::<Instant>()),
            channel!(STD_MPSC, mpsc::channel::<Instant>()),
        ],
    )
}

/// What is asked of them.
pub(super) fn targets() -> Vec<Target> {
    [(Metric::P50, "p50"), (Metric::P99, "p99")]
        .map(|(metric, label)| {
            Target::lower(
                format!("{BLOCK}, {label}, of {CROSSFIRE}"),
                Row::case(BLOCK, OURS),
                Against::Row(Row::case(BLOCK, CROSSFIRE)),
                metric,
                1.5,
                1.0,
            )
        })
        .into()
}
