//! Packets: headers, and the payload between them and the invariant CRC.

mod cm;
mod emit;
mod mad;

use core::fmt;
use core::ops::Range;

pub(crate) use cm::{
    CmaAddresses, Disconnect, Identifiers, Message, REJECT_DATA, Reject, Reply, Request, Which,
    port_of_service, reason, service_of_port, text_of_reason,
};
pub use emit::Datagram;
pub(crate) use emit::Head;
pub(crate) use mad::{MAD_LENGTH, Mad};

use rdma::Key;

/// The UDP port of RoCEv2.
pub const PORT: u16 = 4791;
/// Bytes of the invariant CRC at the end of a packet.
pub(crate) const ICRC_LENGTH: usize = 4;
/// The queue pair that connection management uses (GSI).
pub(crate) const GENERAL_SERVICES: u32 = 1;
/// The key of datagrams to that queue pair (Q_Key).
pub(crate) const GENERAL_KEY: u32 = 0x8001_0000;
/// The default partition (P_Key). Its highest bit marks full members.
pub(crate) const PARTITION: u16 = 0xffff;
const PARTITION_MASK: u16 = 0x7fff;

/// Base transport header (BTH).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Base {
    pub(crate) opcode: u8,
    /// The packet asks to wake the receiver (SE).
    pub(crate) solicited: bool,
    /// Destination queue pair, 24 bits.
    pub(crate) queue_pair: u32,
    /// The packet asks for an acknowledgement (A).
    pub(crate) acknowledge: bool,
    /// Packet sequence number, 24 bits.
    pub(crate) number: u32,
}

/// The position of a packet in its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    First,
    Middle,
    Last,
    Only,
}

impl Part {
    pub(crate) const fn of(is_first: bool, is_last: bool) -> Self {
        match (is_first, is_last) {
            (true, true) => Self::Only,
            (true, false) => Self::First,
            (false, true) => Self::Last,
            (false, false) => Self::Middle,
        }
    }

    pub(crate) const fn is_first(self) -> bool {
        matches!(self, Self::First | Self::Only)
    }

    pub(crate) const fn is_last(self) -> bool {
        matches!(self, Self::Last | Self::Only)
    }
}

/// RDMA extended transport header (RETH): memory of the receiver.
pub(crate) type Remote = rdma::Remote;

/// The meaning of an acknowledgement (the syndrome of an AETH).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Syndrome {
    /// No error; the code of the number of posted receive requests.
    Acknowledged(u8),
    /// No receive request is posted (RNR NAK); the code of the time to wait.
    NotReady(u8),
    /// Packets before this one are missing.
    SequenceError,
    InvalidRequest,
    AccessError,
    OperationError,
    Other(u8),
}

impl Syndrome {
    const fn parse(byte: u8) -> Self {
        match (byte >> 5, byte & 31) {
            (0, code) => Self::Acknowledged(code),
            (1, code) => Self::NotReady(code),
            (3, 0) => Self::SequenceError,
            (3, 1) => Self::InvalidRequest,
            (3, 2) => Self::AccessError,
            (3, 3) => Self::OperationError,
            _ => Self::Other(byte),
        }
    }

    const fn emit(self) -> u8 {
        match self {
            Self::Acknowledged(code) => code & 31,
            Self::NotReady(code) => 1 << 5 | code & 31,
            Self::SequenceError => 3 << 5,
            Self::InvalidRequest => 3 << 5 | 1,
            Self::AccessError => 3 << 5 | 2,
            Self::OperationError => 3 << 5 | 3,
            Self::Other(byte) => byte,
        }
    }
}

/// Acknowledge extended transport header (AETH).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Acknowledge {
    pub(crate) syndrome: Syndrome,
    /// The number of completed messages (MSN), 24 bits.
    pub(crate) messages: u32,
}

