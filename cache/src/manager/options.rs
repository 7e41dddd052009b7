//! What a manager is told.

use std::fmt;
use std::time::Duration;

use crate::eviction::EvictionOptions;
use crate::permits::PermitOptions;

/// Settings of a [`CacheManager`](crate::CacheManager); all can be changed while it works.
///
/// ```
/// use folio_cache::CacheOptions;
///
/// let options = CacheOptions::default();
/// assert_eq!((options.budget, options.reads.budget), (256 << 20, 64 << 20));
/// assert_eq!((options.evict_above_permille, options.evict_to_permille), (980, 900));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheOptions {
    /// The weight of all entries to stay below; 256 MiB by default. With 0 nothing is cached.
    pub budget: u64,
    /// Above so many thousandths of the budget an insert has a pass queued; 980 by default.
    pub evict_above_permille: u32,
    /// Down to so many thousandths of the budget such a pass evicts; 900 by default.
    pub evict_to_permille: u32,
    /// How long an entry stays that nobody is expected to read; 1 second by default.
    pub ttl: Duration,
    /// How often a pass looks for what is older than that; every 10 milliseconds by default.
    pub pass_interval: Duration,
    /// How many more rounds an entry with expected reads is kept; 5 by default.
    pub max_requeues: u32,
    /// Whether an entry that was looked up is kept for another round; not by default.
    pub extend_recently_accessed: bool,
    /// The budget of bytes that reads have in flight; 64 MiB by default. It holds also when nothing is cached.
    pub reads: PermitOptions,
}

impl Default for CacheOptions {
    fn default() -> Self {
        let EvictionOptions { max_requeues, extend_recently_accessed, .. } = EvictionOptions::default();
        Self {
            budget: 256 << 20,
            evict_above_permille: 980,
            evict_to_permille: 900,
            ttl: Duration::from_secs(1),
            pass_interval: Duration::from_millis(10),
            max_requeues,
            extend_recently_accessed,
            reads: PermitOptions::default(),
        }
    }
}

/// So many thousandths of a number.
fn permille(of: u64, thousandths: u32) -> u64 {
    let part = u128::from(of) * u128::from(thousandths) / 1000;
    u64::try_from(part).unwrap_or(of)
}

impl CacheOptions {
    pub(super) fn check(&self) -> Result<(), CacheOptionsError> {
        let &Self { evict_above_permille: above, evict_to_permille: to, pass_interval, .. } = self;
        if above > 1000 {
            return Err(CacheOptionsError::EvictAbove { permille: above });
        }
        if to > above {
            return Err(CacheOptionsError::EvictTo { permille: to, above });
        }
        if pass_interval.is_zero() {
            return Err(CacheOptionsError::ZeroInterval);
        }
        Ok(())
    }

    pub(super) fn eviction(&self) -> EvictionOptions {
        EvictionOptions {
            max_requeues: self.max_requeues,
            extend_recently_accessed: self.extend_recently_accessed,
            budget: self.budget,
        }
    }

    /// The weight above which a pass is queued.
    pub(super) fn above(&self) -> u64 {
        permille(self.budget, self.evict_above_permille)
    }

    /// The weight down to which it evicts.
    pub(super) fn to(&self) -> u64 {
        permille(self.budget, self.evict_to_permille)
    }
}

/// A setting that is no good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CacheOptionsError {
    /// The threshold is above the budget.
    EvictAbove {
        /// The thousandths asked for.
        permille: u32,
    },
    /// What a pass evicts down to is above what has it evict.
    EvictTo {
        /// The thousandths asked for.
        permille: u32,
        /// The threshold, in thousandths.
        above: u32,
    },
    /// Passes would follow each other without a pause.
    ZeroInterval,
    /// The manager is closed.
    Closed,
}

impl fmt::Display for CacheOptionsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EvictAbove { permille } => {
                write!(f, "evict_above_permille is {permille}: at most 1000 is the budget")
            }
            Self::EvictTo { permille, above } => {
                write!(f, "evict_to_permille is {permille}: at most evict_above_permille, which is {above}")
            }
            Self::ZeroInterval => f.write_str("pass_interval is zero: it must be a time"),
            Self::Closed => f.write_str("the cache manager is closed"),
        }
    }
}

impl std::error::Error for CacheOptionsError {}
