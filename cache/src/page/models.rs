//! Models of a page: who wins a value, when it is moved out, and who seals.
#![allow(clippy::disallowed_types, reason = "what the model must not see is kept in standard types")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the model")]

use std::sync::{Mutex as Unseen, MutexGuard};

use folio_sync::atomic::{AtomicU32, Ordering};
use folio_sync::test_util::{Model, Tracked, model};
use folio_sync::thread::JoinHandle;
use folio_sync::{Arc, thread};

use super::{Fate, Owner, Page, SLOTS, Values};
use crate::bits::Bits;

/// All slots of a page.
const ALL: u64 = (1 << SLOTS) - 1;

/// What is in a slot: a name, and a word beside it that readers write.
struct Card {
    name: u32,
    word: AtomicU32,
}

type Value = Tracked<Card>;

/// What went into a page, and what its owner was told.
#[derive(Default)]
struct Told {
    inserted: Vec<u32>,
    retiring: Vec<u32>,
    /// Names and words of the values moved out, in order.
    released: Vec<(u32, u32)>,
    /// Names of those of them that were retired before.
    retired: Vec<u32>,
    seals: u32,
}

/// A page and its owner.
struct Shelf {
    page: Box<Page<Value>>,
    /// A standard mutex: the model must not see it, since it would order what it is to show unordered.
    told: Unseen<Told>,
}

impl Owner<Value> for Shelf {
    fn retiring<'a>(&self, values: impl Iterator<Item = &'a Value>)
    where
        Value: 'a,
    {
        let names: Vec<u32> = values.map(|value| value.get().name).collect();
        self.told().retiring.extend(names);
    }

    fn released(&self, values: &Values<Value>, retired: bool, fate: Fate) {
        // Relaxed: whoever wrote the word has left.
        let cards = values.iter().map(|value| (value.get().name, value.get().word.load(Ordering::Relaxed)));
        let cards: Vec<(u32, u32)> = cards.collect();
        let mut told = self.told();
        for (name, _) in &cards {
            assert_eq!(
                retired,
                told.retiring.contains(name),
                "{name}: who retires a value tells of it first"
            );
        }
        if retired {
            told.retired.extend(cards.iter().map(|(name, _)| name));
        }
        told.released.extend(cards);
        drop(told);
        self.settle(fate);
    }
}

impl Shelf {
    /// A page that has these values from its first slot on, and so many reservations.
    fn new(names: &[u32], unused: u32) -> Arc<Self> {
        let page = Page::boxed(u32::try_from(names.len()).unwrap() + unused);
        let shelf = Self { page, told: Unseen::default() };
        for (slot, &name) in (0..).zip(names) {
            assert!(shelf.insert(slot, name));
        }
        Arc::new(shelf)
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap()
    }

    fn settle(&self, fate: Fate) {
        if fate == Fate::Sealed {
            self.told().seals += 1;
        }
    }

    fn give_back(&self, count: u32) {
        self.settle(self.page.give_back(count));
    }

    /// Inserts by a reservation of the caller's, which it keeps if the slot is claimed.
    fn insert(&self, slot: u32, name: u32) -> bool {
        let done = self.page.insert(slot, card(name)).is_ok();
        if done {
            self.told().inserted.push(name);
        }
        done
    }

    /// Inserts by a reservation made here and given back if it is of no use.
    fn reserve_and_insert(&self, slot: u32, name: u32) -> bool {
        if self.page.reserve(1).is_err() {
            return false;
        }
        let done = self.insert(slot, name);
        if !done {
            self.give_back(1);
        }
        done
    }

    /// Names of the values seen.
    fn read(&self, mask: u64) -> Vec<u32> {
        self.read_and(mask, |_| ())
    }

    fn read_and(&self, mask: u64, visit: impl Fn(&Card)) -> Vec<u32> {
        let mut names = Vec::new();
        let seen = self.page.read(
            mask,
            |slot, value| {
                let card = value.get();
                assert!(mask >> slot & 1 == 1, "only what was asked for is shown");
                visit(card);
                names.push(card.name);
            },
            self,
            &mut Values::new(),
        );
        assert_eq!(seen.count_ones() as usize, names.len());
        names
    }

    fn remove(&self, mask: u64) -> u64 {
        let won = self.page.remove(mask, self, &mut Values::new());
        assert_eq!(won & !mask, 0, "only what was asked for is removed");
        won
    }

