//! What the handles of a cache, its inserters and the evictor work on: the index, and the counters.

use std::cell::Cell;
use std::iter;

use crossbeam_utils::CachePadded;
use folio_sync::Arc;
use folio_sync::atomic::{AtomicU64, Ordering};

use crate::budget::Budget;
use crate::entry::Entry;
use crate::index::{Counted, Index, Linked, PageKey};
use crate::page::{Fate, Owner, Values};
use crate::range::{Position, Span};

#[cfg(all(test, loom))]
mod models;

/// How many entries were removed, and their weight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Entries that this call removed.
    pub entries: u64,
    /// The sum of their weights; at most `u64::MAX`.
    pub weight: u64,
}

impl Removed {
    pub(crate) fn add(&mut self, other: Self) {
        self.entries += other.entries;
        // What was removed first may be there again, and be removed again.
        self.weight = self.weight.saturating_add(other.weight);
    }

    fn of<'a, V: 'a>(values: impl Iterator<Item = &'a Entry<V>>) -> Self {
        let mut sum = Self::default();
        values.for_each(|entry| sum.add(Self { entries: 1, weight: entry.weight }));
        sum
    }
}

/// The pages of one cache, and what they weigh.
pub(crate) struct Core<V> {
    pub(crate) index: Index<Entry<V>>,
    /// Weight of the entries to be seen, and of the inserters' unused credit.
    weight: CachePadded<AtomicU64>,
    /// Weight of removed entries that are not moved out yet.
    retired: CachePadded<AtomicU64>,
    /// Linked pages.
    pages: AtomicU64,
    pub(crate) budget: Arc<Budget>,
}

/// A page's owner for one operation: keeps the counters and the index.
struct Keeper<'a, V> {
    core: &'a Core<V>,
    linked: &'a Linked<Entry<V>>,
    /// What this operation removed.
    removed: Cell<Removed>,
}

impl<V> Owner<Entry<V>> for Keeper<'_, V> {
    fn retiring<'a>(&self, values: impl Iterator<Item = &'a Entry<V>>)
    where
        V: 'a,
    {
        let removed = Removed::of(values);
        self.removed.set(removed);
        // Added here, before anybody can move the values out, and taken off after that: never below zero.
        add(&self.core.retired, removed.weight);
        add(self.core.budget.retired_counter(), removed.weight);
        subtract(&self.core.weight, removed.weight);
    }

    fn released(&self, values: &Values<Entry<V>>, retired: bool, fate: Fate) {
        let removed = Removed::of(values.iter());
        if retired {
            subtract(&self.core.retired, removed.weight);
            subtract(self.core.budget.retired_counter(), removed.weight);
        } else {
            self.removed.set(removed);
            subtract(&self.core.weight, removed.weight);
        }
        self.core.budget.discharge(removed.weight);
        self.core.settle(self.linked, fate);
    }
}

/// Adds to a counter that publishes nothing.
fn add(counter: &AtomicU64, weight: u64) {
    if weight != 0 {
        // Relaxed: a number.
        counter.fetch_add(weight, Ordering::Relaxed);
    }
}

/// Subtracts from a counter that publishes nothing.
fn subtract(counter: &AtomicU64, weight: u64) {
    if weight != 0 {
        // Relaxed: a number.
        counter.fetch_sub(weight, Ordering::Relaxed);
    }
}

impl<V> Core<V> {
    pub(crate) fn new(budget: Arc<Budget>) -> Self {
        Self {
            index: Index::new(),
            weight: CachePadded::new(AtomicU64::new(0)),
            retired: CachePadded::new(AtomicU64::new(0)),
            pages: AtomicU64::new(0),
            budget,
        }
    }

    fn keeper<'a>(&'a self, linked: &'a Linked<Entry<V>>) -> Keeper<'a, V> {
        Keeper { core: self, linked, removed: Cell::default() }
    }

    /// Takes a page out that was sealed just now, or that its caller met sealed.
    pub(crate) fn settle(&self, linked: &Linked<Entry<V>>, fate: Fate) {
        if fate == Fate::Sealed && self.index.unlink(linked) {
            // Relaxed: a number; its page was counted by the maker, whose run held it open until then.
            self.pages.fetch_sub(1, Ordering::Relaxed);
            self.budget.page_unlinked();
        }
    }

