//! O15: turns allocate when made and when a thread first drives one, and nothing when joined, scheduled, yielded, refused and waited in.
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests of the standard build use the standard library's own types, and unwrap also in their helpers"
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
    use folio_sync::test_util::ManualExecutor;
    use folio_sync::test_util::alloc::{Counting, Counts};
    use folio_turn::{Demand, Joined, Next, Scheduled, Stranded, Turn, Work};

    #[global_allocator]
    static ALLOCATOR: Counting = Counting::system();

    const GO: Demand = Demand::soft(0);
    const URGENT: Demand = Demand::urgent(0);

    struct Countdown(u32);

    impl Work for Countdown {
        fn step(&mut self, _turn: &Turn<Self>, demand: Demand) -> Next {
            if demand.contains(URGENT) {
                return Next::Idle;
            }
            if self.0 == 0 {
                self.0 = 5;
                return Next::Wait;
            }
            self.0 -= 1;
            Next::Again
        }

        fn stranded(stranded: Stranded<Self>) {
            drop(stranded.ownership);
        }
    }

    fn round(turn: &Turn<Countdown>, executor: &ManualExecutor) {
        assert!(turn.record(GO).must_run());
        assert_eq!(turn.join().expect("taken"), Joined::Yielded);
        executor.run_all();
        assert!(!turn.record(GO).must_run());
        assert!(turn.record(URGENT).must_run());
        assert_eq!(turn.schedule(executor).expect("taken"), Scheduled::Queued);
        executor.run_all();
        assert!(turn.record(URGENT).must_run());
        executor.refuse_next(1);
        let stranded = turn.schedule(executor).expect_err("refused");
        assert_eq!(stranded.ownership.run().expect("one step"), Joined::Ran);
    }

    pub(crate) fn main() {
        let executor = ManualExecutor::new();
        let before = Counts::now();
        let turn = Turn::builder(Countdown(5)).budget(2).yield_to(executor.clone());
        let during = Counts::now() - before;
        // Under ThreadSanitizer the owners of an `Arc` are counted in an allocation of their own.
        let made = if cfg!(tsan) { 6 } else { 3 };
        assert_eq!(
            (during.allocations, during.frees),
            (made, 0),
            "the turn, its job and the executor's handle"
        );

        // Each thread that drives a turn, once.
        let drive = || {
            let before = Counts::now();
            assert!(turn.record(URGENT).must_run());
            assert_eq!(turn.join().expect("one step"), Joined::Ran);
            Counts::now() - before
        };
        let counts = std::thread::scope(|scope| {
            let thread = scope.spawn(|| [drive(), drive()].map(|during| (during.allocations, during.frees)));
            thread.join().expect("nothing panics")
        });
        assert_eq!(counts, [(1, 0), (0, 0)], "the first turn of a thread, and each other one");

        for _ in 0..10 {
            round(&turn, &executor);
        }
        let before = Counts::now();
        for _ in 0..1_000 {
            round(&turn, &executor);
        }
        let during = Counts::now() - before;
        assert_eq!((during.allocations, during.frees), (0, 0));

        let before = Counts::now();
        drop(std::hint::black_box(Box::new(1_u64)));
        let during = Counts::now() - before;
        assert_eq!((during.allocations, during.frees), (1, 1), "the allocator counts");
        println!("allocations: none in 1,000 rounds");
    }
}
