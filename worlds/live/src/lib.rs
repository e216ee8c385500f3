//! The live world: the surroundings of the engines on a real machine.
//!
//! - [`sys`]: the operating system's own things, each behind a safe interface: clocks, memory,
//!   sockets with a name, descriptors, randomness. Nearly all of the project's unsafe code is here.
//! - [`reactor`]: a loop for one thread that spins while there is work and sleeps when there is
//!   none.
//! - [`carrier`]: carriers of a tunnel's bytes from one end to the other: TCP, QUIC, and several
//!   TCP connections at once.
//! - [`media`]: the storage of namespaces' bytes, and the state of devices.
//! - [`drivers`]: an engine together with its sockets, memory and media, run by a reactor.
//! - [`client`]: an application's handle to a controller, behind any of the drivers that reach one.
//!
//! Each module uses only modules above it, but for [`media`]: a namespace of another device is a
//! medium that uses a [`client`].
//!
//! Drivers decide nothing about protocols: they move bytes, read the clock and sleep.
#![cfg_attr(doc, doc = include_str!("../README.md"))]

pub mod carrier;
pub mod client;
pub mod drivers;
pub mod media;
pub mod reactor;
pub mod sys;
