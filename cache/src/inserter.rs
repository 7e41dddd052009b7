//! Inserters: one for each writer, which spares it the index for most entries.

use std::fmt;

use folio_sync::Arc;
use folio_sync::atomic::Ordering;
use folio_sync::step;
use folio_sync::time::Instant;

use crate::cache::Registration;
use crate::entry::Entry;
use crate::error::{NotInserted, Reason};
use crate::eviction::{Key, Shared};
use crate::index::{Link, Linked, Owned, PageKey};
use crate::page::{Fate, Sealed, Values};
use crate::range::Position;
use crate::size::PAGE_SLOTS;
use crate::weigh::Weigh;

/// How many reservations an inserter takes at a time.
const RUN: u32 = PAGE_SLOTS;

/// Inserts entries, of one writer at a time.
///
/// It stays in the page of its last entry, and has reserved room there for 64 entries at once: only every 64th in a row looks a page up. Any
/// position works, in any order. A page in which an inserter stays is kept, though it be empty, until the inserter goes on, [leaves](Self::leave)
/// or is dropped. A long-lived writer has one for good; each read of storage takes a fresh one.
///
/// # Progress
/// Lock-free.
///
/// # Memory
/// One allocation for each page that it makes. It is charged for up to 64 KiB more weight than it has inserted; less if that is more than a 4096th of the
/// budget, or its share of a 16th.
///
/// ```
/// use bytes::Bytes;
/// use folio_cache::{EvictionQueue, RangeCache, Reason};
/// use folio_sync::time::Instant;
///
/// let cache = RangeCache::new(&EvictionQueue::default());
/// let mut inserter = cache.inserter();
/// let entry = |id: i64| ((7, id), Bytes::from(vec![0; 10]), 1);
/// assert!(inserter.insert_batch((0..100).map(entry), Instant::ORIGIN).is_empty());
/// let (position, value, reads) = entry(99);
/// let refused = inserter.insert(position, value, reads, Instant::ORIGIN).unwrap_err();
/// assert_eq!(refused.reason, Reason::Occupied);
/// drop(inserter);
/// assert_eq!((cache.len(), cache.weight(), cache.pages()), (100, 1000, 2));
/// ```
pub struct Inserter<V> {
    registration: Arc<Registration<V>>,
    /// The page of the last entry, and how many reservations are left in it.
    current: Option<(Owned<Entry<V>>, u32)>,
    /// Weight that is charged already.
    credit: u64,
    /// Whether anything may be cached, as of when it came, or to its page: with a budget of nothing, nothing is, be it without weight.
    caches: bool,
}

impl<V> Inserter<V> {
    pub(crate) fn new(registration: Arc<Registration<V>>) -> Self {
        registration.core.budget.inserter_came();
        let caches = registration.core.budget.limit() != 0;
        Self { registration, current: None, credit: 0, caches }
    }

    /// Gives back what it reserved, and leaves its page, which goes if it is empty.
    ///
    /// The next insert looks a page up again. For a writer that will be idle.
    pub fn leave(&mut self) {
        self.leave_page();
        let credit = std::mem::take(&mut self.credit);
        self.registration.core.discharge(credit);
    }

    fn leave_page(&mut self) {
        if let Some((linked, left)) = self.current.take() {
            let fate = linked.page.give_back(left);
            self.registration.core.settle(&linked, fate);
        }
    }

    /// Goes to a page, unless it is there, with this many reservations at least; makes the page if there is none.
    #[inline]
    fn enter(&mut self, key: PageKey, count: u32) -> (&Owned<Entry<V>>, &mut u32) {
        let stays = matches!(&self.current, Some((linked, left)) if linked.key == key && *left >= count);
        if !stays {
            self.go_to(key);
        }
        match &mut self.current {
            Some((linked, left)) => (linked, left),
            None => unreachable!("there is a page: it stays, was extended or looked up"),
        }
    }

    /// Goes to a page, or on in it, with a run reserved: once in so many inserts.
    #[cold]
    fn go_to(&mut self, key: PageKey) {
        if !self.extend(key) {
            self.leave_page();
            self.current = Some((self.look_up(key), RUN));
            self.caches = self.registration.core.budget.limit() != 0;
        }
    }

