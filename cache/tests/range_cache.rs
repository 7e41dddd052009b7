//! What one thread sees of a cache: entries, ranges, removals, pages and weights.
#![cfg(not(any(loom, shuttle)))]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests run on the standard library only, and their helpers unwrap as they do"
)]

mod common;

use std::ops::Bound::{Excluded, Included, Unbounded};

use common::{EVER, Scene, assert_cache_empty, assert_drains, at, evicted, outcome, removed};
use folio_cache::{EvictionQueue, Position, RangeCache, Reason, Weigh};
use folio_sync::Arc;

/// The positions of these entries of a ledger.
fn entries(ledger: i64, entries: impl IntoIterator<Item = i64>) -> Vec<Position> {
    entries.into_iter().map(|entry| (ledger, entry)).collect()
}

/// 1.4, 4.2, I10, I13: a lookup shares the value, a removal gives up the cache's share of it, and the weight follows.
#[test]
fn a_value_is_shared_by_cache_and_readers_until_it_is_removed() {
    let scene = Scene::new();
    scene.put((1, 0), 3);
    scene.put((1, 1), 4);
    assert_eq!((scene.cache.len(), scene.cache.weight(), scene.cache.pages()), (2, 7, 1));
    let first = scene.cache.get((1, 0)).unwrap();
    assert_eq!((first.position, first.copies()), ((1, 0), 2));
    let again = scene.cache.get((1, 0)).unwrap();
    assert_eq!((again.id, first.copies()), (first.id, 3));
    assert_eq!(removed(scene.cache.remove_range((1, 0)..(1, 1))), (1, 3), "the end is exclusive");
    assert_eq!(first.copies(), 2, "the readers' copies are left");
    assert!(scene.cache.get((1, 0)).is_none() && !scene.cache.contains((1, 0)));
    assert_eq!(removed(scene.cache.remove_range((1, 0)..(1, 1))), (0, 0), "again");
    assert_eq!(removed(scene.cache.remove_range((1, 0)..=(1, 1))), (1, 4), "the end is inclusive");
    assert_eq!(removed(scene.cache.remove_range((1, 0)..=(1, 1))), (0, 0), "again");
    drop((first, again));
    scene.assert_empty();
}

/// 1.4, 4.2, I10: a second insert is given back whole, and the first stays as it is; also when it is a copy of the same value.
#[test]
fn a_second_insert_is_given_back_and_changes_nothing() {
    let scene = Scene::new();
    scene.put((1, 7), 5);
    let (cached, newcomer) = (scene.cache.get((1, 7)).unwrap(), scene.value((1, 7), 100));
    let given_back = scene.cache.insert((1, 7), newcomer, 0, at(2)).unwrap_err();
    assert_eq!((given_back.reason, given_back.position), (Reason::Occupied, (1, 7)));
    assert_eq!((given_back.value.weight(), given_back.value.copies()), (100, 1));
    let same = scene.cache.insert((1, 7), cached.clone(), 0, at(2)).unwrap_err();
    assert_eq!((same.reason, same.value.id, cached.copies()), (Reason::Occupied, cached.id, 3));
    drop(same);
    assert_eq!(
        (scene.cache.get((1, 7)).unwrap().id, scene.cache.len(), scene.cache.weight()),
        (cached.id, 1, 5)
    );
    drop((given_back, cached));
    scene.end();
}

/// What is given back tells where it belongs and why, is an error, and has the value.
#[test]
fn what_is_given_back_is_an_error_with_the_value() {
    let queue = EvictionQueue::<String>::default();
    let cache = RangeCache::new(&queue);
    cache.insert((3, 4), "first".to_owned(), 0, at(1)).unwrap();
    let given_back = cache.insert((3, 4), "second".to_owned(), 0, at(1)).unwrap_err();
    assert_eq!(given_back.value, "second");
    let error: &dyn std::error::Error = &given_back;
    assert!(!error.to_string().is_empty());
    assert_eq!((cache.len(), cache.weight()), (1, 5));
}

