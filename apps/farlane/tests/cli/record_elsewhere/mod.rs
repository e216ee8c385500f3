//! What was recorded, elsewhere: replayed to others, and exported to files that strangers read.

mod export;
mod matrix;
mod packets;
mod replay;
mod rules;
mod sources;
