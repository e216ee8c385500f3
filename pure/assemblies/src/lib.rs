//! Whole machines made of the engines. The live world and the virtual world both plug them in.
//!
//! - [`near::Near`] is the host: root complex, host memory and NVMe drivers, and below them the
//!   distributed switch.
//! - [`guest::Guest`] is the device slot of a virtual machine whose monitor speaks vfio-user.
//! - [`vfio_user_client::User`] is the driver of a function that another process offers by
//!   vfio-user.
//! - [`initiator::Initiator`] is the host of subsystems behind a fabric.
//! - [`far::Far`] is the box with the SSD: the downstream end of the tunnel and an NVMe function.
//!   Instead of the NVMe function, it can have an [`external_device::ExternalDevice`], which
//!   another process emulates.
//! - [`record_function::RecordFunction`] is the PCIe function by which a driver controls a
//!   recorder.
//! - [`Upstream`] is the host's end of tunnels with lookahead, which `Near` and `Guest` have.
//! - [`watch`] lists the events that can be watched in `Near`, `Guest` and `Far`, by the same
//!   watchers.
//! - [`target::Target`] offers subsystems over a fabric: connections, associations, and the command
//!   cores behind the associations.
#![cfg_attr(doc, doc = include_str!("../README.md"))]
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod external_device;
pub mod fabric;
pub mod far;
#[doc(hidden)]
pub mod fuzz;
pub mod guest;
pub mod initiator;
pub mod near;
pub mod record_function;
mod root_port;
pub mod target;
mod upstream;
pub mod vfio_user_client;
pub mod watch;

pub use upstream::{Upstream, upstream};

#[cfg(test)]
mod tests;
