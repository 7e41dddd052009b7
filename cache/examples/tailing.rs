//! A writer, three readers at its heels and a trimmer behind them, on one cache.
//!
//! usage: tailing [entries]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "an example uses the standard library's threads and clock"
)]

use std::error::Error;
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread;

use bytes::Bytes;
use folio_cache::{EvictionOptions, EvictionQueue, RangeCache};
use folio_sync::time::Instant;

const LEDGER: i64 = 1;
const READERS: usize = 3;
const BUDGET: u64 = 16 << 20;
/// How far the writer may be ahead of the slowest reader.
const AHEAD: i64 = 50_000;

fn main() -> Result<(), Box<dyn Error>> {
    let entries: i64 = std::env::args().nth(1).map_or(Ok(1_000_000), |text| text.parse())?;
    let mut options = EvictionOptions::default();
    options.budget = BUDGET;
    let queue = EvictionQueue::new(options);
    let cache = RangeCache::new(&queue);
    let origin = std::time::Instant::now();
    let now = || Instant::ORIGIN + origin.elapsed();
    let written = AtomicI64::new(0);
    let read: [AtomicI64; READERS] = Default::default();
    let (mut misses, began) = (0, now());

    thread::scope(|scope| {
        scope.spawn(|| {
            let mut tail = cache.inserter();
            for entry in 0..entries {
                while entry - slowest(&read) > AHEAD {
                    thread::yield_now();
                }
                // One that is not taken over is a miss later on; a broker would read it from storage.
                let _not_cached = tail.insert((LEDGER, entry), Bytes::from(vec![7; 128]), 1, now());
                // Release: the entry is in the cache before a reader hears of it.
                written.store(entry + 1, Ordering::Release);
                if entry % 1024 == 0 {
                    let _another_pass_runs =
                        queue.evict_before(now() - std::time::Duration::from_secs(1), now());
                    if queue.charged_weight() > BUDGET {
                        let _another_pass_runs = queue.evict_weight(BUDGET / 10, now());
                    }
                }
            }
        });
        let readers: Vec<_> = read
            .iter()
            .map(|progress| {
                let (cache, written) = (&cache, &written);
                scope.spawn(move || {
                    let (mut next, mut misses) = (0, 0);
                    while next < entries {
                        let end = written.load(Ordering::Acquire).min(next + 100);
                        let mut hits = 0;
                        cache.for_each_in_range((LEDGER, next)..(LEDGER, end), |_, _| hits += 1);
                        cache.mark_range_read((LEDGER, next)..(LEDGER, end));
                        misses += end - next - hits;
                        next = end;
                        progress.store(next, Ordering::Release);
                        thread::yield_now();
                    }
                    misses
                })
            })
            .collect();
        scope.spawn(|| {
            let mut trimmed = 0;
            while trimmed < entries {
                trimmed = slowest(&read);
                cache.remove_range(..(LEDGER, trimmed));
                thread::yield_now();
            }
        });
        misses = readers.into_iter().map(|reader| reader.join().unwrap_or(entries)).sum();
    });

    queue.evict_before(now(), now())?;
    let took = now().since(began);
    println!("{entries} entries, read {READERS} times each, {misses} misses, in {took:.1?}");
    println!("left: {} entries, {} pages, {} keys", cache.len(), cache.pages(), queue.keys());
    Ok(())
}

/// What all readers have behind them.
fn slowest(read: &[AtomicI64; READERS]) -> i64 {
    read.iter().map(|progress| progress.load(Ordering::Acquire)).min().unwrap_or(0)
}
