//! Walks, while what they walk over changes.

use folio_sync::test_util::{Model, model};

use super::*;
use crate::range::Span;

/// Pages of region 0 of ledger 1 in its two leaves.
const AT: PageKey = key(0);
const BESIDE: PageKey = key(4);

impl Shelf {
    /// The keys of the pages that a walk meets, in order, each at most once.
    fn met(&self, span: Span) -> Vec<PageKey> {
        let mut met = Vec::new();
        self.0.walk(span, |page, _| met.push(page.key));
        assert!(met.is_sorted_by(|one, next| one < next), "in order, each at most once");
        met
    }

    /// The values that a walk sees, in order.
    fn seen(&self, span: Span) -> Vec<u32> {
        let mut seen = Vec::new();
        self.0.walk(span, |page, slots| {
            let show = |_, value: &Tracked<u32>| seen.push(*value.get());
            page.page.read(slots & SLOTS, show, &Keeper(self, page), &mut Values::new());
        });
        seen
    }

    /// How many values a walk removes.
    fn clear(&self, span: Span) -> u32 {
        let mut removed = 0;
        self.0.walk(span, |page, slots| removed += self.remove_from(page, slots & SLOTS).count_ones());
        removed
    }
}

/// I12, I17: a leaf is used again, for another ledger, while a removal walk stands in it: nothing of that ledger is removed.
#[test]
fn leaf_reused_under_a_removal() {
    model("leaf re-used under a removal walk", || {
        let shelf = Shelf::new();
        let beside = shelf.open(BESIDE);
        let other = PageKey { ledger: 2, ..BESIDE };
        let beside_other = shelf.open(other);
        assert!(shelf.insert(AT, 0, 7));
        let walks = spawn(&shelf, |shelf| {
            shelf.clear(Span::ledger(1));
        });
        shelf.remove(AT, 1);
        let other = PageKey { ledger: 2, ..AT };
        assert!(shelf.insert(other, 0, 8));
        walks.join().unwrap();
        assert_eq!(shelf.get(AT, 0), None);
        assert_eq!(shelf.remove(other, 1), 1, "the other ledger keeps its own");
        shelf.close(&beside);
        shelf.close(&beside_other);
        shelf.end();
    });
}

/// I11, I12: two removal walks, and an insert by somebody who keeps a reservation: each value is removed once.
#[test]
fn two_walks_and_an_insert() {
    model("two removal walks, insert with an open run", || {
        let shelf = Shelf::new();
        let run = shelf.open(AT);
        let inserts = spawn(&shelf, |shelf| assert!(shelf.insert(AT, 0, 7)));
        let walks = spawn(&shelf, |shelf| {
            shelf.clear(Span::ledger(1));
        });
        shelf.clear(Span::ledger(1));
        inserts.join().unwrap();
        walks.join().unwrap();
        shelf.clear(Span::ledger(1));
        shelf.close(&run);
        shelf.end();
    });
}

/// I11, I17: a walk reads two pages while both are cleared: what it sees was there, in order.
#[test]
fn read_against_clear() {
    model("visit against clear, two pages", || {
        let shelf = Shelf::new();
        assert!(shelf.insert(AT, 0, 7));
        assert!(shelf.insert(BESIDE, 0, 8));
        let reads = spawn(&shelf, |shelf| {
            let seen = shelf.seen(Span::ledger(1));
            assert!(matches!(*seen, [] | [7 | 8] | [7, 8]));
        });
        assert_eq!(shelf.clear(Span::ledger(1)), 2);
        reads.join().unwrap();
        shelf.end();
    });
}

/// I17: a walk over everything meets a page that stays, though the head above it loses its leaves and the leaf its other page.
#[test]
fn what_stays_is_met() {
    model("a walk meets what stays", || {
        let shelf = Shelf::new();
        let [above, below] = below_each_other();
        let beside = PageKey { number: below.number + 1, ..below };
        let pages = [above, beside, below].map(|key| shelf.open(key));
        let walks =
            spawn(&shelf, move |shelf| assert!(shelf.met(Span::ALL).contains(&below), "what stays is met"));
        shelf.close(&pages[0]);
        shelf.close(&pages[1]);
        let again = shelf.open(above);
        walks.join().unwrap();
        assert_eq!(shelf.met(Span::ALL), [above, below]);
        shelf.close(&again);
        shelf.close(&pages[2]);
        shelf.end();
    });
}

/// I17: a walk over everything, while the first heads are linked, one below the other.
#[test]
fn heads_linked_under_a_walk() {
    Model::new("heads linked under a walk").at_every_step().check(|| {
        let shelf = Shelf::new();
        let [above, below] = below_each_other();
        let opens = spawn(&shelf, move |shelf| {
            for key in [above, below] {
                assert!(matches!(shelf.0.link(page(key)), Link::Linked(_)));
            }
        });
        let met = shelf.met(Span::ALL);
        opens.join().unwrap();
        assert!(met.iter().all(|key| [above, below].contains(key)));
        for key in [above, below] {
            shelf.close(&shelf.0.find(key).expect("what was linked is found"));
        }
        shelf.end();
    });
}
