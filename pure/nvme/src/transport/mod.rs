//! The common part of the ends of all message transports: the table of a queue's commands, the
//! length of a queue, and the memory limits of a connection.
//!
//! A transport over memory that a driver reaches, such as PCIe, needs none of this.

mod controller;
mod host;

pub use controller::ControllerCommands;
pub use host::HostCommands;

/// Maximum number of commands outstanding on a connection.
pub const QUEUE_SIZE_MAX: u16 = 1024;

/// Names a command of a connection from its arrival to its completion: 0..queue size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u16);

/// The parameters of a queue that the Connect command settles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Maximum number of commands outstanding at a time: 1..=[`QUEUE_SIZE_MAX`]. A host that sends
    /// more loses the connection.
    pub size: u16,
    /// Maximum length of the data in a capsule, in bytes: IOCCSZ less the entry on an I/O queue,
    /// the transport's own limit on the Admin Queue.
    pub capsule_data_max: u32,
    /// Whether a successful read needs no response capsule (the SUCCESS flag of NVMe/TCP). Allowed
    /// only if the host has disabled SQ flow control. Other transports answer every command.
    pub success_flag: bool,
}

/// Bytes that a connection holds for its host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Bytes that the host has yet to read, bytes that commands in flight will bring, and received
    /// bytes that were not processed yet.
    pub to_host: u64,
    /// Bytes requested from the host, including those that it has sent, for commands that are not
    /// complete.
    pub from_host: u64,
}

impl Held {
    /// Bytes of both directions.
    pub const fn all(self) -> u64 {
        self.to_host + self.from_host
    }
}

/// The memory that a connection may use, besides its own limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permission {
    /// Whether the connection may take commands.
    pub commands: bool,
    /// Whether the connection may request data of commands that it has. Transfers that have begun
    /// continue in any case.
    pub data: bool,
}

impl Permission {
    /// Everything is permitted.
    pub const ALL: Self = Self { commands: true, data: true };
}
