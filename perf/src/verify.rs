//! Whether every message arrived once, whole, and in order.

use std::collections::{BTreeMap, BTreeSet};
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
    /// One before it, of its key, has not arrived, or came to another consumer.
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
    /// Messages that arrived before one of their order that came before them.
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
/// A word an order: the consumer that it came to, counted from 1, above the number of messages that arrived without a gap. A consumer reads and writes
/// the words of its own orders only; if one of them comes to another consumer, that is a violation.
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
    /// Messages after a gap; almost always none.
    ahead: BTreeMap<u32, BTreeSet<u32>>,
}

impl Sequences {
    fn new(consumer: usize, progress: Progress) -> Self {
        Self { consumer: consumer as u64 + 1, progress, ahead: BTreeMap::new() }
    }

    fn arrived(&mut self, of: u32, number: u64) -> Result<(), Violation> {
        let (Some(word), Ok(number)) = (self.progress.0.get(of as usize), u32::try_from(number)) else {
            return Err(Violation::Invalid);
        };
        let found = word.load(Ordering::Relaxed);
        let (consumer, next) = (found >> 32, found & u64::from(u32::MAX));
        if consumer != self.consumer && consumer != 0 {
            return Err(Violation::Order);
        }
        if u64::from(number) == next && self.ahead.is_empty() {
            word.store(self.consumer << 32 | (next + 1), Ordering::Relaxed);
            return Ok(());
        }
        let (result, next) = self.out_of_order(of, number, u32::try_from(next).unwrap_or(u32::MAX));
        self.progress.0[of as usize].store(self.consumer << 32 | u64::from(next), Ordering::Relaxed);
        result
    }

    #[cold]
    fn out_of_order(&mut self, of: u32, number: u32, mut next: u32) -> (Result<(), Violation>, u32) {
        let ahead = self.ahead.entry(of).or_default();
        let is_again = number < next || !ahead.insert(number);
        let in_order = number == next;
        while ahead.remove(&next) {
            next += 1;
        }
        if ahead.is_empty() {
            self.ahead.remove(&of);
        }
        let result = match (is_again, in_order) {
            (true, _) => Err(Violation::Duplicate),
            (false, true) => Ok(()),
            (false, false) => Err(Violation::Order),
        };
        (result, next)
    }

    /// How many of one order arrived after a gap.
    fn ahead(&self, of: u32) -> u64 {
        self.ahead.get(&of).map_or(0, BTreeSet::len) as u64
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
            let ahead: u64 = trackers.iter().map(|tracker| tracker.keys.ahead(key)).sum();
            let arrived = (keys.0[key as usize].load(Ordering::Relaxed) & u64::from(u32::MAX)) + ahead;
            missing += u64::from(*sent).saturating_sub(arrived);
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
        arrive(0, 3); // before 2
        arrive(0, 3); // again
        arrive(0, 2);
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
