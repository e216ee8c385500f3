//! Linux's user-space block driver (ublk): a block device whose requests this process answers.
//!
//! [`Control`] adds a device, and a [`Device`] serves queues of it: requests come out of
//! [`Device::next_request`], and each is answered once. Data pass by calls on the device's file, so
//! that no memory is shared but the descriptions of requests, which are only read.
//!
//! A device outlives its server. Requests wait then, and those that were not answered are asked
//! again when a new server has taken the device over.

mod abi;
mod control;
mod device;

pub use abi::{Info, Operation, Parameters, Request, State};
pub use control::{Control, Error};
pub use device::{Device, DeviceFile};
