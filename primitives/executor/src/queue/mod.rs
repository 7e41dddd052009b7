//! A linearizable queue of many producers, whose word also says who consumes.
//!
//! # Guarantees
//! *Progress*: a push is lock-free: a compare-and-set loop on one word, then a walk over at most as many blocks as were filled
//! since. The consumer never waits for a producer. *Order*: items come out in the order of their claims; a push that returned
//! before another began is ahead of it. *Memory*: nothing before the first push; then one block for every `N` items, freed when
//! its items have been taken and no producer can be in it; an idle queue keeps at most the block in use and the ones before and
//! after it, and up to its next push one more for each producer that stalled while it moved the tail.
//!
//! # Protocol
//! One word holds the next ticket, the number of pending items and the flags; see [`word`]. *Claim*: a producer takes a ticket
//! and counts its item by one compare-and-set, which also sets `QUEUED` if nothing was pending: then this producer must see to it
//! that somebody consumes ([`Pushed::MustSchedule`]), and its item is the head. *Publish*: it finds the block of its ticket,
//! writes its slot and swaps the slot's state to `FULL`. *Turn*: whoever clears `QUEUED` ([`Queue::begin`]) is the only consumer
//! and learns by the same operation how many items were pending. It takes some of them and *ends* by subtracting them from the
//! word. If nothing remains the queue is idle and the next claim starts over. If something remains, the consumer sets `QUEUED`
//! again and must schedule ([`Ended::Again`]). A slot that is claimed and not written is never waited for: the consumer sets it
//! from `EMPTY` to `AWAITED` and leaves ([`Ended::Awaited`]); the writer's swap finds that, and the turn is the writer's: it sets
//! `QUEUED` and must schedule, and its item is the head.
//!
//! So between a first claim and the end that leaves nothing pending, exactly one of these holds the turn: the flag, a consumer, or
//! an awaited slot.
//!
//! *Blocks*: tickets map to blocks of `N`; `tail` points to a block that is not past the newest claims, and a producer walks from
//! there to its own: on, linking what is missing, or back, if others have moved the tail past it since its claim. Who moves `tail` from a block to the next then reads the word by a read-modify-write
//! and *releases* the block with the ticket found there: a producer with a later ticket claimed it after that, hence sees the
//! moved tail, and one with an earlier ticket is done walking when its item has been taken. So the consumer frees a block
//! once its head is past the block and has reached the ticket of its release. This is the reclamation of tokio's mpsc list, without its
//! reuse of blocks.
//!
//! # Orderings
//! | operation | word | ordering | pairs with | why |
//! |---|---|---|---|---|
//! | claim: compare-and-set | word | Acquire | release's read-modify-write | a later ticket must see the moved tail |
//! | begin: `fetch_and` | word | Acquire | end's Release | the consumer's place |
//! | end: `fetch_sub` | word | Release | begin; a look at what is done | the consumer's place; what was done with the items |
//! | again: `fetch_or` | word | Release | begin | the consumer's last touch of its head slot comes before the free of the block |
//! | publish: swap | slot | `AcqRel` | take's Acquire; await's Release | the value; the Acquire only for await's first reason |
//! | take: load | slot | Acquire | publish | the value, and that its producer has left the blocks behind |
//! | await: compare-and-set | slot | Release, failing Relaxed | publish | the end comes before the writer's offer in the word (which load buffering alone could turn round, and no model shows); this touch of the slot comes before the free of its block |
//! | first: load, compare-and-set | first | Acquire; Release, failing Acquire | each other | the very first block |
//! | a look at the word: load | word | Acquire | end | what was done with the items that are seen done |
//! | flags: `fetch_or` | word | `AcqRel` | end; a look | a flag's setter sees what was done with the items that are done, and the other way round |
//! | flush flag cleared: `fetch_and` | word | Relaxed | nothing | set and cleared under the lock of the waiters |
//! | link: compare-and-set | next | Release, failing Acquire | load of next | the fresh block |
//! | move: compare-and-set | tail | Release | load of tail | the fresh block, for those that come in by the tail |
//! | release: `fetch_or(0)` | word | Release | claim | a claim after it sees the moved tail |
//! | release: store | released | Relaxed | nothing | a number; the mover's own item, published later, has a smaller ticket |
//!
//! The word is changed by read-modify-writes only, and each continues the release sequences before it: a claim or an offer between an
//! end and a begin hides nothing.
//!
//! # Limits
//! At most 2^28 - 1 items are pending. A producer that stalls between its claim and its publication holds back all items behind
//! its own, and the memory of their blocks.

