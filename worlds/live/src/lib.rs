//! The live world: what the engines are connected to on a real machine.
//!
//! Time comes from [`clock`], and [`media`] keep bytes. Links are sockets of [`tcp`] or streams of
//! [`quic`]. A [`reactor`] spins while there is work and sleeps when there is none. [`floor`]
//! measures the machine's own TCP for comparison, and [`emulate`] puts a modelled network between
//! two of the machine's ends. Sockets of [`unix`] serve a virtual machine's monitor, and the memory
//! of its guest is [`shared`]. A [`user`] drives a function that another process offers over such a
//! socket. [`descriptors`] decides who goes without when descriptors run out. Files of [`state`]
//! keep what devices remember. [`mdns`] announces discovery controllers. [`entropy`] makes names
//! and secrets that nobody can guess. [`telling`] tells people what happens.
//!
//! Drivers decide nothing about protocols: they move bytes, read the clock and sleep.

pub mod asked;
pub mod attach;
pub mod attached;
mod bundle;
pub mod clock;
pub mod control;
pub mod descriptors;
pub mod dial;
pub mod digest;
pub mod doorbells;
pub mod emulate;
pub mod entropy;
pub mod fabrics;
pub mod far;
mod faults;
pub mod floor;
pub mod guest;
mod lock;
pub mod mdns;
pub mod media;
pub mod memory;
pub mod near;
mod pages;
pub mod quic;
pub mod reactor;
pub mod route;
pub mod shared;
pub mod state;
mod stream;
pub mod tcp;
pub mod telling;
pub mod unix;
pub mod user;
pub mod vfio;
