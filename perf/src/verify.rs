//! Whether every message arrived once, whole, and in order.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::payload::Fields;

/// How many violations are kept in full.
const SAMPLES: usize = 5;

/// What is wrong with a message that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// It arrived before.
    Duplicate,
    /// One that comes after it in its order arrived before it, or one of its key came to another consumer.
    Order,
    /// It is no message of this run, or not whole.
    Invalid,
}

/// One violation, for the report.
#[derive(Clone, Debug)]
pub struct Sample {
    /// What is wrong.
    pub violation: Violation,
    /// The message's entry number in the topic.
    pub entry: i64,
    /// What it carries, if that could be read.
    pub fields: Option<Fields>,
    /// Which consumer it came to.
    pub consumer: usize,
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: entry {} at consumer {}", self.violation, self.entry, self.consumer)?;
        match &self.fields {
            Some(fields) => write!(
                f,
                ", producer {} sequence {}, key {} sequence {}",
                fields.producer, fields.sequence, fields.key, fields.key_sequence
            ),
            None => f.write_str(", unreadable"),
        }
    }
}

/// Counts of violations, and the first few of them.
#[derive(Clone, Debug, Default)]
pub struct Violations {
    /// Messages that arrived again.
    pub duplicates: u64,
    /// Messages that arrived after one of their order that comes after them, or at another consumer than one of their key.
    ///
    /// One that never arrives puts none of those after it out of order: it is lost.
    pub disorders: u64,
    /// Messages that are none of this run's, or not whole.
    pub invalid: u64,
    /// The first few.
    pub samples: Vec<Sample>,
}

impl Violations {
    fn note(&mut self, sample: Sample) {
        match sample.violation {
            Violation::Duplicate => self.duplicates += 1,
            Violation::Order => self.disorders += 1,
            Violation::Invalid => self.invalid += 1,
        }
        if self.samples.len() < SAMPLES {
            self.samples.push(sample);
        }
    }

    /// Adds those of another consumer.
    pub fn add(&mut self, other: Self) {
        self.duplicates += other.duplicates;
        self.disorders += other.disorders;
        self.invalid += other.invalid;
        self.samples.extend(other.samples);
        self.samples.truncate(SAMPLES);
    }
}

/// How far each order of messages, of a key or a producer, has arrived: shared by all consumers, each of which has orders of its own.
///
/// A word an order: the consumer that it came to, counted from 1, above the number of the message that comes after the last one that arrived. A consumer
/// reads and writes the words of its own orders only; if one of them comes to another consumer, that is a violation.
#[derive(Clone, Debug)]
pub struct Progress(Arc<[AtomicU64]>);

impl Progress {
    /// Of so many orders nothing has arrived.
    pub fn new(orders: u32) -> Self {
        Self((0..orders).map(|_| AtomicU64::new(0)).collect())
    }
}

/// The orders of one consumer.
#[derive(Debug)]
struct Sequences {
    consumer: u64,
    progress: Progress,
    /// What was passed over, by order and first number, to the number after the last one; almost always none.
    gaps: BTreeMap<(u32, u32), u32>,
}

impl Sequences {
    fn new(consumer: usize, progress: Progress) -> Self {
        Self { consumer: consumer as u64 + 1, progress, gaps: BTreeMap::new() }
    }

    fn arrived(&mut self, of: u32, number: u64) -> Result<(), Violation> {
        // The last number has none after it.
        let number = u32::try_from(number).ok().filter(|number| *number < u32::MAX);
        let (Some(word), Some(number)) = (self.progress.0.get(of as usize), number) else {
            return Err(Violation::Invalid);
        };
        let found = word.load(Ordering::Relaxed);
        let (consumer, next) = (found >> 32, found & u64::from(u32::MAX));
        if consumer != self.consumer && consumer != 0 {
            return Err(Violation::Order);
        }
        if u64::from(number) >= next {
            word.store(self.consumer << 32 | (u64::from(number) + 1), Ordering::Relaxed);
        }
        if u64::from(number) == next {
            return Ok(());
        }
        self.out_of_order(of, number, u32::try_from(next).unwrap_or(u32::MAX))
    }

