//! A page: a fixed number of slots that are filled and emptied by bit operations on a few words.
//!
//! # Guarantees
//! *Progress.* Insert and remove are a fixed number of steps and wait for nobody. A reader is never waited for: what it may still be
//! looking at stays where it is, and whoever is the last one to leave the page, or removes next, moves it out. Only putting retired values back
//! repeats a step, each time because a reader came in or went out.
//!
//! *Exactly once.* Each value goes to exactly one remover, whatever races, and is dropped once.
//!
//! *Memory.* Nothing is allocated. A removed value lives on only while a reader is inside its page. Readers that overlap without end hold at
//! most the page's values: a slot is not filled again before its value is gone.
//!
//! *Sealing.* A page that lost its last claim and reservation is sealed for good; no value is, or will be, in a sealed page.
//!
//! # Protocol
//! A slot, with the bits that say so:
//!
//! | state | `claimed` | `present` | `retired` | next | by whom |
//! |---|---|---|---|---|---|
//! | free | 0 | 0 | 0 | claimed | an inserter, by `fetch_or` of `claimed`; it has a reservation, which is the slot's from here |
//! | claimed | 1 | 0 | 0 | present | that inserter, by `fetch_or` of `present` when the value is written |
//! | present | 1 | 1 | 0 | won | the remover whose `fetch_and` of `present` cleared the bit |
//! | won | 1 | 0 | 0 | free, or retired | that remover: free if nobody is inside, else retired |
//! | retired | 1 | 0 | 1 | won | who takes all of `retired` after it saw nobody inside |
//! | won from retired | 1 | 0 | 0 | free, or retired | the same: free if still nobody is inside, else back |
//!
//! Inside is who counted itself in `pins`. *Reclaim* is: look at `pins`, and leave if it is not zero, since the last one out comes here; take
//! all of `retired`; look again, and put them back and start over if it is not zero; move the values out. The second look is needed since
//! between the first and the taking a reader can come in, another remover can take from its sight and retire what it reads.
//! A slot is freed after its value was moved out and before its destructor runs; then its reservation is given back.
//!
//! # Orderings
//! | operation | word | ordering | pairs with | why |
//! |---|---|---|---|---|
//! | reserve, give back, seal | `life` | Relaxed | | one word, only read-modify-writes, publishes no memory |
//! | claim `fetch_or` | `claimed` | Acquire | free | the value before was moved out before this one is written |
//! | free `fetch_and` | `claimed` | Release | claim | as above |
//! | publish `fetch_or` | `present` | Release | read, remove | the value is written before it is seen |
//! | read: one load, inside | `present` | Acquire | publish | as above |
//! | presence: one load | `present` | Acquire | publish | who sees a value present comes after its insert |
//! | remove `fetch_and` | `present` | `AcqRel` | publish | the value is written before it is moved out. No model tells it from Acquire: what it cleared is published by look |
//! | enter `fetch_add` | `pins` | Acquire | look | a reader that came in after the look sees `present` cleared |
//! | leave `fetch_sub` | `pins` | `AcqRel` | look | what it read, it read before it is moved out; and it sees what was retired before |
//! | look `fetch_add(0)` | `pins` | `AcqRel`, never a load | enter, leave | a load could miss a reader that is inside |
//! | retire `fetch_or`, take `swap` | `retired` | Release, Acquire | each other | the owner is shown a value before it is moved out |
//! | put back `fetch_or` | `retired` | Release | take | as above. No model tells it from Relaxed: a read-modify-write passes on what retire published |
//! | nothing there: load before anything else | `present` | Acquire, Relaxed for removal | | that there is nothing at this moment is an answer |
//! | last out: load | `retired` | Relaxed | | ordered by leave and look: whoever retires looks afterwards |
//!
//! # Limits
//! A page has no position: who owns it knows what its slots stand for. An insert needs a reservation, which nobody checks; a page given back
//! more than was reserved is sealed too early. A reservation that failed stays counted: some 30 million of them on one sealed page would open it
//! again, so whoever meets a sealed page takes it out of the others' sight. At most 2^32 readers may be inside at once.
//!
//! ```
//! use folio_cache::page::{Fate, Owner, Page, Values};
//!
//! /// Is told what becomes of the page.
//! struct Shelf;
//!
//! impl Owner<String> for Shelf {
//!     fn retiring<'a>(&self, _values: impl Iterator<Item = &'a String>) {}
//!
//!     fn released(&self, values: &Values<String>, _retired: bool, fate: Fate) {
//!         assert_eq!((values.mask(), fate), (1 << 7, Fate::Sealed));
//!     }
//! }
//!
//! let page = Page::boxed(1);
//! page.insert(7, "seven".to_owned()).unwrap();
//! let mut seen = Vec::new();
//! page.read(u64::MAX, |slot, value: &String| seen.push((slot, value.clone())), &Shelf, &mut Values::new());
//! assert_eq!(seen, [(7, "seven".to_owned())]);
//! let mut removed = Values::new();
//! assert_eq!(page.remove(u64::MAX, &Shelf, &mut removed), 1 << 7);
//! assert!(page.is_sealed());
//! ```

