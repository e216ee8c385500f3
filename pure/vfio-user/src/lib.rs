//! vfio-user: a PCI function that one process offers and another one uses, over a stream with
//! descriptors.
//!
//! Start at [`Server`] (the function's side), at [`Client`] (the user's side) or at [`wire`] (the
//! bytes). The engines are generic over `D`, a descriptor of the world. Whoever holds a descriptor
//! owns it, and dropping it closes it.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod client;
mod errno;
#[doc(hidden)]
pub mod fuzz;
mod index;
mod input;
mod interrupt;
mod limits;
mod message;
mod peer;
mod pending;
pub mod server;
mod stream;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod version;
pub mod wire;

pub use client::Client;
pub use errno::Errno;
pub use index::{Area, INTERRUPTS, InterruptIndex, REGIONS, RegionIndex};
pub use input::Input;
pub use interrupt::{InterruptAction, InterruptData};
pub use limits::{
    AREAS_MAX, DATA_MAX, DESCRIPTORS_MAX, DMA_MAX, DMA_WINDOW, MAPS_MAX, MESSAGE_MAX, REQUESTS_MAX,
    WRITES_MAX,
};
pub use pending::Token;
pub use server::Server;
pub use version::Negotiated;
