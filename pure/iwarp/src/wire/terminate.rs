//! Terminate messages (RFC 5040, section 4.8): names of faults, and the message format.

use alloc::vec::Vec;
use core::fmt;

use rdma::{AccessError, WorkError};

/// The protocol that has detected a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    /// The RDMA protocol (RDMAP).
    Rdmap,
    /// Direct data placement (DDP).
    Ddp,
    /// Marker PDU aligned framing (MPA), or the transport below it.
    Mpa,
    /// An unassigned value.
    Other(u8),
}

impl Layer {
    const fn from_bits(bits: u8) -> Self {
        match bits {
            0 => Self::Rdmap,
            1 => Self::Ddp,
            2 => Self::Mpa,
            other => Self::Other(other),
        }
    }

    const fn bits(self) -> u8 {
        match self {
            Self::Rdmap => 0,
            Self::Ddp => 1,
            Self::Mpa => 2,
            Self::Other(bits) => bits,
        }
    }
}

/// A fault as a Terminate message names it: layer, error type and error code.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// The layer that has detected it.
    pub layer: Layer,
    /// The error type (EType), 4 bits.
    pub kind: u8,
    /// The error code.
    pub code: u8,
}

macro_rules! faults {
    ($($(#[$doc:meta])* $name:ident = $layer:ident, $kind:literal, $code:literal, $text:literal;)*) => {
        impl Fault {
            $($(#[$doc])* pub const $name: Self = Self { layer: Layer::$layer, kind: $kind, code: $code };)*

            /// The fault in words.
            pub const fn describe(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                    // siw uses codes of its own for this fault.
                    Self { layer: Layer::Rdmap, kind: 0, .. } => Self::RDMAP_CATASTROPHIC.describe(),
                    _ => "an unassigned fault code",
                }
            }
        }
    };
}

faults! {
    /// A catastrophic error of the peer's RDMAP.
    RDMAP_CATASTROPHIC = Rdmap, 0, 0x00, "a catastrophic error of RDMAP";
    /// The key of a read names nothing.
    READ_KEY = Rdmap, 1, 0x00, "the key of a read names no memory";
    /// A read beyond its memory.
    READ_BOUNDS = Rdmap, 1, 0x01, "a read lies outside its memory";
    /// The memory may not be accessed in this way.
    ACCESS_RIGHTS = Rdmap, 1, 0x02, "memory may not be accessed in this way";
    /// The key of a read is another connection's.
    READ_OTHER_STREAM = Rdmap, 1, 0x03, "the key of a read is another connection's";
    /// The addresses of a read wrap around.
    READ_WRAP = Rdmap, 1, 0x04, "the addresses of a read wrap around";
    /// A key cannot be invalidated.
    CANNOT_INVALIDATE = Rdmap, 1, 0x09, "a key cannot be invalidated";
    /// Protection, without further words.
    PROTECTION = Rdmap, 1, 0xff, "an access that the memory's protection forbids";
    /// The version of RDMAP is not 1.
    RDMAP_VERSION = Rdmap, 2, 0x05, "a version of RDMAP that is not 1";
    /// An opcode that is unknown or does not belong here.
    UNEXPECTED_OPCODE = Rdmap, 2, 0x06, "an opcode of RDMAP that does not belong there";
    /// The stream cannot continue.
    STREAM_CATASTROPHIC = Rdmap, 2, 0x07, "a catastrophic error of the RDMAP stream";
    /// The peer as a whole cannot continue.
    GLOBAL_CATASTROPHIC = Rdmap, 2, 0x08, "a catastrophic error of the whole RDMAP";
    /// A key cannot be invalidated, as an error of the operation.
    CANNOT_INVALIDATE_NOW = Rdmap, 2, 0x09, "a key cannot be invalidated now";
    /// The operation failed, without further words.
    OPERATION = Rdmap, 2, 0xff, "an operation that failed";
    /// DDP cannot continue.
    DDP_CATASTROPHIC = Ddp, 0, 0x00, "a DDP segment that is cut off or not expected at all";
    /// The key of a write or response names nothing.
    TAGGED_KEY = Ddp, 1, 0x00, "the key of tagged data names no memory";
    /// Tagged data beyond their memory.
    TAGGED_BOUNDS = Ddp, 1, 0x01, "tagged data lie outside their memory";
    /// The key of tagged data is another connection's.
    TAGGED_OTHER_STREAM = Ddp, 1, 0x02, "the key of tagged data is another connection's";
    /// The addresses of tagged data wrap around.
    TAGGED_WRAP = Ddp, 1, 0x03, "the addresses of tagged data wrap around";
    /// The version of DDP is not 1, in a tagged segment.
    TAGGED_VERSION = Ddp, 1, 0x04, "a version of DDP that is not 1, with tagged data";
    /// There is no such queue.
    INVALID_QUEUE = Ddp, 2, 0x01, "a queue that is none of 0, 1 and 2";
    /// No receive request is posted for the message.
    NO_BUFFER = Ddp, 2, 0x02, "a message that no receive request was posted for";
    /// A message number that is not the next.
    MESSAGE_NUMBER = Ddp, 2, 0x03, "a message number that is not the next";
    /// An offset that is not the next.
    MESSAGE_OFFSET = Ddp, 2, 0x04, "an offset in a message that is not the next";
    /// A message is longer than its receive request.
    TOO_LONG = Ddp, 2, 0x05, "a message that is longer than its receive request";
    /// The version of DDP is not 1, in an untagged segment.
    UNTAGGED_VERSION = Ddp, 2, 0x06, "a version of DDP that is not 1, in a message";
    /// The TCP connection was closed or lost.
    STREAM_LOST = Mpa, 0, 0x01, "the TCP connection was lost";
    /// A CRC does not match.
    CRC = Mpa, 0, 0x02, "a CRC that does not match its FPDU";
    /// Marker and length of an FPDU disagree.
    MARKER = Mpa, 0, 0x03, "a marker that does not agree with its FPDU";
    /// The first frame of the connection is invalid.
    INVALID_STARTUP = Mpa, 0, 0x04, "an MPA request or reply that is not valid";
    /// MPA cannot continue.
    MPA_CATASTROPHIC = Mpa, 0, 0x05, "a catastrophic error of MPA";
    /// The peer would send more reads than this end answers.
    INSUFFICIENT_IRD = Mpa, 0, 0x06, "more reads at a time than the other end answers (IRD)";
    /// The peer has chosen none of the offered kinds of first message.
    NO_MATCHING_RTR = Mpa, 0, 0x07, "no kind of first message that both ends know (RTR)";
}

impl Fault {
    /// The fault of a refused read.
    pub const fn of_read(error: AccessError) -> Self {
        match error {
            AccessError::Key => Self::READ_KEY,
            AccessError::Right => Self::ACCESS_RIGHTS,
            AccessError::Bounds => Self::READ_BOUNDS,
        }
    }

    /// The fault of a refused write.
    pub const fn of_write(error: AccessError) -> Self {
        match error {
            AccessError::Key => Self::TAGGED_KEY,
            AccessError::Right => Self::ACCESS_RIGHTS,
            AccessError::Bounds => Self::TAGGED_BOUNDS,
        }
    }

    /// The result of the oldest work request when the peer reports this fault.
    pub const fn work_error(self) -> WorkError {
        match self {
            Self::NO_BUFFER => WorkError::ReceiverNotReady,
            Self { layer: Layer::Rdmap | Layer::Ddp, kind: 1, .. } => WorkError::RemoteAccess,
            Self::RDMAP_VERSION | Self::UNEXPECTED_OPCODE => WorkError::RemoteInvalidRequest,
            Self { layer: Layer::Ddp, kind: 2, .. } => WorkError::RemoteInvalidRequest,
            _ => WorkError::RemoteOperation,
        }
    }
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fault({:?}, {}, {:#04x}: {})", self.layer, self.kind, self.code, self.describe())
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.describe())
    }
}

/// The headers of the faulty FPDU that a Terminate message includes (HdrCt).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown<'a> {
    /// No headers.
    Nothing,
    /// The length of the segment and its DDP header (M, D): the first bytes of the FPDU.
    Segment(&'a [u8]),
    /// The same, and the RDMAP header of a read request (M, D, R).
    ReadRequest(&'a [u8]),
}

/// A Terminate message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terminate {
    /// The reported fault.
    pub fault: Fault,
}

impl Terminate {
    /// Length of the fixed part of a Terminate message in bytes.
    pub const LENGTH: usize = 4;

    /// Parses the payload of a Terminate message. `None` if it is truncated.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let [first, code, _, _, ..] = *bytes else { return None };
        Some(Self { fault: Fault { layer: Layer::from_bits(first >> 4), kind: first & 0x0f, code } })
    }

    /// Emits the payload of a Terminate message.
    pub fn emit(self, shown: Shown<'_>) -> Vec<u8> {
        let (bits, shown) = match shown {
            Shown::Nothing => (0, &[][..]),
            Shown::Segment(shown) => (0xc0, shown),
            Shown::ReadRequest(shown) => (0xe0, shown),
        };
        let Fault { layer, kind, code } = self.fault;
        let mut bytes = Vec::from([layer.bits() << 4 | kind & 0x0f, code, bits, 0]);
        bytes.extend_from_slice(shown);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_survives_parsing() {
        for first in 0..=u8::MAX {
            for code in 0..=u8::MAX {
                let bytes = [first, code, 0, 0];
                let parsed = Terminate::parse(&bytes).unwrap();
                assert_eq!(parsed.emit(Shown::Nothing), bytes);
                assert!(!parsed.fault.describe().is_empty());
            }
        }
        assert_eq!(Terminate::parse(&[0x11, 0, 0]), None);
    }

    #[test]
    fn a_refused_access_ends_the_request_as_one() {
        for error in [AccessError::Key, AccessError::Right, AccessError::Bounds] {
            assert_eq!(Fault::of_read(error).work_error(), WorkError::RemoteAccess);
            assert_eq!(Fault::of_write(error).work_error(), WorkError::RemoteAccess);
        }
        assert_eq!(Fault::NO_BUFFER.work_error(), WorkError::ReceiverNotReady);
        assert_eq!(Fault::TOO_LONG.work_error(), WorkError::RemoteInvalidRequest);
        assert_eq!(Fault::CRC.work_error(), WorkError::RemoteOperation);
    }
}