    /// Checks the accounts when nobody is at it any more; then gives back these reservations, removes what is left, and checks again.
    fn close(&self, unused: u32) {
        let left = self.check(unused);
        self.give_back(unused);
        assert_eq!(self.remove(ALL), left);
        assert_eq!(self.check(0), 0);
        let told = self.told();
        assert_eq!(told.seals, 1, "one caller seals");
        assert_eq!(sorted(&told.inserted), sorted_names(&told.released), "what went in came out, once");
    }

    /// Checks the words of a page that nobody is at; tells which slots have a value.
    fn check(&self, unused: u32) -> u64 {
        let page = &self.page;
        // Relaxed, all: whoever was at it was joined.
        let present = page.present.load(Ordering::Relaxed);
        assert_eq!(page.pins.load(Ordering::Relaxed), 0, "nobody is inside");
        assert_eq!(page.retired.load(Ordering::Relaxed), 0, "nothing is left behind");
        assert_eq!(page.claimed.load(Ordering::Relaxed), present, "a slot without a value is free");
        assert_eq!(
            page.is_sealed(),
            present == 0 && unused == 0,
            "sealed if it lost its last, and only then"
        );
        let told = self.told();
        assert_eq!(told.inserted.len() - told.released.len(), present.count_ones() as usize);
        assert_eq!(sorted(&told.retiring), sorted(&told.retired), "what was retired was moved out");
        present
    }

    fn released(&self) -> Vec<(u32, u32)> {
        self.told().released.clone()
    }
}

fn card(name: u32) -> Value {
    Tracked::new(Card { name, word: AtomicU32::new(0) })
}

fn sorted(names: &[u32]) -> Vec<u32> {
    let mut names = names.to_vec();
    names.sort_unstable();
    names
}

fn sorted_names(cards: &[(u32, u32)]) -> Vec<u32> {
    sorted(&cards.iter().map(|(name, _)| *name).collect::<Vec<_>>())
}

fn spawn<R: Send + 'static>(
    shelf: &Arc<Shelf>,
    body: impl FnOnce(&Shelf) -> R + Send + 'static,
) -> JoinHandle<R> {
    let shelf = Arc::clone(shelf);
    thread::spawn(move || body(&shelf))
}

/// A model of every order of steps: readers, removers and who leaves load words that others write.
fn stepwise(name: &'static str) -> Model {
    Model::new(name).at_every_step()
}

/// I14: the last values of a full page are removed while an insert comes: it goes in, finds its slot claimed, or finds the page sealed.
#[test]
fn insert_against_the_seal_of_a_full_page() {
    stepwise("page: insert against seal, all slots claimed").check(|| {
        let shelf = Shelf::new(&[0, 1, 2, 3], 0);
        let remover = spawn(&shelf, |shelf| shelf.remove(ALL));
        shelf.reserve_and_insert(0, 4);
        assert_eq!(remover.join().unwrap() & !1, ALL & !1);
        shelf.close(0);
    });
}

/// I14: two reservations meet the seal: both fail, though the first that failed stays added.
#[test]
fn two_reservers_meet_one_seal() {
    stepwise("page: two reservers meet one seal").check(|| {
        let shelf = Shelf::new(&[0], 0);
        let others = [1, 2].map(|slot| spawn(&shelf, move |shelf| shelf.reserve_and_insert(slot, slot)));
        assert_eq!(shelf.remove(1), 1);
        for other in others {
            other.join().unwrap();
        }
        shelf.close(0);
    });
}

/// I14: the rest of a run is given back while the last value is removed: one of the two seals.
#[test]
fn run_given_back_against_a_removal() {
    stepwise("page: run given back against removal").check(|| {
        let shelf = Shelf::new(&[0], 2);
        let inserter = spawn(&shelf, |shelf| shelf.give_back(2));
        assert_eq!(shelf.remove(1), 1);
        inserter.join().unwrap();
        shelf.close(0);
    });
}

/// A reader sees values inserted one after the other as they were at one moment.
#[test]
fn reader_against_two_inserts() {
    stepwise("page: reader against two inserts").check(|| {
        let shelf = Shelf::new(&[0], 2);
        let inserter = spawn(&shelf, |shelf| assert!(shelf.insert(1, 1) && shelf.insert(2, 2)));
        let seen = shelf.read(ALL);
        assert!([&[0][..], &[0, 1], &[0, 1, 2]].contains(&&seen[..]), "{seen:?} never were there together");
        inserter.join().unwrap();
        shelf.close(0);
    });
}

