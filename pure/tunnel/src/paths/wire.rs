//! The bytes on one of several paths: a preamble each way, then records.

use core::fmt;

use super::{PATHS_MAX, RECORD_MAX};
use crate::frame::is_same;

/// What a path begins with; a session never does: no frame is of the kind that the first byte would be.
pub const MAGIC: [u8; 8] = *b"FARPATH\n";
/// The version of this format.
pub const VERSION: u8 = 1;
/// Bytes of a [`Preamble`].
pub const PREAMBLE_LENGTH: usize = 40;
/// Bytes of a record before its data.
pub(super) const RECORD_LENGTH: usize = 24;

/// A path's number in its group, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PathIndex(pub u8);

impl PathIndex {
    pub(super) const fn index(self) -> usize {
        self.0 as usize
    }
}

/// What the paths of one stream have in common: chosen by the end that dials, from a source that nobody can guess, for it admits
/// whoever knows it.
#[derive(Clone, Copy)]
pub struct GroupId(pub [u8; 16]);

impl PartialEq for GroupId {
    /// Takes as long wherever the first difference is.
    fn eq(&self, other: &Self) -> bool {
        is_same(&self.0, &other.0)
    }
}

impl Eq for GroupId {}

impl fmt::Debug for GroupId {
    /// It is for two ends only.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GroupId(..)")
    }
}

/// What tells one stream of a group from another one after it: random, chosen by the end that accepts, never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token(pub u64);

/// How a path begins, either way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preamble {
    /// To which stream it belongs.
    pub group: GroupId,
    /// Which of its paths it is; the answer's is the same.
    pub path: PathIndex,
    /// From the end that accepts: its stream. From the end that dials: the stream to go on with, if it knows.
    pub token: Option<Token>,
}

/// What is wrong with a path: it is given up, others go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathError {
    /// What came first is no preamble.
    NoPreamble,
    /// Another version of the format.
    Version(u8),
    /// A path of such a number, or of another group, or without a stream, was not asked for.
    Stranger,
    /// A record begins beyond what has come.
    Gap {
        /// Where it begins.
        offset: u64,
        /// Bytes of the stream that have come.
        delivered: u64,
    },
    /// It acknowledges what was not sent.
    Acknowledged(u64),
    /// A record of so many bytes.
    Length(u32),
    /// What must be zero is not.
    Reserved,
    /// Nothing has come for too long.
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
    /// Its bytes.
    pub fn emit(&self) -> [u8; PREAMBLE_LENGTH] {
        let mut bytes = [0; PREAMBLE_LENGTH];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8] = VERSION;
        bytes[9] = self.path.0;
        bytes[16..32].copy_from_slice(&self.group.0);
        bytes[32..].copy_from_slice(&self.token.map_or(0, |token| token.0).to_be_bytes());
        bytes
    }

    /// Reads them.
    ///
    /// # Errors
    /// When they are no preamble of ours.
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

/// How what came first on an accepted connection goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// A session speaks, or nobody that we know.
    Session,
    /// More bytes must come to tell.
    More,
    /// A path; its records follow the first [`PREAMBLE_LENGTH`] bytes.
    Path(Preamble),
}

/// Tells a session from a path by all `bytes` that have come on a connection.
pub fn opening(bytes: &[u8]) -> Opening {
    let known = bytes.len().min(MAGIC.len());
    if bytes[..known] != MAGIC[..known] {
        return Opening::Session;
    }
    match bytes.first_chunk() {
        None => Opening::More,
        // A preamble that can't be read is for the session to refuse, in its own words.
        Some(preamble) => Preamble::parse(preamble).map_or(Opening::Session, Opening::Path),
    }
}

/// What precedes a part of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// Where in the stream the data begins.
    pub(super) offset: u64,
    /// Bytes that have come the other way, all without a gap, by any path.
    pub(super) acknowledged: u64,
    /// Bytes of data.
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
