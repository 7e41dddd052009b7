//! A thread that runs what a channel brings, the depth counter written by hand, and what a change of threads costs.

use std::cell::Cell;
use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, Thread, ThreadId};

use folio_executor::OrderedExecutor;
use folio_sync::{Executor, Job, RejectReason, Rejected, SerialExecutor};

use crate::runner::{Block, Case, Metric};

/// A serial executor: one thread, one channel. The thread ends with the last handle.
#[derive(Clone)]
pub(super) struct ChannelExecutor {
    jobs: crossbeam_channel::Sender<Job>,
    thread: ThreadId,
}

impl ChannelExecutor {
    pub(super) fn start() -> Self {
        let (jobs, taken) = crossbeam_channel::unbounded::<Job>();
        let thread = thread::spawn(move || {
            for job in taken {
                job.run();
            }
        });
        Self { jobs, thread: thread.thread().id() }
    }
}

impl Executor for ChannelExecutor {
    fn submit(&self, job: Job) -> Result<(), Rejected<Job>> {
        self.jobs.send(job).map_err(|refused| Rejected::new(refused.into_inner(), RejectReason::Closed))
    }
}

impl SerialExecutor for ChannelExecutor {
    fn is_current(&self) -> bool {
        thread::current().id() == self.thread
    }
}

/// One worker of an ordered executor, which ends with the last handle.
#[derive(Clone)]
pub(super) struct OrderedWorker {
    pool: Arc<OrderedExecutor>,
}

impl OrderedWorker {
    pub(super) fn start() -> Self {
        let pool = OrderedExecutor::builder()
            .name("bench")
            .threads(1)
            .build()
            .expect("the system starts one more thread");
        Self { pool: Arc::new(pool) }
    }
}

impl Executor for OrderedWorker {
    fn submit(&self, job: Job) -> Result<(), Rejected<Job>> {
        self.pool.workers()[0].submit(job)
    }
}

impl SerialExecutor for OrderedWorker {
    fn is_current(&self) -> bool {
        self.pool.workers()[0].is_current()
    }

    fn resubmit(&self, job: Job) -> Result<(), Rejected<Job>> {
        self.pool.workers()[0].resubmit(job)
    }
}

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// One level of the counter written by hand; leaves it when dropped.
pub(super) struct Level;

impl Level {
    /// One level deeper, unless `limit` levels are entered.
    #[inline]
    pub(super) fn enter(limit: u32) -> Option<Self> {
        let depth = DEPTH.get();
        (depth < limit).then(|| {
            DEPTH.set(depth + 1);
            Self
        })
    }
}

impl Drop for Level {
    #[inline]
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

/// Where a driver waits for one result after the other: it spins a moment, then parks.
#[derive(Debug)]
pub(super) struct Waiter {
    results: AtomicU64,
    driver: Thread,
}

impl Waiter {
    /// For the calling thread.
    pub(super) fn new() -> Self {
        Self { results: AtomicU64::new(0), driver: thread::current() }
    }

    /// One more result is there.
    pub(super) fn complete(&self) {
        // Release: what led to the result is visible to the driver.
        self.results.fetch_add(1, Ordering::Release);
        self.driver.unpark();
    }

    /// Waits for result number `wanted`.
    pub(super) fn wait(&self, wanted: u64) {
        const SPINS: u32 = 200;
        let mut tries = 0;
        // Acquire: pairs with the Release of `complete`.
        while self.results.load(Ordering::Acquire) < wanted {
            if tries < SPINS {
                tries += 1;
                spin_loop();
            } else {
                thread::park();
            }
        }
    }
}

/// What it costs to have something done by another thread and to hear of it.
pub(super) fn block() -> Block {
    let channel = Case::looped("channel there and back", 20_000, |turns| {
        let (ask, asked) = crossbeam_channel::unbounded::<u64>();
        let (answer, answered) = crossbeam_channel::unbounded::<u64>();
        thread::scope(|scope| {
            scope.spawn(move || {
                for turn in asked {
                    answer.send(turn).expect("the driver listens");
                }
            });
            for turn in 0..turns {
                ask.send(turn).expect("the other thread listens");
                answered.recv().expect("the other thread answers");
            }
            drop(ask);
        });
    });
    let pool = Case::looped("rayon::spawn from outside, and back", 5_000, |turns| {
        let waiter = Arc::new(Waiter::new());
        for turn in 1..=turns {
            let done = Arc::clone(&waiter);
            rayon::spawn_fifo(move || done.complete());
            waiter.wait(turn);
        }
    });
    Block::new(
        "a change of threads",
        vec![channel.documented(Metric::Wall, 525.0), pool.documented(Metric::Wall, 857.0)],
    )
}
