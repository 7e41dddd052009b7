//! Models of the way of a key: left by whoever inserts, taken over by the evictor.
#![allow(clippy::disallowed_types, reason = "what the model must not see is kept in standard types")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the model")]

use folio_sync::test_util::{Model, Tracked, model, spurious_every};
use folio_sync::time::Instant;
use folio_sync::{Arc, thread};

use super::inbox::Inbox;
use super::{Evicted, EvictionOptions, EvictionQueue, Key, Shared};
use crate::cache::Registration;
use crate::core::Core;
use crate::index::PageKey;
use crate::inserter::Inserter;
use crate::weigh::Weigh;

/// A value that weighs nothing: so it touches no counter.
struct Nothing(Tracked<()>);

impl Weigh for Nothing {
    fn weight(&self) -> u64 {
        self.0.get();
        0
    }
}

fn nothing() -> Nothing {
    Nothing(Tracked::new(()))
}

const LATE: Instant = Instant::from_nanos(100);

/// The page of the entries 0 to 3 of ledger 1.
const PAGE: PageKey = PageKey { ledger: 1, number: 0 };

/// A queue that keeps nothing for another round, and a cache of it.
fn scene() -> (EvictionQueue<Nothing>, Arc<Registration<Nothing>>) {
    let options = EvictionOptions { max_requeues: 0, ..EvictionOptions::default() };
    let queue = EvictionQueue::new(options);
    let shared: &Arc<Shared<Nothing>> = queue.shared();
    let core = Arc::new(Core::new(Arc::clone(&shared.budget)));
    let id = shared.enlist(&core);
    let registration = Registration { core, queue: Arc::clone(shared), id };
    (queue, Arc::new(registration))
}

/// 1.6: whoever enters a page finds its key left, or leaves it: then the evictor knows of it, though its maker is stopped after linking it.
#[test]
fn announcing_racing_the_evictor() {
    model("announcing racing the evictor", || {
        let (queue, registration) = scene();
        // The page's leaf is there.
        let mut beside = Inserter::new(Arc::clone(&registration));
        beside.insert((1, 4), nothing(), 0, Instant::ORIGIN).unwrap();
        assert_eq!(queue.evict_before(LATE, LATE).unwrap().entries, 1);
        let mut maker = Inserter::new(Arc::clone(&registration));
        let mut other = Inserter::new(Arc::clone(&registration));
        let (evictor, found) = (queue.clone(), Arc::clone(&registration));
        let enters = thread::spawn(move || {
            let mut gone = 0;
            if found.core.index.find(PAGE).is_some() {
                other.insert((1, 1), nothing(), 0, Instant::ORIGIN).unwrap();
                let Evicted { entries, .. } = evictor.evict_before(LATE, LATE).unwrap();
                assert!(entries >= 1, "what was inserted can be evicted");
                assert!(
                    (2..=3).contains(&evictor.keys()),
                    "the keys of two pages, and perhaps one that was left twice"
                );
                gone = entries + 1;
            }
            (gone, other, evictor, found)
        });
        maker.insert((1, 0), nothing(), 0, Instant::ORIGIN).unwrap();
        let (mut gone, other, _evictor, _found) = enters.join().unwrap();
        queue.evict_before(Instant::ORIGIN, LATE).unwrap();
        assert_eq!((queue.keys(), queue.pages()), (2, 2), "one key a page");
        drop((maker, other, beside));
        gone += queue.evict_before(LATE, LATE).unwrap().entries;
        assert!(gone == 1 || gone == 3, "each goes once");
        assert_eq!((queue.keys(), queue.pages()), (0, 0));
    });
}

/// A key all of whose parts tell which one it is.
fn key(number: u64) -> Key {
    let part = number.cast_signed();
    Key { cache: number, page: PageKey { ledger: part, number: part }, birth: number }
}

/// Takes all keys, and checks that each is as it was left; which ones.
fn take(inbox: &Inbox, taken: &mut Vec<u64>) {
    inbox.take_all(|taken_key| {
        assert_eq!(taken_key, key(taken_key.birth), "a key is whole");
        taken.push(taken_key.birth);
    });
}

/// Takes what is left, and checks that these keys were taken, each once.
fn ends_with(inbox: &Inbox, mut taken: Vec<u64>, keys: &[u64]) {
    take(inbox, &mut taken);
    taken.sort_unstable();
    assert_eq!(taken, keys, "each key is taken once");
}

/// 1.6: two that leave a key each and the evictor, which takes all: each key comes out whole, and once.
#[test]
fn keys_left_while_all_are_taken() {
    Model::new("keys left while all are taken").at_every_step().check(|| {
        let inbox = Arc::new(Inbox::new());
        // There is room for two keys.
        inbox.push(key(0));
        inbox.take_all(|_| ());
        let pushers = [1, 2].map(|number| {
            let inbox = Arc::clone(&inbox);
            thread::spawn(move || inbox.push(key(number)))
        });
        let mut taken = Vec::new();
        take(&inbox, &mut taken);
        for pusher in pushers {
            pusher.join().unwrap();
        }
        ends_with(&inbox, taken, &[1, 2]);
    });
}

/// 1.6: the place of a key that was taken is used again while others leave theirs, with every third weak compare-and-set failing.
#[test]
fn places_of_keys_are_used_again() {
    model("places of keys are used again", || {
        let _spurious = spurious_every(3);
        let inbox = Arc::new(Inbox::new());
        inbox.push(key(1));
        inbox.push(key(2));
        let pusher = {
            let inbox = Arc::clone(&inbox);
            thread::spawn(move || {
                inbox.push(key(3));
                inbox.push(key(4));
            })
        };
        let mut taken = Vec::new();
        take(&inbox, &mut taken);
        inbox.push(key(5));
        pusher.join().unwrap();
        ends_with(&inbox, taken, &[1, 2, 3, 4, 5]);
    });
}

/// I15, 1.6: the last inserter goes, and the cache with it, while the evictor is at it: each value is dropped once, the queue forgets the cache.
#[test]
fn end_of_a_cache_racing_the_evictor() {
    model("end of a cache racing the evictor", || {
        let (queue, registration) = scene();
        let mut inserter = Inserter::new(registration);
        inserter.insert((1, 0), nothing(), 0, LATE).unwrap();
        assert_eq!(queue.evict_before(LATE, LATE).unwrap().entries, 0, "the key is taken over");
        assert_eq!(queue.keys(), 1);
        let evictor = queue.clone();
        let evicts = thread::spawn(move || (evictor.evict_weight(1, LATE).unwrap().entries, evictor));
        drop(inserter);
        let (evicted, _evictor) = evicts.join().unwrap();
        assert!(evicted <= 1);
        assert_eq!(queue.0.caches.lock().len(), 0, "the queue forgets the cache");
        queue.evict_before(Instant::ORIGIN, LATE).unwrap();
        assert_eq!((queue.keys(), queue.pages()), (0, 0));
    });
}