use std::fmt;
use std::mem::MaybeUninit;

use folio_sync::atomic::{AtomicU32, AtomicU64, Ordering};
use folio_sync::cell::UnsafeCell;
use folio_sync::step;

mod life;
#[cfg(all(test, loom))]
mod models;
mod reclaim;
mod values;

pub use life::{Fate, Sealed};
pub use values::Values;

use crate::bits::Bits;
use crate::size::PAGE_SLOTS;
use life::Life;

/// Slots of a page.
pub const SLOTS: usize = PAGE_SLOTS as usize;

/// What a page tells whoever it belongs to.
///
/// None of it runs user code; the values are dropped after it.
pub trait Owner<T> {
    /// These values were removed just now and stay in the page, since somebody is reading in it.
    fn retiring<'a>(&self, values: impl Iterator<Item = &'a T>)
    where
        T: 'a;

    /// These values were moved out of the page, and are about to be dropped; `retired` if [`retiring`](Self::retiring) told of them before.
    ///
    /// A page that was sealed by that must not be found any more when this returns.
    fn released(&self, values: &Values<T>, retired: bool, fate: Fate);
}

/// A fixed number of slots: 64.
///
/// See the [module](self) for what it promises.
#[repr(C)]
pub struct Page<T> {
    /// Claimed slots and unused reservations.
    life: Life,
    /// Readers inside.
    pins: AtomicU32,
    /// A bit a slot: an inserter has it, and what it wrote has not been moved out yet.
    claimed: AtomicU64,
    /// A bit a slot: its value can be seen. Set by the inserter that claimed it, cleared by the remover that wins it.
    present: AtomicU64,
    /// A bit a slot: its value was removed while somebody was inside, and waits to be moved out.
    retired: AtomicU64,
    /// A slot's value is written by who claimed it, read by who is inside and saw it present, moved out by who won it.
    slots: [UnsafeCell<MaybeUninit<T>>; SLOTS],
}

// SAFETY: a page owns its values, which may be dropped or moved out by whatever thread it is sent to.
unsafe impl<T: Send> Send for Page<T> {}
// SAFETY: threads that share a page read its values at the same time (Sync) and move values in and out of it (Send). The bits order every
// write of a slot before every read of it, and those before the next write: see the Protocol.
unsafe impl<T: Send + Sync> Sync for Page<T> {}

impl<T> Page<T> {
    /// An open page that has this many reservations, built where it stays.
    pub fn boxed(reserved: u32) -> Box<Self> {
        let mut page = Box::<Self>::new_uninit();
        // SAFETY: the box is an allocation for a page that nobody else has.
        unsafe { Self::write(page.as_mut_ptr(), reserved) };
        // SAFETY: `write` wrote all fields.
        unsafe { page.assume_init() }
    }

