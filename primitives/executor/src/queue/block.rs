//! Blocks of slots, linked as they are needed and never used again.

use std::mem::MaybeUninit;
use std::ptr;

use folio_sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use folio_sync::cell::UnsafeCell;

use super::word::low;

/// Nothing is written yet, and nobody waits for it.
pub(crate) const EMPTY: u64 = 0;
/// The value is there; the bits above the lowest two are its weight.
pub(crate) const FULL: u64 = 1;
/// The consumer came before the value: whoever writes it holds the turn.
pub(crate) const AWAITED: u64 = 2;
/// Where the weight begins.
pub(crate) const WEIGHT_SHIFT: u32 = 2;

/// A place for one value.
pub(crate) struct Slot<T> {
    /// `EMPTY`, `AWAITED` or `FULL` with the weight: swapped once by the writer, and set to `AWAITED` by a consumer.
    pub(crate) state: AtomicU64,
    /// Written once by the owner of the ticket before it swaps `state`, moved out once by the consumer after it saw `FULL`.
    pub(crate) value: UnsafeCell<MaybeUninit<T>>,
}

/// The slots of `N` consecutive tickets.
pub(crate) struct Block<T, const N: usize> {
    /// The first ticket; written before the block is linked.
    pub(crate) start: u32,
    /// The block before this; null in the very first. Followed only by who knows that it is not freed.
    before: *mut Block<T, N>,
    /// The block after this; set once, by whoever needs it first.
    pub(crate) next: AtomicPtr<Block<T, N>>,
    /// `RELEASED` and the ticket from which on nobody can come here any more; 0 before the tail has left this block.
    released: AtomicU64,
    /// Read by who comes here, written by who frees the block: nothing in itself, but models see whether one precedes the other.
    alive: UnsafeCell<()>,
    pub(crate) slots: [Slot<T>; N],
}

const RELEASED: u64 = 1 << 32;

impl<T, const N: usize> Block<T, N> {
    /// The very first block, ready to be published.
    pub(crate) fn allocate_first() -> *mut Self {
        Self::allocate(0, ptr::null_mut())
    }

    /// An open block, ready to be linked.
    ///
    /// Built where it stays: a block can be larger than a stack.
    fn allocate(start: u32, before: *mut Self) -> *mut Self {
        /// Writes one field of a value that is being built.
        macro_rules! write {
            ($to:expr, $field:ident, $value:expr) => {{
                // SAFETY: the pointer is to a whole allocation, hence its fields lie in it.
                let place = unsafe { &raw mut (*$to).$field };
                // SAFETY: nobody else has the allocation yet, and the field is not read before this.
                unsafe { place.write($value) };
            }};
        }

        let mut block = Box::<Self>::new_uninit();
        let fields = block.as_mut_ptr();
        write!(fields, start, start);
        write!(fields, before, before);
        write!(fields, next, AtomicPtr::new(ptr::null_mut()));
        write!(fields, released, AtomicU64::new(0));
        write!(fields, alive, UnsafeCell::new(()));
        // SAFETY: the pointer is to a whole allocation, hence its fields lie in it.
        let slots = unsafe { &raw mut (*fields).slots }.cast::<Slot<T>>();
        for index in 0..N {
            // SAFETY: an index below `N` is in the array.
            let slot = unsafe { slots.add(index) };
            write!(slot, state, AtomicU64::new(EMPTY));
            write!(slot, value, UnsafeCell::new(MaybeUninit::uninit()));
        }
        // SAFETY: all fields have been written.
        Box::into_raw(unsafe { block.assume_init() })
    }

    /// Frees a block whose values have all been moved out.
    ///
    /// # Safety
    /// `block` was allocated here and nobody else can reach it any more.
    pub(crate) unsafe fn free(block: *mut Self) {
        // SAFETY: the caller's obligation; a slot's value is `MaybeUninit` and drops nothing.
        let block = unsafe { Box::from_raw(block) };
        block.alive.with_mut(|_| ());
    }

    /// The block after this one, linking a new one if there is none.
    pub(crate) fn next_or_link(&self) -> *mut Self {
        // Acquire: the block's fields; pairs with the link's Release.
        let next = self.next.load(Ordering::Acquire);
        if !next.is_null() {
            return next;
        }
        let fresh = Self::allocate(self.start.wrapping_add(Self::SLOTS), ptr::from_ref(self).cast_mut());
        let linked = folio_sync::step!(
            "queue.link",
            // Release: publishes the fresh block; pairs with every Acquire load of `next`. Acquire on failure: the other's block.
            self.next.compare_exchange(ptr::null_mut(), fresh, Ordering::Release, Ordering::Acquire)
        );
        match linked {
            Ok(_) => fresh,
            Err(other) => {
                // SAFETY: `fresh` was not published.
                unsafe { Self::free(fresh) };
                other
            }
        }
    }

    /// Whether the ticket is the one half-way through its block.
    pub(crate) fn is_middle(ticket: u32) -> bool {
        ticket & (Self::SLOTS - 1) == Self::SLOTS / 2
    }

    /// Whether the ticket falls into this block, asked by a producer on its way.
    pub(crate) fn visit(&self, ticket: u32) -> bool {
        self.touch();
        self.holds(ticket)
    }

    /// Tells models that the block is in use here.
    pub(crate) fn touch(&self) {
        self.alive.with(|_| ());
    }

    /// The block before this one, for a producer whose ticket lies before this block.
    pub(crate) fn before(&self) -> *mut Self {
        self.before
    }

    /// Says that nobody with this ticket or a later one can come to this block.
    pub(crate) fn release(&self, ticket: u32) {
        // Relaxed: only a number. The releasing thread's own item has a smaller ticket and is published after this, so whoever has
        // taken all items up to `ticket` comes after it.
        self.released.store(RELEASED | u64::from(ticket), Ordering::Relaxed);
    }

    /// The ticket told by [`release`](Self::release), once it was.
    pub(crate) fn released_at(&self) -> Option<u32> {
        // Relaxed: see `release`.
        let released = self.released.load(Ordering::Relaxed);
        (released & RELEASED != 0).then_some(low(released))
    }

    /// `N` as a number of tickets.
    pub(crate) const SLOTS: u32 = {
        assert!(N.is_power_of_two() && N <= 1 << 16, "a block has a power of two of slots, at most 65536");
        low(N as u64)
    };

    /// The slot of a ticket that falls into this block.
    pub(crate) fn slot(&self, ticket: u32) -> &Slot<T> {
        &self.slots[(ticket as usize) & (N - 1)]
    }

    /// Whether the ticket falls into this block.
    pub(crate) fn holds(&self, ticket: u32) -> bool {
        ticket & !(Self::SLOTS - 1) == self.start
    }
}
