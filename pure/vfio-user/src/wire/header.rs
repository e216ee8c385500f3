//! The header that every message begins with.

use core::fmt;

use super::fields::{Emitter, Fields};
use crate::errno::Errno;
use crate::limits::MESSAGE_MAX;

/// Bytes of a header.
pub const HEADER_LENGTH: usize = 16;

/// Bits of the header's flags.
mod flags {
    pub(super) const TYPE: u32 = 0xf;
    pub(super) const COMMAND: u32 = 0;
    pub(super) const REPLY: u32 = 1;
    pub(super) const NO_REPLY: u32 = 1 << 4;
    pub(super) const ERROR: u32 = 1 << 5;
}

macro_rules! commands {
    ($($name:ident = $number:literal $meaning:literal),* $(,)?) => {
        /// What a message asks for, or answers.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Command {
            $(#[doc = $meaning] $name,)*
            /// A number that stands for nothing known.
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
    DmaMap = 2 "Tell the server of memory that it may use.",
    DmaUnmap = 3 "Take memory back.",
    DeviceGetInfo = 4 "What the device is.",
    DeviceGetRegionInfo = 5 "What a region is.",
    DeviceGetRegionIoFds = 6 "Descriptors that stand for accesses to a region.",
    DeviceGetIrqInfo = 7 "What a kind of interrupts is.",
    DeviceSetIrqs = 8 "Set up, mask, unmask or trigger interrupts.",
    RegionRead = 9 "Read from a region.",
    RegionWrite = 10 "Write to a region.",
    DmaRead = 11 "Read the client's memory; sent by a server.",
    DmaWrite = 12 "Write the client's memory; sent by a server.",
    DeviceReset = 13 "Reset the device.",
    DirtyPages = 14 "Which memory was written; gone from newer revisions.",
    RegionWriteMulti = 15 "Several small writes to regions.",
    DeviceFeature = 16 "Optional features; migration is one.",
    MigDataRead = 17 "Read a device's state.",
    MigDataWrite = 18 "Write a device's state.",
}

/// Whether a message asks or answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It asks.
    Command {
        /// No reply is wanted, not even an error.
        no_reply: bool,
    },
    /// It answers the command with the same message identifier in the other direction.
    Reply {
        /// The error, if it failed; its number may be 0 even so.
        error: Option<Errno>,
    },
}

/// A message's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Message identifier: chosen by who asks, echoed by who answers.
    pub id: u16,
    /// The command asked or answered.
    pub command: Command,
    /// Bytes of the whole message, header included: from 16 up to [`MESSAGE_MAX`].
    pub size: u32,
    /// Whether it asks or answers.
    pub kind: Kind,
}

/// Why a header can't be trusted: where the next message begins is not known then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderError {
    /// The size is less than a header's, or more than any message may have.
    Size {
        /// The size.
        size: u32,
    },
    /// The type is neither command nor reply.
    Type {
        /// The flags.
        flags: u32,
    },
}

impl fmt::Display for HeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Size { size } => {
                write!(
                    f,
                    "a message's header says {size} B; at least {HEADER_LENGTH} and at most {MESSAGE_MAX} are allowed"
                )
            }
            Self::Type { flags } => {
                write!(f, "a message's flags are {flags:#x}: neither a command nor a reply")
            }
        }
    }
}

impl Header {
    /// The header of a command with a payload of `length` bytes.
    pub fn command(id: u16, command: Command, length: usize, no_reply: bool) -> Self {
        Self { id, command, size: size_of_message(length), kind: Kind::Command { no_reply } }
    }
    /// The header of a reply with a payload of `length` bytes.
    pub fn reply(id: u16, command: Command, length: usize) -> Self {
        Self { id, command, size: size_of_message(length), kind: Kind::Reply { error: None } }
    }
    /// The header of a reply that says `error`; it has no payload.
    pub fn error(id: u16, command: Command, error: Errno) -> Self {
        Self { id, command, size: size_of_message(0), kind: Kind::Reply { error: Some(error) } }
    }

    /// Reads a header. Flags that are not known, and a command's error field, are ignored.
    ///
    /// # Errors
    /// When its size or its type can't be.
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

    /// The header's bytes.
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
