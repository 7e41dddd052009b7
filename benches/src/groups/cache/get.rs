//! Looking single entries up.
//!
//! *Get*: a million cached entries, looked up in random order by one thread, so that the entry is seldom in a near cache: with that many
//! the peers need about what the reference machine needed, with a tenth of them much less. *Threads*: each thread looks up what is in 64
//! pages of its own, of the 1,024 that are cached, so that one thread has as much to keep near as each of many. They are neighbours, or,
//! in the rows called interleaved, the pages beside them are those of the other threads. *Beside a writer*: the time of single lookups, clock
//! included, while another thread inserts at the tail and trims; no target.
//!
//! The values are an `Arc` of an entry, but for one row of ours that has the buffer in the slot, which is not judged. A lookup clones and
//! drops the value.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use hdrhistogram::Histogram;

use super::entry::{Random, empty, numbered};
use super::peers::{DASH_MAP, Dash, LOCKED, SKIP_MAP, Skip, Tree, documented, every_peer};
use super::tail::{self, Tail};
use super::tested::{Make, Options, Tested};
use crate::runner::{Block, Case, Effort, Mark, Metric, Sample, sample_between, to_f64, together};

pub(super) const BLOCK: &str = "get";
pub(super) const THREADS: &str = "get, pages differing";
const INTERLEAVED: &str = "get, pages differing and interleaved";
const BESIDE: &str = "get beside a writer";

/// Documented CPU nanoseconds of the peers.
const DOCUMENTED: [f64; 7] = [1014.0, 652.0, 440.0, 352.0, 534.0, 741.0, 1513.0];

/// Cached entries in a full trial and in a smoke run.
const CACHED: (u64, u64) = (1_000_000, 20_000);
const GETS: u64 = 400_000;

/// A case that looks up at random.
struct OneThread;

impl Make for OneThread {
    type Made = Case;

    fn make<C: Tested>(&self, name: &'static str) -> Case {
        let mut filled: Option<C> = None;
        let mut random = Random::new(4);
        Case::new(name, move |effort| {
            let cached = effort.pick(CACHED.0, CACHED.1);
            let cache = filled.get_or_insert_with(|| fill(cached));
            let mut look_up = |gets: u64| {
                for _ in 0..gets {
                    let found = cache.get(black_box(numbered(random.below(cached))));
                    assert!(found.is_some(), "everything is cached");
                    black_box(found);
                }
            };
            let gets = effort.scale(GETS);
            look_up(gets.div_ceil(8));
            let start = Mark::now();
            look_up(gets);
            sample_between(start, Mark::now(), gets)
        })
    }
}

fn fill<C: Tested>(entries: u64) -> C {
    let cache = C::open(Options::default());
    let mut writer = cache.writer();
    let data = empty();
    for position in (0..entries).map(numbered) {
        cache.insert(&mut writer, position, C::value(position, &data), 0, 1);
    }
    drop(writer);
    cache
}

const PAGE: u64 = 64;
const PAGES: u64 = 1_024;

/// Lookups of all threads in a full trial: many for each, since a thread begins with nothing near.
const GETS_OF_ALL: u64 = 1_600_000;

/// Pages that a thread looks into.
const OWN: u64 = 64;

/// Threads that look up, and whose pages are whose.
#[derive(Clone, Copy, Debug)]
pub(super) struct Threads {
    pub(super) threads: u64,
    interleaved: bool,
}

impl Threads {
    const COUNTS: [u64; 3] = [1, 4, 16];

    /// The name of a case, with its threads.
    pub(super) fn case_name(name: &str, threads: u64) -> String {
        format!("{name}, {threads} thread{}", if threads == 1 { "" } else { "s" })
    }

