//! Jobs in the order of the moments at which they are due.

use std::collections::{BTreeMap, HashMap};

use super::TimerId;
use crate::Job;
use crate::time::Instant;

/// The pending jobs of timers; a plain structure that its owner locks.
///
/// Both maps name the same timers: a job that was taken out or cancelled leaves nothing behind.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    /// By due moment, then in the order in which they were set.
    jobs: BTreeMap<(Instant, TimerId), Job>,
    /// When each pending timer is due.
    due: HashMap<TimerId, Instant>,
    last_id: u64,
}

impl Schedule {
    /// Adds a job that is due at this moment.
    pub(crate) fn insert(&mut self, due: Instant, job: Job) -> TimerId {
        self.last_id += 1;
        let timer = TimerId::from_raw(self.last_id);
        self.jobs.insert((due, timer), job);
        self.due.insert(timer, due);
        timer
    }

    /// Takes a job out before it is due.
    pub(crate) fn cancel(&mut self, timer: TimerId) -> Option<Job> {
        let due = self.due.remove(&timer)?;
        self.jobs.remove(&(due, timer))
    }

    /// The moment at which the next job is due.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.jobs.first_key_value().map(|(&(due, _), _)| due)
    }

    /// Takes the oldest of the jobs that are due now.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<Job> {
        let first = self.jobs.first_entry()?;
        let (due, timer) = *first.key();
        if due > now {
            return None;
        }
        let job = first.remove();
        self.due.remove(&timer);
        Some(job)
    }

    /// How many jobs are pending.
    pub(crate) fn len(&self) -> usize {
        self.jobs.len()
    }

    /// Takes all jobs out, in the order in which they are due.
    pub(crate) fn take_all(&mut self) -> Vec<Job> {
        self.due = HashMap::new();
        std::mem::take(&mut self.jobs).into_values().collect()
    }
}
