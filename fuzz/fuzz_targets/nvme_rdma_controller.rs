#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| nvme_rdma::fuzz::controller(bytes));
