//! The decoded header of a TLP.

use serde::{Deserialize, Serialize};

use super::{Bdf, Tag, Traits};

/// The fields that every TLP header has, and the fields of its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Traffic class, attributes, address type, poison, hints.
    pub traits: Traits,
    /// The reserved bits of the type, packed. They are 0 in a header of this crate. In a received
    /// header they are ignored but kept, so that forwarding changes nothing.
    pub reserved: u8,
    /// Length in double words, 1..=1024: of the payload, or of the data that a read requests. The
    /// field is reserved in a TLP without either (Msg, Cpl): 0 in a header of this crate, kept as
    /// received otherwise.
    pub length: u16,
    /// The type, with the fields that only this type has.
    pub kind: Kind,
}

/// Attr: bits that allow reordering or waive coherence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Relaxed Ordering (RO): the TLP, or the completions of a read, may pass posted requests.
    pub relaxed_ordering: bool,
    /// No Snoop: the access needs no cache coherence.
    pub no_snoop: bool,
    /// ID-based Ordering (IDO): the TLP may pass posted requests of other functions.
    pub id_ordering: bool,
}

/// Address Type (AT).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AddressType {
    /// An untranslated address, the default.
    #[default]
    Untranslated,
    /// A request to Address Translation Services (ATS) to translate the address.
    TranslationRequest,
    /// An address that is already translated.
    Translated,
    /// The reserved encoding 11b.
    Reserved,
}

/// Width of the address: 32 bits (3 DW header) or 64 bits (4 DW header).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Width {
    /// A 32-bit address in a 3 DW header.
    Bits32,
    /// A 64-bit address in a 4 DW header.
    Bits64,
}

/// The type of a TLP and the fields that only it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// A memory request: MRd, MRdLk, MWr, FetchAdd, Swap, CAS.
    Memory(MemoryRequest),
    /// An I/O request: IORd, IOWr.
    Io(IoRequest),
    /// A configuration request: CfgRd0, CfgWr0, CfgRd1, CfgWr1.
    Config(ConfigRequest),
    /// A message: Msg, MsgD.
    Message(Message),
    /// A completion: Cpl, CplD, CplLk, CplDLk.
    Completion(Completion),
}

/// The operation of a memory request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemoryOperation {
    /// A memory read (MRd).
    Read,
    /// A locked memory read (MRdLk).
    ReadLocked,
    /// A memory write (MWr), the only posted memory request.
    Write,
    /// AtomicOp FetchAdd: adds the operand to the value in memory.
    FetchAdd,
    /// AtomicOp Swap: replaces the value in memory.
    Swap,
    /// AtomicOp CAS: replaces the value in memory if it equals the one to compare.
    CompareAndSwap,
}

impl MemoryOperation {
    /// Whether the operation is FetchAdd, Swap or CAS: a write answered with the previous value.
    pub const fn is_atomic(self) -> bool {
        matches!(self, Self::FetchAdd | Self::Swap | Self::CompareAndSwap)
    }
}

/// A request that is routed by a memory address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryRequest {
    /// Whether the request reads, writes or is atomic.
    pub operation: MemoryOperation,
    /// Requester ID: the function to which completions are routed.
    pub requester: Bdf,
    /// The transaction's tag. A write carries a tag without meaning.
    pub tag: Tag,
    /// Byte enables of the first double word: bit n enables byte n.
    pub first_enables: u8,
    /// Byte enables of the last double word; 0 when the length is 1.
    pub last_enables: u8,
    /// Address of the first double word; the two low bits are 0.
    pub address: u64,
    /// Width of the address, which decides the form of the header.
    pub width: Width,
}

/// A request for one double word that is routed by an I/O address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoRequest {
    /// Whether the request is a write (IOWr); otherwise it is a read (IORd).
    pub write: bool,
    /// Requester ID: the requesting function.
    pub requester: Bdf,
    /// The transaction's tag.
    pub tag: Tag,
    /// Byte enables of the double word: bit n enables byte n.
    pub enables: u8,
    /// I/O address of the double word; the two low bits are 0.
    pub address: u32,
}

/// Type of a configuration request: type 0 on the link of the target, type 1 on the way there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConfigType {
    /// Type 0: for the device on this link.
    Type0,
    /// Type 1: for a bus beyond a bridge, which forwards the request.
    Type1,
}

