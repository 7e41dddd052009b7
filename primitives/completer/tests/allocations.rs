//! Running a completion at once allocates nothing; its own binary, since it counts the allocations of all threads.
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests run on the standard library only, and unwrap also in their helpers"
)]

#[cfg(not(any(loom, shuttle)))]
fn main() {
    counted::all();
}

/// The counting allocator is there for the standard build only.
#[cfg(any(loom, shuttle))]
fn main() {}

#[cfg(not(any(loom, shuttle)))]
mod counted {
    use std::sync::atomic::{AtomicU64, Ordering};

    use folio_completer::{Completed, InlineCompleter, Policy, refusable};
    use folio_sync::test_util::alloc::{Counting, Counts};
    use folio_sync::{Arc, Executor, Job, RejectReason, Rejected, SerialExecutor};

    #[global_allocator]
    static ALLOCATOR: Counting = Counting::system();

    /// Believes that every thread is its own, and takes nothing.
    struct Here;

    impl Executor for Here {
        fn submit(&self, job: Job) -> Result<(), Rejected<Job>> {
            Err(Rejected::new(job, RejectReason::Refused))
        }
    }

    impl SerialExecutor for Here {
        fn is_current(&self) -> bool {
            true
        }
    }

    /// Completes inside a completion until the limit.
    fn nest(completer: &InlineCompleter, ran: &Arc<AtomicU64>, left: u32) {
        let (next, count, payload) = (completer.clone(), Arc::clone(ran), [7_u8; 200]);
        let outcome = completer.complete(move || {
            count.fetch_add(u64::from(payload[0] == 7), Ordering::Relaxed);
            if left > 1 {
                nest(&next, &count, left - 1);
            }
        });
        assert_eq!(outcome.unwrap(), Completed::Ran);
    }

    fn during(work: impl FnOnce()) -> Counts {
        let before = Counts::now();
        work();
        Counts::now() - before
    }

    pub(super) fn all() {
        const ROUNDS: u64 = 1_000;
        for policy in [Policy::Inline, Policy::Affine] {
            let completer = InlineCompleter::builder(policy, Here).depth_limit(10).overflow(Here).build();
            let ran = Arc::new(AtomicU64::new(0));
            nest(&completer, &ran, 10);

            let counts = during(|| {
                for _ in 0..ROUNDS {
                    nest(&completer, &ran, 10);
                    let end = refusable(Arc::clone(&ran), drop, |_, _| ());
                    assert_eq!(completer.complete(end).unwrap(), Completed::Ran);
                }
            });
            assert_eq!(counts, Counts::default(), "{policy:?} allocated");
            assert_eq!(ran.load(Ordering::Relaxed), 10 * (ROUNDS + 1));
        }

        let counts = during(|| drop(std::hint::black_box(Box::new(7_u64))));
        assert_eq!((counts.allocations, counts.frees), (1, 1), "a deliberate allocation is not seen");

        // Queueing does allocate, twice, and frees both when it is refused.
        let completer = InlineCompleter::builder(Policy::Inline, Here).depth_limit(1).overflow(Here).build();
        let inner = completer.clone();
        let counts = during(|| {
            let outcome = completer.complete(move || assert!(inner.complete(|| ()).is_err()));
            assert_eq!(outcome.unwrap(), Completed::Ran);
        });
        // Under ThreadSanitizer the owners of an `Arc` are counted in an allocation of their own, which stays.
        let owners = u64::from(cfg!(tsan));
        assert_eq!((counts.allocations, counts.frees), (2 + owners, 2));
        println!("running at once allocates nothing: ok");
    }
}