/// 4.2, I17: a range has what is there, in order, whatever the order of the inserts, and gaps are left out.
#[test]
fn a_range_has_what_is_there_in_order() {
    let scene = Scene::new();
    let there = [65, 3, 0, 64, 200, 9, 1, 63];
    scene.put_all(1, there);
    assert_eq!(scene.found((1, 0)..=(1, 300)), entries(1, [0, 1, 3, 9, 63, 64, 65, 200]));
    assert_eq!(scene.found((1, 1)..=(1, 64)), entries(1, [1, 3, 9, 63, 64]));
    assert_eq!(scene.found((1, 4)..(1, 9)), []);
    assert_eq!(scene.found((1, 201)..), []);
    assert_eq!(scene.found((0, 0)..(1, 0)), []);
    let mut visited = Vec::new();
    scene.cache.for_each_in_range((1, 3)..(1, 200), |position, value| {
        assert_eq!((value.position, value.copies()), (position, 1), "a visit takes no copy");
        visited.push(position);
    });
    assert_eq!(visited, entries(1, [3, 9, 63, 64, 65]));
    let owned = scene.cache.range((1, 0)..=(1, 3));
    assert!(owned.iter().all(|(_, value)| value.copies() == 2));
    drop(owned);
    scene.end();
}

/// 1.4, 4.2, I17: ranges go over pages and ledgers, and each kind of end is honoured where a page and a ledger end.
#[test]
fn ranges_span_pages_and_ledgers() {
    let scene = Scene::new();
    for ledger in [7, -2, 5] {
        scene.put_all(ledger, 60..130);
    }
    let all: Vec<Position> = [-2, 5, 7].into_iter().flat_map(|ledger| entries(ledger, 60..130)).collect();
    assert_eq!(scene.found(..), all);
    assert_eq!(scene.found((-2, 60)..=(7, 129)), all);
    assert_eq!(scene.found((5, 63)..(5, 64)), entries(5, [63]));
    assert_eq!(scene.found((5, 63)..=(5, 64)), entries(5, [63, 64]));
    assert_eq!(scene.found((Excluded((5, 63)), Excluded((5, 128)))), entries(5, 64..128));
    assert_eq!(scene.found((Excluded((5, 129)), Included((7, 60)))), entries(7, [60]));
    assert_eq!(scene.found((Unbounded, Excluded((5, 60)))), entries(-2, 60..130));
    assert_eq!(scene.found((5, i64::MAX)..(7, 0)), [], "an end before the first entry of a ledger");
    assert_eq!(scene.found((6, 0)..=(6, i64::MAX)), [], "a ledger that is not there");
    assert_eq!(scene.found((4, 0)..(7, 61)), [entries(5, 60..130), entries(7, [60])].concat());
    assert_eq!(removed(scene.cache.remove_range((5, 128)..(7, 64))), (6, 6), "two, and four of the next");
    assert_eq!(removed(scene.cache.remove_ledger(5)), (68, 68));
    assert_eq!(removed(scene.cache.remove_ledger(6)), (0, 0));
    assert_eq!(scene.found(..), [entries(-2, 60..130), entries(7, 64..130)].concat());
    assert_eq!(removed(scene.cache.clear()), (136, 136));
    assert_eq!(removed(scene.cache.clear()), (0, 0));
    scene.assert_empty();
}

/// 1.4, I17: an empty or inverted range has nothing in it and removes nothing.
#[test]
fn an_inverted_range_is_empty() {
    let scene = Scene::new();
    scene.put_all(1, 0..130);
    let ranges = [
        (Included((1, 9)), Excluded((1, 9))),
        (Excluded((1, 9)), Included((1, 9))),
        (Excluded((1, 9)), Excluded((1, 9))),
        (Excluded((1, 9)), Excluded((1, 10))),
        (Included((1, 100)), Included((1, 9))),
        (Included((1, 10)), Included((1, 9))),
        (Included((2, 0)), Included((1, 200))),
        (Excluded((i64::MAX, i64::MAX)), Unbounded),
        (Unbounded, Excluded((i64::MIN, i64::MIN))),
    ];
    for range in ranges {
        assert_eq!(scene.found(range), [], "{range:?}");
        scene.cache.for_each_in_range(range, |_, _| panic!("nothing is in {range:?}"));
        assert_eq!(removed(scene.cache.remove_range(range)), (0, 0), "{range:?}");
        assert_eq!(scene.cache.mark_range_read(range), 0, "{range:?}");
    }
    assert_eq!(scene.cache.len(), 130);
    scene.end();
}

