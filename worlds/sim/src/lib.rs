//! The virtual world: engines in a deterministic discrete-event simulation.
//!
//! A [`World`] gives its [`Node`]s virtual time, byte-stream connections ([`stream`]), direct
//! packet hops ([`direct`]) and media ([`media`]). Connections may run over modelled networks
//! ([`World::model`]). The world also causes the faults of a real world ([`faults`]). A run is a
//! function of the scenario and the seed; [`World::digest`] proves it.
#![cfg_attr(doc, doc = include_str!("../README.md"))]
#![forbid(unsafe_code)]

pub mod accepted;
pub mod dialled;
mod digest;
pub mod direct;
pub mod faults;
mod later;
pub mod marks;
pub mod media;
mod modelled;
pub mod models;
pub mod nic;
mod node;
pub mod processor;
pub mod rdma;
mod schedule;
pub mod stream;
mod world;

pub use digest::Digest;
pub use later::Later;
pub use node::{Context, Event, Node, NodeId};
pub use world::World;
