//! What was recorded, elsewhere: replayed to others, and exported to files that strangers read.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod export;
mod packets;
mod replay;
#[path = "../support/mod.rs"]
mod support;
