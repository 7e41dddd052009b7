//! Leaves and heads: linked, entered, sealed, put back and used again while others stand in them.

use folio_sync::test_util::{Model, model};

use super::*;
use crate::index::node::Closed;
use crate::index::{Entered, enter_or_link, unlink_node};

/// A page of the first leaf of region 0 of ledger 1, its neighbour there, and a page of the region's other leaf.
const AT: PageKey = key(0);
const NEIGHBOUR: PageKey = key(1);
const BESIDE: PageKey = key(4);

/// The same places in a region that has another head.
const ELSEWHERE: PageKey = key(8);
const BESIDE_ELSEWHERE: PageKey = key(12);

/// A shelf whose heads stay until these pages are closed.
fn with<const N: usize>(keys: [PageKey; N]) -> (Arc<Shelf>, [Owned<Tracked<u32>>; N]) {
    let shelf = Shelf::new();
    let pages = keys.map(|key| shelf.open(key));
    (shelf, pages)
}

/// I13: two inserters link a page each, in a leaf and a head that neither finds.
#[test]
fn page_leaf_and_head_linked_at_once() {
    Model::new("two inserters link page, leaf and head").at_every_step().check(|| {
        let shelf = Shelf::new();
        let inserts = spawn(&shelf, |shelf| assert!(shelf.insert(AT, 0, 7)));
        let page = shelf.open(NEIGHBOUR);
        inserts.join().unwrap();
        assert_eq!(shelf.get(AT, 0), Some(7), "what was inserted is found");
        assert!(shelf.has(NEIGHBOUR));
        assert_eq!(shelf.audit(), 2);
        assert_eq!(shelf.remove(AT, 1), 1);
        shelf.close(&page);
        shelf.end();
    });
}

/// I13: two inserters link the same page, of which there is one then.
#[test]
fn one_page_linked_at_once() {
    Model::new("two inserters link one page").at_every_step().check(|| {
        let shelf = Shelf::new();
        let opens = spawn(&shelf, |shelf| drop(shelf.open(AT)));
        let page = shelf.open(AT);
        opens.join().unwrap();
        assert_eq!(shelf.audit(), 1);
        (0..2).for_each(|_| shelf.close(&page));
        shelf.end();
    });
}

/// I13: a leaf loses its last page while another one is to be linked in it.
#[test]
fn leaf_sealed_under_an_inserter() {
    Model::new("leaf sealed, insert into it").at_every_step().check(|| {
        let (shelf, beside) = with([BESIDE]);
        let page = shelf.open(AT);
        let inserts = spawn(&shelf, |shelf| assert!(shelf.insert(NEIGHBOUR, 0, 7)));
        shelf.close(&page);
        inserts.join().unwrap();
        assert_eq!(shelf.get(NEIGHBOUR, 0), Some(7), "what was inserted is found");
        assert_eq!(shelf.remove(NEIGHBOUR, 1), 1);
        shelf.close_all(beside);
        shelf.end();
    });
}

/// A leaf of `AT` that was sealed and not taken out, and its place.
fn sealed_leaf(shelf: &Shelf) -> (NodeRef, u32, usize) {
    let page = shelf.open(AT);
    let leaf = shelf.0.leaves.get(page.leaf);
    assert_eq!(page.page.give_back(1), Fate::Sealed);
    assert!(page.unlink(&leaf.words[AT.page_at()]));
    let (head, at) = leaf.place();
    (leaf.leave(page.leaf).unwrap(), head, at)
}

/// I13: a leaf is sealed and its sealer comes late to take it out: one of two inserters takes it out instead.
#[test]
fn sealed_leaf_two_helpers() {
    model("sealed leaf, two helpers", || {
        let (shelf, beside) = with([BESIDE]);
        let (leaf, head, at) = sealed_leaf(&shelf);
        let helpers = [AT, NEIGHBOUR].map(|key| {
            let fresh = page(key);
            spawn(&shelf, move |shelf| assert!(matches!(shelf.0.link(fresh), Link::Linked(_))))
        });
        shelf.0.unlink_leaf(leaf, head, at);
        join(helpers);
        assert_eq!(shelf.audit(), 3);
        for key in [AT, NEIGHBOUR] {
            shelf.close(&shelf.0.find(key).expect("what was linked is found"));
        }
        shelf.close_all(beside);
        shelf.end();
    });
}

