//! A page as the index links it, and the two ways to hold one.

use std::ops::Deref;
use std::ptr::{self, NonNull};

use folio_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use folio_sync::cell::UnsafeCell;
use folio_sync::step;

use super::key::PageKey;
use crate::near;
use crate::page::Page;
use crate::size::MOST_COUNTED;

/// Bits of a page word that count readers, below the address.
const READER_BITS: u32 = 16;
const READERS: u64 = (1 << READER_BITS) - 1;

/// What the index holds of a linked page: far more than all others together, so that they never bring the count to zero.
const BIAS: u64 = 1 << 32;

/// A page, with what finds it and what keeps it.
///
/// In this order, so that all that a look-up needs beside the value is in one cache line.
#[repr(C, align(64))]
pub(crate) struct Linked<T> {
    /// `BIAS` while the index has it, plus one for each `Owned`, minus one for each `Counted` that left after it was unlinked.
    refs: AtomicU64,
    /// Where it stands; never changes.
    pub(crate) key: PageKey,
    /// A number that no other page of the manager has; never changes.
    pub(crate) birth: u64,
    pub(crate) page: Page<T>,
    /// The number of its leaf; written by its maker before it is linked.
    pub(super) leaf: u32,
    /// Whether its key is in the eviction queue, or on its way.
    pub(crate) announced: AtomicBool,
    /// Whether the evictor has taken its key over; the evictor's alone.
    pub(crate) adopted: AtomicBool,
    /// Read by who comes here, written by who frees the page: nothing in itself, but models see whether one precedes the other.
    alive: UnsafeCell<()>,
}

// SAFETY: `alive` holds `()`: there is nothing in it that two threads could race for. All else is shared as the page is.
unsafe impl<T: Send + Sync> Sync for Linked<T> {}

const _: () =
    assert!(cfg!(any(loom, shuttle)) || std::mem::offset_of!(Linked<u64>, page) == 32, "half a cache line");

/// The address part of a word.
#[inline]
fn address<T>(page: NonNull<Linked<T>>) -> u64 {
    (page.as_ptr().expose_provenance() as u64) << READER_BITS
}

/// Whether a word names this page.
#[inline]
fn names<T>(word: u64, page: NonNull<Linked<T>>) -> bool {
    word & !READERS == address(page)
}

/// The page that a word names; null if it names none.
#[inline]
fn named<T>(word: u64) -> *mut Linked<T> {
    ptr::with_exposed_provenance_mut(usize::try_from(word >> READER_BITS).expect("an address fits"))
}

impl<T> Linked<T> {
    /// A page that is not linked yet: with its maker's reference, to be given to the index by [`Linked::link`], and its maker's reservations.
    pub(crate) fn boxed(key: PageKey, birth: u64, reserved: u32) -> Box<Self> {
        let mut linked = Box::<Self>::new_uninit();
        let fields = linked.as_mut_ptr();
        assert!(fields.expose_provenance() as u64 >> (64 - READER_BITS) == 0, "an address has 48 bits");
        /// Writes one field of the page that is being built.
        macro_rules! write {
            ($field:ident, $value:expr) => {{
                // SAFETY: the pointer is to a whole allocation, hence its fields lie in it.
                let place = unsafe { &raw mut (*fields).$field };
                // SAFETY: nobody else has the allocation yet, and the field is not read before this.
                unsafe { place.write($value) };
            }};
        }
        write!(refs, AtomicU64::new(BIAS + 1));
        write!(key, key);
        write!(birth, birth);
        write!(leaf, 0);
        write!(announced, AtomicBool::new(false));
        write!(adopted, AtomicBool::new(false));
        write!(alive, UnsafeCell::new(()));
        // SAFETY: the pointer is to a whole allocation, hence its fields lie in it.
        let page = unsafe { &raw mut (*fields).page };
        // SAFETY: nobody else has the allocation yet.
        unsafe { Page::write(page, reserved) };
        // SAFETY: all fields have been written.
        unsafe { linked.assume_init() }
    }

    /// Links a page to a word that names none.
    ///
    /// # Errors
    /// The page, when the word names another one.
    pub(super) fn link(self: Box<Self>, word: &AtomicU64) -> Result<Owned<T>, Box<Self>> {
        let page = NonNull::from(Box::leak(self));
        // Release: the page is built before it is found; pairs with the Acquire of `Counted::enter`.
        match step!(
            "index.link_page",
            word.compare_exchange(0, address(page), Ordering::Release, Ordering::Relaxed)
        ) {
            Ok(_) => Ok(Owned(page)),
            // SAFETY: the page came from a box, and was not published.
            Err(_) => Err(unsafe { Box::from_raw(page.as_ptr()) }),
        }
    }

    /// Takes this page out of its word, if it is still there; the readers that the word counted go on as references.
    pub(super) fn unlink(&self, word: &AtomicU64) -> bool {
        let page = NonNull::from(self);
        // Relaxed: only a first guess.
        let mut found = word.load(Ordering::Relaxed);
        while names(found, page) {
            // AcqRel: what the readers did who left by this word comes before the page is freed: pairs with the Release of leaving.
            match step!(
                "index.unlink_page",
                word.compare_exchange_weak(found, 0, Ordering::AcqRel, Ordering::Relaxed)
            ) {
                Ok(_) => {
                    // SAFETY: the index's reference is given up once, by who took the page out.
                    unsafe { release(page, BIAS - (found & READERS)) };
                    return true;
                }
                Err(now) => found = now,
            }
        }
        false
    }
}

