//! Recordings elsewhere: replayed to other programs, and exported to files that strangers read.

mod export;
mod matrix;
mod packets;
mod replay;
mod rules;
mod sources;
