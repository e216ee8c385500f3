//! Reasons why bytes are not a TLP.

use core::fmt;

use serde::{Deserialize, Serialize};

use super::MemoryOperation;

/// The part of a TLP in which the bytes end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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

/// A malformed TLP, with the value that was found. Lengths in bytes count from the TLP's first
/// byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TlpError {
    /// The bytes end within a part of the TLP.
    Truncated {
        /// The part that is incomplete.
        part: Part,
        /// Number of bytes up to the end of the incomplete part.
        need: usize,
        /// Number of bytes that are present.
        have: usize,
    },
    /// More bytes are present than Length and TD say.
    TrailingBytes {
        /// Length of the TLP in bytes.
        need: usize,
        /// Number of bytes that are present.
        have: usize,
    },
    /// PCI Express 4.0 has no TLP with this combination of Fmt and Type.
    UnknownType {
        /// The first byte: Fmt in bits 7:5, Type in bits 4:0.
        code: u8,
    },
    /// A local prefix follows an end-to-end prefix.
    LocalPrefixBehindEndToEnd {
        /// The local prefix.
        prefix: u32,
    },
    /// There are more prefixes than [`Prefixes::MAX`](super::Prefixes::MAX), or more end-to-end
    /// prefixes than [`Prefixes::END_TO_END_MAX`](super::Prefixes::END_TO_END_MAX).
    TooManyPrefixes {
        /// The first prefix beyond the limit.
        prefix: u32,
    },
    /// Length of an I/O or configuration request is not 1.
    LengthNotOne {
        /// Length in double words that was found.
        length: u16,
    },
    /// Length is not one that the AtomicOp's operands can have.
    AtomicLength {
        /// Which AtomicOp the request is.
        operation: MemoryOperation,
        /// Length in double words that was found.
        length: u16,
    },
    /// The address of an AtomicOp is not a multiple of its operand's size.
    AtomicAlignment {
        /// The address that was found.
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
    /// First DW BE breaks a rule: it is 0 with several double words, or not contiguous where that
    /// is required.
    FirstEnables {
        /// First DW BE that was found.
        enables: u8,
        /// Length in double words.
        length: u16,
    },
    /// Last DW BE breaks a rule: it is not 0 with one double word, 0 with several, or not
    /// contiguous where that is required.
    LastEnables {
        /// Last DW BE that was found.
        enables: u8,
        /// Length in double words.
        length: u16,
    },
    /// The traffic class of an I/O or configuration request, or of a message that must use TC0, is
    /// not 0.
    TrafficClass {
        /// Traffic class (TC) that was found.
        class: u8,
    },
    /// An I/O or configuration request has attributes (Attr).
    Attributes {
        /// Attr that was found: IDO in bit 2, Relaxed Ordering in bit 1, No Snoop in bit 0.
        attributes: u8,
    },
    /// The address type (AT) of an I/O or configuration request is not 0.
    AddressType {
        /// Address type (AT) that was found.
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
