//! A thread that stands still at a step, while others go on.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::thread;
use std::time::Instant as Wall;

use folio_cache::{EvictError, Position, Reason};
use folio_sync::test_util::pause::{Stop, When};
use folio_sync::time::Instant;

use crate::common::{LONG, Scene, at, options, outcome, threads};

/// Rounds of each of the two threads that go on, at three places each: ten thousand entries come and go.
const ROUNDS: usize = 1_700;

/// Where the thread stands that is stopped: its operation is about this place.
pub(crate) const PLACE: Position = (1, 0);

/// Whether the stopped thread is inside the page of its place, as a reader is: then what is removed there is not moved out before it goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inside {
    No,
    Yes,
}

/// A cache for such a test.
pub(crate) fn scene() -> Scene {
    Scene::with(options(0, false), 6 * ROUNDS + 1_000)
}

/// Runs an operation that stops at a step; while it stands two others run all operations ten thousand times, then `meanwhile` runs. When it has gone
/// on, nothing is left.
#[track_caller]
pub(crate) fn stalled(
    step: &'static str,
    when: When,
    inside: Inside,
    scene: Scene,
    operation: impl FnOnce(&Scene) + Send,
    meanwhile: impl FnOnce(&Scene),
) {
    let (pause, shown) = (Stop::new(step, when), &scene);
    thread::scope(|scope| {
        let thread = scope.spawn(|| pause.run(|| operation(shown)));
        let stopped = pause.stopped();
        others_go_on(shown, inside);
        meanwhile(shown);
        assert!(!thread.is_finished(), "it stands {when:?} {step}");
        drop(stopped);
        thread.join().unwrap();
    });
    scene.end();
}

/// Two threads insert, read, mark and remove in the page of the stopped thread's place, in the next one, and in ledgers of their own.
pub(crate) fn others_go_on(scene: &Scene, inside: Inside) {
    threads(2, |thread| {
        let thread = thread.cast_signed() as i64;
        let (ledger, entry) = PLACE;
        let here = (ledger, entry + 1 + thread);
        for round in 0..ROUNDS {
            let taken = round_trip(scene, here, inside);
            assert!(
                taken || (inside, round > 0) == (Inside::Yes, true),
                "its place was free, and nobody else's"
            );
            assert!(round_trip(scene, (ledger, entry + 64 + thread), Inside::No));
            assert!(round_trip(scene, (5 + thread, 0), Inside::No));
            if round % 16 == 0 {
                let pass = scene.queue.evict_before(Instant::ORIGIN, Instant::ORIGIN);
                assert!(pass.is_ok_and(|evicted| evicted.entries == 0) || pass == Err(EvictError::Busy));
            }
        }
    });
}

/// Inserts, finds and removes an entry at a place that is this thread's; whether it was taken.
///
/// It waits until the other one of the two has left the page, but not for the stopped thread.
fn round_trip(scene: &Scene, place: Position, inside: Inside) -> bool {
    let (cache, began) = (&scene.cache, Wall::now());
    let mut value = scene.value(place, 1);
    while let Err(given_back) = cache.insert(place, value, 3, at(1)) {
        assert_eq!(given_back.reason, Reason::Busy, "{place:?}");
        assert!(!cache.contains(place) && cache.get(place).is_none());
        if inside == Inside::Yes {
            return false;
        }
        value = given_back.value;
        assert!(began.elapsed() < LONG, "{place:?} stays busy");
        thread::yield_now();
    }
    let found = cache.get(place).expect("nobody else removes it");
    assert_eq!(found.position, place);
    let mut visited = 0;
    cache.for_each_in_range(place..=place, |position, value| {
        assert_eq!((position, value.id), (place, found.id));
        visited += 1;
    });
    assert_eq!(visited, 1);
    assert!(cache.mark_read(place));
    assert_eq!(cache.expected_reads(place), Some(2));
    assert_eq!(cache.remove_range(place..=place).entries, 1);
    assert!(!cache.contains(place));
    true
}

/// What an insert at the stopped thread's place comes to; what is taken is removed again if it can be.
pub(crate) fn insert_there(scene: &Scene) -> Option<Reason> {
    let outcome = outcome(scene.cache.insert(PLACE, scene.value(PLACE, 1), 0, at(1)));
    if outcome.is_none() {
        assert!(scene.cache.contains(PLACE));
        assert_eq!(scene.cache.remove_range(PLACE..=PLACE).entries, 1);
    }
    outcome
}
