//! The word that decides whether a page still takes entries.

use folio_sync::atomic::{AtomicU32, Ordering};
use folio_sync::step;

/// No reservation succeeds any more.
const SEALED: u32 = 1 << 31;

/// Whether a page goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "who seals a page takes it out of where it can be found"]
pub enum Fate {
    /// It still takes entries.
    Open,
    /// It lost its last claim and reservation by this call, and takes no entry any more.
    Sealed,
}

/// A reservation that came too late: the page is sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sealed;

/// A count of claimed slots and of reservations not yet used, and whether it has once come to zero.
///
/// The bit is looked at, never the word: a reservation that finds it stays added. All operations are read-modify-writes of one word that
/// publishes no memory, hence Relaxed: each sees the one before.
pub(super) struct Life(AtomicU32);

impl Life {
    /// Open, with this many reservations.
    pub(super) fn new(reserved: u32) -> Self {
        Self(AtomicU32::new(reserved))
    }

    pub(super) fn reserve(&self, count: u32) -> Result<(), Sealed> {
        // Relaxed: see the type.
        let before = step!("page.reserve", self.0.fetch_add(count, Ordering::Relaxed));
        debug_assert!(before & !SEALED < SEALED - (1 << 20), "reservations overflow");
        if before & SEALED == 0 { Ok(()) } else { Err(Sealed) }
    }

    pub(super) fn give_back(&self, count: u32) -> Fate {
        if count == 0 {
            return Fate::Open;
        }
        // Relaxed: see the type.
        let before = step!("page.give_back", self.0.fetch_sub(count, Ordering::Relaxed));
        debug_assert!(before & SEALED == 0 && before >= count, "given back more than was reserved");
        if before != count {
            return Fate::Open;
        }
        // Relaxed: see the type. Of all that brought the count to zero one seals, unless a reservation came between.
        match step!("page.seal", self.0.compare_exchange(0, SEALED, Ordering::Relaxed, Ordering::Relaxed)) {
            Ok(_) => Fate::Sealed,
            Err(_) => Fate::Open,
        }
    }

    pub(super) fn is_sealed(&self) -> bool {
        // Relaxed: the bit never goes away, and what it says is only that reservations fail.
        self.0.load(Ordering::Relaxed) & SEALED != 0
    }
}
