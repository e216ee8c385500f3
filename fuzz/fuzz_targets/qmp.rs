#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| live::drivers::hot_plug::fuzz_qmp(bytes));