/// Who sees a value present comes after whatever came before its insert.
#[test]
fn presence_comes_after_the_insert() {
    stepwise("page: presence").few_executions("one load against one publication").check(|| {
        let shelf = Shelf::new(&[], 1);
        let note = Arc::new(Unseen::new(None));
        let inserter = spawn(&shelf, {
            let note = Arc::clone(&note);
            move |shelf| {
                *note.lock().unwrap() = Some(Tracked::new(5));
                assert!(shelf.insert(0, 0));
            }
        });
        if shelf.page.present(ALL) != 0 {
            assert_eq!(note.lock().unwrap().as_ref().map(Tracked::get), Some(&5));
        }
        inserter.join().unwrap();
        shelf.close(0);
    });
}

/// I11: a value is inserted and removed by threads that know of each other by nothing but the slot.
#[test]
fn remover_against_an_insert() {
    stepwise("page: remover against insert").check(|| {
        let shelf = Shelf::new(&[0], 1);
        let inserter = spawn(&shelf, |shelf| assert!(shelf.insert(1, 1)));
        assert_eq!(shelf.remove(ALL) & 1, 1);
        inserter.join().unwrap();
        shelf.close(0);
    });
}

/// I10: each slot that two inserters both want goes to one of them, whole.
#[test]
fn insert_all_against_an_inserter_at_one_of_its_slots() {
    stepwise("page: insert_all against an inserter").check(|| {
        let shelf = Shelf::new(&[], 3);
        shelf.page.reserve(1).unwrap();
        let inserter = spawn(&shelf, |shelf| {
            let done = shelf.insert(1, 10);
            if !done {
                shelf.give_back(1);
            }
            done
        });
        let reader = spawn(&shelf, |shelf| shelf.read(ALL));
        let mut values = Values::new();
        (0..3).for_each(|slot| values.put(slot, card(slot)));
        let won = shelf.page.insert_all(&mut values);
        shelf.told().inserted.extend(Bits(won));
        shelf.give_back(3 - won.count_ones());
        assert_eq!(values.mask(), 0b111 & !won, "what was not taken stays the caller's");
        drop(values);
        assert_eq!(won, if inserter.join().unwrap() { 0b101 } else { 0b111 });
        let seen = reader.join().unwrap();
        assert_eq!(seen.contains(&0), seen.contains(&2), "what is inserted at once is seen at once");
        shelf.close(0);
    });
}

/// I9, I11: a slot is filled again only after its value is gone, which a reader puts off; the neighbour's slot stays claimed.
#[test]
fn reinsert_while_the_old_value_is_read() {
    stepwise("page: re-insert while the old value is read").check(|| {
        let shelf = Shelf::new(&[0, 1], 0);
        let other = spawn(&shelf, |shelf| {
            assert_eq!(shelf.remove(1), 1);
            let done = shelf.reserve_and_insert(0, 10);
            assert!(!shelf.reserve_and_insert(1, 11), "a value is there");
            done
        });
        let seen = shelf.read(ALL);
        assert!([&[0, 1][..], &[1], &[10, 1]].contains(&&seen[..]), "{seen:?} never were there together");
        let done = other.join().unwrap();
        assert_eq!(shelf.read(ALL), if done { vec![10, 1] } else { vec![1] });
        shelf.close(0);
    });
}

/// I18: what is written to a value that a reader saw present is written to that one, and before it is gone, whatever takes its slot
/// meanwhile.
#[test]
fn word_of_an_occupied_slot_against_removal_and_reinsert() {
    stepwise("page: word of an occupied slot").check(|| {
        let shelf = Shelf::new(&[0], 1);
        let remover = spawn(&shelf, |shelf| assert_eq!(shelf.remove(1) & !1, 0));
        let other = spawn(&shelf, |shelf| shelf.reserve_and_insert(0, 10));
        // Relaxed: a number.
        let seen = shelf.read_and(1, |card| card.word.store(7, Ordering::Relaxed));
        remover.join().unwrap();
        other.join().unwrap();
        shelf.close(1);
        for (name, word) in shelf.released() {
            assert_eq!(word, if seen.contains(&name) { 7 } else { 0 }, "{name}");
        }
    });
}