    /// Counts a page that its maker linked.
    pub(crate) fn linked(&self) {
        // Relaxed: a number.
        self.pages.fetch_add(1, Ordering::Relaxed);
        self.budget.page_linked();
    }

    /// Charges what an entry lacks, and perhaps more; how much, or none when the budget is used up.
    pub(crate) fn charge(&self, need: u64) -> Option<u64> {
        let taken = self.budget.charge(need)?;
        add(&self.weight, taken);
        Some(taken)
    }

    /// Gives unused credit back.
    pub(crate) fn discharge(&self, weight: u64) {
        subtract(&self.weight, weight);
        self.budget.discharge(weight);
    }

    /// Shows entries of a page; tells which.
    #[inline]
    pub(crate) fn read(
        &self,
        linked: &Linked<Entry<V>>,
        slots: u64,
        visit: impl FnMut(u32, &Entry<V>),
    ) -> u64 {
        linked.page.read(slots, visit, &self.keeper(linked), &mut Values::new())
    }

    /// Shows entries of a page; what it leaves behind is for the caller to drop.
    pub(crate) fn read_and_keep(
        &self,
        linked: &Linked<Entry<V>>,
        visit: impl FnMut(u32, &Entry<V>),
        left: &mut Values<Entry<V>>,
    ) {
        linked.page.read(u64::MAX, visit, &self.keeper(linked), left);
    }

    /// Removes entries of a page; what could be moved out is for the caller to drop.
    pub(crate) fn remove(
        &self,
        linked: &Linked<Entry<V>>,
        slots: u64,
        out: &mut Values<Entry<V>>,
    ) -> Removed {
        let keeper = self.keeper(linked);
        linked.page.remove(slots, &keeper, out);
        keeper.removed.get()
    }

    /// Shows the entry of a position; whether there is one.
    #[inline]
    pub(crate) fn visit(&self, position: Position, mut visit: impl FnMut(&Entry<V>)) -> bool {
        let (key, slot) = PageKey::of(position);
        let Some(linked) = self.index.find_to_read(key, slot) else { return false };
        self.read(&linked, 1 << slot, |_, entry| visit(entry)) != 0
    }

    /// Shows the entries of a range, in order.
    #[inline]
    pub(crate) fn visit_range(&self, span: Span, mut visit: impl FnMut(Position, &Entry<V>)) {
        self.index.walk(span, |linked, slots| {
            self.read(linked, slots, |slot, entry| visit(linked.key.position(slot), entry));
        });
    }

    /// Collects from the entries of a range, in order, each with its position.
    #[inline]
    pub(crate) fn collect_range<T>(
        &self,
        span: Span,
        mut collect: impl FnMut(&Entry<V>) -> T,
    ) -> Vec<(Position, T)> {
        let mut all = Vec::new();
        self.index.walk(span, |linked, slots| {
            // What is there now is nearly always what is read: room is made once a page.
            all.reserve(linked.page.present(slots).count_ones() as usize);
            self.read(linked, slots, |slot, entry| {
                // Built where it stays: a `push` brings it there by way of the stack, and waits for that.
                all.extend(iter::once_with(|| (linked.key.position(slot), collect(entry))));
            });
        });
        all
    }

    /// Removes the entries of a range.
    pub(crate) fn remove_range(&self, span: Span) -> Removed {
        let mut sum = Removed::default();
        self.index.walk(span, |linked, slots| self.remove_from(linked, slots, &mut sum));
        sum
    }

    /// Removes entries of a page, and drops them.
    fn remove_from(&self, linked: &Counted<'_, Entry<V>>, slots: u64, sum: &mut Removed) {
        let mut out = Values::new();
        sum.add(self.remove(linked, slots, &mut out));
    }

    /// How many entries there are: a walk.
    pub(crate) fn len(&self) -> usize {
        let mut len = 0;
        self.index.walk(Span::ALL, |linked, slots| len += linked.page.present(slots).count_ones() as usize);
        len
    }

    pub(crate) fn weight(&self) -> u64 {
        // Relaxed: a number.
        self.weight.load(Ordering::Relaxed)
    }

    pub(crate) fn retired_weight(&self) -> u64 {
        // Relaxed: a number.
        self.retired.load(Ordering::Relaxed)
    }

    pub(crate) fn pages(&self) -> u64 {
        // Relaxed: a number.
        self.pages.load(Ordering::Relaxed)
    }
}
