//! One read, from its permit to its completion.

use folio_sync::{Arc, Executor, Job, Mutex, step, unwind};

use super::PermitsFor;
use super::ask::{TRIES, ask};
use super::counts::add;
use super::entry::ReadEntry;
use super::error::ReadError;
use super::fill::Fill;
use super::gaps::{Gap, gaps, merge};
use super::payload::Payload;
use crate::pending::{
    Parts, PendingReads, ReadStorage, StorageFailure, contained, drop_all, gather, panicked,
};
use crate::permits::{Acquired, Permit, PermitError, ReadPermits};
use crate::range::Position;

/// What the handles of a cache and its reads share.
pub(super) struct Core<V> {
    pub(super) fill: Arc<Fill<V>>,
    pub(super) pending: PendingReads<V>,
    /// Reads of the whole, whatever is cached of it.
    pub(super) fallbacks: PendingReads<V>,
    pub(super) storage: Arc<dyn ReadStorage<V>>,
    pub(super) permits: Option<ReadPermits>,
    pub(super) permits_for: PermitsFor,
    /// Where reads go on that had to wait for a permit.
    pub(super) executor: Option<Arc<dyn Executor>>,
}

/// What is read: at least one entry, and none beyond the largest position.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    pub(super) ledger: i64,
    pub(super) first: i64,
    pub(super) count: u32,
    /// Whether it is one entry that is to be read by itself, and not cached.
    pub(super) single: bool,
}

impl Extent {
    fn position(&self) -> Position {
        (self.ledger, self.first)
    }

    fn last(&self) -> i64 {
        self.first.saturating_add(i64::from(self.count) - 1)
    }
}

/// Hears what became of a read.
pub(super) type Done<V> = Box<dyn FnOnce(Result<Vec<ReadEntry<V>>, ReadError>) + Send>;

/// A read that could not be completed at once. However it goes, `done` is told once; the permit is given back first if there are no entries.
struct Read<V: Payload> {
    core: Arc<Core<V>>,
    extent: Extent,
    /// What was found; without a guard of the permit, which goes to all that is handed over.
    entries: Vec<ReadEntry<V>>,
    permit: Option<Permit>,
    done: Option<Done<V>>,
}

impl<V: Payload> Core<V> {
    /// Reads, once there is a permit where one is needed for looking.
    pub(super) fn read(
        this: &Arc<Self>,
        extent: Extent,
        entries: Vec<ReadEntry<V>>,
        done: impl FnOnce(Result<Vec<ReadEntry<V>>, ReadError>) + Send + 'static,
    ) {
        let (PermitsFor::EveryRead, Some(permits)) = (this.permits_for, &this.permits) else {
            return Self::look(this, extent, None, entries, done);
        };
        let bytes = this.bytes(extent);
        match permits.try_acquire(bytes) {
            Some(permit) => Self::look(this, extent, Some(permit), entries, done),
            None => Self::queue(this, permits, bytes, extent, entries, Box::new(done)),
        }
    }

    /// What a read is taken to weigh.
    fn bytes(&self, extent: Extent) -> u64 {
        self.fill.estimate().saturating_mul(extent.count.into())
    }

    /// Has a read wait for its permit.
    #[cold]
    fn queue(
        this: &Arc<Self>,
        permits: &ReadPermits,
        bytes: u64,
        extent: Extent,
        entries: Vec<ReadEntry<V>>,
        done: Done<V>,
    ) {
        let read = Read { core: Arc::clone(this), extent, entries, permit: None, done: Some(done) };
        // Who takes it out goes on with it: the callback, or this call if the callback is not needed.
        let slot = Arc::new(Mutex::new(Some(read)));
        let waiting = Arc::clone(&slot);
        let acquired = permits.acquire(bytes, move |granted| {
            let read = waiting.lock().take();
            if let Some(read) = read {
                read.granted(granted);
            }
        });
        let ends = match acquired {
            Ok(Acquired::Queued) => return,
            Ok(Acquired::Now(permit)) => Ok(permit),
            Err(error) => Err(error),
        };
        let read = slot.lock().take();
        match (read, ends) {
            (Some(read), Ok(permit)) => read.start(permit),
            (Some(read), Err(error)) => read.fail(ReadError::TooManyReads(error)),
            (None, _) => {}
        }
    }