/// I17: the position before a ledger's first entry, and the first and last there are, are positions as any other.
#[test]
fn the_extremes_of_positions_are_positions() {
    let scene = Scene::new();
    let extremes = [i64::MIN, -65, -64, -1, 0, i64::MAX];
    let all: Vec<Position> = extremes.into_iter().flat_map(|ledger| entries(ledger, extremes)).collect();
    for &position in &all {
        scene.put(position, 1);
    }
    assert_eq!(scene.found(..), all);
    assert_eq!(scene.found(all[0]..=*all.last().unwrap()), all);
    assert_eq!(
        scene.found((-1, 0)..(0, 0)),
        [entries(-1, [0, i64::MAX]), entries(0, [i64::MIN, -65, -64, -1])].concat()
    );
    assert_eq!(removed(scene.cache.remove_range((0, -1)..(0, 0))), (1, 1), "entry -1 only");
    assert_eq!(removed(scene.cache.remove_range((0, i64::MIN)..(0, -1))), (3, 3));
    assert_eq!(removed(scene.cache.remove_range((Excluded((i64::MAX, 0)), Unbounded))), (1, 1), "the last");
    assert_eq!(removed(scene.cache.remove_range((Unbounded, Included(all[0])))), (1, 1), "the first");
    assert_eq!(removed(scene.cache.remove_ledger(i64::MIN)), (5, 5));
    assert_eq!(removed(scene.cache.remove_ledger(i64::MAX)), (5, 5));
    scene.end();
}

/// 4.2, bug 7: a lookup goes by the position's value.
#[test]
fn a_lookup_goes_by_equality() {
    let scene = Scene::new();
    let key: Box<Position> = Box::new((1, 1_000_000));
    scene.put(*key, 1);
    let other: Box<Position> = Box::new((1, 1_000_000));
    assert_eq!(scene.cache.get(*other).unwrap().position, *key);
    assert!(!scene.cache.contains((1, 1_000_000 + 64)) && !scene.cache.contains((1_000_000, 1)));
    scene.end();
}

/// 1.4, 4.2, I14, I15: a page leaves with its last entry, whoever takes it, and one at the same place can come again.
#[test]
fn a_page_leaves_with_its_last_entry_and_comes_again() {
    let scene = Scene::new();
    scene.put_all(1, 0..192);
    assert_eq!((scene.cache.pages(), scene.queue.pages(), scene.queue.keys()), (3, 3, 3));
    assert_eq!(scene.evict_weight(64, 2), (64, 64));
    assert_eq!((scene.cache.pages(), scene.cache.len()), (2, 128));
    assert_eq!(scene.found(..), entries(1, 64..192));
    assert_eq!(scene.evict_weight(128, 2), (128, 128));
    assert_eq!((scene.cache.pages(), scene.queue.keys()), (0, 0));
    for round in 0..3 {
        scene.put_all(1, 10..74);
        assert_eq!((scene.cache.pages(), scene.cache.len()), (2, 64), "round {round}");
        assert_eq!(removed(scene.cache.remove_range((1, 10)..(1, 64))), (54, 54));
        assert_eq!(scene.cache.pages(), 1);
        assert_eq!(removed(scene.cache.remove_ledger(1)), (10, 10));
        assert_eq!(scene.cache.pages(), 0);
    }
    scene.assert_empty();
}

/// 1.4, 4.2, I14: an inserter whose page was emptied under it goes on, there and before and after.
#[test]
fn an_inserter_goes_on_where_its_page_was_emptied() {
    let scene = Scene::new();
    let mut inserter = scene.cache.inserter();
    let mut put = |entry| {
        assert_eq!(outcome(inserter.insert((1, entry), scene.value((1, entry), 1), 0, at(1))), None);
    };
    (100..110).for_each(&mut put);
    assert_eq!(removed(scene.cache.clear()), (10, 10));
    assert_eq!(scene.cache.len(), 0);
    [105, 30, 100, 300].into_iter().for_each(&mut put);
    assert_eq!(scene.found(..), entries(1, [30, 100, 105, 300]));
    assert_eq!(removed(scene.cache.remove_range((1, 64)..(1, 128))), (2, 2));
    (100..110).for_each(&mut put);
    assert_eq!(scene.cache.len(), 12);
    scene.cache.clear();
    inserter.leave();
    assert_eq!(scene.cache.pages(), 0, "the inserter has left");
    assert_eq!(
        outcome(inserter.insert((1, 105), scene.value((1, 105), 1), 0, at(1))),
        None,
        "it may come again"
    );
    drop(inserter);
    assert_eq!(scene.found(..), entries(1, [105]));
    scene.end();
}

