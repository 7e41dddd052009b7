//! Active cursors: how many still have to read a position, and whether an entry is worth caching.
#![cfg(not(any(loom, shuttle)))]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests run on the standard library only, and their helpers unwrap as they do"
)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use folio_cache::{ActiveCursor, ActiveCursors};
use folio_sync::arc_dyn;
use folio_sync::test_util::ManualClock;
use folio_sync::time::Clock;

const LINGER: Duration = Duration::from_secs(2);

fn cursors() -> (ActiveCursors, ManualClock) {
    let clock = ManualClock::new();
    (ActiveCursors::new(LINGER, arc_dyn!(clock.clone() => dyn Clock)), clock)
}

/// 1.11: a cursor still has to read where it stands and what comes after, in the order of positions.
#[test]
fn a_cursor_has_to_read_from_where_it_stands_on() {
    let (cursors, _clock) = cursors();
    assert_eq!((cursors.len(), cursors.slowest(), cursors.at_or_before((1, 0))), (0, None, 0));
    let mut a = cursors.add((1, 5));
    let b = cursors.add((1, 5));
    let c = cursors.add((2, -1));
    let counts = |cursors: &ActiveCursors| {
        [(0, i64::MAX), (1, 4), (1, 5), (1, i64::MAX), (2, -1), (i64::MAX, 0)]
            .map(|at| cursors.at_or_before(at))
    };
    assert_eq!(counts(&cursors), [0, 0, 2, 2, 3, 3]);
    a.advance_to((1, 6));
    assert_eq!((counts(&cursors), a.position()), ([0, 0, 1, 2, 3, 3], (1, 6)));
    a.advance_to((1, 4));
    assert_eq!((counts(&cursors), cursors.slowest()), ([0, 1, 2, 2, 3, 3], Some((1, 4))));
    drop(b);
    assert_eq!(counts(&cursors), [0, 1, 1, 1, 2, 2]);
    drop((a, c));
    assert_eq!((cursors.len(), cursors.is_empty(), counts(&cursors)), (0, true, [0; 6]));
}

/// 1.11: entries are worth caching as long as there is a cursor, and for the linger after the last one has left.
#[test]
fn entries_are_worth_caching_for_a_while_after_the_last_cursor() {
    let (cursors, clock) = cursors();
    assert!(!cursors.worth_caching(clock.now()), "nobody ever read");
    let first = cursors.add((1, 0));
    let second = cursors.add((1, 0));
    clock.advance(Duration::from_secs(10));
    drop(first);
    clock.advance(Duration::from_secs(10));
    assert!(
        cursors.worth_caching(clock.now()),
        "the second one is there, however long ago the first one left"
    );
    drop(second);
    let left = clock.now();
    assert!(cursors.worth_caching(left));
    assert!(cursors.worth_caching(left + LINGER.saturating_sub(Duration::from_nanos(1))));
    assert!(!cursors.worth_caching(left + LINGER), "less than a linger ago");
    let third = cursors.add((1, 0));
    assert!(cursors.worth_caching(left + LINGER * 10));
    drop(third);
}

/// 1.11: thousands of cursors in random order, held against a sorted list: adding, moving both ways, leaving, and each rank.
#[test]
fn counts_are_those_of_a_sorted_list() {
    const CURSORS: usize = 2_000;
    const STEPS: usize = 20_000;
    let (cursors, _clock) = cursors();
    let mut seed = 7_u64;
    let mut random = move |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    let mut handles: Vec<ActiveCursor> = Vec::new();
    let mut position = move || (random(4).cast_signed() - 1, random(600).cast_signed() - 1, random(1 << 31));
    for step in 0..STEPS {
        let (ledger, entry, dice) = position();
        let which = usize::try_from(dice).unwrap() % handles.len().max(1);
        match dice % 8 {
            _ if handles.len() < CURSORS && step < CURSORS * 2 => handles.push(cursors.add((ledger, entry))),
            0 if !handles.is_empty() => drop(handles.swap_remove(which)),
            1 => handles.push(cursors.add((ledger, entry))),
            _ => handles[which].advance_to((ledger, entry)),
        }
        if step % 50 == 0 {
            let mut sorted: Vec<_> = handles.iter().map(ActiveCursor::position).collect();
            sorted.sort_unstable();
            assert_eq!((cursors.len() as usize, cursors.slowest()), (sorted.len(), sorted.first().copied()));
            for _ in 0..10 {
                let (ledger, entry, _) = position();
                let at = (ledger, entry);
                let below = sorted.partition_point(|other| *other <= at);
                assert_eq!(cursors.at_or_before(at) as usize, below, "{at:?} in step {step}");
            }
        }
    }
    handles.clear();
    assert_eq!((cursors.len(), cursors.slowest()), (0, None));
}

/// 1.11: threads move their cursors while others ask: a cursor always counts once.
#[test]
fn a_cursor_that_moves_always_counts_once() {
    const MOVES: i64 = 20_000;
    let (cursors, clock) = cursors();
    let standing = cursors.add((1, MOVES / 2));
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let movers: Vec<_> = (0..2)
            .map(|_| {
                let mut cursor = cursors.add((1, 0));
                scope.spawn(move || (1..=MOVES).for_each(|entry| cursor.advance_to((1, entry))))
            })
            .collect();
        let asks = scope.spawn(|| {
            let mut before = 3;
            while !ended.load(Ordering::Relaxed) {
                assert!(cursors.worth_caching(clock.now()));
                let now = cursors.at_or_before((1, MOVES / 2));
                assert!(now >= 1 && now <= before, "they only ever go past it: {now} after {before}");
                before = now;
                let all = cursors.at_or_before((1, MOVES));
                assert!((1..=3).contains(&all));
            }
        });
        for mover in movers {
            mover.join().unwrap();
        }
        ended.store(true, Ordering::Relaxed);
        asks.join().unwrap();
    });
    assert_eq!((cursors.len(), cursors.slowest()), (1, Some((1, MOVES / 2))));
    drop(standing);
}