    /// Writes an open page to where it stays: it can be larger than a stack likes.
    ///
    /// # Safety
    /// `page` is valid for writes of a page, and nobody else has it.
    pub(crate) unsafe fn write(page: *mut Self, reserved: u32) {
        /// Writes one field of the page that is being built.
        macro_rules! write {
            ($field:ident, $value:expr) => {{
                // SAFETY: the pointer is to a whole allocation, hence its fields lie in it.
                let place = unsafe { &raw mut (*page).$field };
                // SAFETY: nobody else has the allocation yet, and the field is not read before this.
                unsafe { place.write($value) };
            }};
        }
        write!(life, Life::new(reserved));
        write!(pins, AtomicU32::new(0));
        write!(claimed, AtomicU64::new(0));
        write!(present, AtomicU64::new(0));
        write!(retired, AtomicU64::new(0));
        // Without a checker an empty slot has nothing to write.
        if size_of::<UnsafeCell<MaybeUninit<T>>>() != size_of::<T>() {
            // SAFETY: the pointer is to a whole allocation, hence its fields lie in it.
            let slots = unsafe { &raw mut (*page).slots }.cast::<UnsafeCell<MaybeUninit<T>>>();
            for index in 0..SLOTS {
                // SAFETY: an index below the length is in the array.
                let slot = unsafe { slots.add(index) };
                // SAFETY: as for the fields.
                unsafe { slot.write(UnsafeCell::new(MaybeUninit::uninit())) };
            }
        }
    }

    /// Where in a page a slot lies, in bytes.
    #[inline]
    pub(crate) const fn place_of(slot: u32) -> usize {
        std::mem::offset_of!(Self, slots) + slot as usize * size_of::<UnsafeCell<MaybeUninit<T>>>()
    }

    /// Reserves room for as many inserts.
    ///
    /// # Errors
    /// When the page is sealed.
    ///
    /// # Panics
    /// When `count` is above the number of slots: no run needs more.
    #[inline]
    pub fn reserve(&self, count: u32) -> Result<(), Sealed> {
        assert!(count <= PAGE_SLOTS, "a page has fewer slots");
        self.life.reserve(count)
    }

    /// Gives back reservations that were not used.
    #[inline]
    pub fn give_back(&self, count: u32) -> Fate {
        self.life.give_back(count)
    }

    /// Whether the page takes no value any more.
    #[inline]
    pub fn is_sealed(&self) -> bool {
        self.life.is_sealed()
    }

    /// Puts a value into a free slot; the caller's reservation is the slot's from then on.
    ///
    /// # Errors
    /// The value, when the slot is claimed: the reservation stays the caller's.
    ///
    /// # Panics
    /// When there is no such slot.
    #[inline]
    pub fn insert(&self, slot: u32, value: T) -> Result<(), T> {
        assert!(slot < PAGE_SLOTS, "a page has fewer slots");
        let bit = 1 << slot;
        if self.claim(bit) == 0 {
            return Err(value);
        }
        self.fill(slot, value);
        self.publish(bit);
        Ok(())
    }

    /// Moves values into their slots, those whose slots are free: one claim and one publication. Tells which.
    ///
    /// The caller's reservations, as many, are the slots' from then on.
    pub fn insert_all(&self, values: &mut Values<T>) -> u64 {
        let won = self.claim(values.mask());
        for slot in Bits(won) {
            if let Some(value) = values.take(slot) {
                self.fill(slot, value);
            }
        }
        self.publish(won);
        won
    }

    /// Claims those of these slots that are free.
    #[inline]
    fn claim(&self, mask: u64) -> u64 {
        // Acquire: whoever freed a slot had moved its value out before; pairs with the Release of `take_out`.
        mask & !step!("page.claim", self.claimed.fetch_or(mask, Ordering::Acquire))
    }

