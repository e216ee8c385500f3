//! Virtual worlds for tests: what hosts do ([`workload`]), what must hold whatever goes wrong
//! ([`checker`]), what goes wrong ([`chaos`]), and campaigns of many seeds ([`campaign`]). The
//! worlds are [`disk`], [`fabrics`] and [`sessions`]. [`file`](mod@file) reads what people write
//! about links.

#![forbid(unsafe_code)]

pub mod ahead;
pub mod campaign;
pub mod chaos;
pub mod checker;
mod digest;
pub mod disk;
pub mod explain;
pub mod fabrics;
mod far_box;
pub mod file;
mod lines;
mod outbox;
pub mod published;
pub mod rig;
pub mod script;
mod session;
pub mod sessions;
pub mod stamp;
mod ways;
pub mod workload;
