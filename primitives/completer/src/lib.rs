//! Run a completion where its result is, bounded in depth.
