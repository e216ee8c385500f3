//! The bytes on one of several paths: a preamble each way, then records.

use core::fmt;

use serde::{Deserialize, Serialize};

use super::{PATHS_MAX, RECORD_MAX};
use crate::frame::is_same;

/// The first bytes of a path. A session never begins like this, because no kind of frame has the
/// first byte.
pub const MAGIC: [u8; 8] = *b"FARPATH\n";
/// Version of the format of paths.
pub const VERSION: u8 = 1;
/// Bytes of a [`Preamble`].
pub const PREAMBLE_LENGTH: usize = 40;
/// Bytes of a record before its data.
pub(super) const RECORD_LENGTH: usize = 24;

/// A path's number in its group, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PathIndex(pub u8);

impl PathIndex {
    pub(super) const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Name of a stream that all its paths share. The end that dials draws it from an unpredictable
/// source, because knowledge of the name admits a path.
#[derive(Clone, Copy)]
pub struct GroupId(pub [u8; 16]);

impl PartialEq for GroupId {
    /// Takes the same time wherever the first difference is.
    fn eq(&self, other: &Self) -> bool {
        is_same(&self.0, &other.0)
    }
}

impl Eq for GroupId {}

impl fmt::Debug for GroupId {
    /// Hides the bits, which are for the two ends only.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GroupId(..)")
    }
}

/// Distinguishes a stream from a later stream of the same group. The end that accepts chooses it at
/// random, never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token(pub u64);

/// The first bytes of a path in either direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preamble {
    /// The group of the path's stream.
    pub group: GroupId,
    /// Number of the path. The answer repeats the number.
    pub path: PathIndex,
    /// From the end that accepts: its stream. From the end that dials: the stream to continue, if
    /// known.
    pub token: Option<Token>,
}

/// Why a path is given up. Other paths go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathError {
    /// The first bytes are no preamble.
    NoPreamble,
    /// The preamble has this other version of the format.
    Version(u8),
    /// The path is not expected: its number is too high, its group is another one, or it names no
    /// stream.
    Stranger,
    /// A record begins behind bytes that have not come.
    Gap {
        /// Where in the stream the record begins.
        offset: u64,
        /// Bytes of the stream that have come, without a gap.
        delivered: u64,
    },
    /// The path acknowledges the stream up to this byte, which was not sent.
    Acknowledged(u64),
    /// A record has this many bytes of data, more than [`RECORD_MAX`].
    Length(u32),
    /// A reserved field is not zero.
    Reserved,
    /// The path has brought nothing for too long.
    Silent,
}

impl fmt::Display for PathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPreamble => f.write_str("what answers there does not join paths"),
            Self::Version(version) => {
                write!(f, "version {version} of joined paths, where we have {VERSION}")
            }
            Self::Stranger => f.write_str("a path that was not asked for"),
            Self::Gap { offset, delivered } => write!(f, "a record at {offset}, after {delivered} bytes"),
            Self::Acknowledged(offset) => write!(f, "byte {offset} acknowledged, which was not sent"),
            Self::Length(length) => write!(f, "a record of {length} bytes, more than {RECORD_MAX}"),
            Self::Reserved => f.write_str("reserved bits that are not zero"),
            Self::Silent => f.write_str("nothing came for too long"),
        }
    }
}

impl core::error::Error for PathError {}

impl Preamble {
    /// Encodes the preamble.
    pub fn emit(&self) -> [u8; PREAMBLE_LENGTH] {
        let mut bytes = [0; PREAMBLE_LENGTH];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8] = VERSION;
        bytes[9] = self.path.0;
        bytes[16..32].copy_from_slice(&self.group.0);
        bytes[32..].copy_from_slice(&self.token.map_or(0, |token| token.0).to_be_bytes());
        bytes
    }

    /// Decodes a preamble.
    ///
    /// # Errors
    /// When the magic number, the version, the path number or a reserved field is wrong.
    pub fn parse(bytes: &[u8; PREAMBLE_LENGTH]) -> Result<Self, PathError> {
        let (magic, rest) = bytes.split_at(8);
        let (fixed, rest) = rest.split_at(8);
        let (group, token) = rest.split_at(16);
        if magic != MAGIC {
            return Err(PathError::NoPreamble);
        }
        match fixed {
            &[VERSION, path, 0, 0, 0, 0, 0, 0] if usize::from(path) < PATHS_MAX => {
                let token = u64::from_be_bytes(array(token));
                let token = (token != 0).then_some(Token(token));
                Ok(Self { group: GroupId(array(group)), path: PathIndex(path), token })
            }
            &[VERSION, _, 0, 0, 0, 0, 0, 0] => Err(PathError::Stranger),
            &[VERSION, ..] => Err(PathError::Reserved),
            &[version, ..] => Err(PathError::Version(version)),
            [] => Err(PathError::NoPreamble),
        }
    }
}

/// The meaning of the first bytes of an accepted connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// A session begins, or an unknown protocol.
    Session,
    /// More bytes must come before a session can be distinguished from a path.
    More,
    /// A path begins. Its records follow the first [`PREAMBLE_LENGTH`] bytes.
    Path(Preamble),
}

/// Distinguishes a session from a path by `bytes`, all that have come on a connection.
pub fn opening(bytes: &[u8]) -> Opening {
    let known = bytes.len().min(MAGIC.len());
    if bytes[..known] != MAGIC[..known] {
        return Opening::Session;
    }
    match bytes.first_chunk() {
        None => Opening::More,
        // The session refuses a preamble that cannot be read, in its own words.
        Some(preamble) => Preamble::parse(preamble).map_or(Opening::Session, Opening::Path),
    }
}

/// Header in front of a part of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// Offset in the stream of the record's data.
    pub(super) offset: u64,
    /// Bytes that have come in the other direction, by any path and without a gap.
    pub(super) acknowledged: u64,
    /// Length of the record's data, in bytes.
    pub(super) length: u32,
}

impl Record {
    pub(super) fn emit(&self) -> [u8; RECORD_LENGTH] {
        let mut bytes = [0; RECORD_LENGTH];
        bytes[..8].copy_from_slice(&self.offset.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.acknowledged.to_be_bytes());
        bytes[16..20].copy_from_slice(&self.length.to_be_bytes());
        bytes
    }

    pub(super) fn parse(bytes: &[u8; RECORD_LENGTH]) -> Result<Self, PathError> {
        let length = u32::from_be_bytes(array(&bytes[16..20]));
        if bytes[20..] != [0; 4] {
            return Err(PathError::Reserved);
        }
        if length > RECORD_MAX {
            return Err(PathError::Length(length));
        }
        let offset = u64::from_be_bytes(array(&bytes[..8]));
        Ok(Self { offset, acknowledged: u64::from_be_bytes(array(&bytes[8..16])), length })
    }
}

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.try_into().expect("the caller cut it to this length")
}