    /// Looks into the cache, and completes the read here if all is there.
    #[inline]
    fn look(
        this: &Arc<Self>,
        extent: Extent,
        permit: Option<Permit>,
        mut entries: Vec<ReadEntry<V>>,
        done: impl FnOnce(Result<Vec<ReadEntry<V>>, ReadError>) + Send + 'static,
    ) {
        let range = extent.position()..=(extent.ledger, extent.last());
        let looked = unwind::catch(|| {
            this.fill.cache.for_each_in_range(range, |position, value| {
                entries.push(ReadEntry { position, value: value.clone(), permit: None });
            });
        });
        let counts = &this.fill.counts;
        if looked.is_ok() && entries.len() == extent.count as usize {
            add(&counts.hit.reads, 1);
            add(&counts.hit.entries, extent.count.into());
            guard(&mut entries, permit);
            return contained(|| done(Ok(entries)));
        }
        let read = Read { core: Arc::clone(this), extent, entries, permit, done: Some(Box::new(done)) };
        match looked {
            Ok(()) => read.needs_storage(),
            Err(payload) => read.fail(ReadError::Storage(panicked(payload))),
        }
    }
}

/// Has the entries of a read keep its permit.
fn guard<V>(entries: &mut [ReadEntry<V>], permit: Option<Permit>) {
    let Some(permit) = permit else { return };
    let permit = Arc::new(permit);
    let Some((last, others)) = entries.split_last_mut() else { return };
    for entry in others {
        entry.permit = Some(Arc::clone(&permit));
    }
    last.permit = Some(permit);
}

impl<V: Payload> Read<V> {
    /// It has waited for its permit.
    fn granted(self, granted: Result<Permit, PermitError>) {
        match (granted, self.core.executor.clone()) {
            (Err(error), _) => self.fail(ReadError::TooManyReads(error)),
            (Ok(permit), None) => self.start(permit),
            (Ok(permit), Some(executor)) => {
                let submitted = executor.submit(Job::new(move || self.start(permit)));
                // The read ends with its job.
                drop(submitted);
            }
        }
    }

    /// Goes on to storage; waits for a permit if it has none and needs one.
    #[cold]
    fn needs_storage(mut self) {
        let core = Arc::clone(&self.core);
        let (None, Some(permits)) = (&self.permit, &core.permits) else { return self.missed() };
        let bytes = core.bytes(self.extent);
        self.permit = permits.try_acquire(bytes);
        if self.permit.is_some() {
            return self.missed();
        }
        // It looks again when it has one: what was found is not held meanwhile.
        let mut entries = std::mem::take(&mut self.entries);
        drop_all(entries.drain(..));
        if let Some(done) = self.done.take() {
            Core::queue(&core, permits, bytes, self.extent, entries, done);
        }
    }

    /// Goes on with a permit.
    fn start(mut self, permit: Permit) {
        let Some(done) = self.done.take() else { return };
        Core::look(&self.core, self.extent, Some(permit), std::mem::take(&mut self.entries), done);
    }

    /// Leaves out the end, as far as there is no room for it in the permit: one that was asked for more than the whole budget has less.
    fn cut(&mut self) {
        let Some(permit) = &self.permit else { return };
        let fits = permit.bytes() / self.core.fill.estimate();
        self.extent.count = u32::try_from(fits).unwrap_or(u32::MAX).clamp(1, self.extent.count);
        let last = self.extent.last();
        let stay = self.entries.partition_point(|entry| entry.position.1 <= last);
        drop_all(self.entries.drain(stay..));
    }

    /// Reads what the cache does not have.
    fn missed(mut self) {
        self.cut();
        let counts = &self.core.fill.counts;
        if self.entries.len() == self.extent.count as usize {
            add(&counts.hit.reads, 1);
            add(&counts.hit.entries, self.extent.count.into());
            return self.succeed();
        }
        let (wanted, found) = (u64::from(self.extent.count), self.entries.len() as u64);
        add(&counts.partial_hit, found);
        add(&counts.entries_missed, wanted - found);
        if found == 0 {
            add(&counts.misses, 1);
            return self.read_whole();
        }
        add(&counts.partial, 1);
        let Extent { ledger, first, count, .. } = self.extent;
        let gaps = gaps(first, count, self.entries.iter().map(|entry| entry.position.1));
        let core = Arc::clone(&self.core);
        let told = gaps.clone();
        let parts = gather(gaps.len(), move |parts| self.filled(parts, &told));
        for (gap, part) in gaps.into_iter().zip(parts) {
            step!("entry_cache.gap", core.pending.read(ledger, gap.first, gap.count, part));
        }
    }