/// The headers behind the base transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Header {
    /// A part of a message; with the last part, immediate data or a key to invalidate.
    Send {
        part: Part,
        immediate: Option<u32>,
        invalidate: Option<Key>,
    },
    /// A part of an RDMA WRITE; its place with the first part.
    Write {
        part: Part,
        remote: Option<Remote>,
        immediate: Option<u32>,
    },
    /// An RDMA READ.
    ReadRequest(Remote),
    /// A part of the answer; middle parts have no further header.
    ReadResponse {
        part: Part,
        acknowledge: Option<Acknowledge>,
    },
    Acknowledge(Acknowledge),
    /// A datagram to a queue pair that has no connection (UD), with its key and its sender.
    Unconnected {
        key: u32,
        from: u32,
    },
    /// The network was congested (CNP).
    Congestion,
    /// A request that this device refuses: an atomic operation.
    Unsupported,
}

/// A packet that was checked, apart from its CRC and its relation to a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    pub(crate) base: Base,
    pub(crate) header: Header,
    /// The range of the payload in the datagram.
    pub(crate) payload: Range<usize>,
}

/// Why a datagram is not a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PacketError {
    /// Number of received bytes.
    TooShort(usize),
    /// The version of the transport header, which must be 0.
    Version(u8),
    /// The partition, which must be the default one.
    Partition(u16),
    /// An operation code of another transport service.
    Opcode(u8),
    /// Number of padding bytes, which exceeds the payload.
    Pad(u8),
}

impl fmt::Display for PacketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooShort(length) => write!(f, "{length} bytes are too few for a packet of that kind"),
            Self::Version(version) => write!(f, "transport header version {version}, expected 0"),
            Self::Partition(key) => write!(f, "partition key {key:#06x}, expected {PARTITION:#06x}"),
            Self::Opcode(opcode) => {
                write!(f, "operation code {opcode:#04x} does not belong to reliable connections")
            }
            Self::Pad(count) => write!(f, "{count} bytes of padding in a payload that is shorter"),
        }
    }
}

/// Operation codes (table 38 of the specification).
pub(crate) mod opcode {
    pub(crate) const SEND: [u8; 4] = [0, 1, 2, 4];
    pub(crate) const SEND_LAST_IMMEDIATE: u8 = 3;
    pub(crate) const SEND_ONLY_IMMEDIATE: u8 = 5;
    pub(crate) const WRITE: [u8; 4] = [6, 7, 8, 10];
    pub(crate) const WRITE_LAST_IMMEDIATE: u8 = 9;
    pub(crate) const WRITE_ONLY_IMMEDIATE: u8 = 11;
    pub(crate) const READ_REQUEST: u8 = 12;
    pub(crate) const READ_RESPONSE: [u8; 4] = [13, 14, 15, 16];
    pub(crate) const ACKNOWLEDGE: u8 = 17;
    pub(crate) const ATOMICS: [u8; 2] = [19, 20];
    pub(crate) const SEND_LAST_INVALIDATE: u8 = 22;
    pub(crate) const SEND_ONLY_INVALIDATE: u8 = 23;
    pub(crate) const UNCONNECTED: u8 = 0x64;
    pub(crate) const CONGESTION: u8 = 0x81;
}

/// The unread bytes of a packet.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], PacketError> {
        let error = PacketError::TooShort(self.bytes.len());
        let rest = self.bytes.get(self.at..).ok_or(error)?;
        let taken = rest.first_chunk::<N>().ok_or(error)?;
        self.at += N;
        Ok(*taken)
    }

    fn word(&mut self) -> Result<u32, PacketError> {
        self.take().map(u32::from_be_bytes)
    }

    fn remote(&mut self) -> Result<Remote, PacketError> {
        let address = self.take().map(u64::from_be_bytes)?;
        Ok(Remote { address, key: Key(self.word()?), length: self.word()? })
    }

    fn acknowledge(&mut self) -> Result<Acknowledge, PacketError> {
        let [syndrome, rest @ ..] = self.take::<4>()?;
        Ok(Acknowledge { syndrome: Syndrome::parse(syndrome), messages: three(rest) })
    }
}

