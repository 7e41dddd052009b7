//! Models of the index: each ends with every node, page and value accounted for.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the model")]

use folio_sync::atomic::Ordering;
use folio_sync::test_util::Tracked;
use folio_sync::thread::JoinHandle;
use folio_sync::{Arc, thread};

use super::key::FURTHER;
use super::node::{Node, NodeRef, ROOT};
use super::pool::{Pool, high};
use super::{Index, Link, Linked, Owned, PageKey, Path};
use crate::page::{Fate, Owner, Sealed, Values};
use crate::size::PAGE_SLOTS;

mod nodes;
mod pages;
mod pool;
mod walks;

/// The slot of a page's witness: a value that nobody removes, so that it is dropped with the page, and a page that is not freed leaks it.
const WITNESS: u32 = PAGE_SLOTS - 1;

/// The slots that models use.
const SLOTS: u64 = (1 << WITNESS) - 1;

/// A page of ledger 1.
const fn key(number: i64) -> PageKey {
    PageKey { ledger: 1, number }
}

/// A page with one reservation, its maker's, and its witness.
fn page(key: PageKey) -> Box<Linked<Tracked<u32>>> {
    let page = Linked::boxed(key, 0, 1);
    page.page.insert(WITNESS, Tracked::new(0)).unwrap();
    page
}

/// An index, and what a cache does with it, one reservation at a time.
struct Shelf(Index<Tracked<u32>>);

/// Takes a page out when it is sealed.
struct Keeper<'a>(&'a Shelf, &'a Linked<Tracked<u32>>);

impl Owner<Tracked<u32>> for Keeper<'_> {
    fn retiring<'a>(&self, _: impl Iterator<Item = &'a Tracked<u32>>)
    where
        Tracked<u32>: 'a,
    {
    }

    fn released(&self, _: &Values<Tracked<u32>>, _: bool, fate: Fate) {
        self.0.settle(self.1, fate);
    }
}

impl Shelf {
    /// One that is empty.
    fn new() -> Arc<Self> {
        Arc::new(Self(Index::new()))
    }

    /// Makes a reservation in a page, which need not be there.
    fn open(&self, key: PageKey) -> Owned<Tracked<u32>> {
        let mut unused = None;
        loop {
            let found = if let Some(found) = self.0.find(key) {
                found
            } else {
                match self.0.link(unused.take().unwrap_or_else(|| page(key))) {
                    Link::Linked(made) => return made,
                    Link::Found(found, fresh) => {
                        unused = Some(fresh);
                        found
                    }
                }
            };
            assert_eq!(found.key, key, "a page is found by its key");
            match found.page.reserve(1) {
                Ok(()) => return found.own(),
                Err(Sealed) => self.settle(&found, Fate::Sealed),
            }
        }
    }

    /// Gives a reservation back.
    fn close(&self, page: &Linked<Tracked<u32>>) {
        self.settle(page, page.page.give_back(1));
    }

    /// Gives a reservation back in each of these.
    fn close_all(&self, pages: impl IntoIterator<Item = Owned<Tracked<u32>>>) {
        for page in pages {
            self.close(&page);
        }
    }

    fn settle(&self, page: &Linked<Tracked<u32>>, fate: Fate) {
        if fate == Fate::Sealed {
            self.0.unlink(page);
        }
    }

    /// Whether a page is linked.
    fn has(&self, key: PageKey) -> bool {
        let found = self.0.find(key);
        found.is_some_and(|found| {
            assert_eq!(found.key, key, "a page is found by its key");
            true
        })
    }

    /// Holds a page for a moment, if it is linked.
    fn look(&self, key: PageKey) {
        let _linked = self.has(key);
    }

    /// Puts a value into a slot, unless it is claimed.
    fn insert(&self, key: PageKey, slot: u32, value: u32) -> bool {
        let page = self.open(key);
        let done = page.page.insert(slot, Tracked::new(value)).is_ok();
        if !done {
            self.close(&page);
        }
        done
    }

    /// The value of a slot.
    fn get(&self, key: PageKey, slot: u32) -> Option<u32> {
        let found = self.0.find(key)?;
        let mut value = None;
        let keeper = Keeper(self, &found);
        found.page.read(1 << slot, |_, shown| value = Some(*shown.get()), &keeper, &mut Values::new());
        value
    }