/// I14, I15: the page of a live inserter stays though it is empty, and leaves when the inserter does.
#[test]
fn a_page_stays_while_an_inserter_holds_it() {
    let scene = Scene::new();
    let mut inserter = scene.cache.inserter();
    for round in 0..5 {
        for entry in 0..10 {
            let value = scene.value((1, entry), 1);
            assert_eq!(outcome(inserter.insert((1, entry), value, 0, at(round))), None);
        }
        assert_eq!(removed(scene.cache.remove_ledger(1)), (10, 10));
        assert_eq!((scene.cache.pages(), scene.queue.keys()), (1, 1), "round {round}");
    }
    drop(inserter);
    scene.assert_empty();
}

/// I10: a batch is taken page by page, and what is given back is told in order.
#[test]
fn a_batch_is_taken_but_for_what_is_occupied() {
    let scene = Scene::new();
    scene.put_all(1, [5, 70]);
    let mut inserter = scene.cache.inserter();
    let batch = |entries: std::ops::Range<i64>| {
        let tally = &scene.tally;
        entries.map(move |entry| ((1, entry), tally.value((1, entry), 2), 0))
    };
    let given_back = inserter.insert_batch(batch(0..200), at(1));
    let told: Vec<_> =
        given_back.iter().map(|given| (given.position, given.value.position, given.reason)).collect();
    assert_eq!(told, [((1, 5), (1, 5), Reason::Occupied), ((1, 70), (1, 70), Reason::Occupied)]);
    drop(given_back);
    assert!(inserter.insert_batch(batch(0..0), at(1)).is_empty());
    // Backwards, over two ledgers, with one position twice.
    let scattered = [(2, 9), (1, 300), (2, 9), (1, -1), (2, -1)];
    let given_back =
        inserter.insert_batch(scattered.map(|position| (position, scene.value(position, 2), 0)), at(1));
    assert_eq!(given_back.len(), 1);
    assert_eq!((given_back[0].position, given_back[0].reason), ((2, 9), Reason::Occupied));
    drop((given_back, inserter));
    assert_eq!(scene.cache.len(), 204);
    assert_eq!(scene.cache.weight(), 2 + 2 * 202);
    assert_eq!(
        scene.found((1, 190)..),
        [entries(1, 190..200), entries(1, [300]), entries(2, [-1, 9])].concat()
    );
    scene.end();
}

/// 4.2, I9, I11: three of four are older than the time, and who has copies keeps them.
#[test]
fn eviction_by_time_takes_the_three_older_of_four() {
    for retained in [false, true] {
        let scene = Scene::new();
        (1..=4_u64).for_each(|time| scene.put_at((1, time.cast_signed()), 1, 0, time));
        let copies = if retained { scene.cache.range(..) } else { Vec::new() };
        assert_eq!(scene.evict_before(4, 5), (3, 3));
        assert_eq!(scene.found(..), [(1, 4)]);
        assert_eq!((scene.cache.len(), scene.cache.weight()), (1, 1));
        if retained {
            assert_eq!(copies.iter().map(|(_, value)| value.copies()).collect::<Vec<_>>(), [1, 1, 1, 2]);
        }
        drop(copies);
        scene.end();
    }
}

/// 4.2: eviction by size takes whole entries, the oldest first, until it has enough.
#[test]
fn eviction_by_size_takes_whole_entries_first_in_first_out() {
    let scene = Scene::with(common::options(0, false), 100);
    (0..10).for_each(|entry| scene.put((1, entry), 10));
    assert_eq!(scene.evict_weight(1, 2), (1, 10));
    assert_eq!(scene.evict_weight(10, 2), (1, 10));
    assert_eq!(scene.evict_weight(11, 2), (2, 20));
    assert_eq!(scene.found(..), entries(1, 4..10));
    assert_eq!(scene.evict_weight(1_000, 2), (6, 60), "all there is");
    assert_eq!(scene.evict_weight(1, 2), (0, 0));
    scene.assert_empty();
}