const fn three([a, b, c]: [u8; 3]) -> u32 {
    u32::from_be_bytes([0, a, b, c])
}

fn part(codes: [u8; 4], opcode: u8) -> Option<Part> {
    let parts = [Part::First, Part::Middle, Part::Last, Part::Only];
    codes.iter().position(|code| *code == opcode).map(|at| parts[at])
}

impl Packet {
    /// Parses the payload of a UDP datagram.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, PacketError> {
        let mut reader = Reader { bytes, at: 0 };
        let [opcode, flags, key @ ..] = reader.take::<4>()?;
        let [_, queue_pair @ ..] = reader.take::<4>()?;
        let [acknowledge, number @ ..] = reader.take::<4>()?;
        if flags & 0xf != 0 {
            return Err(PacketError::Version(flags & 0xf));
        }
        let partition = u16::from_be_bytes(key);
        if partition & PARTITION_MASK != PARTITION & PARTITION_MASK {
            return Err(PacketError::Partition(partition));
        }
        let header = Self::parse_header(opcode, &mut reader)?;
        let pad = flags >> 4 & 3;
        let end = bytes.len().checked_sub(ICRC_LENGTH).filter(|end| *end >= reader.at);
        let end = end.ok_or(PacketError::TooShort(bytes.len()))?;
        let end = end.checked_sub(usize::from(pad)).filter(|end| *end >= reader.at);
        Ok(Self {
            base: Base {
                opcode,
                solicited: flags >> 7 == 1,
                queue_pair: three(queue_pair),
                acknowledge: acknowledge >> 7 == 1,
                number: three(number),
            },
            header,
            payload: reader.at..end.ok_or(PacketError::Pad(pad))?,
        })
    }

    fn parse_header(opcode: u8, reader: &mut Reader<'_>) -> Result<Header, PacketError> {
        use self::opcode as code;
        if let Some(part) = part(code::SEND, opcode) {
            return Ok(Header::Send { part, immediate: None, invalidate: None });
        }
        if let Some(part) = part(code::WRITE, opcode) {
            let remote = if part.is_first() { Some(reader.remote()?) } else { None };
            return Ok(Header::Write { part, remote, immediate: None });
        }
        if let Some(part) = part(code::READ_RESPONSE, opcode) {
            let acknowledge = if part == Part::Middle { None } else { Some(reader.acknowledge()?) };
            return Ok(Header::ReadResponse { part, acknowledge });
        }
        Ok(match opcode {
            code::SEND_LAST_IMMEDIATE | code::SEND_ONLY_IMMEDIATE => {
                let part = if opcode == code::SEND_LAST_IMMEDIATE { Part::Last } else { Part::Only };
                Header::Send { part, immediate: Some(reader.word()?), invalidate: None }
            }
            code::SEND_LAST_INVALIDATE | code::SEND_ONLY_INVALIDATE => {
                let part = if opcode == code::SEND_LAST_INVALIDATE { Part::Last } else { Part::Only };
                Header::Send { part, immediate: None, invalidate: Some(Key(reader.word()?)) }
            }
            code::WRITE_LAST_IMMEDIATE => {
                Header::Write { part: Part::Last, remote: None, immediate: Some(reader.word()?) }
            }
            code::WRITE_ONLY_IMMEDIATE => {
                let remote = Some(reader.remote()?);
                Header::Write { part: Part::Only, remote, immediate: Some(reader.word()?) }
            }
            code::READ_REQUEST => Header::ReadRequest(reader.remote()?),
            code::ACKNOWLEDGE => Header::Acknowledge(reader.acknowledge()?),
            code::UNCONNECTED => {
                let key = reader.word()?;
                Header::Unconnected { key, from: reader.word()? & 0x00ff_ffff }
            }
            code::CONGESTION => Header::Congestion,
            _ if code::ATOMICS.contains(&opcode) => Header::Unsupported,
            _ => return Err(PacketError::Opcode(opcode)),
        })
    }
}
