//! Nothing: the faults are the tests.