mod block;
#[cfg(all(test, loom))]
mod models;
pub(crate) mod word;

use std::mem::MaybeUninit;
use std::ptr;

use crossbeam_utils::CachePadded;
use folio_sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use folio_sync::cell::UnsafeCell;
use folio_sync::hint::Backoff;
use folio_sync::{RejectReason, Rejected, step};

use block::{AWAITED, Block, EMPTY, FULL, Slot, WEIGHT_SHIFT};
use word::{CLOSED, FLUSH, MOST, QUEUED, SHUT, TICKET, Word, reached};

/// The greatest weight that is kept; a greater one counts as this.
pub(crate) const HEAVIEST: u64 = u64::MAX >> WEIGHT_SHIFT;

/// What a push obliges its caller to.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pushed {
    /// `QUEUED` is set: see to it that somebody begins a turn. The item with this ticket is the head if the turn is still there.
    MustSchedule(u32),
    /// Somebody else sees to it.
    Joined,
}

/// How a turn ended.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Nothing is pending; the next push must schedule.
    Idle,
    /// The writer of the head slot will schedule.
    Awaited,
    /// Something is pending and `QUEUED` is set: see to it that somebody begins a turn.
    Again,
}

/// The next item of a turn.
pub(crate) enum Next<T> {
    /// An item and its weight.
    Item(T, u64),
    /// The next slot is claimed and not written.
    Unwritten,
    /// All that was pending when the turn began has been taken.
    End,
}

/// The consumer's place in the queue, kept by whoever holds the turn and left here between turns.
struct Place<T, const N: usize> {
    /// The ticket of the next item.
    head: u32,
    /// The block of the item before `head`, or of `head` itself; null before the first turn.
    block: *mut Block<T, N>,
    /// The oldest block that is not freed; `block` or one before it.
    oldest: *mut Block<T, N>,
}

impl<T, const N: usize> Clone for Place<T, N> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, const N: usize> Copy for Place<T, N> {}

struct Tail<T, const N: usize> {
    /// A block not past the newest claims; null as long as that is `first`.
    block: AtomicPtr<Block<T, N>>,
    /// The very first block; set once. Read by the consumer's first turn, and by producers while `block` is null.
    first: AtomicPtr<Block<T, N>>,
}

/// See the [module](self).
pub(crate) struct Queue<T, const N: usize> {
    word: CachePadded<AtomicU64>,
    tail: CachePadded<Tail<T, N>>,
    consumer: CachePadded<UnsafeCell<Place<T, N>>>,
}

// SAFETY: a value goes in on one thread and comes out on another, hence `T: Send`; none is ever shared. The consumer's cell is used
// only by the holder of the turn, which the word and the awaited slot pass from one thread to the next with a release and an acquire.
unsafe impl<T: Send, const N: usize> Sync for Queue<T, N> {}

// SAFETY: as above; the pointers in it are owned by the queue.
unsafe impl<T: Send, const N: usize> Send for Queue<T, N> {}

impl<T, const N: usize> Queue<T, N> {
    /// An empty queue; allocates nothing.
    pub(crate) fn new() -> Self {
        Self {
            word: CachePadded::new(AtomicU64::new(0)),
            tail: CachePadded::new(Tail {
                block: AtomicPtr::new(ptr::null_mut()),
                first: AtomicPtr::new(ptr::null_mut()),
            }),
            consumer: CachePadded::new(UnsafeCell::new(Place {
                head: 0,
                block: ptr::null_mut(),
                oldest: ptr::null_mut(),
            })),
        }
    }

    /// The word as it is now or was a moment ago.
    pub(crate) fn word(&self) -> Word {
        // Acquire: whoever sees an item done also sees what its handler did; pairs with end's Release.
        Word(self.word.load(Ordering::Acquire))
    }

