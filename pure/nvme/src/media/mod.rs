//! The storage behind namespaces, as the controller uses it: the controller sends requests, and
//! media return completions.

pub mod ram;
mod ranges;

use core::fmt;
use engine::Buffer;
use serde::{Deserialize, Serialize};

pub(crate) use ranges::Extent;
pub use ranges::Ranges;

/// The identifier of a medium: its index among the media that the world serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MediumId(pub u32);

/// The identifier of a media request until its end, chosen by the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct IoId(pub u32);

/// A request from the controller to a medium. Offsets and lengths are in bytes, and are multiples
/// of the block size.
#[derive(Debug, Serialize, Deserialize)]
pub struct Request {
    /// The identifier of the request, which its completions repeat.
    pub id: IoId,
    /// The medium that executes the request.
    pub medium: MediumId,
    /// The operation to execute.
    pub operation: Operation,
}

/// An operation of a medium.
#[derive(Debug, Serialize, Deserialize)]
pub enum Operation {
    /// Read `length` bytes at `offset`. The medium answers with pieces ([`Completion::Data`]) and
    /// then the end ([`Completion::Done`]).
    Read {
        /// Byte offset of the first byte.
        offset: u64,
        /// Length in bytes, at least one block.
        length: u32,
    },
    /// Write `data` at `offset`.
    Write {
        /// Byte offset of the first byte.
        offset: u64,
        /// The bytes to write. The buffer comes from a pool, so it is aligned for direct I/O.
        data: Buffer,
        /// Force Unit Access: whether the bytes must be durable before the write is done.
        durable: bool,
    },
    /// Make all completed writes durable.
    Flush,
    /// Make a range read as zeroes.
    WriteZeroes {
        /// Byte offset of the first byte.
        offset: u64,
        /// Length in bytes.
        length: u64,
        /// Whether the medium may give the space back.
        deallocate: bool,
        /// Force Unit Access: whether the zeroes must be durable before the operation is done.
        durable: bool,
    },
    /// Give the space of a range back. The range reads as zeroes afterwards.
    Deallocate {
        /// Byte offset of the first byte.
        offset: u64,
        /// Length in bytes.
        length: u64,
    },
}

/// The reason why a media request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MediaError {
    /// The bytes could not be read: the medium has them no more. Other bytes may be there.
    Read,
    /// The device that has the medium failed a read for another reason, which does not affect the
    /// stored bytes.
    ReadFailed,
    /// The bytes could not be written.
    Write,
    /// No space is left, as on a full disk.
    NoSpace,
    /// The medium is write-protected.
    ReadOnly,
    /// The range is beyond the end of the medium, for instance because its file was truncated.
    OutOfRange,
    /// The medium was unreachable for longer than the request could wait. It may return later.
    Unreachable,
}

impl fmt::Display for MediaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "the bytes could not be read",
            Self::ReadFailed => "the device has failed a read",
            Self::Write => "the bytes could not be written",
            Self::NoSpace => "no space is left",
            Self::ReadOnly => "the medium is read-only",
            Self::OutOfRange => "the range is beyond the medium's end",
            Self::Unreachable => "the medium can't be reached",
        })
    }
}

impl core::error::Error for MediaError {}

/// An answer of a medium.
#[derive(Debug)]
pub enum Completion {
    /// Some of the bytes of a read. Pieces may arrive in any order, and all of them arrive before
    /// the read's end.
    Data {
        /// The read request that the bytes belong to.
        id: IoId,
        /// Offset in bytes of this piece within the read.
        offset: u32,
        /// The bytes of this piece.
        data: Buffer,
    },
    /// The request has ended.
    Done {
        /// The request that ended. Its identifier is free again.
        id: IoId,
        /// Success, or the reason for the failure.
        result: Result<(), MediaError>,
    },
}
