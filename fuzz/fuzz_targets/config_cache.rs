#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tunnel::fuzz::config_cache(bytes));
