//! Producers append to a ledger, and a reader follows its tail; on threads and by the clock of the machine.
//!
//! usage: following [entries of each producer]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "an example uses the standard library's threads and clock"
)]

#[cfg(not(any(loom, shuttle)))]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    machine::main()
}

/// A checker has neither the machine's clock nor its timers.
#[cfg(any(loom, shuttle))]
fn main() {}

#[cfg(not(any(loom, shuttle)))]
mod machine {
    use std::error::Error;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{Arc, mpsc};
    use std::thread;

    use bytes::Bytes;
    use folio_executor::OrderedExecutor;
    use folio_ledger::{
        AppendError, AppendSink, CacheManager, CacheOptions, Cursor, Entry, Ledger, LedgerOptions,
        MemoryStorage, Position, ReadError, Wait,
    };
    use folio_sync::time::{Instant, SystemClock};
    use folio_sync::timers::ThreadTimers;

    const PRODUCERS: u32 = 2;

    /// Counts what became of appends; they carry nothing to tell them apart by.
    #[derive(Clone, Default)]
    struct Counts {
        appended: Arc<AtomicU64>,
        failed: Arc<AtomicU64>,
    }

    impl AppendSink<()> for Counts {
        fn appended(&self, (): (), result: Result<Position, AppendError>, _at: Instant) {
            let count = if result.is_ok() { &self.appended } else { &self.failed };
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn main() -> Result<(), Box<dyn Error>> {
        let each: u32 = std::env::args().nth(1).map_or(Ok(50_000), |text| text.parse())?;
        let pool = OrderedExecutor::builder().name("ledger").threads(1).build()?;
        let worker = pool.worker("the only ledger").clone();
        let counts = Counts::default();
        let evicts = OrderedExecutor::builder().name("eviction").threads(1).build()?;
        let passes = evicts.workers()[0].clone();
        let cache =
            CacheManager::new(CacheOptions::default(), passes, ThreadTimers::new(), SystemClock::new())?;
        let ledger =
            Ledger::open(LedgerOptions::default(), MemoryStorage::new(), &cache, worker, counts.clone())?;
        let began = std::time::Instant::now();

        let read = thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let this = thread::current();
                // The listener runs on the ledger's worker: it only wakes this thread.
                follow(&ledger.cursor(0, move || this.unpark()))
            });
            let producers: Vec<_> = (0..PRODUCERS)
                .map(|producer| {
                    let ledger = &ledger;
                    scope.spawn(move || {
                        (0..each).for_each(|number| ledger.append(encode(producer, number), ()));
                    })
                })
                .collect();
            for producer in producers {
                producer.join().expect("a producer does not panic");
            }
            let (tell, told) = mpsc::channel();
            ledger.flush(move || tell.send(()).unwrap_or_default());
            told.recv().expect("a flush is told");
            println!("{} appended, {} failed", ledger.confirmed(), counts.failed.load(Ordering::Relaxed));
            // The reader reads to the end, and ends.
            ledger.close();
            reader.join().expect("the reader does not panic")
        })?;

        let reads = ledger.cache().snapshot();
        println!(
            "{read} read in {:?}: {} from the cache, {} from storage",
            began.elapsed(),
            reads.entries_hit,
            reads.storage_entries
        );
        assert_eq!((read, counts.appended.load(Ordering::Relaxed)), (u64::from(PRODUCERS * each), read));
        drop(ledger);
        let _nothing_is_left = pool.join();
        Ok(())
    }

    /// Reads until the ledger is closed, checks that each producer's entries come in order, and deletes what was read; how many there were.
    fn follow(cursor: &Cursor) -> Result<u64, ReadError> {
        let (mut next, mut read) = ([0; PRODUCERS as usize], 0);
        let (tell, told) = mpsc::channel();
        let mut buffer = Vec::new();
        loop {
            match cursor.wait() {
                Wait::More => {
                    let tell = tell.clone();
                    // A read of cached entries is answered on this thread, before the call returns.
                    cursor.read(1_000, buffer, move |result: Result<Vec<Entry>, _>| {
                        tell.send(result).unwrap_or_default();
                    });
                    buffer = told.recv().expect("each read is answered")?;
                    for entry in &buffer {
                        let (producer, number) = decode(&entry.payload);
                        assert_eq!(number, next[producer], "the entries of a producer are in order");
                        next[producer] += 1;
                    }
                    read += buffer.len() as u64;
                    cursor.mark_delete(cursor.position());
                }
                // Woken too early, it asks again.
                Wait::Waiting => thread::park(),
                Wait::Closed => return Ok(read),
            }
        }
    }

    fn encode(producer: u32, number: u32) -> Bytes {
        let mut payload = vec![0x5a; 128];
        payload[..4].copy_from_slice(&producer.to_le_bytes());
        payload[4..8].copy_from_slice(&number.to_le_bytes());
        payload.into()
    }

    fn decode(payload: &[u8]) -> (usize, u32) {
        let field = |at: usize| {
            let bytes = payload[at..at + 4].try_into().expect("it has four bytes");
            u32::from_le_bytes(bytes)
        };
        (field(0) as usize, field(4))
    }
}