    /// Reserves more room in the page where it is, if that is this one and takes entries.
    fn extend(&mut self, key: PageKey) -> bool {
        match &mut self.current {
            Some((linked, left)) if linked.key == key && linked.page.reserve(RUN).is_ok() => {
                *left += RUN;
                true
            }
            _ => false,
        }
    }

    /// Finds or makes a page, with a run reserved.
    #[cold]
    fn look_up(&self, key: PageKey) -> Owned<Entry<V>> {
        let core = &self.registration.core;
        let mut unused = None;
        loop {
            let found = if let Some(found) = core.index.find(key) {
                found
            } else {
                let fresh = unused.take().unwrap_or_else(|| Linked::boxed(key, core.budget.birth(), RUN));
                match core.index.link(fresh) {
                    Link::Linked(made) => {
                        core.linked();
                        self.announce(&made);
                        return made;
                    }
                    Link::Found(found, fresh) => {
                        unused = Some(fresh);
                        found
                    }
                }
            };
            match found.page.reserve(RUN) {
                Ok(()) => {
                    self.announce(&found);
                    return found.own();
                }
                // Whoever meets a sealed page takes it out.
                Err(Sealed) => core.settle(&found, Fate::Sealed),
            }
        }
    }

    /// Leaves the page's key in the eviction queue, if nobody has yet.
    fn announce(&self, linked: &Linked<Entry<V>>) {
        // Acquire: who announced it had left its key before; pairs with the store below.
        if !linked.announced.load(Ordering::Acquire) {
            let Registration { queue, id, .. } = &*self.registration;
            step!(
                "eviction.leave_key",
                queue.push(Key { cache: *id, page: linked.key, birth: linked.birth })
            );
            // Release: as above.
            step!("eviction.announce", linked.announced.store(true, Ordering::Release));
        }
    }

    /// Sees to it that this much weight is charged.
    #[inline]
    fn cover(&mut self, weight: u64) -> bool {
        let Some(lack) = weight.checked_sub(self.credit).filter(|lack| *lack != 0) else {
            return weight != 0 || self.caches;
        };
        self.take_credit(lack)
    }

    /// Charges what is lacking, and some ahead.
    #[cold]
    fn take_credit(&mut self, lack: u64) -> bool {
        let charged = self.registration.core.charge(lack);
        self.credit += charged.unwrap_or(0);
        Shared::pressed(&self.registration.queue);
        charged.is_some()
    }

    /// Gives back what was charged for entries that were not taken over, but for the credit that an inserter may have.
    fn keep_credit(&mut self) {
        let core = &self.registration.core;
        if let Some(excess) = self.credit.checked_sub(core.budget.credit()).filter(|excess| *excess != 0) {
            core.discharge(excess);
            self.credit -= excess;
        }
    }

    /// What became of an entry whose slot is claimed: if one is there, deliveries of either count against the newcomer's expected reads.
    #[cold]
    fn refuse(&self, linked: &Linked<Entry<V>>, slot: u32, entry: Entry<V>) -> NotInserted<V> {
        let reads = entry.expected().unsigned_abs();
        let seen = self.registration.core.read(linked, 1 << slot, |_, cached| {
            step!("inserter.adopt", cached.expect(reads));
        });
        let reason = if seen == 0 { Reason::Busy } else { Reason::Occupied };
        NotInserted { position: linked.key.position(slot), value: entry.value, reason }
    }
}