/// A configuration request: one double word of a function's configuration space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigRequest {
    /// Whether the request is a write (CfgWr); otherwise it is a read (CfgRd).
    pub write: bool,
    /// Whether the request is of type 0 or type 1.
    pub routing: ConfigType,
    /// Requester ID: the requesting function.
    pub requester: Bdf,
    /// The transaction's tag.
    pub tag: Tag,
    /// Byte enables of the double word: bit n enables byte n.
    pub enables: u8,
    /// The function whose configuration space is read or written.
    pub target: Bdf,
    /// Byte offset of the double word (Extended Register Number and Register Number): 0..4096, a
    /// multiple of 4.
    pub offset: u16,
}

/// The routing of a message (the low three bits of Type).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MessageRouting {
    /// To the root complex.
    ToRootComplex,
    /// By the address in the third and fourth double words.
    ByAddress,
    /// By the ID in the third double word.
    ById,
    /// Broadcast from the root complex.
    BroadcastFromRootComplex,
    /// Local: ends at the receiver.
    Local,
    /// Gathered and routed to the root complex.
    GatheredToRootComplex,
    /// A reserved encoding: ends at the receiver.
    Reserved(u8),
}

/// A message, with data where the length is not 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// The routing of the message.
    pub routing: MessageRouting,
    /// Requester ID: the function that sends the message.
    pub requester: Bdf,
    /// The message's tag.
    pub tag: Tag,
    /// Message Code: the meaning of the message.
    pub code: u8,
    /// Whether the message carries data (MsgD).
    pub data: bool,
    /// The third and fourth double words as on the wire: an address, an ID, or a value that depends
    /// on the code.
    pub body: u64,
}

/// Completion Status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CompletionStatus {
    /// Successful Completion (SC).
    Success,
    /// Unsupported Request (UR).
    UnsupportedRequest,
    /// Configuration Request Retry Status (CRS).
    ConfigRequestRetry,
    /// Completer Abort (CA).
    CompleterAbort,
    /// A reserved encoding, to be handled like Unsupported Request.
    Reserved(u8),
}

/// A completion, with data where `data` is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Completion {
    /// Completer ID: the function that sends the completion.
    pub completer: Bdf,
    /// How the request ended.
    pub status: CompletionStatus,
    /// Byte Count Modified (BCM): set by PCI-X bridges only.
    pub byte_count_modified: bool,
    /// Bytes still to come for the request, including those of this completion: 1..=4096.
    pub byte_count: u16,
    /// Requester ID: the requesting function.
    pub requester: Bdf,
    /// The tag of the request.
    pub tag: Tag,
    /// Low seven bits of the address of the first byte.
    pub lower_address: u8,
    /// Whether the completion carries data (CplD, CplDLk).
    pub data: bool,
    /// Whether the completion answers a locked read (CplLk, CplDLk).
    pub locked: bool,
}

impl Completion {
    /// Maximum number of bytes of one request.
    pub const BYTE_COUNT_MAX: u16 = 4096;
}

impl Header {
    /// A header of traffic class 0 without attributes, hints or poison. `length` is in double
    /// words.
    #[inline]
    pub const fn new(kind: Kind, length: u16) -> Self {
        Self { traits: Traits::NONE, reserved: 0, length, kind }
    }

    /// Whether a payload follows the header.
    pub const fn has_payload(&self) -> bool {
        match &self.kind {
            Kind::Memory(request) => {
                !matches!(request.operation, MemoryOperation::Read | MemoryOperation::ReadLocked)
            }
            Kind::Io(request) => request.write,
            Kind::Config(request) => request.write,
            Kind::Message(message) => message.data,
            Kind::Completion(completion) => completion.data,
        }
    }

    /// Length of the payload in bytes, a multiple of 4; 0 without a payload.
    pub const fn payload_len(&self) -> usize {
        if self.has_payload() { self.length as usize * 4 } else { 0 }
    }

    /// Length of the header in bytes, 12 or 16, without prefixes.
    pub const fn encoded_len(&self) -> usize {
        match &self.kind {
            Kind::Memory(MemoryRequest { width: Width::Bits64, .. }) | Kind::Message(_) => 16,
            _ => 12,
        }
    }

