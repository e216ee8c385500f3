//! The common header, which every PDU begins with.

use super::{COMMAND_CAPSULE_LENGTH, RESPONSE_CAPSULE_LENGTH};
use super::{DATA_HEADER_LENGTH, Fault, INITIALISE_LENGTH, u32_at};

/// Length in bytes of the longest PDU header: the header of ICReq and ICResp.
pub const HEADER_LENGTH_MAX: usize = INITIALISE_LENGTH;

/// The kind of a PDU (PDU-Type).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PduKind {
    /// Initialize Connection Request (ICReq), from the host.
    InitializeRequest,
    /// Initialize Connection Response (ICResp), from the controller.
    InitializeResponse,
    /// Host to Controller Terminate Connection Request (H2CTermReq).
    HostTerminate,
    /// Controller to Host Terminate Connection Request (C2HTermReq).
    ControllerTerminate,
    /// Command Capsule (CapsuleCmd), from the host.
    CommandCapsule,
    /// Response Capsule (CapsuleResp), from the controller.
    ResponseCapsule,
    /// Host to Controller Data Transfer (H2CData).
    HostData,
    /// Controller to Host Data Transfer (C2HData).
    ControllerData,
    /// Ready to Transfer (R2T), from the controller.
    ReadyToTransfer,
}

impl PduKind {
    /// Every kind of PDU.
    pub const ALL: [Self; 9] = [
        Self::InitializeRequest,
        Self::InitializeResponse,
        Self::HostTerminate,
        Self::ControllerTerminate,
        Self::CommandCapsule,
        Self::ResponseCapsule,
        Self::HostData,
        Self::ControllerData,
        Self::ReadyToTransfer,
    ];

    /// The kind of a PDU-Type value; `None` for a reserved value.
    pub const fn from_raw(raw: u8) -> Option<Self> {
        Some(match raw {
            0x00 => Self::InitializeRequest,
            0x01 => Self::InitializeResponse,
            0x02 => Self::HostTerminate,
            0x03 => Self::ControllerTerminate,
            0x04 => Self::CommandCapsule,
            0x05 => Self::ResponseCapsule,
            0x06 => Self::HostData,
            0x07 => Self::ControllerData,
            0x09 => Self::ReadyToTransfer,
            _ => return None,
        })
    }

    /// The PDU-Type value of this kind.
    pub const fn raw(self) -> u8 {
        match self {
            Self::InitializeRequest => 0x00,
            Self::InitializeResponse => 0x01,
            Self::HostTerminate => 0x02,
            Self::ControllerTerminate => 0x03,
            Self::CommandCapsule => 0x04,
            Self::ResponseCapsule => 0x05,
            Self::HostData => 0x06,
            Self::ControllerData => 0x07,
            Self::ReadyToTransfer => 0x09,
        }
    }

    /// Whether a host sends PDUs of this kind, and a controller receives them.
    pub const fn is_from_host(self) -> bool {
        matches!(self, Self::InitializeRequest | Self::HostTerminate | Self::CommandCapsule | Self::HostData)
    }

    /// Whether data may follow the header.
    pub const fn may_have_data(self) -> bool {
        matches!(
            self,
            Self::CommandCapsule
                | Self::HostData
                | Self::ControllerData
                | Self::HostTerminate
                | Self::ControllerTerminate
        )
    }

    /// Whether digests protect a PDU of this kind, once they are agreed upon.
    pub const fn may_have_digest(self) -> bool {
        !matches!(
            self,
            Self::InitializeRequest
                | Self::InitializeResponse
                | Self::HostTerminate
                | Self::ControllerTerminate
        )
    }

