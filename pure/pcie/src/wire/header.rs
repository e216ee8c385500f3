//! The decoded header of a TLP.

use super::{Bdf, Tag, Traits};

/// What every TLP header says, and what its type adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Traffic class, attributes, address type, poison, hints.
    pub traits: Traits,
    /// The type's reserved bits, packed: 0 in what is made here; in what is received they are ignored and
    /// kept, so that forwarding changes nothing.
    pub reserved: u8,
    /// Length in double words, 1..=1024: of the payload, or of what a read asks for. Where the type has
    /// neither (Msg, Cpl) it is reserved: 0 in what is made here, kept as received.
    pub length: u16,
    /// The type and its own fields.
    pub kind: Kind,
}

/// Attr: bits that allow reordering or waive coherence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Relaxed Ordering (RO).
    pub relaxed_ordering: bool,
    /// No Snoop.
    pub no_snoop: bool,
    /// ID-based Ordering (IDO).
    pub id_ordering: bool,
}

/// Address Type (AT).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AddressType {
    /// A default, untranslated address.
    #[default]
    Untranslated,
    /// Address Translation Services: translate this address.
    TranslationRequest,
    /// An address that was translated already.
    Translated,
    /// The reserved encoding.
    Reserved,
}

/// 32-bit (3 DW header) or 64-bit (4 DW header) addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// A 3 DW header.
    Bits32,
    /// A 4 DW header.
    Bits64,
}

/// The type of a TLP and the fields that only it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// MRd, MRdLk, MWr, FetchAdd, Swap, CAS.
    Memory(MemoryRequest),
    /// IORd, IOWr.
    Io(IoRequest),
    /// CfgRd0, CfgWr0, CfgRd1, CfgWr1.
    Config(ConfigRequest),
    /// Msg, MsgD.
    Message(Message),
    /// Cpl, CplD, CplLk, CplDLk.
    Completion(Completion),
}

/// What a memory request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryOperation {
    /// MRd.
    Read,
    /// MRdLk.
    ReadLocked,
    /// MWr, the only posted one.
    Write,
    /// AtomicOp: FetchAdd.
    FetchAdd,
    /// AtomicOp: Swap.
    Swap,
    /// AtomicOp: CAS.
    CompareAndSwap,
}

impl MemoryOperation {
    /// FetchAdd, Swap or CAS: a write that is answered with what was there before.
    pub const fn is_atomic(self) -> bool {
        matches!(self, Self::FetchAdd | Self::Swap | Self::CompareAndSwap)
    }
}

/// A request that is routed by a memory address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryRequest {
    /// Read, write or atomic.
    pub operation: MemoryOperation,
    /// Who asks, and whom completions go to.
    pub requester: Bdf,
    /// The transaction's tag (of no meaning for writes, but carried).
    pub tag: Tag,
    /// Byte enables of the first double word: bit n enables byte n.
    pub first_enables: u8,
    /// Byte enables of the last double word; 0 when the length is 1.
    pub last_enables: u8,
    /// Address of the first double word; the two low bits are 0.
    pub address: u64,
    /// Form of the header.
    pub width: Width,
}

/// A request that is routed by an I/O address: one double word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoRequest {
    /// A write (IOWr), else a read (IORd).
    pub write: bool,
    /// Who asks.
    pub requester: Bdf,
    /// The transaction's tag.
    pub tag: Tag,
    /// Byte enables of the double word.
    pub enables: u8,
    /// The address; the two low bits are 0.
    pub address: u32,
}

/// Type 0 is for the device on this link, type 1 is to be forwarded by a bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigType {
    /// For the device on the link.
    Type0,
    /// For a bus beyond a bridge.
    Type1,
}

/// A configuration request: one double word of a function's configuration space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfigRequest {
    /// A write (CfgWr), else a read (CfgRd).
    pub write: bool,
    /// Type 0 or type 1.
    pub routing: ConfigType,
    /// Who asks.
    pub requester: Bdf,
    /// The transaction's tag.
    pub tag: Tag,
    /// Byte enables of the double word.
    pub enables: u8,
    /// The function whose configuration space is meant.
    pub target: Bdf,
    /// Byte offset of the double word (Extended Register Number and Register Number): 0..4096, a multiple of
    /// 4.
    pub offset: u16,
}

