//! Pages and the words that name them: linked, unlinked, replaced and freed while others hold them.
#![allow(clippy::disallowed_types, reason = "what the model must not see is kept in a standard type")]

use std::sync::atomic::{AtomicUsize, Ordering};

use folio_sync::test_util::{Model, model, spurious_every};

use super::*;

/// A page whose leaf stays, since another page of it is linked.
const AT: PageKey = key(0);
const BESIDE: PageKey = key(1);

/// A shelf whose leaf of `AT` stays until `BESIDE` is closed.
fn with_leaf() -> (Arc<Shelf>, Owned<Tracked<u32>>) {
    let shelf = Shelf::new();
    let beside = shelf.open(BESIDE);
    (shelf, beside)
}

/// I14: the removal of a page's last value seals it while another thread inserts: the value goes into this page or into the next one, and is
/// found.
#[test]
fn insert_against_seal() {
    model("insert against seal, through the index", || {
        let shelf = Shelf::new();
        assert!(shelf.insert(AT, 0, 7));
        let inserts = spawn(&shelf, |shelf| assert!(shelf.insert(AT, 1, 8)));
        assert_eq!(shelf.remove(AT, 1), 1);
        inserts.join().unwrap();
        assert_eq!(shelf.get(AT, 1), Some(8), "what was inserted is found");
        assert_eq!(shelf.remove(AT, SLOTS), 2);
        shelf.end();
    });
}

/// I14: two inserters meet a page that is sealed: one makes the next page, and both have a reservation in it.
#[test]
fn two_inserters_meet_one_seal() {
    model("two inserters meet one seal", || {
        let (shelf, beside) = with_leaf();
        let open = shelf.open(AT);
        let inserters = [(); 2].map(|()| spawn(&shelf, |shelf| drop(shelf.open(AT))));
        shelf.close(&open);
        drop(open);
        join(inserters);
        let page = shelf.0.find(AT).expect("what was inserted is found");
        (0..2).for_each(|_| shelf.close(&page));
        drop(page);
        shelf.close(&beside);
        shelf.end();
    });
}

/// I14, I15: two inserters of one position and a remover: whoever is the last one to have something in the page takes it out.
#[test]
fn loser_is_last_out() {
    model("two inserters and a remover, the loser last out", || {
        let shelf = Shelf::new();
        let insert = |value| {
            move |shelf: &Shelf| {
                if !shelf.insert(AT, 0, value) {
                    shelf.get(AT, 0);
                }
            }
        };
        let one = spawn(&shelf, insert(7));
        let other = spawn(&shelf, insert(8));
        shelf.remove(AT, 1);
        one.join().unwrap();
        other.join().unwrap();
        shelf.remove(AT, 1);
        shelf.end();
    });
}

/// I14: a page is sealed and its sealer comes late to take it out: an inserter takes it out instead, and a reader sees the next one or none.
#[test]
fn sealer_is_stalled() {
    model("sealed page, the sealer stalled", || {
        let (shelf, beside) = with_leaf();
        let sealed = shelf.open(AT);
        assert_eq!(sealed.page.give_back(1), Fate::Sealed);
        let inserts = spawn(&shelf, |shelf| assert!(shelf.insert(AT, 0, 7)));
        let reads = spawn(&shelf, |shelf| assert!(matches!(shelf.get(AT, 0), None | Some(7))));
        shelf.settle(&sealed, Fate::Sealed);
        drop(sealed);
        inserts.join().unwrap();
        reads.join().unwrap();
        assert_eq!(shelf.get(AT, 0), Some(7), "what was inserted is found");
        assert_eq!(shelf.remove(AT, 1), 1);
        shelf.close(&beside);
        shelf.end();
    });
}

/// I9, I13: a page is replaced by another one while a reader is between its word and its values.
#[test]
fn replaced_under_a_reader() {
    model("page replaced while a reader is in the node", || {
        let (shelf, beside) = with_leaf();
        assert!(shelf.insert(AT, 0, 7));
        let reads = spawn(&shelf, |shelf| assert!(matches!(shelf.get(AT, 0), None | Some(7 | 8))));
        assert_eq!(shelf.remove(AT, 1), 1);
        // The slot is still claimed while the reader is inside.
        let inserted = shelf.insert(AT, 0, 8);
        reads.join().unwrap();
        assert_eq!(shelf.remove(AT, 1) == 1, inserted);
        shelf.close(&beside);
        shelf.end();
    });
}

/// I9: the same with two readers, who hold the page and look at nothing in it.
#[test]
fn replaced_under_two_readers() {
    model("page replaced while two readers are in the node", || {
        let (shelf, beside) = with_leaf();
        let first = shelf.open(AT);
        let readers = [(); 2].map(|()| spawn(&shelf, |shelf| shelf.look(AT)));
        shelf.close(&first);
        drop(first);
        let second = shelf.open(AT);
        join(readers);
        assert!(shelf.has(AT));
        shelf.close(&second);
        shelf.close(&beside);
        shelf.end();
    });
}

/// I9: readers leave while the page is taken out: by its word or, when that names it no more, by a reference.
#[test]
fn counts_become_references() {
    model("counts become references while readers leave", || {
        let (shelf, beside) = with_leaf();
        let page = shelf.open(AT);
        let held = shelf.0.find(AT).unwrap();
        let readers = [(); 2].map(|()| spawn(&shelf, |shelf| shelf.look(AT)));
        shelf.close(&page);
        drop(page);
        drop(held);
        join(readers);
        shelf.close(&beside);
        shelf.end();
    });
}

/// I9: the same, with every third weak compare-and-set failing.
#[test]
fn counts_with_spurious_failures() {
    Model::new("counts become references, with spurious failures").at_every_step().check(|| {
        let _spurious = spurious_every(3);
        let (shelf, beside) = with_leaf();
        let page = shelf.open(AT);
        let reads = spawn(&shelf, |shelf| shelf.look(AT));
        shelf.close(&page);
        drop(page);
        assert!(!shelf.has(AT));
        reads.join().unwrap();
        shelf.close(&beside);
        shelf.end();
    });
}

/// How many readers had a reference of their own in all executions of a model.
static OWNED: AtomicUsize = AtomicUsize::new(0);

/// I9: a reader that finds as many as can be counted takes a reference of its own, while the page is taken out.
#[test]
fn one_reader_too_many() {
    Model::new("a reader takes a reference, since many are counted").at_every_step().check(|| {
        let (shelf, beside) = with_leaf();
        let page = shelf.open(AT);
        let held = [(); 2].map(|()| shelf.0.find(AT).unwrap());
        let reads = spawn(&shelf, |shelf| {
            let found = shelf.0.find(AT);
            if found.is_some_and(|found| !found.is_counted()) {
                OWNED.fetch_add(1, Ordering::Relaxed);
            }
        });
        shelf.close(&page);
        drop(page);
        drop(held);
        reads.join().unwrap();
        shelf.close(&beside);
        shelf.end();
    });
    assert!(OWNED.load(Ordering::Relaxed) > 0, "some reader takes a reference of its own");
}

/// I15: an index is dropped that still has pages, by whoever has it last.
#[test]
fn dropped_with_pages() {
    Model::new("drop of an index that still has pages").at_every_step().check(|| {
        let shelf = Shelf::new();
        assert!(shelf.insert(AT, 0, 7));
        let [_, further] = below_each_other();
        let inserts = spawn(&shelf, move |shelf| assert!(shelf.insert(further, 0, 8)));
        let page = shelf.open(BESIDE);
        drop(shelf);
        drop(page);
        inserts.join().unwrap();
    });
}
