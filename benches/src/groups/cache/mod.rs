//! The range cache: inserting at the tail of a log, catching up, reading, evicting; CPU of each, and memory.
//!
//! # The rows
//! The module of each benchmark says what an operation is: [tail] (B1), [`catch_up`] (B2), [`evict_cycle`] (B3), [read] (B4),
//! [`evict_all`] (B7), [batch] (B8), [metadata] (B9), [get], [memory]. [floor] says what the floor row does.
//!
//! # The entry
//! An entry's data is an empty shared buffer, retained by each entry: a clone and a drop of a count. The floor and the peers keep the
//! entry as an object, an `Arc` that its writer allocates. Ours comes in two cases: with the buffer itself in the slot, as the cache is
//! meant to be used, since it keeps what the object has beside it; and with the object of the peers. The first one is judged for what
//! is inserted, the second one for what is read.
//!
//! # The peers
//! A [map](maps) that is the heart of such a cache, and a removal queue, which is [the same](queue) for all of them.

mod batch;
mod catch_up;
mod entry;
mod evict_all;
mod evict_cycle;
mod floor;
mod get;
mod maps;
mod memory;
mod metadata;
mod ours;
mod peers;
mod queue;
mod read;
mod tail;
mod tested;

use std::sync::Arc;

use bytes::Bytes;

use self::entry::Entry;
use self::get::Threads;
use self::ours::{OURS, OURS_ARC, Ours};
use self::peers::{DASH_MAP, Dash, LOCKED, SKIP_MAP, Skip, Tree, documented, every_peer};
use self::tested::Make;
use super::floors;
use crate::runner::{Against, Block, Case, Group, Metric, Row, Target};

const FLOOR: &str = "floor: allocate and plain ring";

/// Ours, as it is meant to be used.
type InSlot = Ours<Bytes>;

/// Ours, with the values of the peers.
type InArc = Ours<Arc<Entry>>;

/// Operations of a full trial of ours and of the floor, and of a peer.
const TAIL: u64 = 1_000_000;
const TAIL_OF_PEERS: u64 = 100_000;

/// The rows of B1 that have peers: how much is cached, and the documented figures of the floor and of the peers.
const TAILS: [(&str, u64, f64, [f64; 7]); 2] = [
    ("tail, 1k cached", 1_000, 41.0, [563.0, 165.0, 173.0, 150.0, 292.0, 628.0, 1726.0]),
    ("tail, 100k cached", 100_000, 47.0, [692.0, 259.0, 510.0, 440.0, 828.0, 853.0, 5411.0]),
];

/// The row that those of [`OTHER_TAILS`] are divided by, beside them.
const AGAIN: &str = "tail, 1k cached, once more";

/// Rows of B1 of ours alone: entries cached, inserts before a trim, gate and goal.
const OTHER_TAILS: [(&str, u64, u64, f64, f64); 4] = [
    ("tail, 1 cached", 1, 100, 1.3, 1.1),
    ("tail, 10 cached", 10, 100, 1.3, 1.1),
    ("tail, 63 cached", 63, 100, 1.3, 1.1),
    ("tail, trimmed at every insert", 1, 1, 4.0, 2.0),
];

const TWO_READERS: &str = "tail, marked by two readers";
const TAIL_ALONE: &str = "catch-up: tail alone";
const RUN_ALONE: &str = "catch-up: runs alone, an insert";

/// The range cache rows.
pub fn group() -> Group {
    let mut blocks: Vec<Block> = TAILS.map(tail_block).into();
    blocks.extend(tails_of_ours());
    blocks.extend(catch_ups());
    blocks.extend(evict_cycle::Setting::ALL.map(|setting| {
        let mut cases = vec![setting.floor(FLOOR)];
        cases.extend(ours(&setting));
        cases.extend(every_peer(&setting));
        Block::new(setting.name(), cases)
    }));
    blocks.extend(read::Setting::ALL.map(|setting| {
        let (visited, copied) = (setting.visited::<InArc>(OURS_ARC), setting.copied::<InArc>(OURS_ARC));
        setting.block(vec![setting.make::<InArc>(OURS_ARC), visited, copied])
    }));
    blocks.extend(evict_all::Setting::ALL.map(|setting| {
        let mut cases = ours(&setting);
        cases.extend([
            setting.make::<Skip>(SKIP_MAP),
            setting.make::<Tree>(LOCKED),
            setting.make::<Dash>(DASH_MAP),
        ]);
        Block::new(setting.name(), cases)
    }));
    blocks.extend(get::blocks::<InArc, InSlot>(OURS_ARC, OURS));
    blocks.extend(batch::blocks());
    blocks.extend(metadata::blocks());
    blocks.push(memory::block());
    blocks.push(floors::scale_block());
    Group { name: "cache", blocks, targets: targets(), floor: Some(floors::scale_floor()) }
}

