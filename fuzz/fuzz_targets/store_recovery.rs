//! Any edits of a store's files, and what it makes of them.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| folio_ledger::store::fuzzing::recovery(data));
