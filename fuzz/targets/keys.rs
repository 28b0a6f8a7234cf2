//! `cargo fuzz run keys --features libfuzzer`

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| remap_ssd_fuzz::keys::keys(bytes));