/// Both cases of ours.
fn ours(make: &impl Make<Made = Case>) -> Vec<Case> {
    vec![make.make::<InSlot>(OURS), make.make::<InArc>(OURS_ARC)]
}

fn tail_block((name, cached, floor, peers): (&str, u64, f64, [f64; 7])) -> Block {
    let mut cases = vec![floor::case(FLOOR, cached, TAIL).documented(Metric::Cpu, floor)];
    cases.extend(ours(&tail::Setting { cached, every: 100, operations: TAIL }));
    let of_peers = tail::Setting { cached, every: 100, operations: TAIL_OF_PEERS };
    cases.extend(documented(every_peer(&of_peers), peers));
    Block::new(name, cases)
}

fn tails_of_ours() -> Vec<Block> {
    let of = |cached, every| tail::Setting { cached, every, operations: TAIL };
    let mut blocks = vec![Block::new(AGAIN, vec![of(1_000, 100).make::<InSlot>(OURS)])];
    blocks.extend(
        OTHER_TAILS
            .map(|(name, cached, every, ..)| Block::new(name, vec![of(cached, every).make::<InSlot>(OURS)])),
    );
    blocks.push(Block::new(TWO_READERS, vec![tail::read_by_two::<InSlot>(OURS, of(1_000, 100))]));
    blocks
}

fn catch_ups() -> Vec<Block> {
    let (mut tails, mut runs): (Vec<Case>, Vec<Case>) =
        [catch_up::pair::<InSlot>(OURS), catch_up::pair::<InArc>(OURS_ARC)].into_iter().unzip();
    let (tails_of_peers, runs_of_peers) = catch_up::of_peers();
    tails.extend(tails_of_peers);
    runs.extend(runs_of_peers);
    vec![
        Block::new(TAIL_ALONE, vec![catch_up::tail_alone::<InSlot>(OURS)]),
        Block::new(catch_up::TAIL, tails),
        Block::new(catch_up::RUN, runs),
        Block::new(RUN_ALONE, vec![catch_up::runs_alone::<InSlot>(OURS)]),
    ]
}

/// A target on the CPU time of a row, divided by that of another.
fn of_row(what: &str, row: (&str, &str), other: (&str, &str), gate: f64, goal: f64) -> Target {
    let against = Against::Row(Row::case(other.0, other.1));
    Target::lower(what, Row::case(row.0, row.1), against, Metric::Cpu, gate, goal)
}

fn targets() -> Vec<Target> {
    let mut targets = Vec::new();
    for (block, ..) in TAILS {
        for (peer, gate, goal) in [(FLOOR, 1.2, 0.9), (SKIP_MAP, 0.12, 0.07), (LOCKED, 0.40, 0.25)] {
            let name = format!("{block}, of {}", if peer == FLOOR { "the floor" } else { peer });
            targets.push(of_row(&name, (block, OURS), (block, peer), gate, goal));
        }
    }
    for (block, _, _, gate, goal) in OTHER_TAILS {
        targets.push(of_row(&format!("{block}, of 1k"), (block, OURS), (AGAIN, OURS), gate, goal));
    }
    targets.push(of_row(&format!("{TWO_READERS}, of 1k"), (TWO_READERS, OURS), (AGAIN, OURS), 1.5, 1.2));
    targets.push(Target::lower(
        "allocations an insert, the worst row",
        Row::Worst(OURS.into()),
        Against::Nothing,
        Metric::Allocations,
        0.05,
        0.02,
    ));
    targets.extend([
        of_row("catch-up: tail, of alone", (catch_up::TAIL, OURS), (TAIL_ALONE, OURS), 1.5, 1.25),
        of_row(
            &format!("catch-up: run of 100, of {SKIP_MAP}"),
            (catch_up::RUN, OURS),
            (catch_up::RUN, SKIP_MAP),
            0.08,
            0.04,
        ),
    ]);
    targets.extend(evict_cycle::Setting::ALL.map(|setting| {
        let (block, (gate, goal)) = (setting.name(), setting.bounds());
        of_row(&format!("{block}, of the floor"), (&block, OURS), (&block, FLOOR), gate, goal)
    }));
    targets.extend(reads());
    targets.extend(gets());
    targets.extend(batch::targets());
    targets.extend(metadata::targets());
    targets.extend(memory::targets());
    targets
}

