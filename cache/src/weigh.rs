//! What a cached value weighs.

use folio_sync::Arc;

/// A value that knows its weight, in bytes or whatever unit the budget is in.
///
/// The cache asks once, before it takes the value over, and remembers the answer. It is to be cheap, and may panic: then nothing happened.
///
/// ```
/// use std::sync::Arc;
///
/// use folio_cache::Weigh;
///
/// assert_eq!(Arc::new(vec![0_u8; 100]).weight(), 100);
/// assert_eq!(bytes::Bytes::from_static(b"four").weight(), 4);
/// ```
pub trait Weigh {
    /// The weight; 0 is one, too.
    fn weight(&self) -> u64;
}

impl Weigh for [u8] {
    #[inline]
    fn weight(&self) -> u64 {
        self.len() as u64
    }
}

impl Weigh for str {
    #[inline]
    fn weight(&self) -> u64 {
        self.len() as u64
    }
}

impl Weigh for Vec<u8> {
    #[inline]
    fn weight(&self) -> u64 {
        self.len() as u64
    }
}

impl Weigh for String {
    #[inline]
    fn weight(&self) -> u64 {
        self.len() as u64
    }
}

#[cfg(feature = "bytes")]
#[cfg_attr(docsrs, doc(cfg(feature = "bytes")))]
impl Weigh for bytes::Bytes {
    #[inline]
    fn weight(&self) -> u64 {
        self.len() as u64
    }
}

impl<T: Weigh + ?Sized> Weigh for Box<T> {
    #[inline]
    fn weight(&self) -> u64 {
        (**self).weight()
    }
}

impl<T: Weigh + ?Sized> Weigh for Arc<T> {
    #[inline]
    fn weight(&self) -> u64 {
        (**self).weight()
    }
}
