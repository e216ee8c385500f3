#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| captures::fuzz::table(bytes));
