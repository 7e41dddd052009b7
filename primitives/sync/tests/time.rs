//! Clocks: the system's, its upkeep, and the hand-set one.
#![cfg(not(any(loom, shuttle)))]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests use the standard library directly, and fail where they unwrap"
)]

use std::time::{Duration, SystemTime};

use folio_sync::test_util::ManualClock;
use folio_sync::time::{Clock, Instant, SystemClock, Upkeep};
use folio_sync::{Arc, unwind};

#[test]
fn moments_saturate_at_both_ends() {
    let late = Instant::from_nanos(u64::MAX);
    assert_eq!(late + Duration::MAX, late);
    assert_eq!(Instant::ORIGIN - Duration::from_secs(1), Instant::ORIGIN);
    assert_eq!(Instant::ORIGIN.since(late), Duration::ZERO);
    assert_eq!(late.since(Instant::ORIGIN), Duration::from_nanos(u64::MAX));
    assert_eq!(Instant::ORIGIN + Duration::from_nanos(5) - Duration::from_nanos(2), Instant::from_nanos(3));
}

#[test]
fn the_system_clock_never_goes_back_and_its_coarse_time_is_never_ahead() {
    let clock = Arc::new(SystemClock::new());
    let watch = |clock: &SystemClock| {
        let mut last = Instant::ORIGIN;
        let mut last_coarse = Instant::ORIGIN;
        for _ in 0..10_000 {
            let coarse = clock.coarse();
            let now = clock.now();
            assert!(coarse <= now && last <= now && last_coarse <= coarse && last <= coarse);
            (last, last_coarse) = (now, coarse);
        }
    };
    let threads = [(); 3].map(|()| {
        let clock = Arc::clone(&clock);
        std::thread::spawn(move || watch(&clock))
    });
    for thread in threads {
        thread.join().unwrap();
    }
}

#[test]
fn the_first_coarse_time_is_read_from_the_clock() {
    assert!(SystemClock::new().coarse() > Instant::ORIGIN);
    assert!(SystemClock::default().wall() > SystemTime::UNIX_EPOCH);
}

#[test]
fn an_upkeep_moves_the_coarse_time_and_ends_when_dropped() {
    let clock = Arc::new(SystemClock::new());
    let upkeep = Upkeep::start(Arc::clone(&clock), Duration::from_micros(100)).unwrap();
    for _ in 0..3 {
        let earlier = clock.coarse();
        while clock.coarse() == earlier {
            std::thread::yield_now();
        }
    }
    assert_eq!(format!("{upkeep:?}"), "Upkeep { .. }");
    drop(upkeep);
    assert_eq!(Arc::strong_count(&clock), 1, "its thread has ended");
    assert_eq!(clock.coarse(), clock.coarse(), "nobody moves it");
}

#[test]
fn an_upkeep_that_sleeps_long_still_ends_at_once() {
    let clock = Arc::new(SystemClock::new());
    drop(Upkeep::start(clock, Duration::from_secs(3600)).unwrap());
}

#[test]
fn a_hand_set_clock_moves_only_when_told() {
    let clock = ManualClock::new();
    assert_eq!(
        (clock.now(), clock.coarse(), clock.wall()),
        (Instant::ORIGIN, Instant::ORIGIN, SystemTime::UNIX_EPOCH)
    );
    let same = clock.clone();
    same.advance(Duration::from_secs(3));
    assert_eq!(clock.now().as_nanos(), 3_000_000_000);
    assert_eq!(clock.wall(), SystemTime::UNIX_EPOCH + Duration::from_secs(3));
    clock.advance_to(Instant::from_nanos(5));
    assert_eq!(clock.now().as_nanos(), 3_000_000_000, "it does not go back");
}

#[test]
fn a_coarse_time_that_is_held_or_set_lags_until_it_is_released() {
    let clock = ManualClock::new();
    clock.advance(Duration::from_nanos(10));
    clock.hold_coarse();
    clock.advance(Duration::from_nanos(10));
    assert_eq!((clock.coarse().as_nanos(), clock.now().as_nanos()), (10, 20));
    clock.set_coarse(Instant::from_nanos(15));
    clock.advance(Duration::from_nanos(10));
    assert_eq!((clock.coarse().as_nanos(), clock.now().as_nanos()), (15, 30));
    clock.release_coarse();
    assert_eq!(clock.coarse(), clock.now());
    clock.advance(Duration::from_nanos(1));
    assert_eq!(clock.coarse(), clock.now());
}

#[test]
fn a_coarse_time_cannot_be_set_ahead_or_back() {
    let clock = ManualClock::new();
    clock.advance(Duration::from_nanos(10));
    assert!(unwind::catch(|| clock.set_coarse(Instant::from_nanos(11))).is_err());
    assert!(unwind::catch(|| clock.set_coarse(Instant::from_nanos(9))).is_err());
    assert_eq!(clock.coarse(), clock.now());
}

#[test]
fn the_time_of_day_jumps_alone_and_goes_on_from_there() {
    let clock = ManualClock::new();
    let noon = SystemTime::UNIX_EPOCH + Duration::from_secs(43_200);
    clock.set_wall(noon);
    clock.advance(Duration::from_secs(1));
    assert_eq!(clock.wall(), noon + Duration::from_secs(1));
    assert_eq!(clock.now().as_nanos(), 1_000_000_000);
    clock.set_wall(SystemTime::UNIX_EPOCH - Duration::from_secs(1));
    assert_eq!(clock.wall(), SystemTime::UNIX_EPOCH);
}
