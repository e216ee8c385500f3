//! Fault campaigns: virtual worlds in which things go wrong, run over many seeds.
//!
//! [`workload`] has the operations of hosts, [`chaos`] the faults, and [`checker`] the rules that
//! must hold all the same. The worlds are [`disk`], [`disk_hosts`], [`disk_lanes`], [`fabrics`],
//! [`lanes`], [`sessions`], [`ahead`], [`recording`] and [`fleet`]. A [`campaign`] runs their
//! seeds, and prints the command that repeats a failure.
#![cfg_attr(doc, doc = include_str!("../README.md"))]
#![forbid(unsafe_code)]

pub mod ahead;
pub mod campaign;
pub mod chaos;
pub mod checker;
mod digest;
pub mod disk;
pub mod disk_hosts;
pub mod disk_lanes;
pub mod fabrics;
mod far_box;
pub mod fleet;
mod joined_paths;
pub mod lanes;
mod lossy;
pub mod recording;
pub mod script;
mod session;
pub mod sessions;
pub mod stamp;
mod succession;
pub mod upgrades;
mod weather;
pub mod workload;