    fn case<C: Tested>(self, name: &str) -> Case {
        let mut filled: Option<C> = None;
        Case::new(Self::case_name(name, self.threads), move |effort| {
            let cache = &*filled.get_or_insert_with(|| fill(PAGE * PAGES));
            let each = effort.scale(GETS_OF_ALL) / self.threads;
            let body = |thread: u64| move || self.look_up(cache, thread, each);
            together(
                each * self.threads,
                (0..self.threads).map(|thread| Box::new(body(thread)) as _).collect(),
            )
        })
    }

    fn look_up<C: Tested>(self, cache: &C, thread: u64, gets: u64) {
        let mut random = Random::new(100 + thread);
        for _ in 0..gets {
            let page = random.below(OWN);
            let page = if self.interleaved { page * self.threads + thread } else { thread * OWN + page };
            let found = cache.get(numbered(page * PAGE + random.below(PAGE)));
            assert!(found.is_some(), "everything is cached");
            black_box(found);
        }
    }
}

/// All rows of one cache in one of the two settings.
fn with_threads<C: Tested>(name: &str, interleaved: bool) -> Vec<Case> {
    Threads::COUNTS.map(|threads| Threads { threads, interleaved }.case::<C>(name)).into()
}

/// A case that takes the time of each lookup.
fn beside<C: Tested>(name: &'static str) -> Case {
    let mut tail = None;
    Case::new(name, move |effort| {
        let setting = tail::Setting { cached: 1_000, every: 100, operations: 0 };
        let tail: &mut Tail<C> = tail.get_or_insert_with(|| Tail::open(setting));
        latencies(tail, effort)
    })
}

fn latencies<C: Tested>(tail: &mut Tail<C>, effort: Effort) -> Sample {
    let Tail { cache, head } = tail;
    let cache = &*cache;
    let (written, over) = (AtomicU64::new(head.total()), AtomicBool::new(false));
    let mut histogram = Histogram::<u64>::new_with_bounds(1, 60_000_000_000, 3)
        .expect("these bounds and three digits are valid");
    let (mut random, mut found) = (Random::new(5), 0_u64);
    thread::scope(|scope| {
        scope.spawn(|| {
            // Relaxed: nothing is read after the end.
            while !over.load(Ordering::Relaxed) {
                head.run(cache, 100);
                // Relaxed: what lies before is looked for, and may be gone.
                written.store(head.total(), Ordering::Relaxed);
            }
        });
        for _ in 0..effort.scale(100_000) {
            // Relaxed: as above.
            let position = numbered(written.load(Ordering::Relaxed) - 1 - random.below(1_000));
            let start = Instant::now();
            let value = black_box(cache.get(position));
            let time = start.elapsed();
            histogram.saturating_record(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1));
            found += u64::from(value.is_some());
        }
        // Relaxed: as the writer's load.
        over.store(true, Ordering::Relaxed);
    });
    assert!(found > 0, "not every lookup comes too late");
    let at = |quantile| to_f64(histogram.value_at_quantile(quantile));
    Sample::new().with(Metric::P50, at(0.5)).with(Metric::P99, at(0.99)).with(Metric::P999, at(0.999))
}

/// The blocks, with one more cache in front, and in the first one the same cache with other values.
pub(super) fn blocks<C: Tested, S: Tested>(name: &'static str, in_slot: &'static str) -> Vec<Block> {
    let mut one = vec![OneThread.make::<S>(in_slot), OneThread.make::<C>(name)];
    one.extend(documented(every_peer(&OneThread), DOCUMENTED));
    let threads = |interleaved| {
        let mut cases = with_threads::<C>(name, interleaved);
        cases.extend(with_threads::<Dash>(DASH_MAP, interleaved));
        cases.extend(with_threads::<Tree>(LOCKED, interleaved));
        cases
    };
    let beside =
        vec![beside::<C>(name), beside::<Skip>(SKIP_MAP), beside::<Tree>(LOCKED), beside::<Dash>(DASH_MAP)];
    vec![
        Block::new(BLOCK, one),
        Block::new(THREADS, threads(false)),
        Block::new(INTERLEAVED, threads(true)),
        Block::new(BESIDE, beside),
    ]
}
