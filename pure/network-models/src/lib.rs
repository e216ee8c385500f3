//! Models of a network's effects on bytes: links in integer time.
//!
//! A [`Frame`] passes [`Hop`]s, each for one direction, and a [`Path`] is several hops in series.
//! The same models run in virtual time and in real time, so they know no clock but the one passed
//! in. The doc comment of each parameter names its source; the
//! README has the formulas.
#![cfg_attr(doc, doc = include_str!("../README.md"))]
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod ethernet;
pub mod faults;
pub mod frame;
mod hop;
mod leaving;
pub mod lossless;
pub mod network;
pub mod nr5g;
pub mod passage;
mod path;
mod rate;
pub mod sample;
pub mod stage;
pub mod streams;
pub mod tcp;
pub mod trail;
pub mod tsn;
pub mod wifi;
mod wire;

pub use faults::Faults;
pub use frame::{Class, Frame};
pub use hop::{AnyHop, Counts, Hop};
pub use lossless::Lossless;
pub use network::Network;
pub use passage::Passage;
pub use path::Path;
pub use rate::{NoRate, Rate, Transmitter};
pub use sample::Chance;
pub use wire::Wire;
