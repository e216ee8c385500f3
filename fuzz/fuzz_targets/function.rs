#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| nvme_pcie::function::fuzz::packets(bytes));
