//! The header that begins every message.

use core::fmt;

use super::fields::{Emitter, Fields};
use crate::errno::Errno;
use crate::limits::MESSAGE_MAX;

/// Length of a header in bytes.
pub const HEADER_LENGTH: usize = 16;

/// Bits of a header's flags.
mod flags {
    pub(super) const TYPE: u32 = 0xf;
    pub(super) const COMMAND: u32 = 0;
    pub(super) const REPLY: u32 = 1;
    pub(super) const NO_REPLY: u32 = 1 << 4;
    pub(super) const ERROR: u32 = 1 << 5;
}

macro_rules! commands {
    ($($name:ident = $number:literal $meaning:literal),* $(,)?) => {
        /// The command of a message, or the one that it answers.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Command {
            $(#[doc = $meaning] $name,)*
            /// A number without a known command.
            Other(u16),
        }

        impl From<u16> for Command {
            fn from(number: u16) -> Self {
                match number {
                    $($number => Self::$name,)*
                    other => Self::Other(other),
                }
            }
        }

        impl From<Command> for u16 {
            fn from(command: Command) -> Self {
                match command {
                    $(Command::$name => $number,)*
                    Command::Other(other) => other,
                }
            }
        }
    };
}

commands! {
    Version = 1 "Agree on a version and on capabilities; the first message of a client.",
    DmaMap = 2 "Share memory with the server.",
    DmaUnmap = 3 "Take memory back.",
    DeviceGetInfo = 4 "Get the description of the device.",
    DeviceGetRegionInfo = 5 "Get the description of a region.",
    DeviceGetRegionIoFds = 6 "Descriptors that stand for accesses to a region.",
    DeviceGetIrqInfo = 7 "Get the description of a kind of interrupts.",
    DeviceSetIrqs = 8 "Set up, mask, unmask or trigger interrupts.",
    RegionRead = 9 "Read from a region.",
    RegionWrite = 10 "Write to a region.",
    DmaRead = 11 "Read the client's memory; sent by a server.",
    DmaWrite = 12 "Write the client's memory; sent by a server.",
    DeviceReset = 13 "Reset the device.",
    DirtyPages = 14 "Report written memory; removed in newer revisions.",
    RegionWriteMulti = 15 "Several small writes to regions.",
    DeviceFeature = 16 "Optional features; migration is one.",
    MigDataRead = 17 "Read a device's state.",
    MigDataWrite = 18 "Write a device's state.",
}

/// Whether a message is a command or a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The message is a command, which requests an action.
    Command {
        /// Whether no reply is wanted, not even an error.
        no_reply: bool,
    },
    /// The message is a reply to the command with the same message identifier in the other
    /// direction.
    Reply {
        /// The error, if the command failed. Its number may be 0 nevertheless.
        error: Option<Errno>,
    },
}

/// The header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Message identifier: chosen by the sender of a command, repeated by the sender of its reply.
    pub id: u16,
    /// The requested or answered command.
    pub command: Command,
    /// Length of the whole message in bytes, header included: from 16 to [`MESSAGE_MAX`].
    pub size: u32,
    /// Whether the message is a command or a reply.
    pub kind: Kind,
}

/// Why a header cannot be trusted. The start of the next message is then unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderError {
    /// The size is less than that of a header, or more than any message may have.
    Size {
        /// The size in the header, in bytes.
        size: u32,
    },
    /// The type is neither command nor reply.
    Type {
        /// The flags in the header.
        flags: u32,
    },
}

impl fmt::Display for HeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Size { size } => {
                write!(f, "a message of {size} B by its header, expected {HEADER_LENGTH} to {MESSAGE_MAX} B")
            }
            Self::Type { flags } => {
                write!(f, "a message's flags are {flags:#x}: neither a command nor a reply")
            }
        }
    }
}

impl Header {
    /// Creates the header of a command with a payload of `length` bytes.
    pub fn command(id: u16, command: Command, length: usize, no_reply: bool) -> Self {
        Self { id, command, size: size_of_message(length), kind: Kind::Command { no_reply } }
    }
    /// Creates the header of a reply with a payload of `length` bytes.
    pub fn reply(id: u16, command: Command, length: usize) -> Self {
        Self { id, command, size: size_of_message(length), kind: Kind::Reply { error: None } }
    }
    /// Creates the header of a reply that reports `error` and has no payload.
    pub fn error(id: u16, command: Command, error: Errno) -> Self {
        Self { id, command, size: size_of_message(0), kind: Kind::Reply { error: Some(error) } }
    }

    /// Decodes a header. Unknown flags and the error field of a command are ignored.
    ///
    /// # Errors
    /// When the size or the type is impossible.
    pub fn parse(bytes: &[u8; HEADER_LENGTH]) -> Result<Self, HeaderError> {
        let mut fields = Fields::new(bytes, HEADER_LENGTH).expect("an array of a header's length");
        let (id, command) = (fields.u16(), fields.u16().into());
        let (size, bits, number) = (fields.u32(), fields.u32(), fields.u32());
        if !(HEADER_LENGTH as u64..=u64::from(MESSAGE_MAX)).contains(&u64::from(size)) {
            return Err(HeaderError::Size { size });
        }
        let kind = match bits & flags::TYPE {
            flags::COMMAND => Kind::Command { no_reply: bits & flags::NO_REPLY != 0 },
            flags::REPLY => Kind::Reply { error: (bits & flags::ERROR != 0).then_some(Errno(number)) },
            _ => return Err(HeaderError::Type { flags: bits }),
        };
        Ok(Self { id, command, size, kind })
    }

    /// Encodes the header.
    pub fn emit(&self) -> [u8; HEADER_LENGTH] {
        let (bits, number) = match self.kind {
            Kind::Command { no_reply: false } => (flags::COMMAND, 0),
            Kind::Command { no_reply: true } => (flags::COMMAND | flags::NO_REPLY, 0),
            Kind::Reply { error: None } => (flags::REPLY, 0),
            Kind::Reply { error: Some(Errno(number)) } => (flags::REPLY | flags::ERROR, number),
        };
        Emitter::new().u16(self.id).u16(self.command.into()).u32(self.size).u32(bits).u32(number).done()
    }
}

fn size_of_message(length: usize) -> u32 {
    let size = u32::try_from(HEADER_LENGTH + length).expect("a message is shorter than 4 GiB");
    assert!(size <= MESSAGE_MAX, "a message of {size} B is longer than any may be");
    size
}
