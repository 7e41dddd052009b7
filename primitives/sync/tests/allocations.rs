//! The counting allocator, and what the types of this crate allocate: alone in its process, since it counts all threads.
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests use the standard library directly, and fail where they unwrap"
)]

#[cfg(not(any(loom, shuttle)))]
fn main() {
    checks::all();
}

#[cfg(any(loom, shuttle))]
fn main() {}

#[cfg(not(any(loom, shuttle)))]
mod checks {
    use std::alloc::{GlobalAlloc, Layout};
    use std::hint::black_box;
    use std::time::Duration;

    use folio_sync::test_util::ManualExecutor;
    use folio_sync::test_util::alloc::{self, Counting, Counts};
    use folio_sync::timers::{ThreadTimers, Timers};
    use folio_sync::{Arc, Executor, Job, SharedJob, arc_dyn};

    #[global_allocator]
    static ALLOCATOR: Counting = Counting::system();

    pub(super) fn all() {
        let checks: [(&str, fn()); 7] = [
            (
                "a_deliberate_allocation_is_seen_with_its_bytes",
                a_deliberate_allocation_is_seen_with_its_bytes,
            ),
            (
                "allocations_and_frees_of_other_threads_are_counted",
                allocations_and_frees_of_other_threads_are_counted,
            ),
            ("a_reallocation_is_one_more_and_one_less", a_reallocation_is_one_more_and_one_less),
            ("a_failed_allocation_is_none", a_failed_allocation_is_none),
            ("nothing_is_counted_while_paused", nothing_is_counted_while_paused),
            (
                "a_shared_job_is_submitted_again_without_allocating",
                a_shared_job_is_submitted_again_without_allocating,
            ),
            ("cancelled_timers_leave_nothing_behind", cancelled_timers_leave_nothing_behind),
        ];
        for (name, check) in checks {
            check();
            println!("test {name} ... ok");
        }
    }

    fn during(work: impl FnOnce()) -> Counts {
        let before = Counts::now();
        work();
        Counts::now() - before
    }

    fn a_deliberate_allocation_is_seen_with_its_bytes() {
        assert_eq!(during(|| ()), Counts::default());
        let mut kept = None;
        let counts = during(|| kept = Some(black_box(Box::new([0_u8; 100]))));
        assert_eq!((counts.allocations, counts.frees), (1, 0));
        assert_eq!((counts.allocated_bytes, counts.live_bytes()), (100, 100));
        let counts = during(|| drop(kept));
        assert_eq!((counts.allocations, counts.frees), (0, 1));
        assert_eq!((counts.freed_bytes, counts.live_bytes()), (100, -100));
        let counts = during(|| drop(black_box(vec![0_u64; 16])));
        assert_eq!((counts.allocations, counts.frees, counts.allocated_bytes), (1, 1, 128));
    }

    fn allocations_and_frees_of_other_threads_are_counted() {
        // More threads than shards, so that some share one.
        const THREADS: usize = 100;
        const EACH: usize = 50;
        let starting = during(|| {
            for _ in 0..THREADS {
                std::thread::spawn(|| ()).join().unwrap();
            }
        });
        let counts = during(|| {
            for _ in 0..THREADS {
                let blocks =
                    std::thread::spawn(|| [(); EACH].map(|()| black_box(Box::new(1_u64)))).join().unwrap();
                drop(blocks);
            }
        });
        let blocks = (THREADS * EACH) as u64;
        assert!(counts.allocations >= starting.allocations.saturating_sub(THREADS as u64) + blocks);
        assert!(counts.frees >= starting.frees.saturating_sub(THREADS as u64) + blocks);
    }

    fn a_reallocation_is_one_more_and_one_less() {
        let mut bytes: Vec<u8> = Vec::with_capacity(64);
        bytes.push(1);
        let counts = during(|| bytes.reserve_exact(10_000));
        assert_eq!((counts.allocations, counts.frees), (1, 1));
        assert_eq!(counts.live_bytes(), i64::try_from(bytes.capacity()).unwrap() - 64);
    }

    /// An allocator that has nothing.
    struct Exhausted;

    // SAFETY: no block is ever handed out, so there is none whose contract could be broken.
    unsafe impl GlobalAlloc for Exhausted {
        unsafe fn alloc(&self, _layout: Layout) -> *mut u8 {
            std::ptr::null_mut()
        }

        unsafe fn dealloc(&self, _block: *mut u8, _layout: Layout) {
            unreachable!("no block is handed out");
        }

        unsafe fn realloc(&self, _block: *mut u8, _layout: Layout, _new_size: usize) -> *mut u8 {
            std::ptr::null_mut()
        }
    }

    fn a_failed_allocation_is_none() {
        let exhausted = Counting::new(Exhausted);
        let layout = Layout::new::<u64>();
        let mut kept = 0_u64;
        let counts = during(|| {
            // SAFETY: the size is not zero.
            let block = unsafe { exhausted.alloc(layout) };
            assert!(block.is_null());
            // SAFETY: the size is not zero.
            let block = unsafe { exhausted.alloc_zeroed(layout) };
            assert!(block.is_null());
            // SAFETY: the allocator never looks at the block.
            let block = unsafe { exhausted.realloc((&raw mut kept).cast(), layout, 16) };
            assert!(block.is_null());
        });
        assert_eq!(counts, Counts::default());
    }

    fn nothing_is_counted_while_paused() {
        alloc::pause();
        let counts = during(|| drop(black_box(Box::new(1))));
        alloc::resume();
        assert_eq!(counts, Counts::default());
        assert_eq!(during(|| drop(black_box(Box::new(1)))).allocations, 1);
    }

    fn a_shared_job_is_submitted_again_without_allocating() {
        struct Nothing;

        impl SharedJob for Nothing {
            fn run(&self, _this: &Arc<dyn SharedJob>) {}

            fn abandoned(&self, _this: &Arc<dyn SharedJob>) {}
        }

        let executor = ManualExecutor::new();
        let job = arc_dyn!(Nothing => dyn SharedJob);
        let submit = || executor.submit(Job::shared(Arc::clone(&job))).unwrap();
        submit();
        executor.run_all();
        let counts = during(|| {
            for _ in 0..1_000 {
                submit();
                assert!(executor.run_next());
            }
        });
        assert_eq!(counts, Counts::default());
        assert_eq!(during(|| Job::new(|| ()).run()).allocations, 0, "nothing is captured");
        let captured = black_box(7);
        assert_eq!(during(|| Job::new(move || assert_eq!(captured, 7)).run()).allocations, 1);
    }

    fn cancelled_timers_leave_nothing_behind() {
        let timers = ThreadTimers::new();
        let never = Duration::from_secs(3600);
        let set_and_cancel = || {
            let timer = timers.once(never, Job::new(|| ())).unwrap();
            drop(timers.cancel(timer).unwrap());
        };
        set_and_cancel();
        let counts = during(|| {
            for _ in 0..10_000 {
                set_and_cancel();
            }
        });
        assert!(counts.live_bytes() < 4_096, "{} bytes are left", counts.live_bytes());

        let many: Vec<_> = (0..10_000).map(|_| timers.once(never, Job::new(|| ())).unwrap()).collect();
        let counts = during(|| {
            for timer in many {
                drop(timers.cancel(timer).unwrap());
            }
        });
        assert!(counts.live_bytes() < -10_000 * 16, "each entry is freed when it is cancelled");
        assert!(timers.shutdown().is_empty());
    }
}
