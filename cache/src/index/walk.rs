//! Walks over the pages of a range, in order.

use folio_sync::atomic::Ordering;
use folio_sync::step;

use super::key::{FURTHER, PageKey};
use super::linked::Counted;
use super::node::{NodeRef, WORDS};
use super::{Index, Node};
use crate::range::Span;

/// How many regions a walk collects at a time.
const COLLECTED: usize = 32;

/// A range of at most as many regions of one ledger looks for each of them instead of collecting.
const LOOKED_FOR: i64 = 4;

/// The least regions of a range that some walk met, in order.
struct Regions {
    len: usize,
    regions: [(i64, i64); COLLECTED],
}

impl Regions {
    /// Adds a region, if it is new and less than the greatest of a full list.
    fn add(&mut self, region: (i64, i64)) {
        let known = &self.regions[..self.len];
        let Err(at) = known.binary_search(&region) else { return };
        if at == COLLECTED {
            return;
        }
        let moved = self.len.min(COLLECTED - 1);
        self.regions.copy_within(at..moved, at + 1);
        self.regions[at] = region;
        self.len = moved + 1;
    }
}

impl<T> Index<T> {
    /// Meets the linked pages that have slots of this range, in order, each with those slots.
    #[inline]
    pub(crate) fn walk(&self, span: Span, mut visit: impl FnMut(&Counted<'_, T>, u64)) {
        let (first, last) = span.pages();
        let mut walk = |region| self.walk_region(region, span, &mut visit);
        if first.ledger == last.ledger && last.region() - first.region() < LOOKED_FOR {
            (first.region()..=last.region()).for_each(|region| walk((first.ledger, region)));
            return;
        }
        let mut from = (first.ledger, first.region());
        let to = (last.ledger, last.region());
        loop {
            let found = self.regions(from, to);
            found.regions[..found.len].iter().for_each(|region| walk(*region));
            // A list that is not full has all of them.
            match found.regions[found.len.saturating_sub(1)] {
                // Numbers of regions are far from the greatest one.
                (ledger, region) if found.len == COLLECTED => from = (ledger, region + 1),
                _ => return,
            }
        }
    }

    /// The least regions that have a head, from one to another.
    fn regions(&self, from: (i64, i64), to: (i64, i64)) -> Regions {
        let mut found = Regions { len: 0, regions: [(0, 0); COLLECTED] };
        for word in &self.root {
            // Acquire: the node is built; pairs with the AcqRel of linking it.
            if let Some(head) = NodeRef::of(step!("index.collect_node", word.load(Ordering::Acquire))) {
                self.regions_below(self.heads.get(head.number()), from, to, &mut found);
            }
        }
        found
    }

    /// Collects from a head and those below it.
    fn regions_below(&self, head: &Node, from: (i64, i64), to: (i64, i64), found: &mut Regions) {
        let region = head.key();
        if (from..=to).contains(&region) {
            found.add(region);
        }
        for word in &head.words[FURTHER..] {
            // Acquire: as above.
            if let Some(head) = NodeRef::of(step!("index.collect_node", word.load(Ordering::Acquire))) {
                self.regions_below(self.heads.get(head.number()), from, to, found);
            }
        }
    }

    /// Meets the pages of one region that have slots of the range.
    #[inline]
    fn walk_region(&self, region: (i64, i64), span: Span, visit: &mut impl FnMut(&Counted<'_, T>, u64)) {
        let (first, last) = PageKey::bounds(region);
        let (from, to) = span.pages();
        let (first, last) = (first.max(from), last.min(to));
        let Some(head) = self.head(first) else { return };
        for leaf_at in first.leaf_at()..=last.leaf_at() {
            let Some(leaf) = self.leaf(head, leaf_at) else { continue };
            let begin = if leaf_at == first.leaf_at() { first.page_at() } else { 0 };
            let end = if leaf_at == last.leaf_at() { last.page_at() } else { WORDS - 1 };
            for page_at in begin..=end {
                // Relaxed: a word that names nothing is an answer, and who finds a page there looks again.
                if leaf.words[page_at].load(Ordering::Relaxed) == 0 {
                    continue;
                }
                let key = PageKey::at(region, leaf_at, page_at);
                if let Some(page) = Self::page(leaf, key) {
                    visit(&page, span.slots(key));
                }
            }
        }
    }

    /// Drops the pages that are still linked; nobody else has the index.
    pub(super) fn drop_pages(&self) {
        self.walk(Span::ALL, |page, _| {
            let _alone = self.unlink(page);
        });
    }
}
