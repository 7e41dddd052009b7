//! Models of what removals tell and count, on a page that is not looked up.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the model")]

use folio_sync::test_util::{Tracked, model};
use folio_sync::time::Instant;
use folio_sync::{Arc, thread};

use super::{Core, Removed};
use crate::budget::Budget;
use crate::entry::Entry;
use crate::eviction::EvictionOptions;
use crate::index::{Link, Linked, Owned, PageKey};
use crate::page::Values;

struct Scene {
    core: Core<Tracked<()>>,
    page: Owned<Entry<Tracked<()>>>,
}

impl Scene {
    /// A page with a maker's reservations, and an entry in each of its first slots that weighs one more than the one before.
    fn with(entries: u32) -> Arc<Self> {
        let core = Core::new(Arc::new(Budget::new(&EvictionOptions::default())));
        let fresh = Linked::boxed(PageKey { ledger: 1, number: 0 }, 0, entries + 1);
        let Link::Linked(page) = core.index.link(fresh) else { unreachable!("nothing else is linked") };
        core.linked();
        let mut credit = core.charge(1 << 10).unwrap();
        for slot in 0..entries {
            let weight = u64::from(slot) + 1;
            let entry = Entry::new(Tracked::new(()), weight, 0, Instant::ORIGIN);
            assert!(page.page.insert(slot, entry).is_ok());
            credit -= weight;
        }
        core.discharge(credit);
        Arc::new(Self { core, page })
    }

    /// Removes one slot; what was told of it.
    fn remove(&self, slot: u32) -> Removed {
        self.core.remove(&self.page, 1 << slot, &mut Values::new())
    }

    /// Looks at one slot.
    fn read(&self, slot: u32) {
        self.core.read(&self.page, 1 << slot, |_, entry| {
            entry.value.get();
        });
    }

    /// All is removed: nothing is left but the maker's reservation.
    fn ends(&self) {
        let weights = (self.core.weight(), self.core.retired_weight(), self.core.budget.charged());
        assert_eq!(weights, (0, 0, 0));
        assert_eq!((self.core.len(), self.core.pages()), (0, 1));
        let fate = self.page.page.give_back(1);
        self.core.settle(&self.page, fate);
        assert_eq!(self.core.pages(), 0);
    }
}

/// I11: each removal counts its own, also when it drops what another one has left to the last reader.
#[test]
fn two_removals_and_a_reader() {
    model("two removals and a reader", || {
        let scene = Scene::with(2);
        let removers = [0, 1].map(|slot| {
            let scene = Arc::clone(&scene);
            thread::spawn(move || {
                assert_eq!(scene.remove(slot), Removed { entries: 1, weight: u64::from(slot) + 1 });
            })
        });
        // The reader is this thread: three preemptions are enough to have one removal take what both have left to it.
        scene.read(1);
        for remover in removers {
            remover.join().unwrap();
        }
        scene.ends();
    });
}
