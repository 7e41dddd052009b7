//! 4.1: nothing is allocated before the first task, no task and no batch costs an allocation, and a burst leaves no memory behind.
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests run on the standard library only, and their helpers unwrap as they do"
)]

#[cfg(not(any(loom, shuttle)))]
mod support;

#[cfg(any(loom, shuttle))]
fn main() {}

#[cfg(not(any(loom, shuttle)))]
fn main() {
    count::the_counter_sees_an_allocation();
    count::nothing_is_allocated_for_the_queue_before_the_first_task();
    count::a_batch_allocates_nothing();
    count::a_task_costs_its_share_of_a_block();
    count::a_burst_leaves_at_most_three_blocks();
    println!("allocations: ok");
}

#[cfg(not(any(loom, shuttle)))]
mod count {
    use folio_sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use folio_executor::{BatchingExecutor, Builder, DEFAULT_BLOCK, OrderedExecutor};
    use folio_sync::test_util::alloc::{Counting, Counts};

    use super::support::{Gate, producers, until};

    #[global_allocator]
    static ALLOCATOR: Counting = Counting::system();

    /// An upper bound of the bytes of a block of 24-byte tasks: the task, its slot's state, and the block's head.
    const BLOCK_BYTES: i64 = (DEFAULT_BLOCK as u64 * (24 + 8) + 64).cast_signed();

    type Task = [u64; 3];

    struct Scene {
        executor: BatchingExecutor<Task>,
        pool: OrderedExecutor,
        done: Arc<AtomicU64>,
    }

    fn scene(set: impl Fn(Builder<Task>) -> Builder<Task>) -> Scene {
        let pool = OrderedExecutor::builder().threads(1).build().unwrap();
        let done = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&done);
        let builder = BatchingExecutor::builder(move |_: Task| {
            counted.fetch_add(1, Ordering::Release);
        });
        let executor = set(builder).build(pool.workers()[0].clone()).unwrap();
        Scene { executor, pool, done }
    }

    impl Scene {
        /// Submits this many tasks, and waits without a flush, which would allocate.
        fn run(&self, tasks: u64) {
            let before = self.done.load(Ordering::Acquire);
            for task in 0..tasks {
                self.executor.submit([task; 3]).unwrap();
            }
            self.until_done(before + tasks);
        }

        /// Ends the worker's thread, so that it frees nothing while the next scene is counted.
        fn end(self) {
            drop(self.executor);
            assert!(self.pool.join().unwrap().is_empty());
        }

        fn until_done(&self, tasks: u64) {
            let idle = || self.executor.queued() == 0 && self.pool.workers()[0].depth() == 0;
            until("all have run", || self.done.load(Ordering::Acquire) == tasks && idle());
        }
    }

    pub(super) fn the_counter_sees_an_allocation() {
        let before = Counts::now();
        drop(std::hint::black_box(Box::new(7_u64)));
        assert_eq!((Counts::now() - before).allocations, 1, "a deliberate allocation is seen");
    }

    pub(super) fn nothing_is_allocated_for_the_queue_before_the_first_task() {
        let scene = scene(|builder| builder);
        // The worker has started, and has its own first block.
        Gate::hold(&scene.pool.workers()[0]).open();
        scene.until_done(0);
        let before = Counts::now();
        assert_eq!((scene.executor.queued(), scene.executor.is_closed()), (0, false));
        assert_eq!((Counts::now() - before).allocations, 0, "nothing is allocated before the first task");
        scene.run(1);
        let first = Counts::now() - before;
        assert_eq!(
            first.allocations, 1,
            "the first task allocates a block, and its batch nothing: {first:?}"
        );
        assert!(first.allocated_bytes <= BLOCK_BYTES.cast_unsigned(), "{first:?}");
        scene.run(1);
        assert_eq!((Counts::now() - before).allocations, 1, "the next task fits into the block");
        scene.executor.close();
        assert!(scene.executor.submit([0; 3]).is_err());
        scene.executor.shutdown_now();
        assert_eq!((Counts::now() - before).allocations, 1);
        scene.end();
    }

    /// One task a batch, one block for all: what is allocated is the worker's blocks of 64 jobs.
    pub(super) fn a_batch_allocates_nothing() {
        let scene = scene(|builder| builder.max_items(1));
        scene.run(1_000);
        let batches = scene.pool.workers()[0].jobs();
        let before = Counts::now();
        scene.run(10_000);
        let during = Counts::now() - before;
        let batches = scene.pool.workers()[0].jobs() - batches;
        assert!(batches >= 10_000, "each task has a batch of its own: {batches}");
        let blocks = 10_000 / DEFAULT_BLOCK as u64 + batches / 64;
        assert!(
            during.allocations <= blocks + blocks / 10 + 4,
            "{during:?} in {batches} batches, {blocks} blocks"
        );
    }

    pub(super) fn a_task_costs_its_share_of_a_block() {
        const EACH: u64 = 50_000;
        let scene = scene(|builder| builder);
        producers(4, |_| (0..EACH).for_each(|task| scene.executor.submit([task; 3]).unwrap()));
        scene.until_done(4 * EACH);
        let before = Counts::now();
        let (go, ready) = (Gate::new(), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    ready.fetch_add(1, Ordering::Release);
                    go.pass();
                    for task in 0..EACH {
                        scene.executor.submit([task; 3]).unwrap();
                    }
                });
            }
            until("all are ready", || ready.load(Ordering::Acquire) == 4);
            let started = Counts::now();
            go.open();
            scene.until_done(8 * EACH);
            let during = Counts::now() - started;
            let tasks = 4 * EACH;
            assert!(during.allocations * 20 <= tasks, "{} allocations for {tasks} tasks", during.allocations);
        });
        let after = Counts::now() - before;
        assert!(after.live_bytes() <= 2 * BLOCK_BYTES + 4_096, "{after:?}");
        scene.end();
    }

    pub(super) fn a_burst_leaves_at_most_three_blocks() {
        const BURST: u64 = 1_000_000;
        let scene = scene(|builder| builder);
        scene.run(10);
        let before = Counts::now();
        let gate = Gate::hold(&scene.pool.workers()[0]);
        for task in 0..BURST {
            scene.executor.submit([task; 3]).unwrap();
        }
        let full = Counts::now() - before;
        assert!(full.live_bytes() > 24 * BURST.cast_signed(), "the burst was queued: {full:?}");
        gate.open();
        drop(gate);
        scene.until_done(10 + BURST);
        // The last turn frees what it has left as it ends; one more task comes after that.
        scene.run(1);
        let after = Counts::now() - before;
        assert!(
            after.live_bytes() <= 3 * BLOCK_BYTES + 4_096,
            "{} bytes are left: {after:?}",
            after.live_bytes()
        );
        let blocks = BURST / DEFAULT_BLOCK as u64;
        assert!(full.allocations <= blocks + blocks / 10 + 8, "{full:?}");
        scene.end();
    }
}
