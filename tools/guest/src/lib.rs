//! A stock Linux guest under QEMU. It is fetched once a machine, boots in seconds, runs a script,
//! and returns the script's status.
//!
//! Start at [`Kit::shared`], which fetches the files of a guest into the user's cache directory,
//! and at [`Guest::builder`]. [`skip`] is for tests, which continue without a guest where none can
//! run.

#![forbid(unsafe_code)]

mod acceleration;
mod boot_image;
mod builder;
mod cpio;
mod device;
mod efi_image;
mod error;
mod fetch;
mod initramfs;
mod kernel;
mod kit;
mod launch;
mod libraries;
mod modules;
mod monitor;
mod process;
mod running;
pub mod skip;
mod stream;

pub use boot_image::boot_image;
pub use builder::{Builder, Firmware, Guest};
pub use device::Device;
pub use efi_image::efi_image;
pub use error::Error;
pub use initramfs::Initramfs;
pub use kit::Kit;
pub use running::{Outcome, Running};