/// I13: who meets a sealed leaf once finds it gone then, whether it or the sealer took it out.
#[test]
fn sealed_leaf_met_once() {
    Model::new("sealed leaf met once").at_every_step().check(|| {
        let (shelf, beside) = with([BESIDE]);
        let (leaf, head, at) = sealed_leaf(&shelf);
        let seals = spawn(&shelf, move |shelf| shelf.0.unlink_leaf(leaf, head, at));
        let entered = shelf.0.enter_head(AT);
        assert_eq!(entered.number(), head);
        let word = &shelf.0.heads.get(head).words[at];
        let unlink = |leaf| shelf.0.unlink_leaf(leaf, head, at);
        match enter_or_link(word, &shelf.0.leaves, head, at, (AT.ledger, AT.region()), unlink) {
            None => shelf.0.leave_head(head),
            Some(Entered::Linked(fresh)) => shelf.0.leave_leaf(fresh),
            Some(Entered::Found(_)) => panic!("a sealed leaf was entered"),
        }
        assert_ne!(word.load(Ordering::Relaxed), leaf.0, "it is gone");
        seals.join().unwrap();
        shelf.close_all(beside);
        shelf.end();
    });
}

/// I13: a leaf is used again, for another region, while a reader stands in it: the reader misses.
#[test]
fn leaf_reused_under_a_reader() {
    Model::new("leaf re-used under a reader").at_every_step().check(|| {
        let (shelf, beside) = with([BESIDE, BESIDE_ELSEWHERE]);
        let page = shelf.open(AT);
        let reads = spawn(&shelf, |shelf| shelf.look(AT));
        shelf.close(&page);
        let elsewhere = shelf.open(ELSEWHERE);
        assert_eq!(page.leaf, elsewhere.leaf, "the leaf is used again");
        reads.join().unwrap();
        shelf.close(&elsewhere);
        shelf.close_all(beside);
        shelf.end();
    });
}

/// I13: a leaf is used again, for another region, while an inserter is about to enter it.
#[test]
fn leaf_reused_under_an_inserter() {
    model("leaf re-used under an inserter", || {
        let (shelf, beside) = with([BESIDE, BESIDE_ELSEWHERE]);
        let page = shelf.open(AT);
        let inserts = spawn(&shelf, |shelf| drop(shelf.open(NEIGHBOUR)));
        shelf.close(&page);
        let elsewhere = shelf.open(ELSEWHERE);
        inserts.join().unwrap();
        let page = shelf.0.find(NEIGHBOUR).expect("what was inserted is found");
        shelf.close(&page);
        shelf.close(&elsewhere);
        shelf.close_all(beside);
        drop(page);
        shelf.end();
    });
}

/// I13: who is about to enter a leaf and meets it in another use sees that its word names that use no more: it does not come back for ever.
#[test]
fn another_use_is_known() {
    Model::new("a node in another use").at_every_step().check(|| {
        let (shelf, beside) = with([BESIDE, BESIDE_ELSEWHERE]);
        let page = shelf.open(AT);
        let leaf = shelf.0.leaves.get(page.leaf);
        let (head, at) = leaf.place();
        let word = &shelf.0.heads.get(head).words[at];
        let node = NodeRef::of(word.load(Ordering::Relaxed)).unwrap();
        let reuses = spawn(&shelf, move |shelf| {
            shelf.close(&page);
            drop(page);
            assert!(matches!(shelf.0.link(self::page(ELSEWHERE)), Link::Linked(_)));
        });
        match leaf.enter(node) {
            Ok(()) => shelf.0.leave_leaf(node),
            Err(Closed::Stale) => assert_ne!(word.load(Ordering::Relaxed), node.0, "the word changed before"),
            Err(Closed::Sealed) => {}
        }
        reuses.join().unwrap();
        shelf.close(&shelf.0.find(ELSEWHERE).expect("what was linked is found"));
        shelf.close_all(beside);
        shelf.end();
    });
}

/// I13: two regions whose way begins with the same word get their heads at once: one comes to stand below the other.
#[test]
fn two_heads_one_word() {
    Model::new("two inserters link heads at one word").at_every_step().check(|| {
        let shelf = Shelf::new();
        let [one, other] = below_each_other();
        let opens = spawn(&shelf, move |shelf| drop(shelf.open(one)));
        let page = shelf.open(other);
        opens.join().unwrap();
        assert!(shelf.has(one) && shelf.has(other));
        assert_eq!(shelf.audit(), 2);
        shelf.close(&shelf.0.find(one).unwrap());
        shelf.close(&page);
        shelf.end();
    });
}

