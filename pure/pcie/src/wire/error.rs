//! Why bytes are not a TLP.

use core::fmt;

use super::MemoryOperation;

/// Which part of a TLP ended too early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A TLP prefix.
    Prefix,
    /// The header.
    Header,
    /// The payload.
    Payload,
    /// The digest (ECRC).
    Digest,
}

/// A malformed TLP, with what was found; lengths of bytes count from the TLP's first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlpError {
    /// The bytes end within `part`.
    Truncated {
        /// The part that is not complete.
        part: Part,
        /// Bytes up to and with the end of that part.
        need: usize,
        /// Bytes there are.
        have: usize,
    },
    /// More bytes than Length and TD say.
    TrailingBytes {
        /// Bytes of the TLP.
        need: usize,
        /// Bytes there are.
        have: usize,
    },
    /// No such combination of Fmt and Type.
    UnknownType {
        /// The first byte: Fmt in bits 7:5, Type in bits 4:0.
        code: u8,
    },
    /// A local prefix behind an end-to-end one.
    LocalPrefixBehindEndToEnd {
        /// The local prefix.
        prefix: u32,
    },
    /// More prefixes than [`Prefixes::MAX`](super::Prefixes::MAX), or more end-to-end ones than
    /// [`Prefixes::END_TO_END_MAX`](super::Prefixes::END_TO_END_MAX).
    TooManyPrefixes {
        /// The first one too many.
        prefix: u32,
    },
    /// Length of an I/O or configuration request is not 1.
    LengthNotOne {
        /// Length in double words.
        length: u16,
    },
    /// An AtomicOp has no operands of this length.
    AtomicLength {
        /// The AtomicOp.
        operation: MemoryOperation,
        /// Length in double words.
        length: u16,
    },
    /// An AtomicOp's address is not a multiple of its operand's size.
    AtomicAlignment {
        /// The address.
        address: u64,
        /// Size of the operand in bytes.
        operand: u16,
    },
    /// A memory request reaches beyond the 4 KiB page in which it starts.
    Crosses4KiB {
        /// Address of the first double word.
        address: u64,
        /// Length in double words.
        length: u16,
    },
    /// First DW BE breaks a rule: 0 where there are several double words, or not contiguous where that is
    /// forbidden.
    FirstEnables {
        /// First DW BE.
        enables: u8,
        /// Length in double words.
        length: u16,
    },
    /// Last DW BE breaks a rule: not 0 with one double word, 0 with several, or not contiguous where that is
    /// forbidden.
    LastEnables {
        /// Last DW BE.
        enables: u8,
        /// Length in double words.
        length: u16,
    },
    /// The traffic class of an I/O or configuration request, or of a message that must use TC0, is not 0.
    TrafficClass {
        /// TC.
        class: u8,
    },
    /// An I/O or configuration request has attributes (Attr).
    Attributes {
        /// Attr: IDO in bit 2, Relaxed Ordering in bit 1, No Snoop in bit 0.
        attributes: u8,
    },
    /// The address type (AT) of an I/O or configuration request is not 0.
    AddressType {
        /// AT.
        address_type: u8,
    },
}

impl fmt::Display for TlpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Truncated { part, need, have } => {
                write!(f, "{part} is cut off: the TLP has {have} B, expected at least {need} B")
            }
            Self::TrailingBytes { need, have } => {
                write!(f, "Length and TD say {need} B, but there are {have} B")
            }
            Self::UnknownType { code } => {
                let (fmt, kind) = (code >> 5, code & 31);
                write!(f, "Fmt {fmt:#05b} with Type {kind:#07b} is not a TLP of PCI Express 4.0")
            }
            Self::LocalPrefixBehindEndToEnd { prefix } => {
                write!(f, "local TLP prefix {prefix:#010x} is behind an end-to-end one, expected before it")
            }
            Self::TooManyPrefixes { prefix } => {
                let (all, end_to_end) = (super::Prefixes::MAX, super::Prefixes::END_TO_END_MAX);
                write!(
                    f,
                    "TLP prefix {prefix:#010x} is one too many, expected {all}, {end_to_end} of them end-to-end"
                )
            }
            Self::LengthNotOne { length } => write!(f, "Length is {length} DW, expected 1 DW"),
            Self::AtomicLength { operation, length } => match operation {
                MemoryOperation::CompareAndSwap => {
                    write!(f, "Length of {operation} is {length} DW, expected 2, 4 or 8 DW")
                }
                _ => write!(f, "Length of {operation} is {length} DW, expected 1 or 2 DW"),
            },
            Self::AtomicAlignment { address, operand } => {
                write!(
                    f,
                    "Address {address:#x} of an AtomicOp is not a multiple of its operand's {operand} B"
                )
            }
            Self::Crosses4KiB { address, length } => {
                write!(f, "Address {address:#x} with Length {length} DW crosses a 4 KiB boundary")
            }
            Self::FirstEnables { enables, length } => {
                write!(
                    f,
                    "First DW BE is {enables:#06b} with Length {length} DW, expected contiguous up to bit 3"
                )
            }
            Self::LastEnables { enables, length: 1 } => {
                write!(f, "Last DW BE is {enables:#06b} with Length 1 DW, expected 0b0000")
            }
            Self::LastEnables { enables, length } => {
                write!(
                    f,
                    "Last DW BE is {enables:#06b} with Length {length} DW, expected contiguous from bit 0"
                )
            }
            Self::TrafficClass { class } => write!(f, "TC is {class}, expected 0 for this type"),
            Self::Attributes { attributes } => {
                write!(f, "Attr is {attributes:#05b}, expected 0 for this type")
            }
            Self::AddressType { address_type } => {
                write!(f, "AT is {address_type:#04b}, expected 0 for this type")
            }
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Prefix => "a TLP prefix",
            Self::Header => "the header",
            Self::Payload => "the payload",
            Self::Digest => "the digest",
        })
    }
}

impl core::error::Error for TlpError {}