    /// Whether the TLP is a posted request: a memory write or a message, which has no answer.
    pub const fn is_posted(&self) -> bool {
        match &self.kind {
            Kind::Memory(request) => matches!(request.operation, MemoryOperation::Write),
            kind => matches!(kind, Kind::Message(_)),
        }
    }

    /// Whether the TLP is a completion.
    pub const fn is_completion(&self) -> bool {
        matches!(self.kind, Kind::Completion(_))
    }

    /// Whether the TLP is a non-posted request, which is answered by completions.
    pub const fn is_non_posted(&self) -> bool {
        !self.is_posted() && !self.is_completion()
    }

    /// Requester ID: the requesting function, in requests and completions alike.
    pub const fn requester(&self) -> Bdf {
        match &self.kind {
            Kind::Memory(request) => request.requester,
            Kind::Io(request) => request.requester,
            Kind::Config(request) => request.requester,
            Kind::Message(message) => message.requester,
            Kind::Completion(completion) => completion.requester,
        }
    }

    /// The transaction's tag, which is without meaning in a posted request.
    pub const fn tag(&self) -> Tag {
        match &self.kind {
            Kind::Memory(request) => request.tag,
            Kind::Io(request) => request.tag,
            Kind::Config(request) => request.tag,
            Kind::Message(message) => message.tag,
            Kind::Completion(completion) => completion.tag,
        }
    }
}

impl From<Attributes> for u8 {
    /// Bits 2 to 0 of Attr: IDO in bit 2, Relaxed Ordering in bit 1, No Snoop in bit 0.
    fn from(attributes: Attributes) -> Self {
        let bit = |set, value| if set { value } else { 0 };
        bit(attributes.id_ordering, 4) | bit(attributes.relaxed_ordering, 2) | bit(attributes.no_snoop, 1)
    }
}

impl From<u8> for Attributes {
    /// Decodes bits 2 to 0 of Attr; higher bits are dropped.
    fn from(bits: u8) -> Self {
        Self { relaxed_ordering: bits & 2 != 0, no_snoop: bits & 1 != 0, id_ordering: bits & 4 != 0 }
    }
}

impl From<u8> for AddressType {
    /// Decodes the two bits on the wire; higher bits are dropped.
    fn from(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::Untranslated,
            1 => Self::TranslationRequest,
            2 => Self::Translated,
            _ => Self::Reserved,
        }
    }
}

impl From<AddressType> for u8 {
    fn from(kind: AddressType) -> Self {
        match kind {
            AddressType::Untranslated => 0,
            AddressType::TranslationRequest => 1,
            AddressType::Translated => 2,
            AddressType::Reserved => 3,
        }
    }
}

impl From<u8> for MessageRouting {
    /// Decodes the low three bits of Type; higher bits are dropped.
    fn from(bits: u8) -> Self {
        match bits & 7 {
            0 => Self::ToRootComplex,
            1 => Self::ByAddress,
            2 => Self::ById,
            3 => Self::BroadcastFromRootComplex,
            4 => Self::Local,
            5 => Self::GatheredToRootComplex,
            other => Self::Reserved(other),
        }
    }
}

impl From<MessageRouting> for u8 {
    fn from(routing: MessageRouting) -> Self {
        match routing {
            MessageRouting::ToRootComplex => 0,
            MessageRouting::ByAddress => 1,
            MessageRouting::ById => 2,
            MessageRouting::BroadcastFromRootComplex => 3,
            MessageRouting::Local => 4,
            MessageRouting::GatheredToRootComplex => 5,
            MessageRouting::Reserved(other) => other & 7,
        }
    }
}

impl From<u8> for CompletionStatus {
    /// Decodes the three bits on the wire; higher bits are dropped.
    fn from(bits: u8) -> Self {
        match bits & 7 {
            0 => Self::Success,
            1 => Self::UnsupportedRequest,
            2 => Self::ConfigRequestRetry,
            4 => Self::CompleterAbort,
            other => Self::Reserved(other),
        }
    }
}

impl From<CompletionStatus> for u8 {
    fn from(status: CompletionStatus) -> Self {
        match status {
            CompletionStatus::Success => 0,
            CompletionStatus::UnsupportedRequest => 1,
            CompletionStatus::ConfigRequestRetry => 2,
            CompletionStatus::CompleterAbort => 4,
            CompletionStatus::Reserved(other) => other & 7,
        }
    }
}
