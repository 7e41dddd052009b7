//! The index: finds, links and unlinks pages, ordered within a ledger, without a lock and without holding what nobody uses.
//!
//! # Guarantees
//! *Progress.* Lock-free: an operation repeats a step only since another one got one done. A reader that is stopped anywhere is waited for by
//! nobody, and holds at most one page. Whoever meets a sealed page or node takes it out itself.
//!
//! *Readers* make two read-modify-writes, both on the word that names their page, which no other page shares.
//!
//! *Order.* A walk meets the pages of its range in order, each at most once, and every page that is linked from its begin to its end. A miss is an
//! answer: nothing was there at some moment of the call.
//!
//! *Memory.* No page is kept. Nodes are kept up to the most that were ever in use at a time, and about a quarter more; they are used again, and freed with the
//! index.
//!
//! # Protocol
//! A *leaf* has a word for each page of 4,096 consecutive entry ids. A *head* has a word for each of the 32 leaves of its *region*, and 32 for other
//! heads; the root has words for heads. The way to a head follows a hash of its ledger and region: the first word that names nothing, or its
//! own head, is its place, so there is one place for a region.
//!
//! A node has a *use*, a number that changes whenever it is put back, and a life: the count of its children and of reservations, and SEALED.
//!
//! | state | next | by whom |
//! |---|---|---|
//! | in the pool | linked | who takes it, fills it with one reservation, and brings it into a word of a parent that it has entered |
//! | linked | sealed | who brings the count from one to zero, by compare-and-set of the same use, unless another entered between |
//! | sealed | in the pool | whose compare-and-set takes it out of its parent's word: the sealer, or whoever meets it |
//!
//! A parent is entered before a child is linked below it; the reservation is the child's from then on, and is given back by who takes the child out.
//! So a linked page keeps its leaf, and a leaf its head, and a head the head above it, where they are. A word that names a node names its use, too,
//! and so a stale enter or compare-and-set fails. Nodes never go away, hence a reader may stand in one whose use has changed. If it then finds
//! nothing, or a page of another place, it has missed: its node was empty at a moment within the call.
//!
//! A page word is the page's address and a count of the readers that hold it by this word. A reader comes in by compare-and-set of a word
//! that names a page, and leaves by the same word while it still names it. Who takes the page out turns the readers that the word counted into
//! references, in the same operation that gives up the index's own; a reader that finds its page gone gives one up. A reader that finds very many
//! others takes a reference at once. The page is freed by who gives up the last.
//!
//! # Orderings
//! | operation | word | ordering | pairs with | why |
//! |---|---|---|---|---|
//! | count in: compare-and-set | page word | Acquire | link | the page is built |
//! | count out: compare-and-set | page word | Release | unlink | what was done with the page comes before it is freed |
//! | link: compare-and-set from 0 | page word | Release | count in | as above |
//! | unlink: compare-and-set to 0 | page word | `AcqRel` | count out | as above; no model tells it from Acquire: nobody acquires what it writes |
//! | give up references `fetch_sub` | `refs` | Release | the load at zero, Acquire | as above |
//! | link: compare-and-set from 0 | node word | `AcqRel` | every load, Acquire | the node is built; no model tells it from Release |
//! | unlink: compare-and-set to 0 | node word | `AcqRel` | | no model tells it from Relaxed: what was done in the node is passed on by its life |
//! | enter: compare-and-set | node `life` | `AcqRel` | | no model tells it from Relaxed: it counts, and the words below are read-modify-writes |
//! | leave, seal | node `life` | `AcqRel` | each other, enter's load | where a node is was read before its next use writes that |
//! | begin and end of a use: store | node `life` | Release | enter's load and its failure, Acquire | who meets another use sees that no word names the former: it looks again at something new, not at the same for ever |
//! | take: load, and on failure | `free` | Acquire | put | the node as its last user left it |
//! | take: compare-and-set | `free` | Acquire | | no model tells it from Relaxed: it finds what was loaded |
//! | put: compare-and-set | `free` | Release | take | as above |
//! | get: load | chunk | Acquire | grow: compare-and-set, Release | the nodes are built |
//!
//! # Limits
//! Addresses of pages have 48 bits. A node has 2^32 uses before a word that somebody has held all that time could name the wrong one. A walk that
//! spans many regions collects them from all heads, at most 32 at a time.

use std::fmt;

use folio_sync::atomic::{AtomicU64, Ordering};
use folio_sync::step;

mod key;
mod linked;
#[cfg(all(test, loom))]
mod models;
mod node;
mod pool;
mod walk;

pub(crate) use key::PageKey;
pub(crate) use linked::{Counted, Linked, Owned};
pub(crate) use pool::{Pool, Pooled};

