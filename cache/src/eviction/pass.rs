//! One pass of the evictor over the queue.

use std::collections::VecDeque;

use folio_sync::atomic::Ordering;
use folio_sync::time::Instant;
use folio_sync::{Arc, step};

use super::inbox::Key;
use super::{EvictError, Evicted, Shared};
use crate::core::Core;
use crate::entry::Entry;
use crate::index::{Counted, Linked};
use crate::page::{Fate, Values};
use crate::size::PAGE_SLOTS;

/// A key that the evictor has taken over.
#[derive(Clone, Copy, Debug)]
struct Queued {
    key: Key,
    /// The first slot that the next walk by weight looks at: not the first one if a pass was done in the middle of the page.
    from: u32,
    /// One past the last slot that it looks at: where it began, if the page is walked in two parts.
    until: u32,
}

impl Queued {
    /// The whole page.
    fn whole(key: Key) -> Self {
        Self { key, from: 0, until: PAGE_SLOTS }
    }
}

/// The keys that the evictor has taken over, in the order in which their pages are walked.
#[derive(Debug, Default)]
pub(super) struct Fifo(VecDeque<Queued>);

/// What a pass is for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Goal {
    /// Remove what is older than this.
    Before(Instant),
    /// Remove until this much weight was.
    Weight(u64),
}

/// What a walk over a page decided.
enum Verdict {
    /// Nothing in it is due, nor in what is queued behind it.
    NotYet,
    /// These slots are to be removed. The next walk begins at `resume`, before all other pages, or behind them.
    Walked { remove: u64, requeued: bool, resume: Option<u32> },
}

impl<V> Shared<V> {
    /// Runs a pass.
    pub(super) fn pass(&self, goal: Goal, now: Instant) -> Result<Evicted, EvictError> {
        let mut fifo = self.fifo.try_lock().ok_or(EvictError::Busy)?;
        self.adopt(&mut fifo);
        self.sweep(&mut fifo);
        let mut evicted = Evicted::default();
        for _round in 0..=self.budget.max_requeues() {
            let mut idle = true;
            let mut keys = fifo.0.len();
            while keys > 0 {
                keys -= 1;
                if matches!(goal, Goal::Weight(weight) if evicted.weight >= weight) {
                    return Ok(evicted);
                }
                let Some(queued) = fifo.0.pop_front() else { break };
                let Some(core) = self.core(queued.key.cache) else {
                    self.forget();
                    continue;
                };
                let Some(page) = find(&core, queued.key) else {
                    self.forget();
                    continue;
                };
                // What the evictor's own visit leaves behind, and what it removes: dropped when the queue is free for others.
                let mut left = Values::new();
                let mut out = Values::new();
                let verdict = self.judge(&core, &page, queued, goal, evicted.weight, now, &mut left);
                let Verdict::Walked { remove, requeued, resume } = verdict else {
                    fifo.0.push_front(queued);
                    drop(fifo);
                    return Ok(evicted);
                };
                let removed = core.remove(&page, remove, &mut out);
                evicted.entries += removed.entries;
                evicted.weight = evicted.weight.saturating_add(removed.weight);
                idle &= removed.entries == 0 && !requeued;
                if self.queue_again(&mut fifo, &core, &page, queued, goal, resume) {
                    keys += 1;
                }
                if left.mask() | out.mask() != 0 {
                    // No destructor runs while this is the evictor: it may evict, and may never return.
                    drop(fifo);
                    left.clear();
                    out.clear();
                    let Some(again) = self.fifo.try_lock() else { return Ok(evicted) };
                    fifo = again;
                }
            }
            if idle {
                break;
            }
        }
        Ok(evicted)
    }