    #[cold]
    fn out_of_order(&mut self, of: u32, number: u32, next: u32) -> Result<(), Violation> {
        if number > next {
            // Those between are lost, unless they come: then they are late.
            self.gaps.insert((of, next), number);
            return Ok(());
        }
        let before = self.gaps.range((of, 0)..=(of, number)).next_back();
        let Some((first, end)) =
            before.map(|((_, first), end)| (*first, *end)).filter(|(_, end)| number < *end)
        else {
            return Err(Violation::Duplicate);
        };
        self.gaps.remove(&(of, first));
        for (first, end) in [(first, number), (number + 1, end)] {
            if first < end {
                self.gaps.insert((of, first), end);
            }
        }
        Err(Violation::Order)
    }

    /// How many of one order were passed over and did not come.
    fn missing(&self, of: u32) -> u64 {
        self.gaps.range((of, 0)..=(of, u32::MAX)).map(|((_, first), end)| u64::from(end - first)).sum()
    }
}

/// What is expected of one consumer, and what arrived.
#[derive(Debug)]
pub struct Tracker {
    consumer: usize,
    keys: Sequences,
    keys_per_producer: u32,
    /// By producer; only where one consumer gets everything.
    producers: Option<Sequences>,
    /// Messages that arrived, each counted once.
    pub unique: u64,
    /// What was wrong.
    pub violations: Violations,
}

impl Tracker {
    /// Nothing has arrived. `keys` is shared by all consumers; with `producers` each producer's messages are expected in order, too.
    pub fn new(consumer: usize, keys: Progress, keys_per_producer: u32, producers: Option<Progress>) -> Self {
        Self {
            consumer,
            keys: Sequences::new(consumer, keys),
            keys_per_producer,
            producers: producers.map(|producers| Sequences::new(consumer, producers)),
            unique: 0,
            violations: Violations::default(),
        }
    }

    /// A message arrived.
    pub fn arrived(&mut self, entry: i64, fields: Option<Fields>) {
        let result = match fields {
            Some(fields) if fields.key / self.keys_per_producer == fields.producer => self.check(&fields),
            _ => Err(Violation::Invalid),
        };
        match result {
            Ok(()) => self.unique += 1,
            Err(violation) => {
                self.unique += u64::from(violation == Violation::Order);
                self.violations.note(Sample { violation, entry, fields, consumer: self.consumer });
            }
        }
    }

    fn check(&mut self, fields: &Fields) -> Result<(), Violation> {
        let by_key = self.keys.arrived(fields.key, fields.key_sequence.into());
        match &mut self.producers {
            Some(producers) => by_key.and(producers.arrived(fields.producer, fields.sequence)),
            None => by_key,
        }
    }
}

