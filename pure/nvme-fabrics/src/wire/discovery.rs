//! The Discovery log page (70h): a header of 1,024 bytes, then entries of 1,024 bytes each.

use super::bytes::{array, put, put_text, text, u16_at, u64_at};
use super::{
    NQN_FIELD_LENGTH, Nqn, SERVICE_LENGTH, TRANSPORT_ADDRESS_LENGTH, TransportAddress, TransportType,
    WireError,
};

/// Log Page Identifier (LID) of the Discovery log.
pub const DISCOVERY_LOG_PAGE: u8 = 0x70;

/// The header of the Discovery log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiscoveryHeader {
    /// Generation Counter (GENCTR): changes each time that the log changes.
    pub generation: u64,
    /// Number of Records (NUMREC).
    pub records: u64,
    /// Record Format (RECFMT); only 0 is defined.
    pub record_format: u16,
}

impl DiscoveryHeader {
    /// Length of the header in bytes.
    pub const LENGTH: usize = 1024;

    /// Decodes the header.
    ///
    /// # Errors
    /// When the record format is not known.
    pub fn parse(bytes: &[u8; Self::LENGTH]) -> Result<Self, WireError> {
        let record_format = u16_at(bytes, 16);
        if record_format != 0 {
            return Err(WireError::Reserved { field: "RECFMT", found: record_format.into() });
        }
        Ok(Self { generation: u64_at(bytes, 0), records: u64_at(bytes, 8), record_format })
    }

    /// Encodes the header.
    pub fn emit(&self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        put(&mut bytes, 0, &self.generation.to_le_bytes());
        put(&mut bytes, 8, &self.records.to_le_bytes());
        put(&mut bytes, 16, &self.record_format.to_le_bytes());
        bytes
    }
}

/// Subsystem Type (SUBTYPE).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubsystemType {
    /// Another discovery subsystem (01h): a referral.
    Referral,
    /// An NVM subsystem (02h).
    Nvm,
    /// The discovery subsystem that answers (03h).
    CurrentDiscovery,
    /// Another subsystem type.
    Other(u8),
}

impl From<u8> for SubsystemType {
    fn from(value: u8) -> Self {
        match value {
            1 => Self::Referral,
            2 => Self::Nvm,
            3 => Self::CurrentDiscovery,
            other => Self::Other(other),
        }
    }
}

impl From<SubsystemType> for u8 {
    fn from(value: SubsystemType) -> Self {
        match value {
            SubsystemType::Referral => 1,
            SubsystemType::Nvm => 2,
            SubsystemType::CurrentDiscovery => 3,
            SubsystemType::Other(other) => other,
        }
    }
}

/// Secure Channel, in Transport Requirements (TREQ).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SecureChannel {
    /// It is not specified whether a secure channel is required.
    #[default]
    NotSpecified,
    /// A secure channel is required.
    Required,
    /// A secure channel is not required.
    NotRequired,
    /// The reserved encoding.
    Reserved,
}

/// Transport Requirements (TREQ).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransportRequirements {
    /// Whether a secure channel is required.
    pub secure_channel: SecureChannel,
    /// Disable SQ Flow Control (DISSQF): whether the controller supports queues without flow
    /// control.
    pub flow_control_can_be_disabled: bool,
}

impl TransportRequirements {
    const FLOW_CONTROL: u8 = 1 << 2;
    const SECURE_CHANNEL: u8 = 0b11;

    const fn from_raw(raw: u8) -> Self {
        let secure_channel = match raw & Self::SECURE_CHANNEL {
            0 => SecureChannel::NotSpecified,
            1 => SecureChannel::Required,
            2 => SecureChannel::NotRequired,
            _ => SecureChannel::Reserved,
        };
        Self { secure_channel, flow_control_can_be_disabled: raw & Self::FLOW_CONTROL != 0 }
    }

    const fn raw(self) -> u8 {
        let secure = match self.secure_channel {
            SecureChannel::NotSpecified => 0,
            SecureChannel::Required => 1,
            SecureChannel::NotRequired => 2,
            SecureChannel::Reserved => 3,
        };
        secure | if self.flow_control_can_be_disabled { Self::FLOW_CONTROL } else { 0 }
    }
}

/// Port ID (PORTID): names a port of the target, and is the same in all entries of that port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortId(pub u16);

/// Entry Flags (EFLAGS).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntryFlags(pub u16);

impl EntryFlags {
    /// Duplicate Returned Information (DUPRETINFO): that port returns the same log as this one.
    pub const DUPLICATE: Self = Self(1 << 0);
    /// Explicit Persistent Connection Support for Discovery (EPCSD).
    pub const PERSISTENT: Self = Self(1 << 1);

