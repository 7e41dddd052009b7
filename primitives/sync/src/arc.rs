//! `Arc`, with the coercion to trait objects that loom's lacks.

#[cfg(loom)]
pub use loom::sync::Arc;
/// A shared owner: `std::sync::Arc`, or loom's twin of it.
///
/// Loom's has no `Weak`, no const constructor and no coercion to `Arc<dyn Trait>`; for the last there is [`arc_dyn!`](crate::arc_dyn).
#[cfg(not(loom))]
pub use std::sync::Arc;

/// Takes over a standard `Arc` that has no other owner yet.
///
/// # Panics
/// Under loom, when `arc` has another owner.
#[cfg_attr(loom, track_caller)]
#[cfg_attr(not(loom), inline)]
pub fn arc_from_std<T: ?Sized>(arc: crate::__private::StdArc<T>) -> Arc<T> {
    #[cfg(loom)]
    {
        Arc::from_std(arc)
    }
    #[cfg(not(loom))]
    {
        arc
    }
}

/// Makes an `Arc<dyn Trait>` of a value: `arc_dyn!(value => dyn Trait)`.
///
/// ```
/// use folio_sync::{Arc, arc_dyn};
///
/// let shown: Arc<dyn std::fmt::Debug + Send + Sync> = arc_dyn!(7 => dyn std::fmt::Debug + Send + Sync);
/// assert_eq!(format!("{shown:?}"), "7");
/// ```
#[macro_export]
macro_rules! arc_dyn {
    ($value:expr => $object:ty) => {{
        #[allow(clippy::disallowed_types, reason = "taken over by the switch's own Arc at once")]
        let arc: $crate::__private::StdArc<$object> = $crate::__private::StdArc::new($value);
        $crate::arc_from_std(arc)
    }};
}