/// Has the processor fetch the line of a page's words and that of a slot, of the page that a word named as it was found, if any.
///
/// A read-modify-write waits for what it works on: without this, the slot would be fetched only after the words of its page have arrived.
#[inline]
fn bring_near<T>(found: u64, slot: u32) {
    let page = named::<T>(found);
    near::fetch(page);
    near::fetch(page.wrapping_byte_add(std::mem::offset_of!(Linked<T>, page) + Page::<T>::place_of(slot)));
}

/// Gives up references; whoever gives up the last frees the page.
///
/// # Safety
/// The references are the caller's, and it does not use the page afterwards, unless it has another one.
unsafe fn release<T>(page: NonNull<Linked<T>>, count: u64) {
    // SAFETY: the caller's references keep the page until they are given up.
    let refs = unsafe { &(*page.as_ptr()).refs };
    // Release: what this holder did with the page comes before it is freed; pairs with the Acquire below.
    if step!("index.release", refs.fetch_sub(count, Ordering::Release)) == count {
        // Acquire: what all others did comes before it is freed.
        refs.load(Ordering::Acquire);
        // SAFETY: nobody has a reference any more, and the page came from a box.
        let linked = unsafe { Box::from_raw(page.as_ptr()) };
        linked.alive.with_mut(|_| ());
    }
}

/// A page held by a count in the word that names it: for the length of one operation.
pub(crate) struct Counted<'a, T> {
    page: NonNull<Linked<T>>,
    /// The word, or none if this reader has a reference of its own.
    word: Option<&'a AtomicU64>,
}

impl<'a, T> Counted<'a, T> {
    /// Holds the page that a word names, if any: not necessarily the one that was looked for.
    #[inline]
    pub(super) fn enter(word: &'a AtomicU64) -> Option<Self> {
        // Relaxed: only a first guess.
        Self::enter_from(word, word.load(Ordering::Relaxed))
    }

    /// The same for a reader of one slot, which is brought near.
    #[inline]
    pub(super) fn enter_to_read(word: &'a AtomicU64, slot: u32) -> Option<Self> {
        // Relaxed: as in `enter`.
        let found = word.load(Ordering::Relaxed);
        bring_near::<T>(found, slot);
        Self::enter_from(word, found)
    }

    #[inline]
    fn enter_from(word: &'a AtomicU64, mut found: u64) -> Option<Self> {
        loop {
            if found == 0 {
                return None;
            }
            // Acquire: the page is built; pairs with the Release of `link`. A compare-and-set, so that no count gets into a word that names
            // nothing.
            match step!(
                "index.count_in",
                word.compare_exchange_weak(found, found + 1, Ordering::Acquire, Ordering::Relaxed)
            ) {
                Ok(_) => break,
                Err(now) => found = now,
            }
        }
        // SAFETY: the word named a page, whose address is not null.
        let page = unsafe { NonNull::new_unchecked(named(found)) };
        let counted = Self { page, word: Some(word) };
        counted.alive.with(|_| ());
        if found & READERS >= MOST_COUNTED {
            // The word has room for as many readers again as are on their way to here.
            let owned = counted.own();
            drop(counted);
            return Some(Self { page: owned.keep(), word: None });
        }
        Some(counted)
    }

    /// Holds the page for longer.
    pub(crate) fn own(&self) -> Owned<T> {
        // Relaxed: this holder keeps the page meanwhile.
        self.refs.fetch_add(1, Ordering::Relaxed);
        Owned(self.page)
    }
}

#[cfg(all(test, loom))]
impl<T> Counted<'_, T> {
    /// Whether a word counts this reader.
    pub(super) fn is_counted(&self) -> bool {
        self.word.is_some()
    }
}

impl<T> Drop for Counted<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.alive.with(|_| ());
        if let Some(word) = self.word {
            // Relaxed: only a first guess.
            let mut found = word.load(Ordering::Relaxed);
            while names(found, self.page) {
                // Release: what this reader did comes before the page is freed; pairs with the Acquire of `unlink`. A compare-and-set, since
                // the word may name another page by now.
                match step!(
                    "index.count_out",
                    word.compare_exchange_weak(found, found - 1, Ordering::Release, Ordering::Relaxed)
                ) {
                    Ok(_) => return,
                    Err(now) => found = now,
                }
            }
        }
        // SAFETY: the page was unlinked, and this reader's count became a reference; or it has one.
        unsafe { release(self.page, 1) };
    }
}

impl<T> Deref for Counted<'_, T> {
    type Target = Linked<T>;

    #[inline]
    fn deref(&self) -> &Linked<T> {
        // SAFETY: this holder's count, or reference, keeps the page.
        unsafe { self.page.as_ref() }
    }
}

/// A page held by a reference of its own: an inserter's.
pub(crate) struct Owned<T>(NonNull<Linked<T>>);

// SAFETY: as sharing a page, whose words and slots are made for that: see `Page`. The reference may be given up by any thread.
unsafe impl<T: Send + Sync> Send for Owned<T> {}
// SAFETY: sharing it gives out nothing but a shared page.
unsafe impl<T: Send + Sync> Sync for Owned<T> {}

impl<T> Owned<T> {
    /// The page, whose reference is not given up.
    fn keep(self) -> NonNull<Linked<T>> {
        let page = self.0;
        std::mem::forget(self);
        page
    }
}

impl<T> Deref for Owned<T> {
    type Target = Linked<T>;

    #[inline]
    fn deref(&self) -> &Linked<T> {
        // SAFETY: this reference keeps the page.
        unsafe { self.0.as_ref() }
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        self.alive.with(|_| ());
        // SAFETY: the reference is this one's.
        unsafe { release(self.0, 1) };
    }
}
