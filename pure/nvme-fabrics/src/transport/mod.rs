//! The common part of the ends of a connection on every fabric: the outputs of an end, the table of
//! a queue's commands, the data in a capsule, the length of a queue, and the memory limits of a
//! connection.

mod controller;
mod end;
mod host;
mod output;

use engine::Buffer;
use nvme::wire::{Status, StatusCode};

pub use controller::ControllerCommands;
pub use end::{ControllerEnd, HostEnd};
pub use host::HostCommands;
pub use output::{ControllerOutput, HostOutput};

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

/// The `length` bytes that a command uses of a capsule's data. Its descriptor offers `offered`
/// bytes at `offset`.
///
/// # Errors
/// The status to complete the command with, if the bytes do not lie within the capsule, or are
/// fewer than the command uses.
pub fn in_capsule(capsule: &Buffer, offset: u64, offered: u32, length: u32) -> Result<Buffer, Status> {
    let start = usize::try_from(offset).ok().filter(|start| *start <= capsule.len());
    let start = start.ok_or(StatusCode::SglOffsetInvalid)?;
    if offered as usize > capsule.len() - start || offered < length {
        return Err(StatusCode::DataSglLengthInvalid.into());
    }
    Ok(capsule.slice(start..start + length as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_lie_within_their_capsule() {
        let capsule = Buffer::from(vec![1, 2, 3, 4]);
        assert_eq!(*in_capsule(&capsule, 1, 3, 2).unwrap(), [2, 3]);
        assert_eq!(in_capsule(&capsule, 5, 0, 0).unwrap_err(), StatusCode::SglOffsetInvalid.into());
        for (offset, offered, length) in [(1, 4, 1), (0, 2, 3), (4, 1, 1), (0, u32::MAX, 1)] {
            let refused = in_capsule(&capsule, offset, offered, length).unwrap_err();
            assert_eq!(refused, StatusCode::DataSglLengthInvalid.into(), "{offset} {offered} {length}");
        }
        assert!(in_capsule(&capsule, u64::MAX, 1, 1).is_err());
    }
}
