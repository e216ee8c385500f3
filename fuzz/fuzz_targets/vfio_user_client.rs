#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| vfio_user::fuzz::client(bytes));