    /// Removes the values of slots; tells which were won.
    fn remove(&self, key: PageKey, slots: u64) -> u64 {
        let found = self.0.find(key);
        found.map_or(0, |found| self.remove_from(&found, slots))
    }

    fn remove_from(&self, page: &Linked<Tracked<u32>>, slots: u64) -> u64 {
        page.page.remove(slots, &Keeper(self, page), &mut Values::new())
    }

    /// Checks that every node is what it ought to be, and tells how many pages are linked.
    fn audit(&self) -> usize {
        let read = |node: &Node| node.words.each_ref().map(|word| word.load(Ordering::Relaxed));
        let check = |pool: &Pool<Node>, node: NodeRef, place: (u32, usize)| {
            let found = pool.get(node.number());
            let words = read(found);
            let below = u32::try_from(words.iter().filter(|word| **word != 0).count()).unwrap();
            assert_eq!(found.state(), (high(node.0), false, below), "a linked node counts what is below it");
            assert_eq!(found.place(), place, "a linked node knows where it is");
            assert_ne!(below, 0, "an empty node is not linked");
            words
        };
        let (mut heads, mut leaves, mut pages) = (Vec::new(), Vec::new(), 0);
        let root = self.0.root.each_ref().map(|word| word.load(Ordering::Relaxed));
        let named = |words: &[u64], parent: u32, first: usize| -> Vec<(NodeRef, (u32, usize))> {
            let places =
                words.iter().enumerate().map(|(at, word)| (NodeRef::of(*word), (parent, first + at)));
            places.filter_map(|(node, place)| Some((node?, place))).collect()
        };
        let mut further = named(&root, ROOT, 0);
        while let Some((head, place)) = further.pop() {
            heads.push(head.number());
            let words = check(&self.0.heads, head, place);
            further.extend(named(&words[FURTHER..], head.number(), FURTHER));
            for (leaf, place) in named(&words[..FURTHER], head.number(), 0) {
                leaves.push(leaf.number());
                let words = check(&self.0.leaves, leaf, place);
                pages += words.iter().filter(|word| **word != 0).count();
            }
        }
        for (pool, mut linked) in [(&self.0.heads, heads), (&self.0.leaves, leaves)] {
            let (unused, used) = pool.unused();
            for node in unused.iter().map(|number| pool.get(*number)) {
                let (_, sealed, count) = node.state();
                assert_eq!((sealed, count), (false, 0), "a node in the pool counts nothing");
                assert!(read(node).iter().all(|word| *word == 0), "a node in the pool names nothing");
            }
            linked.extend(unused);
            linked.sort_unstable();
            assert!(linked.iter().copied().eq(1..=used), "each node is in one place");
        }
        pages
    }

    /// Checks that nothing is left.
    fn end(&self) {
        assert_eq!(self.audit(), 0, "no page is linked");
    }
}

/// Runs a body on a thread of its own.
fn spawn(shelf: &Arc<Shelf>, body: impl FnOnce(&Shelf) + Send + 'static) -> JoinHandle<()> {
    let shelf = Arc::clone(shelf);
    thread::spawn(move || body(&shelf))
}

/// Waits for threads to end.
fn join(threads: impl IntoIterator<Item = JoinHandle<()>>) {
    for thread in threads {
        thread.join().unwrap();
    }
}

/// Pages, each with its leaf, of regions whose way begins as that of region 0 of ledger 1, which is the first; each is linked below the ones
/// before it.
fn below_each_other<const N: usize>() -> [PageKey; N] {
    let way = |key: PageKey| {
        let mut path = Path::to((key.ledger, key.region()));
        let first = path.first();
        std::iter::once(first).chain(std::iter::repeat_with(move || path.next())).take(N)
    };
    let mut keys = (1..).map(|ledger| PageKey { ledger, number: 0 }).filter(|key| {
        // The last of the words may differ.
        way(*key).take(N - 1).eq(way(self::key(0)).take(N - 1))
    });
    std::array::from_fn(|_| keys.next().unwrap())
}
