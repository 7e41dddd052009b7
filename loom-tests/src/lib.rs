//! Models of the Folio crates that use their public interfaces only: see `tests/`.

/// The README's code, so that it goes on compiling.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
