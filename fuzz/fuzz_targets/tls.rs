#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| nvme_fabrics::fuzz::tls(bytes));
