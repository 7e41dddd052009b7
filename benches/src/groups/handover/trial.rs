//! One trial: producers, windows, the consumer's handler, and the marks.

use std::fmt;
use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::thread;

use crossbeam_utils::CachePadded;

use crate::runner::{Mark, Metric, Sample, sample_between, to_f64};

/// An empty task of 24 bytes.
#[derive(Clone, Copy, Debug)]
pub struct Task {
    producer: u64,
    sequence: u64,
    value: u64,
}

/// Whether producers wait for the consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Regime {
    /// They never do.
    Unbounded,
    /// All together have at most 512 unhandled tasks.
    Outstanding512,
}

/// How many producers, and whether they wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Producer threads; a divisor of 512.
    pub producers: u64,
    /// Whether they wait.
    pub regime: Regime,
}

impl Setting {
    /// The eight settings over which the means are taken.
    pub const ALL: [Self; 8] = [
        Self { producers: 1, regime: Regime::Unbounded },
        Self { producers: 2, regime: Regime::Unbounded },
        Self { producers: 8, regime: Regime::Unbounded },
        Self { producers: 64, regime: Regime::Unbounded },
        Self { producers: 1, regime: Regime::Outstanding512 },
        Self { producers: 2, regime: Regime::Outstanding512 },
        Self { producers: 8, regime: Regime::Outstanding512 },
        Self { producers: 64, regime: Regime::Outstanding512 },
    ];

    /// What the table calls it.
    pub fn name(self) -> String {
        let regime = match self.regime {
            Regime::Unbounded => "unbounded",
            Regime::Outstanding512 => "512 outstanding",
        };
        let plural = if self.producers == 1 { "" } else { "s" };
        format!("{} producer{plural}, {regime}", self.producers)
    }

    /// Tasks of a full trial.
    pub fn tasks(self) -> u64 {
        400_000
    }

    /// Unhandled tasks that each producer may have.
    fn window(self) -> Option<u64> {
        match self.regime {
            Regime::Unbounded => None,
            Regime::Outstanding512 => Some(512 / self.producers),
        }
    }
}

/// How many tasks of each producer were handled; a word each, written by the consumer alone.
type Handled = Arc<[CachePadded<AtomicU64>]>;

/// The consumer's side of a trial: the handler of all tasks.
#[derive(Debug)]
pub struct Sink {
    left: u64,
    sum: u64,
    handled: Option<Handled>,
    finish: mpsc::Sender<(Mark, u64)>,
}

impl Sink {
    /// Handles one task.
    #[inline]
    pub fn handle(&mut self, task: Task) {
        self.sum = self.sum.wrapping_add(black_box(task.value));
        if let Some(handled) = &self.handled
            && let Some(word) = usize::try_from(task.producer).ok().and_then(|producer| handled.get(producer))
        {
            // Release: the producer may go on; pairs with its Acquire.
            word.store(task.sequence + 1, Ordering::Release);
        }
        self.left -= 1;
        if self.left == 0 {
            // The trial is over at this mark; telling it is not measured. The driver is there until it hears this.
            let _ = self.finish.send((Mark::now(), self.sum));
        }
    }

    /// Whether the last task has been handled.
    #[inline]
    pub fn is_finished(&self) -> bool {
        self.left == 0
    }
}

/// A hand-over that is ready for its producers.
pub struct Open<S> {
    /// The sending ends, one a producer.
    pub senders: Vec<S>,
    /// Ends the consumer after the last task; how many batches it had, where that is counted.
    pub close: Box<dyn FnOnce() -> Option<u64>>,
}

impl<S> fmt::Debug for Open<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Open").field("senders", &self.senders.len()).finish_non_exhaustive()
    }
}

/// One way to hand tasks to a consumer.
pub trait Peer {
    /// What a producer sends by.
    type Sender: Send + 'static;

    /// Starts the consumer, which calls `sink` for each task.
    fn open(sink: Sink, producers: u64) -> Open<Self::Sender>;

    /// Hands a task over.
    fn send(sender: &mut Self::Sender, task: Task);
}

/// Hands about this many tasks over and measures until the last one has been handled.
///
/// # Panics
/// When a task was lost or handled twice.
pub fn trial<P: Peer>(setting: Setting, tasks: u64) -> Sample {
    let each = tasks.div_ceil(setting.producers);
    let total = each * setting.producers;
    let window = setting.window();
    let handled: Option<Handled> =
        window.map(|_| (0..setting.producers).map(|_| CachePadded::new(AtomicU64::new(0))).collect());
    let (finish, finished) = mpsc::channel();
    let sink = Sink { left: total, sum: 0, handled: handled.clone(), finish };
    let open = P::open(sink, setting.producers);
    let start_line = Arc::new(Barrier::new(open.senders.len() + 1));

    let producers: Vec<_> = (0..setting.producers)
        .zip(open.senders)
        .map(|(producer, mut sender)| {
            let start_line = Arc::clone(&start_line);
            let window = window.zip(handled.clone());
            thread::spawn(move || {
                start_line.wait();
                match window {
                    None => produce(each, |sequence| P::send(&mut sender, task(producer, sequence))),
                    Some((window, handled)) => {
                        let mut credit = Credit::new(window, &handled, producer);
                        produce(each, |sequence| {
                            credit.wait(sequence);
                            P::send(&mut sender, task(producer, sequence));
                        });
                    }
                }
            })
        })
        .collect();

    let start = Mark::now();
    start_line.wait();
    let (end, sum) = finished.recv().expect("the consumer ends after the last task");
    for producer in producers {
        producer.join().expect("a producer does not panic");
    }
    let batches = (open.close)();

    let expected = setting.producers.wrapping_mul(each * (each - 1) / 2);
    assert_eq!(sum, expected, "each task is handled exactly once");
    let sample = sample_between(start, end, total);
    match batches {
        Some(batches) => sample.with(Metric::Batches, 1_000.0 * to_f64(batches) / to_f64(total)),
        None => sample,
    }
}

fn task(producer: u64, sequence: u64) -> Task {
    Task { producer, sequence, value: sequence }
}

#[inline]
fn produce(count: u64, mut send: impl FnMut(u64)) {
    for sequence in 0..count {
        send(sequence);
    }
}

/// A producer's view of how far it may go.
struct Credit<'a> {
    limit: u64,
    window: u64,
    handled: &'a AtomicU64,
}

impl<'a> Credit<'a> {
    fn new(window: u64, handled: &'a Handled, producer: u64) -> Self {
        let place = usize::try_from(producer).expect("a producer's number is small");
        Self { limit: window, window, handled: &handled[place] }
    }

    /// Waits until task `sequence` is inside the window; looks at the shared word only at the window's end.
    #[inline]
    fn wait(&mut self, sequence: u64) {
        const SPINS: u32 = 64;
        let mut tries = 0;
        while sequence >= self.limit {
            // Acquire: pairs with the consumer's Release.
            self.limit = self.handled.load(Ordering::Acquire) + self.window;
            if sequence < self.limit {
                break;
            }
            if tries < SPINS {
                tries += 1;
                spin_loop();
            } else {
                thread::yield_now();
            }
        }
    }
}