    /// Writes the value of a slot that this caller has claimed.
    #[inline]
    fn fill(&self, slot: u32, value: T) {
        self.slots[slot as usize].with_mut(|place| {
            // SAFETY: the caller claimed the slot: nobody else reads or writes it before it is published.
            let place = unsafe { &mut *place };
            place.write(value);
        });
    }

    /// Shows the values of slots that this caller has claimed and filled.
    #[inline]
    fn publish(&self, mask: u64) {
        // Release: the values are written before they can be seen; pairs with the Acquire of `read` and `remove`.
        step!("page.publish", self.present.fetch_or(mask, Ordering::Release));
    }

    /// Which of these slots have a value to be seen.
    #[inline]
    pub fn present(&self, mask: u64) -> u64 {
        // Acquire: who sees a value here and then does something about it comes after its insert; pairs with the Release of `publish`.
        self.present.load(Ordering::Acquire) & mask
    }

    /// Shows the values of those of these slots that have one, lowest slot first; tells which.
    ///
    /// They are as they were at one moment, and stay while they are shown. `visit` may do anything with the page. What was removed meanwhile is
    /// moved to `removed`, which is empty, when this reader is the last one out, also when `visit` panics.
    ///
    /// # Panics
    /// When `visit` does, or `removed` is not empty.
    #[inline]
    pub fn read(
        &self,
        mask: u64,
        mut visit: impl FnMut(u32, &T),
        owner: &impl Owner<T>,
        removed: &mut Values<T>,
    ) -> u64 {
        assert!(removed.mask() == 0, "what was removed before is not dropped yet");
        // Nothing to be seen at this moment is an answer, too, and nobody need go in for it.
        if self.present(mask) == 0 {
            return 0;
        }
        let inside = self.enter(owner, removed);
        // Acquire: the values that it shows were written before; pairs with the Release of `publish`.
        let seen = step!("page.read", self.present.load(Ordering::Acquire)) & mask;
        for slot in Bits(seen) {
            self.slots[slot as usize].with(|place| {
                // SAFETY: this reader is inside, and saw the slot present after it came in: its value is moved out only after it left.
                let place = unsafe { &*place };
                // SAFETY: as above: the slot was seen present, hence filled.
                visit(slot, unsafe { place.assume_init_ref() });
            });
        }
        drop(inside);
        seen
    }

    /// Removes the values of these slots; tells which this caller won.
    ///
    /// What can be moved out at once is put into `removed`, which is empty, or else what others had left behind.
    ///
    /// # Panics
    /// When `removed` is not empty.
    pub fn remove(&self, mask: u64, owner: &impl Owner<T>, removed: &mut Values<T>) -> u64 {
        assert!(removed.mask() == 0, "what was removed before is not dropped yet");
        // Relaxed: nothing to be seen at this moment is an answer.
        if self.present.load(Ordering::Relaxed) & mask == 0 {
            return 0;
        }
        // AcqRel: the value is moved out after it was written: pairs with the Release of `publish`. A reader that comes in after this
        // caller's look sees the bits cleared, by that look.
        let won = step!("page.remove", self.present.fetch_and(!mask, Ordering::AcqRel)) & mask;
        if won != 0 {
            self.let_go(won, owner, removed);
        }
        won
    }
}

impl<T> Drop for Page<T> {
    fn drop(&mut self) {
        // Relaxed: whoever drops a page has it alone.
        let left = self.present.load(Ordering::Relaxed) | self.retired.load(Ordering::Relaxed);
        let mut values = Values::new();
        self.move_out(left, &mut values);
    }
}

impl<T> fmt::Debug for Page<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Page")
            .field("sealed", &self.is_sealed())
            .field("present", &format_args!("{:#x}", self.present(u64::MAX)))
            .finish_non_exhaustive()
    }
}