    /// Sets flags and returns the word before.
    pub(crate) fn set(&self, flags: u64) -> Word {
        // AcqRel: what was done before the flag was set is seen by whoever sees the flag, and the other way round.
        Word(self.word.fetch_or(flags, Ordering::AcqRel))
    }

    /// Clears `FLUSH`; called under the lock of those who wait.
    pub(crate) fn clear_flush(&self) {
        // Relaxed: the flag is only set and cleared under that lock, which orders it.
        self.word.fetch_and(!FLUSH, Ordering::Relaxed);
    }

    /// Appends an item, unless the queue is closed or `most` are pending.
    pub(crate) fn push(&self, item: T, weight: u64, most: u32) -> Result<Pushed, Rejected<T>> {
        self.push_unless(CLOSED, item, weight, most)
    }

    /// Appends the continuation of an item that is not done yet: also to a queue that is closed, but not to one that is shut.
    pub(crate) fn push_continuation(&self, item: T) -> Result<Pushed, Rejected<T>> {
        self.push_unless(SHUT, item, 0, MOST)
    }

    fn push_unless(&self, barred: u64, item: T, weight: u64, most: u32) -> Result<Pushed, Rejected<T>> {
        // Relaxed: only a first guess.
        let mut seen = Word(self.word.load(Ordering::Relaxed));
        let mut backoff = Backoff::new();
        let claimed = loop {
            if seen.has(barred) {
                return Err(Rejected::new(item, RejectReason::Closed));
            }
            if seen.pending() >= most.min(MOST) {
                return Err(Rejected::new(item, RejectReason::Full));
            }
            let schedule = if seen.pending() == 0 { QUEUED } else { 0 };
            let claim = (seen.0.wrapping_add(TICKET) + 1) | schedule;
            let tried = step!(
                "queue.claim",
                // Acquire: pairs with release's read-modify-write: this claim, being later, sees the moved tail.
                self.word.compare_exchange_weak(seen.0, claim, Ordering::Acquire, Ordering::Relaxed)
            );
            match tried {
                Ok(_) => break seen,
                Err(found) => {
                    seen = Word(found);
                    backoff.wait();
                }
            }
        };
        let ticket = claimed.ticket();
        let slot = self.claimed_slot(ticket);
        slot.value.with_mut(|value| {
            // SAFETY: this thread owns the ticket, so nobody else writes here, and nobody reads before the swap below.
            unsafe { value.write(MaybeUninit::new(item)) };
        });
        let full = FULL | weight.min(HEAVIEST) << WEIGHT_SHIFT;
        // AcqRel: publishes the value to take's Acquire; an awaited slot's offer comes after the end that awaited it.
        let before = step!("queue.publish", slot.state.swap(full, Ordering::AcqRel));
        if before == AWAITED {
            self.offer_turn();
            Ok(Pushed::MustSchedule(ticket))
        } else if claimed.pending() == 0 {
            Ok(Pushed::MustSchedule(ticket))
        } else {
            Ok(Pushed::Joined)
        }
    }

    /// Puts the turn, which this thread holds, up for whoever clears the flag.
    fn offer_turn(&self) {
        // Release: what the consumer still did to its head slot comes before whoever begins next, and frees it.
        let before = step!("queue.again", Word(self.word.fetch_or(QUEUED, Ordering::Release)));
        debug_assert!(
            !before.has(QUEUED) && before.pending() > 0,
            "there is one turn, and it was held: {before:?}"
        );
    }

