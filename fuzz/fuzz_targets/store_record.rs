//! Any bytes as a record of the store.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| folio_ledger::store::fuzzing::record(data));
