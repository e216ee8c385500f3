//! The host's end of a connection, whatever its fabric.

pub use nvme_tcp::Outbox;
pub use nvme_tcp::host::{Closed, Config, Connection, Input, Output, Parameters};
