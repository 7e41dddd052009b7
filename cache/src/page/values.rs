//! Up to a page of values that were moved out of it, or are to be moved in.

use std::fmt;
use std::mem::MaybeUninit;

use folio_sync::unwind;

use super::SLOTS;
use crate::bits::Bits;

/// Values by slot.
///
/// Dropping them runs their destructors one after the other; a destructor that panics stops no other, and its panic ends here.
pub struct Values<T> {
    /// Which slots hold a value.
    mask: u64,
    values: [MaybeUninit<T>; SLOTS],
}

impl<T> Values<T> {
    /// None yet.
    #[inline]
    pub fn new() -> Self {
        Self { mask: 0, values: [const { MaybeUninit::uninit() }; SLOTS] }
    }

    /// Which slots have a value, a bit each.
    #[inline]
    pub fn mask(&self) -> u64 {
        self.mask
    }

    /// Puts a value into a slot that has none.
    ///
    /// # Panics
    /// When the slot has one, or there is no such slot.
    #[inline]
    pub fn put(&mut self, slot: u32, value: T) {
        assert!(self.mask >> slot & 1 == 0, "a slot holds one value");
        self.values[slot as usize].write(value);
        self.mask |= 1 << slot;
    }

    /// Takes the value of a slot out, if it has one.
    #[inline]
    pub fn take(&mut self, slot: u32) -> Option<T> {
        if self.mask >> slot & 1 == 0 {
            return None;
        }
        self.mask &= !(1 << slot);
        // SAFETY: the mask said that the slot holds a value, and says so no more: it is moved out once.
        Some(unsafe { self.values[slot as usize].assume_init_read() })
    }

    /// The values, lowest slot first.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        // SAFETY: the mask says that the slot holds a value.
        Bits(self.mask).map(|slot| unsafe { self.values[slot as usize].assume_init_ref() })
    }

    /// Drops all values; a panic of a destructor ends here and stops no other.
    pub fn clear(&mut self) {
        while self.mask != 0 {
            let dropped = unwind::catch(|| {
                while self.mask != 0 {
                    drop(self.take(self.mask.trailing_zeros()));
                }
            });
            if let Err(payload) = dropped {
                unwind::discard(payload);
            }
        }
    }
}

impl<T> Default for Values<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Drop for Values<T> {
    #[inline]
    fn drop(&mut self) {
        if self.mask != 0 {
            self.clear();
        }
    }
}

impl<T> fmt::Debug for Values<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Values({:#x})", self.mask)
    }
}