impl<V: Weigh> Inserter<V> {
    /// Inserts an entry, of which so many reads are expected, at the caller's coarse time.
    ///
    /// # Errors
    /// The value, when it was not taken over. If the position is [occupied](Reason::Occupied), the value that is there stays, and takes over
    /// `expected_reads`.
    ///
    /// # Panics
    /// When `weight` of the value does; nothing happened then.
    #[inline]
    pub fn insert(
        &mut self,
        position: Position,
        value: V,
        expected_reads: u32,
        now: Instant,
    ) -> Result<(), NotInserted<V>> {
        let weight = value.weight();
        if !self.cover(weight) {
            return Err(NotInserted { position, value, reason: Reason::OverBudget });
        }
        let (key, slot) = PageKey::of(position);
        let (linked, left) = self.enter(key, 1);
        match linked.page.insert(slot, Entry::new(value, weight, expected_reads, now)) {
            Ok(()) => {
                *left -= 1;
                self.credit -= weight;
                Ok(())
            }
            Err(entry) => {
                let Some((linked, _)) = &self.current else { unreachable!("it was entered") };
                let refused = self.refuse(linked, slot, entry);
                self.keep_credit();
                Err(refused)
            }
        }
    }

    /// Inserts entries, each with its expected reads; gives those back that were not taken over, in no particular order.
    ///
    /// Neighbours of one page are claimed at once and published at once: readers see all of them or none. Nothing is allocated but new pages if all are taken.
    ///
    /// # Panics
    /// When the iterator or a `weight` does: entries of the pages before are inserted then, the others are dropped.
    pub fn insert_batch(
        &mut self,
        batch: impl IntoIterator<Item = (Position, V, u32)>,
        now: Instant,
    ) -> Vec<NotInserted<V>> {
        let batch_end = BatchEnd(self);
        batch_end.0.insert_pages(batch, now)
    }

    /// Inserts a batch, page by page.
    fn insert_pages(
        &mut self,
        batch: impl IntoIterator<Item = (Position, V, u32)>,
        now: Instant,
    ) -> Vec<NotInserted<V>> {
        let mut refused = Vec::new();
        let mut values = Values::new();
        let mut page = None;
        // The weight of those that are not inserted yet.
        let mut pending: u64 = 0;
        for (position, value, expected_reads) in batch {
            let weight = value.weight();
            let (key, slot) = PageKey::of(position);
            if page != Some(key) || values.mask() >> slot & 1 != 0 {
                self.insert_page(page, &mut values, &mut refused);
                (page, pending) = (Some(key), 0);
            }
            if let Some(sum) = pending.checked_add(weight).filter(|sum| self.cover(*sum)) {
                pending = sum;
                values.put(slot, Entry::new(value, weight, expected_reads, now));
            } else {
                refused.push(NotInserted { position, value, reason: Reason::OverBudget });
            }
        }
        self.insert_page(page, &mut values, &mut refused);
        refused
    }

    /// Inserts the entries that were collected for one page.
    fn insert_page(
        &mut self,
        page: Option<PageKey>,
        values: &mut Values<Entry<V>>,
        refused: &mut Vec<NotInserted<V>>,
    ) {
        let Some(key) = page.filter(|_| values.mask() != 0) else { return };
        let weights = |values: &Values<Entry<V>>| values.iter().map(|entry| entry.weight).sum::<u64>();
        let before = weights(values);
        let (linked, left) = self.enter(key, values.mask().count_ones());
        *left -= linked.page.insert_all(values).count_ones();
        self.credit -= before - weights(values);
        let Some((linked, _)) = &self.current else { unreachable!("it was entered") };
        while values.mask() != 0 {
            let slot = values.mask().trailing_zeros();
            refused.extend(values.take(slot).map(|entry| self.refuse(linked, slot, entry)));
        }
        self.keep_credit();
    }
}

/// The end of a batch, also by a panic of its iterator: what entries weigh that were dropped is not kept as credit.
struct BatchEnd<'a, V>(&'a mut Inserter<V>);

impl<V> Drop for BatchEnd<'_, V> {
    fn drop(&mut self) {
        self.0.keep_credit();
    }
}

impl<V> Drop for Inserter<V> {
    fn drop(&mut self) {
        self.leave();
        self.registration.core.budget.inserter_went();
    }
}

impl<V> fmt::Debug for Inserter<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inserter")
            .field("page", &self.current.as_ref().map(|(linked, _)| linked.key.position(0)))
            .field("credit", &self.credit)
            .finish_non_exhaustive()
    }
}
