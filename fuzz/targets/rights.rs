//! `cargo fuzz run rights --features libfuzzer`

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| remap_ssd_fuzz::keys::rights(bytes));