use key::Path;
use node::{Closed, Node, NodeRef, ROOT, WORDS};

/// What became of a page that was to be linked.
pub(crate) enum Link<'a, T> {
    /// It is; here is its maker's reference.
    Linked(Owned<T>),
    /// There is one already; here is the other, unused.
    Found(Counted<'a, T>, Box<Linked<T>>),
}

/// The pages of all ledgers of a cache.
pub(crate) struct Index<T> {
    /// Name heads.
    root: [AtomicU64; WORDS],
    heads: Pool<Node>,
    leaves: Pool<Node>,
    /// The page words own pages.
    pages: std::marker::PhantomData<Box<Linked<T>>>,
}

impl<T> Index<T> {
    pub(crate) fn new() -> Self {
        Self {
            root: std::array::from_fn(|_| AtomicU64::new(0)),
            heads: Pool::new(),
            leaves: Pool::new(),
            pages: std::marker::PhantomData,
        }
    }

    /// Bytes of all nodes, in use or not.
    pub(crate) fn bytes(&self) -> usize {
        self.heads.bytes() + self.leaves.bytes()
    }

    /// The page of this key, if it is linked.
    #[inline]
    pub(crate) fn find(&self, key: PageKey) -> Option<Counted<'_, T>> {
        let head = self.head(key)?;
        let leaf = self.leaf(head, key.leaf_at())?;
        Self::page(leaf, key)
    }

    /// As [`find`](Self::find), for a reader of one slot: what it needs of the page is on its way before the page is entered.
    #[inline]
    pub(crate) fn find_to_read(&self, key: PageKey, slot: u32) -> Option<Counted<'_, T>> {
        let head = self.head(key)?;
        let leaf = self.leaf(head, key.leaf_at())?;
        Counted::enter_to_read(&leaf.words[key.page_at()], slot).filter(|page| page.key == key)
    }

    /// The head of the region of this key.
    #[inline]
    fn head(&self, key: PageKey) -> Option<&Node> {
        let region = (key.ledger, key.region());
        let mut path = Path::to(region);
        let mut word = &self.root[path.first()];
        loop {
            // Acquire: the node is built; pairs with the AcqRel of linking it.
            let head = NodeRef::of(step!("index.read_node", word.load(Ordering::Acquire)))?;
            let head = self.heads.get(head.number());
            if head.key() == region {
                return Some(head);
            }
            word = &head.words[path.next()];
        }
    }

    /// The leaf that a word of a head names.
    #[inline]
    fn leaf(&self, head: &Node, at: usize) -> Option<&Node> {
        // Acquire: as in `head`.
        let leaf = NodeRef::of(step!("index.read_node", head.words[at].load(Ordering::Acquire)))?;
        Some(self.leaves.get(leaf.number()))
    }

    /// The page of this key, if it is what its word in this leaf names.
    #[inline]
    fn page(leaf: &Node, key: PageKey) -> Option<Counted<'_, T>> {
        // The leaf may be in another use by now, and name a page of another place.
        Counted::enter(&leaf.words[key.page_at()]).filter(|page| page.key == key)
    }

    /// Links a page where none is.
    pub(crate) fn link(&self, mut fresh: Box<Linked<T>>) -> Link<'_, T> {
        let key = fresh.key;
        let leaf = self.enter_leaf(key);
        let word = &self.leaves.get(leaf.number()).words[key.page_at()];
        fresh.leaf = leaf.number();
        loop {
            match fresh.link(word) {
                // The reservation in the leaf is the page's now.
                Ok(owned) => return Link::Linked(owned),
                Err(back) => fresh = back,
            }
            // The leaf is entered, and hence in use for this key.
            if let Some(found) = Counted::enter(word) {
                self.leave_leaf(leaf);
                return Link::Found(found, fresh);
            }
        }
    }

    /// Takes a page out, if it is still linked; the caller holds it, and has seen it sealed.
    pub(crate) fn unlink(&self, page: &Linked<T>) -> bool {
        // If the page was taken out before, the leaf may be in another use, and its word does not name the page.
        let leaf = self.leaves.get(page.leaf);
        let unlinked = page.unlink(&leaf.words[page.key.page_at()]);
        if unlinked {
            self.leave_leaf_number(page.leaf);
        }
        unlinked
    }

    /// Enters the leaf of this key, linking what is missing on the way.
    fn enter_leaf(&self, key: PageKey) -> NodeRef {
        let head = self.enter_head(key);
        let at = key.leaf_at();
        let word = &self.heads.get(head.number()).words[at];
        let unlink = |leaf| self.unlink_leaf(leaf, head.number(), at);
        loop {
            match enter_or_link(word, &self.leaves, head.number(), at, (key.ledger, key.region()), unlink) {
                Some(Entered::Linked(leaf)) => return leaf,
                Some(Entered::Found(leaf)) => {
                    self.leave_head(head.number());
                    return leaf;
                }
                None => {}
            }
        }
    }

    /// Enters the head of this key, linking it if it is missing.
    fn enter_head(&self, key: PageKey) -> NodeRef {
        let region = (key.ledger, key.region());
        let mut path = Path::to(region);
        // The head that is entered, and which of its words is next.
        let (mut parent, mut at) = (ROOT, path.first());
        loop {
            let word = self.head_word(parent, at);
            let unlink = |head| self.unlink_head(head, parent, at);
            match enter_or_link(word, &self.heads, parent, at, region, unlink) {
                // The reservation in the parent is the new head's now.
                Some(Entered::Linked(head)) => return head,
                Some(Entered::Found(head)) => {
                    // Its child keeps it.
                    self.leave_head(parent);
                    if self.heads.get(head.number()).key() == region {
                        return head;
                    }
                    (parent, at) = (head.number(), path.next());
                }
                None => {}
            }
        }
    }

    /// A word that names heads.
    fn head_word(&self, parent: u32, at: usize) -> &AtomicU64 {
        if parent == ROOT { &self.root[at] } else { &self.heads.get(parent).words[at] }
    }

    /// Gives back what a leaf was entered for; the leaf goes when that was the last.
    fn leave_leaf(&self, leaf: NodeRef) {
        self.leave_leaf_number(leaf.number());
    }

    fn leave_leaf_number(&self, number: u32) {
        let leaf = self.leaves.get(number);
        let (head, at) = leaf.place();
        // The caller's reservation holds this use.
        if let Some(sealed) = leaf.leave(number) {
            self.unlink_leaf(sealed, head, at);
        }
    }

    /// Takes a sealed leaf out of its head, unless somebody else did.
    fn unlink_leaf(&self, leaf: NodeRef, head: u32, at: usize) {
        if unlink_node(&self.heads.get(head).words[at], leaf) {
            Node::put(&self.leaves, leaf);
            self.leave_head(head);
        }
    }

    /// Gives back what a head was entered for; the head goes when that was the last, and so on upwards.
    fn leave_head(&self, mut number: u32) {
        while number != ROOT {
            let head = self.heads.get(number);
            let (parent, at) = head.place();
            let Some(sealed) = head.leave(number) else { return };
            if !unlink_node(self.head_word(parent, at), sealed) {
                return;
            }
            Node::put(&self.heads, sealed);
            number = parent;
        }
    }

    /// Takes a sealed head out of its parent, unless somebody else did.
    fn unlink_head(&self, head: NodeRef, parent: u32, at: usize) {
        if unlink_node(self.head_word(parent, at), head) {
            Node::put(&self.heads, head);
            self.leave_head(parent);
        }
    }
}