    /// The slot of a claimed ticket that is not published yet.
    fn claimed_slot(&self, ticket: u32) -> &Slot<T> {
        // Acquire: the block's fields; pairs with move's Release.
        let mut tail = self.tail.block.load(Ordering::Acquire);
        let mut block = if tail.is_null() { self.first() } else { tail };
        let mut at_tail = true;
        loop {
            // SAFETY: the tail had not left this block before the ticket was claimed, or it came after such a block, or it is
            // the ticket's own or one after it; the consumer frees none of them before this ticket's item has been taken,
            // which is published after this walk.
            let here = unsafe { &*block };
            if here.visit(ticket) {
                if Block::<T, N>::is_middle(ticket) {
                    // One producer links the next block before many need it, and would each make one.
                    here.next_or_link();
                }
                return here.slot(ticket);
            }
            if !reached(ticket, here.start) {
                at_tail = false;
                block = here.before();
                continue;
            }
            let next = here.next_or_link();
            if at_tail {
                let moved = step!(
                    "queue.move",
                    // Release: the next block's fields, for those who come in by the tail. Relaxed on failure: it is not used.
                    self.tail.block.compare_exchange(tail, next, Ordering::Release, Ordering::Relaxed)
                );
                if moved.is_ok() {
                    // Release: a claim that comes after this one has the moved tail to see; pairs with claim's Acquire.
                    let now = step!("queue.release", Word(self.word.fetch_or(0, Ordering::Release)));
                    here.release(now.ticket());
                    tail = next;
                } else {
                    at_tail = false;
                }
            }
            block = next;
        }
    }

    /// The very first block, made by whoever needs it first.
    fn first(&self) -> *mut Block<T, N> {
        // Acquire: the block's fields; pairs with the Release below.
        let first = self.tail.first.load(Ordering::Acquire);
        if !first.is_null() {
            return first;
        }
        let fresh = Block::allocate_first();
        // Release: publishes the fresh block. Acquire on failure: the other's block.
        match self.tail.first.compare_exchange(ptr::null_mut(), fresh, Ordering::Release, Ordering::Acquire) {
            Ok(_) => fresh,
            Err(other) => {
                // SAFETY: `fresh` was not published.
                unsafe { Block::free(fresh) };
                other
            }
        }
    }

    /// Takes the turn, if it is up: then the caller is the only consumer until it ends the turn.
    pub(crate) fn begin(&self) -> Option<Turn<'_, T, N>> {
        // Acquire: the consumer's place; pairs with end's Release.
        let before = step!("queue.begin", Word(self.word.fetch_and(!QUEUED, Ordering::Acquire)));
        if !before.has(QUEUED) {
            return None;
        }
        debug_assert!(before.pending() > 0, "a turn is up only while something is pending: {before:?}");
        let mut place = self.consumer.with(|place| {
            // SAFETY: the turn, which is this thread's, is the only user of the consumer's place.
            unsafe { *place }
        });
        if place.block.is_null() {
            place.block = self.first();
            place.oldest = place.block;
        }
        let until = place.head.wrapping_add(before.pending());
        Some(Turn { queue: self, place, begun: place.head, until, shut: before.has(SHUT) })
    }
}

impl<T, const N: usize> Drop for Queue<T, N> {
    fn drop(&mut self) {
        let (mut block, head) = self.consumer.with_mut(|consumer| {
            // SAFETY: `&mut self`: nobody else holds the turn or anything else.
            let consumer = unsafe { &mut *consumer };
            (consumer.oldest, consumer.head)
        });
        if block.is_null() {
            // Relaxed, here and below: `&mut self` comes after everything.
            block = self.tail.first.load(Ordering::Relaxed);
        }
        let mut rest = Vec::new();
        while !block.is_null() {
            // SAFETY: the blocks from the oldest on are linked, each is freed once, and nobody else can reach them.
            let here = unsafe { &*block };
            for (offset, slot) in (0..).zip(&here.slots) {
                let ticket = here.start.wrapping_add(offset);
                if reached(ticket, head) && slot.state.load(Ordering::Relaxed) & FULL != 0 {
                    rest.push(take(slot));
                }
            }
            let next = here.next.load(Ordering::Relaxed);
            // SAFETY: see above; its values have been moved out.
            unsafe { Block::free(block) };
            block = next;
        }
        // The blocks are gone before the first destructor of an item runs.
        drop(rest);
    }
}

/// The right to consume; there is at most one at a time.
#[must_use = "a turn that is not ended leaves the queue without a consumer"]
pub(crate) struct Turn<'q, T, const N: usize> {
    queue: &'q Queue<T, N>,
    place: Place<T, N>,
    /// The ticket of the first item of the turn.
    begun: u32,
    /// The ticket after the last item that was pending when the turn began.
    until: u32,
    shut: bool,
}

