//! A shipper that sends batches in order: readers complete, acknowledgements come in, one owner does all the work.
//!
//! Run with `cargo run -p folio-turn --example log_shipper`.
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "an example uses the standard library's own types"
)]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use folio_sync::{Executor, Job, RejectReason, Rejected};
use folio_turn::{Demand, Next, Scheduled, Stranded, Turn, Work};

/// More may be sent: it can wait while a read is outstanding.
const MORE: Demand = Demand::soft(0);
/// A read came back.
const RESULT: Demand = Demand::urgent(0);

const BATCHES: usize = 12;

/// What comes back from reads; the demand only says that something is there.
#[derive(Default)]
struct Mailbox(Mutex<Option<usize>>);

struct Shipper {
    mailbox: Arc<Mailbox>,
    reads: mpsc::Sender<usize>,
    next: usize,
    reading: bool,
    wanted: bool,
    shipped: Arc<AtomicUsize>,
}

impl Work for Shipper {
    fn step(&mut self, _turn: &Turn<Self>, demand: Demand) -> Next {
        self.wanted |= demand.contains(MORE);
        if demand.contains(RESULT)
            && let Some(batch) = self.mailbox.0.lock().expect("nothing panics under it").take()
        {
            println!("  {:<9} ships batch {batch}", thread_name());
            self.reading = false;
            self.shipped.fetch_add(1, Ordering::Relaxed);
            return Next::Again;
        }
        if self.reading {
            return Next::Wait;
        }
        if !self.wanted || self.next == BATCHES {
            return Next::Idle;
        }
        self.wanted = false;
        self.reading = true;
        println!("  {:<9} reads batch {}", thread_name(), self.next);
        self.reads.send(self.next).expect("the reader outlives the shipper");
        self.next += 1;
        Next::Again
    }

    fn stranded(stranded: Stranded<Self>) {
        println!("  the worker is gone: {stranded}; the shipper lets go");
    }
}

fn thread_name() -> String {
    std::thread::current().name().unwrap_or("?").to_owned()
}

/// Sends jobs to one worker thread.
#[derive(Clone)]
struct Worker(mpsc::Sender<Job>);

impl Executor for Worker {
    fn submit(&self, job: Job) -> Result<(), Rejected<Job>> {
        self.0.send(job).map_err(|unsent| Rejected::new(unsent.0, RejectReason::Closed))
    }
}

fn main() {
    let (jobs, worker_jobs) = mpsc::channel::<Job>();
    let (reads, requests) = mpsc::channel();
    let mailbox = Arc::new(Mailbox::default());
    let shipped = Arc::new(AtomicUsize::new(0));
    let worker = Worker(jobs);
    let owner = Shipper {
        mailbox: Arc::clone(&mailbox),
        reads,
        next: 0,
        reading: false,
        wanted: false,
        shipped: Arc::clone(&shipped),
    };
    let turn = Turn::builder(owner).budget(8).yield_to(worker.clone());

    let work = std::thread::Builder::new().name("worker".into()).spawn(move || {
        for job in worker_jobs {
            job.run();
        }
    });
    let (reader_turn, reader_mailbox) = (turn.clone(), Arc::clone(&mailbox));
    let reader = std::thread::Builder::new().name("reader".into()).spawn(move || {
        for batch in requests.iter().take(BATCHES) {
            *reader_mailbox.0.lock().expect("nothing panics under it") = Some(batch);
            // The result is here, and so is this thread: it may as well run the work.
            if reader_turn.record(RESULT).must_run()
                && let Err(stranded) = reader_turn.join()
            {
                stranded.settle();
            }
        }
    });

    println!("{BATCHES} batches, one at a time:");
    let mut queued = 0;
    let mut asked = 0;
    while shipped.load(Ordering::Relaxed) < BATCHES {
        // An acknowledgement: it frees room, and must not run the work on this thread.
        asked += 1;
        if turn.record(MORE).must_run() {
            match turn.schedule(&worker) {
                Ok(Scheduled::Queued) => queued += 1,
                Ok(_) => {}
                Err(stranded) => stranded.settle(),
            }
        }
        std::thread::yield_now();
    }
    println!("{asked} acknowledgements queued {queued} turns and took no step themselves");

    let ended = reader.expect("a thread starts").join();
    ended.expect("the reader does not panic");
    drop((turn, worker));
    work.expect("a thread starts").join().expect("the worker does not panic");
}
