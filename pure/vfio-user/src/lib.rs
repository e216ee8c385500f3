//! vfio-user: a PCI function that one process offers and another one uses, over a stream with descriptors.
//!
//! Start at [`Server`] (the function's side). Engines are generic over `D`, a descriptor
//! of the world: it is owned by whoever holds it, and dropping it closes it.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod errno;
mod index;
mod limits;
pub mod server;

pub use errno::Errno;
pub use index::{Area, INTERRUPTS, InterruptIndex, REGIONS, RegionIndex};
pub use limits::{DATA_MAX, DESCRIPTORS_MAX, MAPS_MAX, MESSAGE_MAX};
pub use server::Server;
