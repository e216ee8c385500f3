//! What every PDU begins with.

use super::{COMMAND_CAPSULE_LENGTH, RESPONSE_CAPSULE_LENGTH};
use super::{DATA_HEADER_LENGTH, Fault, INITIALISE_LENGTH, u32_at};

/// The longest PDU header: that of ICReq and ICResp.
pub const HEADER_LENGTH_MAX: usize = INITIALISE_LENGTH;

/// What a PDU is (PDU-Type).
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
    /// Every kind.
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

    /// The kind of a PDU-Type; none for a reserved one.
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

    /// The PDU-Type.
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

    /// Whether a controller receives it, rather than a host.
    pub const fn is_from_host(self) -> bool {
        matches!(self, Self::InitializeRequest | Self::HostTerminate | Self::CommandCapsule | Self::HostData)
    }

    /// Whether data may follow its header.
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

    /// Whether digests protect it, once they are agreed upon.
    pub const fn may_have_digest(self) -> bool {
        !matches!(
            self,
            Self::InitializeRequest
                | Self::InitializeResponse
                | Self::HostTerminate
                | Self::ControllerTerminate
        )
    }

    /// Bytes of its header (HLEN).
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

    /// The flags that mean something in it.
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
    /// The last data PDU of a command, or of an R2T (LAST_PDU).
    pub const LAST_PDU: Self = Self(1 << 2);
    /// The command succeeded and no response capsule follows (SUCCESS).
    pub const SUCCESS: Self = Self(1 << 3);

    /// Whether all of `flags` are set.
    pub const fn has(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// These flags and, if `set`, those.
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
    /// PDU-Type.
    pub kind: PduKind,
    /// FLAGS.
    pub flags: Flags,
    /// PDU Header Length (HLEN), bytes: the common header and what the kind adds.
    pub header_length: u8,
    /// PDU Data Offset (PDO), bytes from the PDU's start; 0 where there is no data.
    pub data_offset: u8,
    /// PDU Length (PLEN), bytes: header, digests, padding and data.
    pub length: u32,
}

impl CommonHeader {
    /// Bytes of it.
    pub const LENGTH: usize = 8;

    /// Decodes it.
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

    /// Encodes it.
    #[inline]
    pub const fn emit(&self) -> [u8; Self::LENGTH] {
        let [a, b, c, d] = self.length.to_le_bytes();
        [self.kind.raw(), self.flags.0, self.header_length, self.data_offset, a, b, c, d]
    }
}
