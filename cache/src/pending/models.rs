//! Models of reads that join what is being answered or detached.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the model")]

use folio_sync::atomic::{AtomicUsize, Ordering};
use folio_sync::test_util::{Tracked, model};
use folio_sync::{Arc, Mutex, thread};

use super::{PendingReads, ReadDone, ReadStorage};

/// What is read: copies are copies of the owner, as of a buffer.
type Payload = Arc<Tracked<i64>>;

/// Keeps reads until they are answered.
#[derive(Clone, Default)]
struct Shelf(Arc<Mutex<Vec<Read>>>);

/// First entry, how many, and whom to tell.
type Read = (i64, u32, ReadDone<Payload>);

impl ReadStorage<Payload> for Shelf {
    fn read(&self, _ledger: i64, first: i64, count: u32, done: ReadDone<Payload>) {
        self.0.lock().push((first, count, done));
    }
}

impl Shelf {
    /// Answers the oldest read, if there is one, in full.
    fn answer(&self) -> bool {
        let read = {
            let mut reads = self.0.lock();
            (!reads.is_empty()).then(|| reads.remove(0))
        };
        let Some((first, count, done)) = read else { return false };
        let entries = first..first + i64::from(count);
        done.succeed(entries.map(|entry| Arc::new(Tracked::new(entry))).collect::<Vec<_>>());
        true
    }
}

#[derive(Clone)]
struct Scene {
    reads: PendingReads<Payload>,
    shelf: Shelf,
    told: Arc<AtomicUsize>,
}

impl Scene {
    fn new() -> Self {
        let shelf = Shelf::default();
        Self { reads: PendingReads::new(shelf.clone()), shelf, told: Arc::default() }
    }

    /// Reads a range, which is told in full.
    fn read(&self, first: i64, count: u32) {
        let told = Arc::clone(&self.told);
        self.reads.read(1, first, count, move |entries| {
            let entries = entries.unwrap();
            let positions: Vec<_> = entries.iter().map(|entry| *entry.get()).collect();
            assert_eq!(positions, (first..first + i64::from(count)).collect::<Vec<_>>());
            // Relaxed: read when all threads are joined.
            told.fetch_add(1, Ordering::Relaxed);
        });
    }

    /// Answers what is left: so many reads were told, by so many reads of storage at most.
    fn ends(&self, told: usize, begun: std::ops::RangeInclusive<u64>) {
        while self.shelf.answer() {}
        assert_eq!(self.told.load(Ordering::Relaxed), told);
        let counts = self.reads.counts();
        assert!(begun.contains(&counts.begun), "{counts:?}");
        assert_eq!(counts.begun, counts.answered);
    }
}

/// I24, I34: reads that come as the one that they could join is answered join it or are read anew; all are told.
#[test]
fn attach_racing_completion() {
    model("attach racing completion", || {
        let scene = Scene::new();
        scene.read(0, 2);
        let answering = scene.clone();
        let storage = thread::spawn(move || assert!(answering.shelf.answer()));
        let joining = scene.clone();
        let reader = thread::spawn(move || joining.read(0, 2));
        scene.read(1, 1);
        storage.join().unwrap();
        reader.join().unwrap();
        scene.ends(3, 1..=3);
    });
}

/// I24: a read over one that is being answered and its neighbours is told once, in full, as is one that joins a part of it.
#[test]
fn overlap_racing_completion() {
    model("overlap racing completion", || {
        let scene = Scene::new();
        scene.read(1, 1);
        let answering = scene.clone();
        let storage = thread::spawn(move || {
            assert!(answering.shelf.answer());
            answering.shelf.answer();
        });
        let joining = scene.clone();
        let reader = thread::spawn(move || joining.read(1, 2));
        scene.read(0, 2);
        storage.join().unwrap();
        reader.join().unwrap();
        scene.ends(3, 3..=4);
    });
}

/// I24: what waited before an invalidation is told, whatever reads and answers come with it.
#[test]
fn invalidate_racing_attach() {
    model("invalidate racing attach", || {
        let scene = Scene::new();
        scene.read(0, 2);
        let joining = scene.clone();
        let reader = thread::spawn(move || joining.read(0, 2));
        let answering = scene.clone();
        let storage = thread::spawn(move || assert!(answering.shelf.answer()));
        scene.reads.invalidate(1);
        reader.join().unwrap();
        storage.join().unwrap();
        scene.ends(2, 1..=2);
    });
}

/// 1.9: a read after an invalidation waits for none from before it, though that is answered meanwhile, and is waited for by others.
#[test]
fn anew_racing_the_answer_of_the_old() {
    model("anew racing the answer of the old", || {
        let scene = Scene::new();
        scene.read(0, 2);
        scene.reads.invalidate(1);
        let answering = scene.clone();
        let storage = thread::spawn(move || assert!(answering.shelf.answer()));
        let joining = scene.clone();
        let reader = thread::spawn(move || joining.read(0, 2));
        scene.read(0, 2);
        storage.join().unwrap();
        reader.join().unwrap();
        scene.ends(3, 2..=3);
    });
}
