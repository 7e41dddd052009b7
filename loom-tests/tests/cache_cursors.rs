//! Models of the active cursors: one that moves counts once, and the last one that leaves begins the linger.
#![cfg(loom)]

use std::time::Duration;

use folio_cache::ActiveCursors;
use folio_sync::test_util::{ManualClock, Model};
use folio_sync::time::Clock;
use folio_sync::{arc_dyn, thread};

/// 1.11: a cursor moves past another one while they are counted: each counts once, before or after the move.
#[test]
fn counting_racing_a_move() {
    let model = Model::new("counting racing a move").few_executions("one lock, and two operations");
    model.check(|| {
        let clock = arc_dyn!(ManualClock::new() => dyn Clock);
        let cursors = ActiveCursors::new(Duration::from_secs(1), clock);
        let standing = cursors.add((1, 1));
        let mut moving = cursors.add((1, 0));
        let thread = thread::spawn(move || {
            moving.advance_to((1, 2));
            moving
        });
        let (here, all) = (cursors.at_or_before((1, 1)), cursors.at_or_before((1, 2)));
        assert!((1..=2).contains(&here), "{here} at or before the one that stands");
        assert_eq!(all, 2);
        let moving = thread.join().unwrap_or_else(|_| unreachable!("it does not panic"));
        assert_eq!(cursors.at_or_before((1, 1)), 1);
        drop((standing, moving));
        assert!(cursors.is_empty());
    });
}

/// 1.11: one cursor leaves as another one comes: entries are worth caching for good.
#[test]
fn leaving_racing_coming() {
    let model = Model::new("leaving racing coming").few_executions("one lock, and two operations");
    model.check(|| {
        let clock = ManualClock::new();
        let cursors = ActiveCursors::new(Duration::from_secs(1), arc_dyn!(clock.clone() => dyn Clock));
        let leaves = cursors.add((1, 0));
        let thread = thread::spawn(move || drop(leaves));
        let comes = cursors.add((1, 0));
        assert!(cursors.worth_caching(clock.now()));
        let joined = thread.join();
        assert!(joined.is_ok());
        clock.advance(Duration::from_secs(9));
        assert!(cursors.worth_caching(clock.now()), "one is there");
        drop(comes);
        clock.advance(Duration::from_secs(1));
        assert!(!cursors.worth_caching(clock.now()));
    });
}
