//! The controller's end of a connection, whatever its fabric.

pub use nvme::transport::{Held, Permission, Queue, Slot};
pub use nvme_tcp::controller::{Closed, Config, Connection, Input, Output, Parameters, Statistics};
pub use nvme_tcp::{ADMIN_CAPSULE_DATA_MAX, Outbox};
