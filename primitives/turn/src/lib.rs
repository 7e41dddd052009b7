//! Many threads ask for work that exactly one of them does at a time.
