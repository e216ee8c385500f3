#![no_std]
#![forbid(unsafe_code)]
//! To be written.
extern crate alloc;
