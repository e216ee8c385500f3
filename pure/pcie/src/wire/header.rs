//! The decoded header of a TLP.

use super::{Bdf, Tag};

/// What every TLP header says, and what its type adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Traffic Class (TC), 0..8.
    pub traffic_class: u8,
    /// Ordering and coherence attributes (Attr).
    pub attributes: Attributes,
    /// Address Type (AT).
    pub address_type: AddressType,
    /// Error Poisoned (EP): the payload is known to be bad.
    pub poisoned: bool,
    /// TLP Hints present (TH): the low address bits hold a Processing Hint.
    pub processing_hint: bool,
    /// Length in double words, 1..=1024 (0 where the type has none): of the payload, or of what a read asks for.
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
    /// Processing Hint (PH), the two low address bits where TH is set.
    pub hint: u8,
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
    /// Byte offset of the double word (Extended Register Number and Register Number): 0..4096, a multiple of 4.
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

impl Header {
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
}
