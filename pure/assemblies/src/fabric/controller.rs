//! The controller's end of a connection, whatever its fabric.

pub use nvme_tcp::controller::{
    Closed, Config, Connection, Held, Input, Output, Parameters, Permission, Queue, Slot, Statistics,
};
pub use nvme_tcp::{ADMIN_CAPSULE_DATA_MAX, Outbox};