/// How a message finds its receiver (the low three bits of Type).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageRouting {
    /// To the root complex.
    ToRootComplex,
    /// By the address in the third and fourth double word.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// How it is routed.
    pub routing: MessageRouting,
    /// Who sends it.
    pub requester: Bdf,
    /// Its tag.
    pub tag: Tag,
    /// Message Code.
    pub code: u8,
    /// Whether it carries data (MsgD).
    pub data: bool,
    /// The third and fourth double word, as on the wire: an address, an ID, or what the code defines.
    pub body: u64,
}

/// Completion Status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompletionStatus {
    /// Successful Completion (SC).
    Success,
    /// Unsupported Request (UR).
    UnsupportedRequest,
    /// Configuration Request Retry Status (CRS).
    ConfigRequestRetry,
    /// Completer Abort (CA).
    CompleterAbort,
    /// A reserved encoding, to be handled as an Unsupported Request.
    Reserved(u8),
}

/// A completion, with data where `data` is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The function that completes.
    pub completer: Bdf,
    /// How the request ended.
    pub status: CompletionStatus,
    /// Byte Count Modified (BCM): set by PCI-X bridges only.
    pub byte_count_modified: bool,
    /// Bytes still to come for the request, this completion's included: 1..=4096.
    pub byte_count: u16,
    /// Who asked.
    pub requester: Bdf,
    /// The request's tag.
    pub tag: Tag,
    /// The low seven bits of the address of the first byte.
    pub lower_address: u8,
    /// Whether it carries data (CplD, CplDLk).
    pub data: bool,
    /// Whether it answers a locked read (CplLk, CplDLk).
    pub locked: bool,
}

impl Completion {
    /// The most bytes that a request asks for.
    pub const BYTE_COUNT_MAX: u16 = 4096;
}

impl Header {
    /// A header of traffic class 0, without attributes, hints or poison. `length` is in double words.
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

    /// Length of the payload in bytes, a multiple of 4; 0 where there is none.
    pub const fn payload_len(&self) -> usize {
        if self.has_payload() { self.length as usize * 4 } else { 0 }
    }

    /// Length of the header itself in bytes: 12 or 16, prefixes not counted.
    pub const fn encoded_len(&self) -> usize {
        match &self.kind {
            Kind::Memory(MemoryRequest { width: Width::Bits64, .. }) | Kind::Message(_) => 16,
            _ => 12,
        }
    }

    /// A posted request: a memory write or a message. Nothing answers it.
    pub const fn is_posted(&self) -> bool {
        match &self.kind {
            Kind::Memory(request) => matches!(request.operation, MemoryOperation::Write),
            kind => matches!(kind, Kind::Message(_)),
        }
    }

    /// A completion.
    pub const fn is_completion(&self) -> bool {
        matches!(self.kind, Kind::Completion(_))
    }

    /// A non-posted request: one that is answered by completions.
    pub const fn is_non_posted(&self) -> bool {
        !self.is_posted() && !self.is_completion()
    }

    /// Requester ID: who asked, in requests and completions alike.
    pub const fn requester(&self) -> Bdf {
        match &self.kind {
            Kind::Memory(request) => request.requester,
            Kind::Io(request) => request.requester,
            Kind::Config(request) => request.requester,
            Kind::Message(message) => message.requester,
            Kind::Completion(completion) => completion.requester,
        }
    }

    /// The transaction's tag; of no meaning for posted requests.
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
    /// IDO in bit 2, Relaxed Ordering in bit 1, No Snoop in bit 0, as Attr, bits 2 to 0.
    fn from(attributes: Attributes) -> Self {
        let bit = |set, value| if set { value } else { 0 };
        bit(attributes.id_ordering, 4) | bit(attributes.relaxed_ordering, 2) | bit(attributes.no_snoop, 1)
    }
}

impl From<u8> for Attributes {
    /// From Attr, bits 2 to 0; higher bits are dropped.
    fn from(bits: u8) -> Self {
        Self { relaxed_ordering: bits & 2 != 0, no_snoop: bits & 1 != 0, id_ordering: bits & 4 != 0 }
    }
}

impl From<u8> for AddressType {
    /// From the two bits on the wire; higher bits are dropped.
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
    /// From the low three bits of Type; higher bits are dropped.
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
    /// From the three bits on the wire; higher bits are dropped.
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
