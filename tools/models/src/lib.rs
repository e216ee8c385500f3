//! Models of what threads share without locks.
//!
//! The tests of this crate include sources of `worlds/live` and give them other atomics and locks:
//! those of loom, which runs each model in every order of its steps. The crate has no code of its
//! own, and no dependency on the crates whose sources it includes, so that it builds at once.

#![forbid(unsafe_code)]