    /// The flags of both values.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all flags of `other` are set.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Security Type (SECTYPE), in Transport Specific Address Subtype (TSAS) of NVMe/TCP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SecurityType {
    /// None (00h).
    #[default]
    None,
    /// TLS 1.3 (02h).
    Tls13,
    /// Another security type.
    Other(u8),
}

impl From<u8> for SecurityType {
    fn from(value: u8) -> Self {
        match value {
            0 => Self::None,
            2 => Self::Tls13,
            other => Self::Other(other),
        }
    }
}

impl From<SecurityType> for u8 {
    fn from(value: SecurityType) -> Self {
        match value {
            SecurityType::None => 0,
            SecurityType::Tls13 => 2,
            SecurityType::Other(other) => other,
        }
    }
}

/// An entry of the Discovery log: a subsystem at a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoveryEntry {
    /// TRTYPE, ADRFAM, TRADDR and TRSVCID.
    pub address: TransportAddress,
    /// Subsystem Type (SUBTYPE).
    pub subsystem_type: SubsystemType,
    /// Transport Requirements (TREQ).
    pub requirements: TransportRequirements,
    /// Port ID (PORTID).
    pub port: PortId,
    /// Controller ID (CNTLID) that a host must request in Connect; FFFFh for the dynamic controller
    /// model.
    pub controller: u16,
    /// Admin Max SQ Size (ASQSZ), in entries.
    pub admin_queue_size: u16,
    /// Entry Flags (EFLAGS).
    pub flags: EntryFlags,
    /// NVM Subsystem Qualified Name (SUBNQN).
    pub subsystem: Nqn,
    /// Security Type (SECTYPE); none where the transport is not TCP.
    pub security: SecurityType,
}

/// RDMA_QPTYPE of a reliable connection, the only kind that NVMe/RDMA uses.
const RELIABLE_CONNECTED: u8 = 1;
/// RDMA_CMS of the RDMA_CM, the only connection management.
const RDMA_CM: u8 = 1;

impl DiscoveryEntry {
    /// Length of an entry in bytes.
    pub const LENGTH: usize = 1024;

    /// Decodes an entry.
    ///
    /// # Errors
    /// When SUBNQN is not a valid name, or TRADDR or TRSVCID is not text.
    pub fn parse(bytes: &[u8; Self::LENGTH]) -> Result<Self, WireError> {
        let transport = bytes[0].into();
        let is_rdma = transport == TransportType::Rdma;
        Ok(Self {
            address: TransportAddress {
                transport,
                family: bytes[1].into(),
                service: text(&bytes[32..32 + SERVICE_LENGTH], "TRSVCID")?,
                address: text(&bytes[512..512 + TRANSPORT_ADDRESS_LENGTH], "TRADDR")?,
                provider: is_rdma.then(|| bytes[769].into()),
            },
            subsystem_type: bytes[2].into(),
            requirements: TransportRequirements::from_raw(bytes[3]),
            port: PortId(u16_at(bytes, 4)),
            controller: u16_at(bytes, 6),
            admin_queue_size: u16_at(bytes, 8),
            flags: EntryFlags(u16_at(bytes, 10)),
            subsystem: Nqn::parse(&array::<NQN_FIELD_LENGTH>(bytes, 256), "SUBNQN")?,
            security: if is_rdma { SecurityType::None } else { bytes[768].into() },
        })
    }

    /// Encodes the entry.
    pub fn emit(&self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        bytes[0] = self.address.transport.into();
        bytes[1] = self.address.family.into();
        bytes[2] = self.subsystem_type.into();
        bytes[3] = self.requirements.raw();
        put(&mut bytes, 4, &self.port.0.to_le_bytes());
        put(&mut bytes, 6, &self.controller.to_le_bytes());
        put(&mut bytes, 8, &self.admin_queue_size.to_le_bytes());
        put(&mut bytes, 10, &self.flags.0.to_le_bytes());
        put_text(&mut bytes, 32, SERVICE_LENGTH, &self.address.service);
        put(&mut bytes, 256, &self.subsystem.emit());
        put_text(&mut bytes, 512, TRANSPORT_ADDRESS_LENGTH, &self.address.address);
        match self.address.provider {
            Some(provider) => {
                put(&mut bytes, 768, &[RELIABLE_CONNECTED, provider.into(), RDMA_CM]);
            }
            None => bytes[768] = self.security.into(),
        }
        bytes
    }
}