/// What was lost: how many messages of which producers never arrived at any consumer.
pub fn lost(keys: &Progress, trackers: &[&Tracker], sent: &[Vec<u32>]) -> (u64, Vec<u32>) {
    let (mut lost, mut of) = (0, Vec::new());
    let mut key = 0;
    for (producer, of_producer) in (0..).zip(sent) {
        let mut missing = 0;
        for sent in of_producer {
            let passed_over: u64 = trackers.iter().map(|tracker| tracker.keys.missing(key)).sum();
            let next = keys.0[key as usize].load(Ordering::Relaxed) & u64::from(u32::MAX);
            missing += u64::from(*sent).saturating_sub(next) + passed_over;
            key += 1;
        }
        if missing > 0 {
            lost += missing;
            of.push(producer);
        }
    }
    (lost, of)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(key: u32, key_sequence: u32) -> Fields {
        Fields { key, producer: key / 2, sequence: 0, key_sequence, sent_nanos: 0 }
    }

    #[test]
    fn each_kind_of_violation_is_counted_as_what_it_is() {
        let keys = Progress::new(4);
        let mut tracker = Tracker::new(0, keys.clone(), 2, None);
        let mut arrive = |key, sequence| tracker.arrived(0, Some(fields(key, sequence)));
        arrive(0, 0);
        arrive(0, 1);
        arrive(3, 0);
        arrive(0, 1); // again
        arrive(0, 3); // 2 may be lost
        arrive(0, 3); // again
        arrive(0, 2); // late
        arrive(0, 4);
        arrive(4, 0); // no such key
        tracker.arrived(0, None);
        tracker.arrived(0, Some(Fields { producer: 1, ..fields(0, 5) })); // not its key
        let found = &tracker.violations;
        assert_eq!((found.duplicates, found.disorders, found.invalid), (2, 1, 3));
        assert_eq!(tracker.unique, 6);
        assert_eq!(lost(&keys, &[&tracker], &[vec![5, 0], vec![2, 1]]), (2, vec![1]));
    }

    #[test]
    fn what_never_arrives_is_lost_and_puts_nothing_after_it_out_of_order() {
        let (keys, producers) = (Progress::new(2), Progress::new(1));
        let mut tracker = Tracker::new(0, keys.clone(), 2, Some(producers));
        for sequence in (0..100).filter(|sequence| ![10, 11, 12, 50, 99].contains(sequence)) {
            tracker.arrived(0, Some(Fields { sequence: sequence.into(), ..fields(0, sequence) }));
        }
        assert!(tracker.violations.samples.is_empty(), "{:?}", tracker.violations);
        assert_eq!((tracker.unique, lost(&keys, &[&tracker], &[vec![100, 0]])), (95, (5, vec![0])));
        for (sequence, lost_then) in [(11, 4), (10, 3), (12, 2)] {
            tracker.arrived(0, Some(Fields { sequence: sequence.into(), ..fields(0, sequence) }));
            assert_eq!(lost(&keys, &[&tracker], &[vec![100, 0]]).0, lost_then);
        }
        tracker.arrived(0, Some(Fields { sequence: 12, ..fields(0, 12) }));
        let found = &tracker.violations;
        assert_eq!((found.duplicates, found.disorders, found.invalid, tracker.unique), (1, 3, 0, 98));
    }

    #[test]
    fn numbers_that_no_run_has_are_invalid() {
        let mut tracker = Tracker::new(0, Progress::new(2), 2, Some(Progress::new(1)));
        tracker.arrived(0, Some(fields(0, u32::MAX)));
        tracker.arrived(0, Some(Fields { sequence: u64::MAX, ..fields(0, 0) }));
        tracker.arrived(0, Some(fields(0, 0)));
        let found = &tracker.violations;
        assert_eq!((found.duplicates, found.disorders, found.invalid), (1, 0, 2), "{found:?}");
    }

    #[test]
    fn a_key_that_comes_to_a_second_consumer_is_out_of_order() {
        let keys = Progress::new(4);
        let mut trackers = [0, 1].map(|consumer| Tracker::new(consumer, keys.clone(), 2, None));
        trackers[0].arrived(0, Some(fields(0, 0)));
        trackers[1].arrived(1, Some(fields(0, 1)));
        trackers[1].arrived(2, Some(fields(1, 0)));
        assert_eq!(trackers.map(|tracker| tracker.violations.disorders), [0, 1]);
    }

    #[test]
    fn where_one_consumer_gets_all_the_order_of_producers_counts_too() {
        let mut tracker = Tracker::new(0, Progress::new(2), 2, Some(Progress::new(1)));
        tracker.arrived(0, Some(Fields { sequence: 1, ..fields(0, 0) }));
        tracker.arrived(1, Some(Fields { sequence: 0, ..fields(1, 0) }));
        assert_eq!(tracker.violations.disorders, 1);
    }
}