    /// Length of the header in bytes (HLEN).
    pub const fn header_length(self) -> usize {
        match self {
            Self::InitializeRequest | Self::InitializeResponse => INITIALISE_LENGTH,
            Self::CommandCapsule => COMMAND_CAPSULE_LENGTH,
            Self::ResponseCapsule => RESPONSE_CAPSULE_LENGTH,
            Self::HostTerminate
            | Self::ControllerTerminate
            | Self::HostData
            | Self::ControllerData
            | Self::ReadyToTransfer => DATA_HEADER_LENGTH,
        }
    }

    /// The flags that have a meaning in a PDU of this kind.
    pub(super) const fn flags(self) -> Flags {
        let digests = if self.may_have_digest() { Flags::HEADER_DIGEST.0 } else { 0 };
        Flags(match self {
            Self::CommandCapsule => digests | Flags::DATA_DIGEST.0,
            Self::HostData => digests | Flags::DATA_DIGEST.0 | Flags::LAST_PDU.0,
            Self::ControllerData => digests | Flags::DATA_DIGEST.0 | Flags::LAST_PDU.0 | Flags::SUCCESS.0,
            _ => digests,
        })
    }
}

/// A PDU's flags (FLAGS).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u8);

impl Flags {
    /// No flag.
    pub const NONE: Self = Self(0);
    /// A header digest follows the header (HDGSTF).
    pub const HEADER_DIGEST: Self = Self(1 << 0);
    /// A data digest follows the data (DDGSTF).
    pub const DATA_DIGEST: Self = Self(1 << 1);
    /// This is the last data PDU of a command, or of an R2T (LAST_PDU).
    pub const LAST_PDU: Self = Self(1 << 2);
    /// The command succeeded and no response capsule follows (SUCCESS).
    pub const SUCCESS: Self = Self(1 << 3);

    /// Whether all of `flags` are set.
    pub const fn has(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// These flags, with `flags` added if `set` is true.
    #[must_use]
    pub const fn with(self, flags: Self, set: bool) -> Self {
        if set { Self(self.0 | flags.0) } else { self }
    }

    /// Whether flags other than `flags` are set.
    pub(super) const fn has_others_than(self, flags: Self) -> bool {
        self.0 & !flags.0 != 0
    }
}

/// PDU Common Header (CH).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommonHeader {
    /// Kind of the PDU (PDU-Type).
    pub kind: PduKind,
    /// Flags of the PDU (FLAGS).
    pub flags: Flags,
    /// PDU Header Length (HLEN) in bytes: the common header and the fields of the kind.
    pub header_length: u8,
    /// PDU Data Offset (PDO) in bytes from the start of the PDU; 0 where there are no data.
    pub data_offset: u8,
    /// PDU Length (PLEN) in bytes: header, digests, padding and data.
    pub length: u32,
}

impl CommonHeader {
    /// Length of the common header in bytes.
    pub const LENGTH: usize = 8;

    /// Decodes the common header.
    ///
    /// # Errors
    /// Invalid PDU Header Field (PDU-Type) when the kind is reserved.
    #[inline]
    pub fn parse(bytes: &[u8; Self::LENGTH]) -> Result<Self, Fault> {
        let kind = PduKind::from_raw(bytes[0]).ok_or(Fault::field(0))?;
        Ok(Self {
            kind,
            flags: Flags(bytes[1]),
            header_length: bytes[2],
            data_offset: bytes[3],
            length: u32_at(bytes, 4),
        })
    }

    /// Encodes the common header.
    #[inline]
    pub const fn emit(&self) -> [u8; Self::LENGTH] {
        let [a, b, c, d] = self.length.to_le_bytes();
        [self.kind.raw(), self.flags.0, self.header_length, self.data_offset, a, b, c, d]
    }

    /// The common header and `rest`, which together are a PDU's header.
    #[inline]
    pub(super) fn before<const N: usize>(&self, rest: &[u8]) -> [u8; N] {
        let mut bytes = [0; N];
        bytes[..Self::LENGTH].copy_from_slice(&self.emit());
        bytes[Self::LENGTH..].copy_from_slice(rest);
        bytes
    }
}