/// I9, I11: more readers at a time in one page than its word can count go in all the same, and all come out.
// One inside the other, which is deeper than ThreadSanitizer's own stack.
#[cfg(not(tsan))]
#[test]
fn more_readers_than_a_word_counts() {
    /// The word has 16 bits for them, and gives out references when half of that is used.
    const READERS: usize = 33_000;
    struct One;
    impl Weigh for One {
        fn weight(&self) -> u64 {
            1
        }
    }
    fn nest(cache: &RangeCache<One>, left: usize) {
        if left > 0 {
            cache.for_each_in_range((1, 0)..(1, 1), |_, _| nest(cache, left - 1));
        } else {
            assert_eq!(removed(cache.clear()), (1, 1));
            assert_eq!((cache.pages(), cache.retired_weight()), (1, 1));
        }
    }
    let queue = EvictionQueue::default();
    let cache = RangeCache::new(&queue);
    cache.insert((1, 0), One, 0, at(1)).unwrap();
    std::thread::scope(|scope| {
        let deep = std::thread::Builder::new().stack_size(1 << 29);
        deep.spawn_scoped(scope, || nest(&cache, READERS)).unwrap().join().unwrap();
    });
    assert_cache_empty(&cache);
    assert_drains(&queue);
}

/// I15: the last handle or inserter takes the entries with it, and the queue forgets the pages.
#[test]
fn entries_leave_with_the_last_handle_or_inserter() {
    let scene = Scene::new();
    scene.put_all(1, 0..100);
    let Scene { queue, cache, tally } = scene;
    let handle = cache.clone();
    let mut inserter = cache.inserter();
    drop(cache);
    assert_eq!(handle.len(), 100);
    drop(handle);
    assert_eq!(tally.copies(), 100, "the inserter still has the cache");
    assert_eq!(outcome(inserter.insert((1, 100), tally.value((1, 100), 1), 0, at(1))), None);
    assert_eq!(queue.pages(), 2);
    drop(inserter);
    tally.assert_all_gone();
    assert_drains(&queue);
    assert_eq!(evicted(queue.evict_before(EVER, EVER).unwrap()), (0, 0));
}

/// I15: a cache whose queue's handle is gone works as before, as long as somebody removes.
#[test]
fn a_cache_does_not_need_a_handle_of_its_queue() {
    let Scene { queue, cache, tally } = Scene::new();
    drop(queue);
    for round in 0..3 {
        assert_eq!(outcome(cache.insert((1, round), tally.value((1, round), 9), 0, at(1))), None);
        assert_eq!((cache.weight(), removed(cache.clear())), (9, (1, 9)));
    }
    assert_cache_empty(&cache);
    drop(cache);
    tally.assert_all_gone();
}

/// I21: a reader that consumes its copy leaves the cached bytes as they are.
#[cfg(feature = "bytes")]
#[test]
fn a_reader_that_consumes_its_bytes_leaves_the_cached_ones() {
    use bytes::{Buf, Bytes};
    let cache = RangeCache::new(&EvictionQueue::default());
    cache.insert((1, 0), Bytes::from(b"twelve bytes".to_vec()), 0, at(1)).unwrap();
    assert_eq!(cache.weight(), 12);
    let mut read = cache.get((1, 0)).unwrap();
    read.advance(7);
    assert_eq!(&read[..], b"bytes");
    assert_eq!(&cache.get((1, 0)).unwrap()[..], b"twelve bytes");
    cache.clear();
    assert_eq!(&read[..], b"bytes", "the copy has its bytes to itself");
    assert_cache_empty(&cache);
}

/// Payloads that come with the crate weigh what they hold.
#[test]
fn payloads_weigh_their_bytes() {
    let shared: Arc<Vec<u8>> = Arc::new(vec![0; 7]);
    assert_eq!(shared.weight(), 7);
    #[cfg(feature = "bytes")]
    assert_eq!(Box::new(bytes::Bytes::from_static(b"four")).weight(), 4);
    assert_eq!([1_u8, 2, 3].as_slice().weight(), 3);
    assert_eq!((vec![0_u8; 9].weight(), "five5".weight(), String::new().weight()), (9, 5, 0));
}
