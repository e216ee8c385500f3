//! What a namespace's bytes are kept on, as the controller sees it: requests out, completions in.

pub mod ram;

use core::fmt;
use engine::Buffer;

/// Names a medium: the index under which the world was given it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MediumId(pub u32);

/// Names a request between its issue and its end; chosen by the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IoId(pub u32);

/// What the controller asks of a medium. Offsets and lengths are bytes, multiples of the block size.
#[derive(Debug)]
pub struct Request {
    /// Names the request in its completions.
    pub id: IoId,
    /// The medium.
    pub medium: MediumId,
    /// What to do.
    pub operation: Operation,
}

/// The operations of a medium.
#[derive(Debug)]
pub enum Operation {
    /// Read `length` bytes at `offset`; answered by [`Completion::Data`] pieces and [`Completion::Done`].
    Read {
        /// First byte.
        offset: u64,
        /// Bytes, at least one block.
        length: u32,
    },
    /// Write `data` at `offset`.
    Write {
        /// First byte.
        offset: u64,
        /// The bytes; a buffer that was taken from a pool, so aligned for direct I/O.
        data: Buffer,
        /// Force Unit Access: the bytes are durable before the write is done.
        durable: bool,
    },
    /// Make everything that was written durable.
    Flush,
    /// Make a range read as zeroes.
    WriteZeroes {
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
        /// The space may be given back.
        deallocate: bool,
        /// Force Unit Access, as for a write.
        durable: bool,
    },
    /// The range is no longer needed; it reads as zeroes afterwards.
    Deallocate {
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
    },
}

/// Why a medium failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MediaError {
    /// The bytes could not be read.
    Read,
    /// The bytes could not be written.
    Write,
    /// There is no space left (a full disk).
    NoSpace,
    /// The medium may not be written.
    ReadOnly,
    /// The range is beyond the end: the file was truncated under us.
    OutOfRange,
    /// The medium is away, for longer than could be waited for; it may be back later.
    Unreachable,
}

impl fmt::Display for MediaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "the bytes could not be read",
            Self::Write => "the bytes could not be written",
            Self::NoSpace => "no space is left",
            Self::ReadOnly => "the medium is read-only",
            Self::OutOfRange => "the range is beyond the medium's end",
            Self::Unreachable => "the medium can't be reached",
        })
    }
}

impl core::error::Error for MediaError {}

/// What a medium answers.
#[derive(Debug)]
pub enum Completion {
    /// Some of the bytes of a read, in any order, never after its end.
    Data {
        /// The request.
        id: IoId,
        /// Where in the read these bytes belong.
        offset: u32,
        /// The bytes.
        data: Buffer,
    },
    /// The request has ended.
    Done {
        /// The request; its name is free again.
        id: IoId,
        /// How it ended.
        result: Result<(), MediaError>,
    },
}
