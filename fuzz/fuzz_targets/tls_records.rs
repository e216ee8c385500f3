#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    live::drivers::fabrics::fuzz::tls_records(bytes);
});
