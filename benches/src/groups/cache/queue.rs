//! The removal queue of the peers: entries in the order in which they were inserted.
//!
//! An entry that is removed stays in the queue until it comes to the head, where the next eviction drops it, whatever has expired. Of
//! the ways tried, a queue behind a lock was dearer than `SegQueue`; the one consumer, who has to look at the head before taking it,
//! keeps the head outside.

use std::sync::{Arc, Mutex, PoisonError};

use crossbeam_queue::SegQueue;

use super::entry::Entry;
use super::tested::Options;

/// An entry that waits to be evicted.
#[derive(Debug)]
struct Waiting {
    entry: Arc<Entry>,
    time: u64,
    requeues: u32,
}

/// What an eviction takes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Evict {
    /// What is older than this.
    Before(u64),
    /// At least so much.
    Weight(u64),
}

/// Entries that wait to be evicted.
#[derive(Debug)]
pub(super) struct RemovalQueue {
    waiting: SegQueue<Waiting>,
    /// Evictions take turns; the head is peeked at by taking it out and leaving it here.
    head: Mutex<Option<Waiting>>,
    options: Options,
}

impl RemovalQueue {
    pub(super) fn new(options: Options) -> Self {
        Self { waiting: SegQueue::new(), head: Mutex::new(None), options }
    }

    pub(super) fn options(&self) -> Options {
        self.options
    }

    #[inline]
    pub(super) fn push(&self, entry: Arc<Entry>, time: u64) {
        self.waiting.push(Waiting { entry, time, requeues: 0 });
    }

    pub(super) fn is_empty(&self) -> bool {
        let head = self.head.lock().unwrap_or_else(PoisonError::into_inner);
        head.is_none() && self.waiting.is_empty()
    }

    /// Evicts, calling `remove` for each entry that has to leave its map; how many did.
    pub(super) fn evict(&self, evict: Evict, now: u64, mut remove: impl FnMut(&Entry)) -> u64 {
        let mut kept = self.head.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut entries, mut weight) = (0, 0);
        while let Some(mut head) = kept.take().or_else(|| self.waiting.pop()) {
            if head.entry.is_removed() {
                continue;
            }
            let goes_on = match evict {
                Evict::Before(time) => head.time < time,
                Evict::Weight(wanted) => weight < wanted,
            };
            if !goes_on {
                *kept = Some(head);
                break;
            }
            let recent = self.options.extend_recently_accessed && head.entry.take_accessed();
            if recent || (head.requeues < self.options.max_requeues && head.entry.is_expected()) {
                head.time = now;
                head.requeues += 1;
                self.waiting.push(head);
            } else {
                entries += 1;
                weight += head.entry.weight();
                remove(&head.entry);
            }
        }
        entries
    }
}

#[cfg(test)]
mod tests {
    use super::super::entry::one_byte;
    use super::*;

    fn entry(id: i64) -> Arc<Entry> {
        Arc::new(Entry::new((0, id), one_byte()))
    }

    fn evicted(queue: &RemovalQueue, evict: Evict) -> Vec<i64> {
        let mut gone = Vec::new();
        queue.evict(evict, 100, |entry| gone.push(entry.position().1));
        gone
    }

    #[test]
    fn removed_heads_are_dropped_and_the_first_other_entry_stays() {
        let queue = RemovalQueue::new(Options::default());
        let entries: Vec<_> = (0..3).map(entry).collect();
        for entry in &entries {
            queue.push(Arc::clone(entry), 1);
        }
        entries[0].set_removed();
        entries[2].set_removed();
        assert!(evicted(&queue, Evict::Before(0)).is_empty());
        assert_eq!(entries.iter().map(Arc::strong_count).collect::<Vec<_>>(), [1, 2, 2]);
        assert_eq!(evicted(&queue, Evict::Before(2)), [1]);
        assert!(queue.is_empty());
    }

    #[test]
    fn an_expected_entry_goes_round_once_and_leaves_last() {
        let queue = RemovalQueue::new(Options { max_requeues: 1, extend_recently_accessed: false });
        let entries: Vec<_> = (0..3).map(entry).collect();
        entries[0].renew(1);
        for entry in &entries {
            queue.push(Arc::clone(entry), 1);
        }
        assert_eq!(evicted(&queue, Evict::Weight(1)), [1]);
        assert_eq!(evicted(&queue, Evict::Weight(2)), [2, 0]);
        assert!(queue.is_empty());
    }
}
