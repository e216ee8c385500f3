//! The models' functions, each model behind an owner that frees it.

mod digest;

pub(crate) use digest::Crc32cBeat;
