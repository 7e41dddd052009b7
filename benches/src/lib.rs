//! The interleaved ratio runner and the rows it judges.
