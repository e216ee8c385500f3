//! The live world: what the engines are plugged into on a real machine.
//!
//! Time comes from [`clock`], bytes are kept by [`media`], links are sockets of [`tcp`] or streams of [`quic`], and a
//! [`reactor`] spins while there is work and sleeps when there is none. [`floor`] measures what the
//! machine's own TCP takes, to compare with, and [`emulate`] puts a modelled network between two of its ends.
//! A virtual machine's monitor is served over sockets of [`unix`], and its
//! guest's memory is [`shared`]. Who goes without where [`descriptors`] run out is decided once. What devices remember is kept in
//! files of [`state`]. A [`user`] drives a function that another process offers in that way.
//! Discovery controllers are announced by [`mdns`]. [`entropy`] gives names and secrets that nobody can guess.
//! People hear of what happens by [`telling`].
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
