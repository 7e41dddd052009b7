//! The pool alone: growth, and the list of what is not in use.

use folio_sync::atomic::AtomicU32;
use folio_sync::cell::UnsafeCell;
use folio_sync::test_util::{Model, Tracked};
use folio_sync::{Arc, thread};

use crate::index::{Pool, Pooled};

/// A node whose user has it alone, as the model sees.
struct Item {
    next: AtomicU32,
    /// Leaks with its chunk.
    _whole: Tracked<()>,
    /// Written by who has the node.
    users: UnsafeCell<u32>,
}

// SAFETY: the cell is what the models watch: they fail when two threads use it at once.
unsafe impl Sync for Item {}

impl Default for Item {
    fn default() -> Self {
        Self { next: AtomicU32::new(0), _whole: Tracked::new(()), users: UnsafeCell::new(0) }
    }
}

impl Pooled for Item {
    fn next(&self) -> &AtomicU32 {
        &self.next
    }
}

/// Uses a node that was taken; tells how many users it had with this one.
fn touch(pool: &Pool<Item>, number: u32) -> u32 {
    pool.get(number).users.with_mut(|users| {
        // SAFETY: the taker has the node alone; if not, the model has failed by now.
        let users = unsafe { &mut *users };
        *users += 1;
        *users
    })
}

/// Takes a node and uses it.
fn take(pool: &Pool<Item>) -> (u32, u32) {
    let number = pool.take();
    (number, touch(pool, number))
}

/// A pool in which as many nodes were used once and put back.
fn with_unused(count: usize) -> Arc<Pool<Item>> {
    let pool = Arc::new(Pool::new());
    let taken: Vec<_> = (0..count).map(|_| take(&pool).0).collect();
    for number in taken {
        pool.put(number);
    }
    pool
}

fn spawn<R: Send + 'static>(
    pool: &Arc<Pool<Item>>,
    body: impl FnOnce(&Pool<Item>) -> R + Send + 'static,
) -> thread::JoinHandle<R> {
    let pool = Arc::clone(pool);
    thread::spawn(move || body(&pool))
}

/// Checks that these nodes are in use, and that all others are not.
fn check(pool: &Pool<Item>, taken: &[u32]) {
    let (mut all, used) = pool.unused();
    all.extend(taken);
    all.sort_unstable();
    assert!(all.iter().copied().eq(1..=used), "each node is in use once or not at all");
}

/// Takers find no node at once, and allocate the same chunk: the nodes of one of them count.
#[test]
fn growth_under_two_takers() {
    Model::new("the pool grows under two takers").at_every_step().check(|| {
        let pool = Arc::new(Pool::new());
        // A chunk of one node; the next has two.
        let mut taken = vec![take(&pool).0];
        let other = spawn(&pool, take);
        for (number, users) in [take(&pool), other.join().unwrap()] {
            assert_eq!((users, touch(&pool, number)), (1, 2), "a taker's node stays the same");
            taken.push(number);
        }
        check(&pool, &taken);
        assert_eq!(pool.bytes(), 3 * size_of::<Item>(), "the last chunk was needed once");
    });
}

/// A take reads which node is next, and others take both and put the first one back: it must not take from what it read.
#[test]
fn free_list_is_not_deceived() {
    Model::new("take, take, put against a take").at_every_step().check(|| {
        let pool = with_unused(3);
        let takes = spawn(&pool, take);
        let (first, _) = take(&pool);
        let (second, _) = take(&pool);
        pool.put(first);
        let (third, _) = takes.join().unwrap();
        check(&pool, &[second, third]);
    });
}

/// What the last user did with a node comes before the next one uses it, also when others were put on top of it.
#[test]
fn nodes_pass_from_hand_to_hand() {
    Model::new("two put, one takes").at_every_step().check(|| {
        let pool = with_unused(3);
        let taken = [(); 2].map(|()| take(&pool).0);
        let puts = taken.map(|number| {
            spawn(&pool, move |pool| {
                touch(pool, number);
                pool.put(number);
            })
        });
        let mine = [(); 2].map(|()| take(&pool).0);
        for put in puts {
            put.join().unwrap();
        }
        check(&pool, &mine);
    });
}
