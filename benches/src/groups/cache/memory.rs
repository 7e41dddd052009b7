//! What a page and an index node take, by the bytes that are allocated.
//!
//! *Page*: entries are inserted into new pages of leaves of the index that are there already, one each. What that allocates for each page,
//! less 64 times the size of the value and 24 bytes, is the row; it is below zero if slots are smaller. *Node*: the same in leaves that are
//! new, less what the pages took. There are as many leaves as fill the chunks of their pool: one that has just grown has room for twice as
//! many. Places for keys in the eviction queue are there before, since a queue that is drained uses them again.

use std::ops::Range;

use folio_cache::{EvictionQueue, RangeCache, Weigh};
use folio_sync::test_util::alloc::Counts;
use folio_sync::time::Instant;

use crate::runner::{Against, Block, Case, Metric, Row, Sample, Target, to_f64};

const BLOCK: &str = "memory";
const NODE: &str = "index node of 4,096 ids";

/// Pages, and leaves, that are made beside two that are there: all together fill chunks of 2, 4, 8, 16 and 32 leaves.
const COUNT: u32 = 60;

/// Entries of a page, and what a slot may have beside its value.
const SLOTS: usize = 64;
const BESIDE: usize = 24;

/// A value of so many bytes.
#[derive(Clone, Copy)]
struct Large<const BYTES: usize>([u8; BYTES]);

impl<const BYTES: usize> Weigh for Large<BYTES> {
    fn weight(&self) -> u64 {
        self.0.len() as u64
    }
}

/// Bytes allocated for each of some new pages at ids this far apart, beside two that are there.
fn allocated<const BYTES: usize>(step: i64) -> f64 {
    let queue = EvictionQueue::<Large<BYTES>>::default();
    let cache = RangeCache::new(&queue);
    let mut inserter = cache.inserter();
    let mut insert = |ledger, id| {
        let taken = inserter.insert((ledger, id), Large([0; BYTES]), 0, Instant::from_nanos(1));
        assert!(taken.is_ok(), "nothing is there");
    };
    // Leaves places for as many keys, empty ones.
    (0..COUNT + 2).for_each(|page| insert(6, i64::from(page) * 64));
    let drained = queue.evict_before(Instant::ORIGIN, Instant::ORIGIN);
    assert_eq!(drained.map(|evicted| evicted.entries), Ok(0), "nothing is as old");
    cache.remove_ledger(6);
    let mut insert_pages = |pages: Range<u32>| pages.for_each(|page| insert(7, i64::from(page) * step));
    insert_pages(0..2);
    let before = Counts::now();
    insert_pages(2..COUNT + 2);
    let during = Counts::now() - before;
    assert_eq!(cache.pages(), u64::from(COUNT) + 2);
    to_f64(during.allocated_bytes) / f64::from(COUNT)
}

fn page_name(bytes: usize) -> String {
    format!("page of {bytes}-byte values, beside its slots")
}

fn page<const BYTES: usize>() -> Case {
    Case::new(page_name(BYTES), |_| {
        let slots = to_f64((SLOTS * (BYTES + BESIDE)) as u64);
        Sample::new().with(Metric::AllocatedBytes, allocated::<BYTES>(64) - slots)
    })
}

/// The sizes of values whose pages are measured.
const SIZES: [usize; 4] = [8, 32, 48, 256];

/// The memory rows.
pub(super) fn block() -> Block {
    let node = Case::new(NODE, |_| {
        Sample::new().with(Metric::AllocatedBytes, allocated::<32>(4_096) - allocated::<32>(64))
    });
    let [a, b, c, d] =
        [page::<{ SIZES[0] }>(), page::<{ SIZES[1] }>(), page::<{ SIZES[2] }>(), page::<{ SIZES[3] }>()];
    Block::new(BLOCK, vec![a, b, c, d, node])
}

/// What is asked of them.
pub(super) fn targets() -> Vec<Target> {
    let lower = |name: String, gate, goal| {
        let row = Row::case(BLOCK, &name);
        Target::lower(format!("memory: {name}"), row, Against::Nothing, Metric::AllocatedBytes, gate, goal)
    };
    let mut targets: Vec<Target> = SIZES.map(|bytes| lower(page_name(bytes), 256.0, 128.0)).into();
    targets.push(lower(NODE.into(), 768.0, 576.0));
    targets
}
