//! Models of the Folio crates that use their public interfaces only: see `tests/`.