fn reads() -> Vec<Target> {
    let visited = format!("{OURS_ARC}{}", read::VISITED);
    [
        (100, OURS_ARC, "owned", 1.0, 0.75),
        (100, &visited, "visited", 0.25, 0.15),
        (10, OURS_ARC, "owned", 1.0, 0.5),
        (0, OURS_ARC, "owned", 1.5, 1.0),
    ]
    .map(|(hits, case, how, gate, goal)| {
        let block = read::Setting { batch: 100, hits }.name();
        of_row(&format!("{block}, {how}, of {LOCKED}"), (&block, case), (&block, LOCKED), gate, goal)
    })
    .into()
}

fn gets() -> Vec<Target> {
    let name = |threads| Threads::case_name(OURS_ARC, threads);
    let mut targets = vec![of_row(
        &format!("get, of {DASH_MAP}"),
        (get::BLOCK, OURS_ARC),
        (get::BLOCK, DASH_MAP),
        0.6,
        0.35,
    )];
    targets.extend([4, 16].map(|threads| {
        let what = format!("get, pages differing, {threads} threads, of 1");
        of_row(&what, (get::THREADS, &name(threads)), (get::THREADS, &name(1)), 2.0, 1.5)
    }));
    targets
}

/// Bodies of single-threaded paths of ours, for other harnesses.
pub mod bodies {
    use std::hint::black_box;

    use super::entry::{Cut, Random, Run, empty, numbered};
    use super::ours;
    use super::tail::{Setting, Tail};
    use super::tested::{Options, Tested};
    use super::{InArc, InSlot};

    /// B1 with 1,000 entries cached.
    pub fn tail(operations: u64) {
        let setting = Setting { cached: 1_000, every: 100, operations };
        let Tail { cache, mut head } = Tail::<InSlot>::open(setting);
        head.run(&cache, operations);
    }

    /// A cache with so many entries, each an `Arc`.
    fn filled(entries: u64) -> InArc {
        let cache = InArc::open(Options::default());
        let data = empty();
        let mut writer = cache.writer();
        for position in (0..entries).map(numbered) {
            cache.insert(&mut writer, position, InArc::value(position, &data), 0, 1);
        }
        cache
    }

    /// Lookups of random entries out of 4,096.
    pub fn get(operations: u64) {
        let cache = filled(4_096);
        let mut random = Random::new(1);
        for _ in 0..operations {
            black_box(cache.get(numbered(random.below(4_096))));
        }
    }

    /// Visits to ranges of a hundred entries, all there.
    pub fn range_of_100(operations: u64) {
        let cache = filled(4_096);
        let mut random = Random::new(2);
        for _ in 0..operations {
            let run = Run { first: numbered(random.below(3_996)), count: 100 };
            cache.visited(run, |value| {
                black_box(value);
            });
        }
    }

    /// Batches of a hundred entries at the tail, each of which is removed and drained; an operation is an entry.
    pub fn insert_batch(operations: u64) {
        let cache = InSlot::open(Options::default());
        let data = empty();
        let mut writer = cache.writer();
        for batch in 0..operations / 100 {
            let first = numbered(batch * 100);
            let run = Run { first, count: 100 };
            ours::insert_batch(&mut writer, run.positions().map(|position| (position, data.clone(), 0)));
            cache.remove(&Cut::run(run));
            cache.evict_before(0, 1);
        }
    }
}
