//! I33, 1.11: with room in the budget a permit allocates nothing, nor does a cursor that moves, nor the question who still has to read.
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests run on the standard library only, and their helpers unwrap as they do"
)]

#[cfg(not(any(loom, shuttle)))]
fn main() {
    counted::main();
}

/// The counting allocator is there for the standard build only.
#[cfg(any(loom, shuttle))]
fn main() {}

#[cfg(not(any(loom, shuttle)))]
mod counted {
    use std::time::Duration;

    use folio_cache::{Acquired, ActiveCursors, PermitOptions, ReadPermits};
    use folio_sync::arc_dyn;
    use folio_sync::test_util::alloc::{Counting, Counts};
    use folio_sync::test_util::{ManualClock, ManualTimers};
    use folio_sync::time::Clock;
    use folio_sync::timers::Timers;

    #[global_allocator]
    static ALLOCATOR: Counting = Counting::system();

    /// What a thousand rounds allocate and free.
    fn of_a_thousand(mut round: impl FnMut()) -> (u64, u64) {
        round();
        let before = Counts::now();
        (0..1_000).for_each(|_| round());
        let during = Counts::now() - before;
        (during.allocations, during.frees)
    }

    pub(crate) fn main() {
        let clock = ManualClock::new();
        let timers = arc_dyn!(ManualTimers::new(&clock) => dyn Timers);
        let permits = ReadPermits::new(PermitOptions::default(), timers);
        let acquires = of_a_thousand(|| {
            let Ok(Acquired::Now(mut permit)) = permits.acquire(1_000, |_| unreachable!()) else { panic!() };
            permit.shrink(500);
            assert_eq!(permits.snapshot().in_use, 500);
        });
        assert_eq!(acquires, (0, 0), "nobody waits");

        let cursors = ActiveCursors::new(Duration::ZERO, arc_dyn!(clock => dyn Clock));
        let mut moving: Vec<_> = (0..100).map(|entry| cursors.add((1, entry))).collect();
        let mut at = 100;
        let moves = of_a_thousand(|| {
            for cursor in &mut moving {
                at += 7;
                cursor.advance_to((1, at));
            }
            assert_eq!(cursors.at_or_before((1, at)), 100);
            assert!(cursors.slowest().is_some());
        });
        assert_eq!(moves, (0, 0), "a cursor that moves takes the node that it left");

        let counted = of_a_thousand(|| drop(std::hint::black_box(Box::new(1_u64))));
        assert_eq!(counted, (1_000, 1_000), "the allocator counts");
        println!("allocations: none in 1,000 rounds");
    }
}
