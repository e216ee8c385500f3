//! Fabrics commands in submission queue entries.

use nvme::wire::{Bits, NamespaceId, SubmissionQueueEntry};

use super::bytes::{low_u8, low_u16};
use super::{
    AuthenticationCommand, ConnectAttributes, ConnectCommand, PropertyGet, PropertySet, PropertySize,
    QueueId, WireError,
};

/// The opcode (OPC) of every fabrics command.
pub const FABRICS_OPCODE: u8 = 0x7f;

/// Fabrics Command Type (FCTYPE), in byte 4.
const TYPE: Bits = Bits::new(7, 0);
/// RECFMT of Connect and Disconnect, in CDW10.
const RECORD_FORMAT: Bits = Bits::new(15, 0);
/// QID of Connect, in CDW10.
const QUEUE: Bits = Bits::new(31, 16);
/// SQSIZE of Connect, in CDW11.
const SUBMISSION_QUEUE_SIZE: Bits = Bits::new(15, 0);
/// CATTR of Connect, in CDW11.
const ATTRIBUTES: Bits = Bits::new(23, 16);
/// Size, in ATTRIB of Property Get and Property Set, in CDW10.
const PROPERTY_SIZE: Bits = Bits::new(2, 0);

/// SPSP0 of Authentication Send and Authentication Receive, in CDW10.
const SPECIFIC_LOW: Bits = Bits::new(15, 8);
/// SPSP1 of Authentication Send and Authentication Receive, in CDW10.
const SPECIFIC_HIGH: Bits = Bits::new(23, 16);
/// SECP of Authentication Send and Authentication Receive, in CDW10.
const SECURITY_PROTOCOL: Bits = Bits::new(31, 24);

/// Fabrics Command Type (FCTYPE).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FabricsCommandType {
    /// Property Set (00h).
    PropertySet,
    /// Connect (01h).
    Connect,
    /// Property Get (04h).
    PropertyGet,
    /// Authentication Send (05h).
    AuthenticationSend,
    /// Authentication Receive (06h).
    AuthenticationReceive,
    /// Disconnect (08h).
    Disconnect,
    /// Another type.
    Other(u8),
}

impl From<u8> for FabricsCommandType {
    fn from(value: u8) -> Self {
        match value {
            0x00 => Self::PropertySet,
            0x01 => Self::Connect,
            0x04 => Self::PropertyGet,
            0x05 => Self::AuthenticationSend,
            0x06 => Self::AuthenticationReceive,
            0x08 => Self::Disconnect,
            other => Self::Other(other),
        }
    }
}

impl From<FabricsCommandType> for u8 {
    fn from(value: FabricsCommandType) -> Self {
        match value {
            FabricsCommandType::PropertySet => 0x00,
            FabricsCommandType::Connect => 0x01,
            FabricsCommandType::PropertyGet => 0x04,
            FabricsCommandType::AuthenticationSend => 0x05,
            FabricsCommandType::AuthenticationReceive => 0x06,
            FabricsCommandType::Disconnect => 0x08,
            FabricsCommandType::Other(other) => other,
        }
    }
}

/// A fabrics command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FabricsCommand {
    /// Property Set (00h).
    PropertySet(PropertySet),
    /// Connect (01h); its data are separate, in [`super::ConnectData`].
    Connect(ConnectCommand),
    /// Property Get (04h).
    PropertyGet(PropertyGet),
    /// Disconnect (08h).
    Disconnect {
        /// Record Format (RECFMT); only 0 is defined.
        record_format: u16,
    },
    /// Authentication Send (05h); its data are a message of the host.
    AuthenticationSend(AuthenticationCommand),
    /// Authentication Receive (06h); its data are a message of the controller.
    AuthenticationReceive(AuthenticationCommand),
    /// A command that this crate does not decode.
    Other(FabricsCommandType),
}

impl FabricsCommand {
    /// Decodes an entry whose opcode is [`FABRICS_OPCODE`].
    ///
    /// # Errors
    /// When the size in ATTRIB is reserved.
    pub fn parse(entry: &SubmissionQueueEntry) -> Result<Self, WireError> {
        Ok(match Self::kind(entry) {
            FabricsCommandType::PropertySet => Self::PropertySet(PropertySet {
                size: size_of(entry)?,
                offset: entry.cdw11,
                value: u64::from(entry.cdw12) | u64::from(entry.cdw13) << 32,
            }),
            FabricsCommandType::PropertyGet => {
                Self::PropertyGet(PropertyGet { size: size_of(entry)?, offset: entry.cdw11 })
            }
            FabricsCommandType::Connect => Self::Connect(ConnectCommand {
                record_format: low_u16(RECORD_FORMAT.of(entry.cdw10)),
                queue: QueueId(low_u16(QUEUE.of(entry.cdw10))),
                submission_queue_size: low_u16(SUBMISSION_QUEUE_SIZE.of(entry.cdw11)),
                attributes: ConnectAttributes(low_u8(ATTRIBUTES.of(entry.cdw11))),
                keep_alive_timeout: entry.cdw12,
            }),
            FabricsCommandType::Disconnect => {
                Self::Disconnect { record_format: low_u16(RECORD_FORMAT.of(entry.cdw10)) }
            }
            FabricsCommandType::AuthenticationSend => Self::AuthenticationSend(authentication(entry)),
            FabricsCommandType::AuthenticationReceive => Self::AuthenticationReceive(authentication(entry)),
            other => Self::Other(other),
        })
    }