    /// Reads all of it from storage.
    fn read_whole(self) {
        let core = Arc::clone(&self.core);
        let Extent { ledger, first, count, single } = self.extent;
        if single {
            add(&core.fill.counts.storage_reads, 1);
            ask(&core.storage, (ledger, first), count, TRIES, move |answer| {
                let counts = &self.core.fill.counts;
                match &answer {
                    Ok(stored) => add(&counts.storage_entries, stored.values.len().min(1) as u64),
                    Err(_) => add(&counts.storage_failures, 1),
                }
                self.answered(answer.map(|stored| stored.values));
            });
        } else {
            core.pending.read(ledger, first, count, move |answer| self.answered(answer));
        }
    }

    /// Puts the parts that were missing between those that were found; if one could not be read, drops all of them, and reads the whole once.
    fn filled(mut self, parts: Parts<V>, gaps: &[Gap]) {
        if parts.iter().any(Result::is_err) {
            add(&self.core.fill.counts.fallbacks, 1);
            drop_all(parts.into_iter().flatten().flatten());
            drop_all(self.entries.drain(..));
            let fallbacks = self.core.fallbacks.clone();
            let Extent { ledger, first, count, .. } = self.extent;
            return fallbacks.read(ledger, first, count, move |answer| self.answered(answer));
        }
        let ledger = self.extent.ledger;
        let parts = parts.into_iter().flatten().zip(gaps);
        let parts = parts.map(|(part, gap)| entries(ledger, gap.first, part).collect());
        self.entries = merge(std::mem::take(&mut self.entries), gaps, parts);
        self.succeed();
    }

    /// Storage has answered for all of it.
    fn answered(mut self, answer: Result<Vec<V>, StorageFailure>) {
        match answer {
            Ok(mut values) => {
                let count = self.extent.count as usize;
                if values.len() > count {
                    drop_all(values.split_off(count));
                }
                let Extent { ledger, first, .. } = self.extent;
                self.entries.extend(entries(ledger, first, values));
                self.succeed();
            }
            Err(failure) => self.fail(ReadError::Storage(failure)),
        }
    }

    /// Hands over what there is, if there is any.
    fn succeed(mut self) {
        let there = self.entries.len();
        if there == 0 {
            let position = self.extent.position();
            return self.fail(ReadError::Missing(position));
        }
        if let Some(permit) = &mut self.permit {
            // What there is not takes no share of it.
            let share = permit.bytes() / u64::from(self.extent.count);
            let missing = u64::from(self.extent.count) - there as u64;
            permit.shrink(permit.bytes() - share * missing);
        }
        let mut entries = std::mem::take(&mut self.entries);
        guard(&mut entries, self.permit.take());
        if let Some(done) = self.done.take() {
            contained(|| done(Ok(entries)));
        }
    }

    /// Gives everything back, and tells why.
    fn fail(mut self, error: ReadError) {
        self.end(error);
    }

    fn end(&mut self, error: ReadError) {
        let Some(done) = self.done.take() else { return };
        add(&self.core.fill.counts.failures, 1);
        drop_all(std::mem::take(&mut self.entries));
        // Before it is told: then it may read again at once.
        drop(self.permit.take());
        contained(|| done(Err(error)));
    }
}

impl<V: Payload> Drop for Read<V> {
    /// Whoever was to go on with it did not.
    fn drop(&mut self) {
        self.end(ReadError::Abandoned);
    }
}

/// Values with their positions.
fn entries<V>(ledger: i64, first: i64, values: Vec<V>) -> impl Iterator<Item = ReadEntry<V>> {
    (first..=i64::MAX).zip(values).map(move |(entry, value)| ReadEntry {
        position: (ledger, entry),
        value,
        permit: None,
    })
}
