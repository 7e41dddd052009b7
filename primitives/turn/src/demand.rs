//! What is asked of a turn.

use std::fmt;
use std::ops::{BitOr, BitOrAssign, Sub};

/// How many kinds of demand there are of each urgency.
const KINDS: u8 = 15;

/// A set of things that are asked of a turn: bits, not data.
///
/// A kind that is recorded twice before a step sees it is seen once. *Soft* demand leaves a turn alone that waits for something
/// outstanding; *urgent* demand (a result, a cancellation, an end) takes ownership of it at once.
///
/// ```
/// use folio_turn::Demand;
///
/// const READ: Demand = Demand::soft(0);
/// const RESULT: Demand = Demand::urgent(0);
///
/// let both = READ | RESULT;
/// assert!(both.contains(READ) && both.is_urgent());
/// assert_eq!(both - RESULT, READ);
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Demand(u32);

impl Demand {
    /// Nothing.
    pub const NONE: Self = Self(0);

    /// Every kind there is.
    pub(crate) const ALL: Self = Self((1 << (2 * KINDS)) - 1);

    /// Every urgent kind there is.
    const URGENT: Self = Self(Self::ALL.0 & !((1 << KINDS) - 1));

    /// How many bits a set takes.
    pub(crate) const BITS: u32 = 2 * KINDS as u32;

    /// A kind of demand that a waiting turn may leave for later.
    ///
    /// # Panics
    /// When `kind` is 15 or more.
    pub const fn soft(kind: u8) -> Self {
        assert!(kind < KINDS, "there are 15 kinds of soft demand, 0 to 14");
        Self(1 << kind)
    }

    /// A kind of demand that a waiting turn must see at once.
    ///
    /// # Panics
    /// When `kind` is 15 or more.
    pub const fn urgent(kind: u8) -> Self {
        assert!(kind < KINDS, "there are 15 kinds of urgent demand, 0 to 14");
        Self(1 << (kind + KINDS))
    }

    /// Both sets together; the same as `|`, for constants.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all of `other` is in this set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether nothing is in this set.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether something urgent is in this set.
    pub const fn is_urgent(self) -> bool {
        self.0 & Self::URGENT.0 != 0
    }

    /// The bits, soft kinds first.
    pub(crate) const fn bits(self) -> u32 {
        self.0
    }

    /// The set of these bits; others than `ALL` are ignored.
    pub(crate) const fn from_bits(bits: u32) -> Self {
        Self(bits & Self::ALL.0)
    }
}

impl BitOr for Demand {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        self.with(other)
    }
}

impl BitOrAssign for Demand {
    fn bitor_assign(&mut self, other: Self) {
        *self = self.with(other);
    }
}

impl Sub for Demand {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl fmt::Debug for Demand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut set = f.debug_set();
        for kind in 0..KINDS {
            if self.contains(Self::soft(kind)) {
                set.entry(&format_args!("soft {kind}"));
            }
        }
        for kind in 0..KINDS {
            if self.contains(Self::urgent(kind)) {
                set.entry(&format_args!("urgent {kind}"));
            }
        }
        set.finish()
    }
}
