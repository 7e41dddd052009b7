//! What becomes of removed values: moved out at once, or by the last reader that leaves.

use folio_sync::atomic::Ordering;
use folio_sync::step;

use super::{Owner, Page, Values};
use crate::bits::Bits;

impl<T> Page<T> {
    /// Goes in, until the result is dropped.
    #[inline]
    pub(super) fn enter<'a, O: Owner<T>>(
        &'a self,
        owner: &'a O,
        removed: &'a mut Values<T>,
    ) -> Inside<'a, T, O> {
        // Acquire: a reader that comes in after a remover has looked sees what that one cleared before; pairs with the Release of `look`.
        step!("page.enter", self.pins.fetch_add(1, Ordering::Acquire));
        Inside { page: self, owner, removed }
    }

    /// How many are inside.
    ///
    /// By a read-modify-write: a load could miss somebody who came in before it.
    #[inline]
    fn look(&self) -> u32 {
        // AcqRel: what those who left have read, they read before this: pairs with the Release of their leaving. Who comes in later sees what
        // was cleared and retired before: pairs with the Acquire of `enter` and of leaving.
        step!("page.look", self.pins.fetch_add(0, Ordering::AcqRel))
    }

    /// Moves out what this caller won, or leaves it to the last one out.
    #[inline]
    pub(super) fn let_go(&self, won: u64, owner: &impl Owner<T>, removed: &mut Values<T>) {
        if self.look() == 0 {
            self.take_out(won, false, owner, removed);
            return;
        }
        owner.retiring(Bits(won).map(|slot| {
            self.slots[slot as usize].with(|place| {
                // SAFETY: this caller won the slot: its value stays until it is retired, which is after this.
                let place = unsafe { &*place };
                // SAFETY: it was present, hence filled.
                unsafe { place.assume_init_ref() }
            })
        }));
        // Release: who takes these comes after their removal, and after the owner was shown them; pairs with the Acquire of `reclaim`.
        step!("page.retire", self.retired.fetch_or(won, Ordering::Release));
        self.reclaim(owner, removed);
    }

    /// Moves out all that is retired, unless somebody is inside.
    #[cold]
    fn reclaim(&self, owner: &impl Owner<T>, removed: &mut Values<T>) {
        loop {
            if self.look() != 0 {
                // The last one out comes here.
                return;
            }
            // Acquire: what was retired was removed before; pairs with the Release of `let_go` and of putting back.
            let taken = step!("page.take", self.retired.swap(0, Ordering::Acquire));
            if taken == 0 {
                return;
            }
            if self.look() == 0 {
                self.take_out(taken, true, owner, removed);
                return;
            }
            // Release: as in `let_go`.
            step!("page.put_back", self.retired.fetch_or(taken, Ordering::Release));
        }
    }

    /// Moves these values out, frees their slots and gives their reservations back.
    #[inline]
    fn take_out(&self, slots: u64, retired: bool, owner: &impl Owner<T>, removed: &mut Values<T>) {
        self.move_out(slots, removed);
        // Release: the values are moved out before others are written; pairs with the Acquire of `claim`.
        step!("page.free", self.claimed.fetch_and(!slots, Ordering::Release));
        let fate = self.life.give_back(slots.count_ones());
        owner.released(removed, retired, fate);
    }

    /// Moves values out that are the caller's alone.
    #[inline]
    pub(super) fn move_out(&self, slots: u64, removed: &mut Values<T>) {
        for slot in Bits(slots) {
            self.slots[slot as usize].with_mut(|place| {
                // SAFETY: the caller has won the slot and nobody is inside, or it has the whole page alone.
                let place = unsafe { &*place };
                // SAFETY: it was present, hence filled, and is moved out once: its bits are cleared by who wins them.
                removed.put(slot, unsafe { place.assume_init_read() });
            });
        }
    }
}

/// A reader inside a page.
pub(super) struct Inside<'a, T, O: Owner<T>> {
    page: &'a Page<T>,
    owner: &'a O,
    removed: &'a mut Values<T>,
}

impl<T, O: Owner<T>> Drop for Inside<'_, T, O> {
    #[inline]
    fn drop(&mut self) {
        let page = self.page;
        // AcqRel: what was read was read before it is moved out: pairs with the Acquire of `look`. What was retired by somebody who looked
        // before this is seen by the load below: pairs with the Release of `look`.
        let before = step!("page.leave", page.pins.fetch_sub(1, Ordering::AcqRel));
        // Relaxed: see above.
        if before == 1 && page.retired.load(Ordering::Relaxed) != 0 {
            page.reclaim(self.owner, self.removed);
        }
    }
}
