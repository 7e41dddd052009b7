//! What is cached: payloads that can be copied, and what is read out of them once.

use std::fmt;
use std::sync::OnceLock;

use folio_sync::Arc;

use crate::weigh::Weigh;

/// A value of an [`EntryCache`](super::EntryCache).
///
/// Its [weight](Weigh::weight) is what it keeps alive: all of a buffer that it is a slice of. It is cached as a copy if the cache is set up so, if
/// storage says that it [is a slice](crate::pending::Stored::sliced), and if it weighs more than twice what a copy would. So the budget is charged for
/// what is really held.
///
/// ```
/// use bytes::Bytes;
/// use folio_cache::{Payload, Weigh};
///
/// /// A part of a receive buffer of this size.
/// #[derive(Clone)]
/// struct Part {
///     bytes: Bytes,
///     buffer: u64,
/// }
///
/// impl Weigh for Part {
///     fn weight(&self) -> u64 {
///         self.buffer
///     }
/// }
///
/// impl Payload for Part {
///     fn copied_weight(&self) -> u64 {
///         self.bytes.len() as u64
///     }
///
///     fn copied(&self) -> Option<Self> {
///         Some(Self { bytes: self.bytes.copied()?, buffer: self.copied_weight() })
///     }
/// }
/// ```
pub trait Payload: Weigh + Clone + Send + Sync + 'static {
    /// What a copy would weigh; what it weighs itself by default.
    fn copied_weight(&self) -> u64 {
        self.weight()
    }

    /// A copy that keeps nothing alive but itself; none if there is no memory for it. Then it is not cached, which is no error.
    fn copied(&self) -> Option<Self>;
}

#[cfg(feature = "bytes")]
#[cfg_attr(docsrs, doc(cfg(feature = "bytes")))]
impl Payload for bytes::Bytes {
    fn copied(&self) -> Option<Self> {
        let mut copy = Vec::new();
        copy.try_reserve_exact(self.len()).ok()?;
        copy.extend_from_slice(self);
        let copy = Self::from(copy);
        // The first clone allocates what the owners share: here, and not for a reader.
        drop(copy.clone());
        Some(copy)
    }
}

/// What is read out of a payload.
///
/// A failure to parse is a value, too: it is remembered like any other.
pub trait Metadata<P>: Send + Sync + Sized + 'static {
    /// Parses a payload; called once for an entry and all its clones.
    ///
    /// Readers that ask meanwhile wait for it. If it panics, the next reader has it called again.
    fn parse(payload: &P) -> Self;
}

/// A payload with a place for its metadata, which are parsed by who asks first, and shared.
///
/// Clones are the same entry: none of them parses again. A [copy](Payload::copied) is another one, with metadata of its own: so these never outlive the
/// buffer that they may have come from.
///
/// ```
/// use bytes::Bytes;
/// use folio_cache::{Metadata, Parsed};
///
/// struct Length(usize);
///
/// impl Metadata<Bytes> for Length {
///     fn parse(payload: &Bytes) -> Self {
///         Self(payload.len())
///     }
/// }
///
/// let entry = Parsed::<_, Length>::new(Bytes::from_static(b"four"));
/// let reader = entry.clone();
/// assert!(reader.parsed().is_none(), "nobody has asked yet");
/// assert_eq!(reader.metadata().0, 4);
/// assert!(entry.parsed().is_some());
/// ```
pub struct Parsed<P, M>(Arc<Shared<P, M>>);

struct Shared<P, M> {
    payload: P,
    metadata: OnceLock<M>,
}

impl<P, M> Parsed<P, M> {
    /// A payload whose metadata nobody has asked for.
    pub fn new(payload: P) -> Self {
        Self(Arc::new(Shared { payload, metadata: OnceLock::new() }))
    }

    /// The payload.
    pub fn payload(&self) -> &P {
        &self.0.payload
    }

    /// The metadata, if somebody has asked for them.
    pub fn parsed(&self) -> Option<&M> {
        self.0.metadata.get()
    }

    /// The metadata.
    ///
    /// # Panics
    /// When parsing does.
    pub fn metadata(&self) -> &M
    where
        M: Metadata<P>,
    {
        self.0.metadata.get_or_init(|| M::parse(&self.0.payload))
    }
}

impl<P, M> Clone for Parsed<P, M> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<P: fmt::Debug, M> fmt::Debug for Parsed<P, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parsed")
            .field("payload", &self.0.payload)
            .field("is_parsed", &self.parsed().is_some())
            .finish_non_exhaustive()
    }
}

impl<P: Weigh, M> Weigh for Parsed<P, M> {
    fn weight(&self) -> u64 {
        self.0.payload.weight()
    }
}

impl<P: Payload, M: Metadata<P>> Payload for Parsed<P, M> {
    fn copied_weight(&self) -> u64 {
        self.0.payload.copied_weight()
    }

    fn copied(&self) -> Option<Self> {
        self.0.payload.copied().map(Self::new)
    }
}