/// I9, I11: a value is removed while it is read: by the remover if the reader is gone, else by the reader.
#[test]
fn get_against_remove() {
    stepwise("page: get against remove").check(|| {
        let shelf = Shelf::new(&[0], 0);
        let remover = spawn(&shelf, |shelf| assert_eq!(shelf.remove(1), 1));
        shelf.read(1);
        remover.join().unwrap();
        shelf.close(0);
    });
}

/// I11: two removers of a slot each, and a reader of both.
#[test]
fn two_removers_of_different_slots_with_a_reader() {
    model("page: two removers, different slots, reader", || {
        let shelf = Shelf::new(&[0, 1], 0);
        let removers = [1, 2].map(|mask| spawn(&shelf, move |shelf| assert_eq!(shelf.remove(mask), mask)));
        shelf.read(ALL);
        for remover in removers {
            remover.join().unwrap();
        }
        shelf.close(0);
    });
}

/// I11: two removers of the same slots, and a reader: each value goes to one of them.
#[test]
fn two_removers_of_the_same_slots_with_a_reader() {
    model("page: two removers, same slots, reader", || {
        let shelf = Shelf::new(&[0, 1], 0);
        let removers = [0b11, 0b10].map(|mask| spawn(&shelf, move |shelf| shelf.remove(mask)));
        shelf.read(ALL);
        let won = removers.map(|remover| remover.join().unwrap());
        assert_eq!((won[0] & won[1], won[0] | won[1]), (0, 0b11), "each goes to one");
        shelf.close(0);
    });
}

/// A page that is dropped drops its values.
#[test]
fn dropped_page_drops_its_values() {
    Model::new("page: dropped").few_executions("nothing races a drop: it shows leaks only").check(|| {
        drop(Shelf::new(&[0, 1], 1));
    });
}

/// Runs while this thread is inside, and has it leave meanwhile.
fn last_out(shelf: &Arc<Shelf>, threads: impl FnOnce() -> [JoinHandle<()>; 2]) {
    let mut removed = Values::new();
    let inside = shelf.page.enter(&**shelf, &mut removed);
    let threads = threads();
    drop(inside);
    drop(removed);
    for thread in threads {
        thread.join().unwrap();
    }
}

/// I11: the last one out, a remover of both slots, and a reader.
#[test]
fn last_out_against_a_remover_of_both_slots_with_a_reader() {
    stepwise("page: last out, remover of both slots, reader").check(|| {
        let shelf = Shelf::new(&[0, 1], 0);
        last_out(&shelf, || {
            [
                spawn(&shelf, |shelf| assert_eq!(shelf.remove(ALL), 0b11)),
                spawn(&shelf, |shelf| assert!(shelf.read(ALL).len() != 1)),
            ]
        });
        shelf.close(0);
    });
}

/// I11: the last one out, a remover of one slot and then of the other, and a reader.
#[test]
fn last_out_against_a_remover_of_one_slot_after_the_other_with_a_reader() {
    model("page: last out, remover of one slot after the other, reader", || {
        let shelf = Shelf::new(&[0, 1], 0);
        last_out(&shelf, || {
            [
                spawn(&shelf, |shelf| assert_eq!((shelf.remove(0b01), shelf.remove(0b10)), (0b01, 0b10))),
                spawn(&shelf, |shelf| drop(shelf.read(0b10))),
            ]
        });
        shelf.close(0);
    });
}

/// I11: the same, the first slot's value being retired already: between the last one's first look and its taking, the reader comes in,
/// sees the second value, and that is retired.
#[test]
fn last_out_of_a_retired_value_against_a_remover_of_another_with_a_reader() {
    stepwise("page: last out, one value retired, remover of the other, reader").check(|| {
        let shelf = Shelf::new(&[0, 1], 0);
        last_out(&shelf, || {
            assert_eq!(shelf.remove(0b01), 0b01);
            [
                spawn(&shelf, |shelf| assert_eq!(shelf.remove(0b10), 0b10)),
                spawn(&shelf, |shelf| drop(shelf.read(0b10))),
            ]
        });
        shelf.close(0);
    });
}

/// I11: what was retired is put back when somebody came in, who then is the last one out.
#[test]
fn putting_back_against_the_last_one_out() {
    stepwise("page: put-back against last out").check(|| {
        let shelf = Shelf::new(&[0, 1], 0);
        last_out(&shelf, || {
            assert_eq!(shelf.remove(1), 1);
            [spawn(&shelf, |shelf| drop(shelf.read(ALL))), spawn(&shelf, |shelf| drop(shelf.read(ALL)))]
        });
        shelf.close(0);
    });
}