/// What entering came to.
enum Entered {
    /// A node that was there; the reservation in it is the caller's, beside the one in its parent.
    Found(NodeRef),
    /// A new node: the reservation in the parent is the node's now, and the one in the node is the caller's.
    Linked(NodeRef),
}

/// Enters the node that a word of an entered parent names, or links a new one there; none if something came between.
fn enter_or_link(
    word: &AtomicU64,
    pool: &Pool<Node>,
    parent: u32,
    at: usize,
    region: (i64, i64),
    unlink: impl Fn(NodeRef),
) -> Option<Entered> {
    // Acquire: the node is built; pairs with the AcqRel of linking it.
    let Some(found) = NodeRef::of(word.load(Ordering::Acquire)) else {
        let fresh = Node::take(pool, parent, at, region);
        // AcqRel: the node is built before it is found; pairs with the Acquire of every load of the word.
        let linked =
            step!("index.link_node", word.compare_exchange(0, fresh.0, Ordering::AcqRel, Ordering::Relaxed));
        if linked.is_err() {
            Node::put(pool, fresh);
            return None;
        }
        return Some(Entered::Linked(fresh));
    };
    match pool.get(found.number()).enter(found) {
        Ok(()) => Some(Entered::Found(found)),
        Err(Closed::Stale) => None,
        Err(Closed::Sealed) => {
            unlink(found);
            None
        }
    }
}

/// Takes a sealed node out of the word that names it; whether this caller did.
fn unlink_node(word: &AtomicU64, node: NodeRef) -> bool {
    // AcqRel: whoever links another one here, and puts this one back, comes after what was done in it.
    step!("index.unlink_node", word.compare_exchange(node.0, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok())
}

impl<T> Drop for Index<T> {
    fn drop(&mut self) {
        // Whoever drops the index has it alone; pages that are still linked are of a cache whose entries were not removed.
        self.drop_pages();
    }
}

impl<T> fmt::Debug for Index<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Index").field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}