    /// Fabrics Command Type (FCTYPE) of an entry whose opcode is [`FABRICS_OPCODE`].
    pub fn kind(entry: &SubmissionQueueEntry) -> FabricsCommandType {
        FabricsCommandType::from(low_u8(TYPE.of(entry.namespace.0)))
    }

    /// Encodes the command as an entry, without command identifier and data pointer.
    pub fn emit(&self) -> SubmissionQueueEntry {
        let entry = |kind: FabricsCommandType| SubmissionQueueEntry {
            opcode: FABRICS_OPCODE,
            namespace: NamespaceId(TYPE.put(u8::from(kind).into())),
            ..SubmissionQueueEntry::default()
        };
        match *self {
            Self::PropertySet(PropertySet { size, offset, value }) => {
                let [a, b, c, d, e, f, g, h] = value.to_le_bytes();
                SubmissionQueueEntry {
                    cdw10: PROPERTY_SIZE.put(size.into()),
                    cdw11: offset,
                    cdw12: u32::from_le_bytes([a, b, c, d]),
                    cdw13: u32::from_le_bytes([e, f, g, h]),
                    ..entry(FabricsCommandType::PropertySet)
                }
            }
            Self::PropertyGet(PropertyGet { size, offset }) => SubmissionQueueEntry {
                cdw10: PROPERTY_SIZE.put(size.into()),
                cdw11: offset,
                ..entry(FabricsCommandType::PropertyGet)
            },
            Self::Connect(connect) => SubmissionQueueEntry {
                cdw10: RECORD_FORMAT.put(connect.record_format.into()) | QUEUE.put(connect.queue.0.into()),
                cdw11: SUBMISSION_QUEUE_SIZE.put(connect.submission_queue_size.into())
                    | ATTRIBUTES.put(connect.attributes.0.into()),
                cdw12: connect.keep_alive_timeout,
                ..entry(FabricsCommandType::Connect)
            },
            Self::Disconnect { record_format } => SubmissionQueueEntry {
                cdw10: RECORD_FORMAT.put(record_format.into()),
                ..entry(FabricsCommandType::Disconnect)
            },
            Self::AuthenticationSend(command) => {
                with_authentication(entry(FabricsCommandType::AuthenticationSend), command)
            }
            Self::AuthenticationReceive(command) => {
                with_authentication(entry(FabricsCommandType::AuthenticationReceive), command)
            }
            Self::Other(kind) => entry(kind),
        }
    }
}

fn authentication(entry: &SubmissionQueueEntry) -> AuthenticationCommand {
    let field = |bits: Bits| low_u8(bits.of(entry.cdw10));
    AuthenticationCommand {
        security_protocol: field(SECURITY_PROTOCOL),
        specific: [field(SPECIFIC_LOW), field(SPECIFIC_HIGH)],
        length: entry.cdw11,
    }
}

fn with_authentication(entry: SubmissionQueueEntry, command: AuthenticationCommand) -> SubmissionQueueEntry {
    let [low, high] = command.specific;
    let cdw10 = SECURITY_PROTOCOL.put(command.security_protocol.into())
        | SPECIFIC_LOW.put(low.into())
        | SPECIFIC_HIGH.put(high.into());
    SubmissionQueueEntry { cdw10, cdw11: command.length, ..entry }
}

fn size_of(entry: &SubmissionQueueEntry) -> Result<PropertySize, WireError> {
    match PROPERTY_SIZE.of(entry.cdw10) {
        0 => Ok(PropertySize::Dword),
        1 => Ok(PropertySize::Quad),
        other => Err(WireError::Reserved { field: "ATTRIB", found: other.into() }),
    }
}

impl From<PropertySize> for u32 {
    fn from(size: PropertySize) -> Self {
        match size {
            PropertySize::Dword => 0,
            PropertySize::Quad => 1,
        }
    }
}