/// I13: a head that has another one below it loses its last leaf: it stays, and who goes through it finds what is below.
#[test]
fn head_with_another_below_it() {
    Model::new("a head without leaves keeps the one below").at_every_step().check(|| {
        let shelf = Shelf::new();
        let [above, below] = below_each_other();
        let upper = shelf.open(above);
        let lower = shelf.open(below);
        let goes_through = spawn(&shelf, move |shelf| {
            assert!(shelf.has(below), "what stays is found");
            let beside = PageKey { number: below.number + 1, ..below };
            assert!(matches!(shelf.0.link(page(beside)), Link::Linked(_)));
        });
        shelf.close(&upper);
        goes_through.join().unwrap();
        assert_eq!(shelf.audit(), 2);
        let beside = PageKey { number: below.number + 1, ..below };
        shelf.close(&shelf.0.find(beside).expect("what was linked is found"));
        shelf.close(&lower);
        shelf.end();
    });
}

/// I13: two heads, one below the other, lose their last leaves at once, and the lower one comes back.
#[test]
fn two_heads_go_at_once() {
    model("two heads go at once, one comes back", || {
        let shelf = Shelf::new();
        let [above, below] = below_each_other();
        let upper = shelf.open(above);
        let lower = shelf.open(below);
        let closes = spawn(&shelf, move |shelf| shelf.close(&upper));
        shelf.close(&lower);
        drop(lower);
        let page = shelf.open(below);
        closes.join().unwrap();
        assert!(shelf.has(below), "what was inserted is found");
        assert_eq!(shelf.audit(), 1);
        shelf.close(&page);
        shelf.end();
    });
}

/// I13: a head below another one is sealed and its sealer comes late to take it out: an inserter whose way goes there takes it out instead.
#[test]
fn sealed_head_two_helpers() {
    model("sealed head, two helpers", || {
        let [above, below, further] = below_each_other();
        let (shelf, upper) = with([above]);
        let (head, parent, at) = {
            let page = shelf.open(below);
            let leaf = shelf.0.leaves.get(page.leaf);
            assert_eq!(page.page.give_back(1), Fate::Sealed);
            assert!(page.unlink(&leaf.words[below.page_at()]));
            let (head, at) = leaf.place();
            let leaf = leaf.leave(page.leaf).unwrap();
            assert!(unlink_node(&shelf.0.heads.get(head).words[at], leaf));
            Node::put(&shelf.0.leaves, leaf);
            let (parent, at) = shelf.0.heads.get(head).place();
            (shelf.0.heads.get(head).leave(head).unwrap(), parent, at)
        };
        let opens = spawn(&shelf, move |shelf| drop(shelf.open(further)));
        shelf.0.unlink_head(head, parent, at);
        let page = shelf.open(below);
        opens.join().unwrap();
        assert_eq!(shelf.audit(), 3);
        shelf.close(&page);
        shelf.close(&shelf.0.find(further).expect("what was inserted is found"));
        shelf.close(&upper[0]);
        shelf.end();
    });
}

/// I13: both heads on a reader's way go, and come back the other way round, while it is on its way.
#[test]
fn heads_reused_under_a_reader() {
    model("heads re-used under a reader on its way down", || {
        let shelf = Shelf::new();
        let [above, below] = below_each_other();
        let upper = shelf.open(above);
        let lower = shelf.open(below);
        let reads = spawn(&shelf, move |shelf| shelf.look(below));
        shelf.close(&lower);
        shelf.close(&upper);
        let upper = shelf.open(below);
        let lower = shelf.open(above);
        reads.join().unwrap();
        assert_eq!(shelf.audit(), 2);
        shelf.close(&upper);
        shelf.close(&lower);
        shelf.end();
    });
}

/// I13: the head above an inserter's own goes and is used again, for that region, while it is on its way.
#[test]
fn heads_reused_under_an_inserter() {
    model("heads re-used under an inserter on its way down", || {
        let shelf = Shelf::new();
        let [above, below] = below_each_other();
        let upper = shelf.open(above);
        let opens = spawn(&shelf, move |shelf| drop(shelf.open(below)));
        shelf.close(&upper);
        let page = shelf.open(ELSEWHERE);
        opens.join().unwrap();
        assert_eq!(shelf.audit(), 2);
        shelf.close(&page);
        shelf.close(&shelf.0.find(below).expect("what was inserted is found"));
        shelf.end();
    });
}