impl<T, const N: usize> Turn<'_, T, N> {
    /// Whether the queue was shut when the turn began.
    pub(crate) fn is_shut(&self) -> bool {
        self.shut
    }

    /// The slot of the head, whose ticket is claimed.
    #[inline]
    fn head_slot(&mut self) -> &Slot<T> {
        // SAFETY: the consumer's block is freed by nobody but the consumer, when it has gone past it.
        let here = unsafe { &*self.place.block };
        if here.holds(self.place.head) {
            return here.slot(self.place.head);
        }
        self.place.block = here.next_or_link();
        self.place.free_spent();
        // SAFETY: as above.
        let here = unsafe { &*self.place.block };
        here.slot(self.place.head)
    }

    /// Takes the next item of those that were pending when the turn began.
    #[inline]
    pub(crate) fn next(&mut self) -> Next<T> {
        if self.place.head == self.until {
            return Next::End;
        }
        let slot = self.head_slot();
        // Acquire: the value, and that its producer is done with the blocks before; pairs with publish.
        let state = slot.state.load(Ordering::Acquire);
        if state & FULL == 0 {
            return Next::Unwritten;
        }
        // Taken only here: the head moves on.
        let item = take(slot);
        self.place.head = self.place.head.wrapping_add(1);
        Next::Item(item, state >> WEIGHT_SHIFT)
    }

    /// Takes the head if it has this ticket.
    pub(crate) fn next_if(&mut self, ticket: u32) -> Next<T> {
        if self.place.head == ticket { self.next() } else { Next::End }
    }

    /// Lets go of the turn; returns also the word as this left it, or as it was found when nothing was taken.
    pub(crate) fn end(mut self) -> (Ended, Word) {
        let left = (self.place.head != self.until).then(|| ptr::from_ref(self.head_slot()));
        let block = self.place.block;
        self.place.free_spent();
        let place = self.place;
        self.queue.consumer.with_mut(|left| {
            // SAFETY: the turn, which this thread holds up to the next line, is the only user of the consumer's place.
            unsafe { *left = place }
        });
        let taken = u64::from(place.head.wrapping_sub(self.begun));
        // Release: hands the consumer's place, and what was done with the items, to whoever begins next or sees them done.
        let before = step!("queue.end", Word(self.queue.word.fetch_sub(taken, Ordering::Release)));
        let now = Word(before.0 - taken);
        if now.pending() == 0 {
            return (Ended::Idle, now);
        }
        if let Some(slot) = left {
            // SAFETY: the slot is the head's, which is not taken, and its block is not freed before it is.
            let slot = unsafe { &*slot };
            // SAFETY: as above; models see that this comes before the free.
            unsafe { &*block }.touch();
            // Release: the end, and this touch, come before the writer's offer; pairs with publish. Relaxed on failure: the turn is here.
            let awaited = step!(
                "queue.await",
                slot.state.compare_exchange(EMPTY, AWAITED, Ordering::Release, Ordering::Relaxed)
            );
            if awaited.is_ok() {
                return (Ended::Awaited, now);
            }
        }
        self.queue.offer_turn();
        (Ended::Again, now)
    }
}

/// Moves the value out of a published slot, which nobody else does: it is behind the consumer's head from here on.
fn take<T>(slot: &Slot<T>) -> T {
    // SAFETY: the slot was seen `FULL`, so its writer is done, and the one consumer comes here once.
    let value = slot.value.with(|value| unsafe { value.read() });
    // SAFETY: a slot that is `FULL` has been written.
    unsafe { value.assume_init() }
}

impl<T, const N: usize> Place<T, N> {
    /// Frees the blocks that the consumer has left and no producer can come to.
    fn free_spent(&mut self) {
        while self.oldest != self.block {
            // SAFETY: blocks from the oldest on are not freed.
            let oldest = unsafe { &*self.oldest };
            let Some(released) = oldest.released_at() else { break };
            if !reached(self.head, released) {
                break;
            }
            // Acquire: the link was seen by the consumer when it came this way; again only for the value.
            let next = oldest.next.load(Ordering::Acquire);
            // SAFETY: the head is past it and has reached the ticket of its release: see the module's *Blocks*.
            unsafe { Block::free(self.oldest) };
            self.oldest = next;
        }
    }
}