    /// Decides what becomes of a page's entries, and has those that stay for another round remember it.
    #[expect(clippy::too_many_arguments, reason = "all of it decides")]
    fn judge(
        &self,
        core: &Core<V>,
        page: &Linked<Entry<V>>,
        Queued { from, until, .. }: Queued,
        goal: Goal,
        evicted: u64,
        now: Instant,
        left: &mut Values<Entry<V>>,
    ) -> Verdict {
        let (max_requeues, extend) = (self.budget.max_requeues(), self.budget.extends_accessed());
        let (mut seen, mut due, mut remove) = (0_u64, 0_u64, 0_u64);
        let (mut freed, mut kept) = (evicted, 0_u64);
        let mut resume = None;
        let decide = |slot: u32, entry: &Entry<V>| {
            seen |= 1 << slot;
            let is_due = match goal {
                Goal::Before(before) => entry.time() < before,
                Goal::Weight(_) if !(from..until).contains(&slot) => false,
                Goal::Weight(weight) if freed >= weight => {
                    resume = resume.or(Some(slot));
                    false
                }
                Goal::Weight(_) => true,
            };
            if !is_due {
                return;
            }
            due |= 1 << slot;
            if entry.requeue(max_requeues, extend, now) {
                kept = kept.saturating_add(entry.weight);
            } else {
                remove |= 1 << slot;
                freed = freed.saturating_add(entry.weight);
            }
        };
        step!("eviction.judge", core.read_and_keep(page, decide, left));
        self.budget.retain(kept);
        if matches!(goal, Goal::Before(_)) && seen != 0 && due == 0 {
            return Verdict::NotYet;
        }
        Verdict::Walked { remove, requeued: due != remove, resume }
    }

    /// Queues a page's key again, unless the page is sealed; whether what is left of it belongs to this round.
    fn queue_again(
        &self,
        fifo: &mut Fifo,
        core: &Core<V>,
        page: &Linked<Entry<V>>,
        Queued { key, from, until }: Queued,
        goal: Goal,
        resume: Option<u32>,
    ) -> bool {
        if page.page.is_sealed() {
            // Whoever meets a sealed page takes it out.
            core.settle(page, Fate::Sealed);
            self.forget();
            return false;
        }
        // A walk that began in the middle of its page has the first part to come, where others may have inserted meanwhile.
        let first_part = matches!(goal, Goal::Weight(_)) && from > 0;
        match resume {
            Some(from) => fifo.0.push_front(Queued { key, from, until }),
            None if first_part => fifo.0.push_back(Queued { key, from: 0, until: from }),
            None => fifo.0.push_back(Queued::whole(key)),
        }
        // Others took what this walk had decided on, if the pass is not done now: then the rest is still to be walked.
        first_part || resume.is_some()
    }

    /// Takes over the keys that were left since the last pass: the first one of each page that is still there.
    fn adopt(&self, fifo: &mut Fifo) {
        let before = fifo.0.len();
        self.inbox.take_all(|key| {
            let is_new =
                self.core(key.cache).is_some_and(|core| find(&core, key).is_some_and(|page| adopt(&page)));
            if is_new {
                fifo.0.push_back(Queued::whole(key));
            } else {
                self.forget();
            }
        });
        // They came the last one first.
        let added = fifo.0.len() - before;
        for at in 0..added / 2 {
            fifo.0.swap(before + at, before + added - 1 - at);
        }
    }

    /// Drops the keys of pages that are gone, when they outnumber the others.
    fn sweep(&self, fifo: &mut Fifo) {
        let live = usize::try_from(self.budget.pages()).unwrap_or(usize::MAX);
        if fifo.0.len() <= live.saturating_mul(2) {
            return;
        }
        fifo.0.retain(|queued| {
            let is_live = self.core(queued.key.cache).is_some_and(|core| find(&core, queued.key).is_some());
            if !is_live {
                self.forget();
            }
            is_live
        });
        if fifo.0.capacity() / 4 > fifo.0.len() {
            fifo.0.shrink_to_fit();
        }
    }
}

/// The page that a key names, unless it is sealed or another one stands there.
fn find<V>(core: &Arc<Core<V>>, key: Key) -> Option<Counted<'_, Entry<V>>> {
    let page = core.index.find(key.page).filter(|page| page.birth == key.birth)?;
    if page.page.is_sealed() {
        // Whoever meets a sealed page takes it out.
        core.settle(&page, Fate::Sealed);
        return None;
    }
    Some(page)
}

/// Whether this is the first key of the page: another one is dropped.
fn adopt<V>(page: &Linked<Entry<V>>) -> bool {
    // Relaxed, both: written by the evictor alone, under its lock.
    let first = !page.adopted.load(Ordering::Relaxed);
    page.adopted.store(true, Ordering::Relaxed);
    first
}
