//! Data that client and server exchange: private data, counts and regions. Numbers are little
//! endian.

use core::fmt;

use crate::{Key, Remote};

/// The first bytes of the private data of a measurement.
const MAGIC: [u8; 4] = *b"FlRm";
/// The version of this protocol.
const VERSION: u8 = 1;
/// Length of a request and of an answer in bytes. Further bytes are ignored.
pub const MESSAGE_LENGTH: usize = 24;

/// The operation that a test repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Messages (Send).
    Send,
    /// RDMA Write.
    Write,
    /// RDMA Read.
    Read,
}

/// The measured quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The duration of single operations, one after the other.
    Latency,
    /// The number of operations in a time, with several in progress.
    Bandwidth,
}

/// A test, as a client requests it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Test {
    /// The repeated operation.
    pub verb: Verb,
    /// The measured quantity.
    pub mode: Mode,
    /// Bytes that each iteration moves, at least 1.
    pub size: u32,
    /// Number of iterations, at least 1.
    pub iterations: u32,
    /// Number of iterations in progress at a time, at least 1. Only for bandwidth.
    pub depth: u16,
}

/// Why a server refuses a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The request is not of this protocol, or of another version.
    Unknown,
    /// The size is 0 or more than the server takes.
    Size,
    /// The number of iterations, or of those in progress at a time, is 0.
    Nothing,
    /// More iterations would be in progress than the server allows.
    Depth,
    /// The server has too many connections, or no memory to lend.
    Busy,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => "it does not know this kind of test",
            Self::Size => "it does not take tests of this size",
            Self::Nothing => "a test of nothing measures nothing",
            Self::Depth => "it does not take this many requests at a time",
            Self::Busy => "it has too many connections, or no memory to lend",
        })
    }
}

impl core::error::Error for Refusal {}

fn head(kind: u8) -> [u8; MESSAGE_LENGTH] {
    let mut bytes = [0; MESSAGE_LENGTH];
    bytes[..4].copy_from_slice(&MAGIC);
    bytes[4] = VERSION;
    bytes[5] = kind;
    bytes
}

fn body(bytes: &[u8]) -> Option<&[u8; MESSAGE_LENGTH]> {
    let body = bytes.first_chunk()?;
    (body[..4] == MAGIC && body[4] == VERSION).then_some(body)
}

fn word(bytes: &[u8; MESSAGE_LENGTH], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

impl Test {
    /// The private data of a request for the test.
    pub fn emit(&self) -> [u8; MESSAGE_LENGTH] {
        let mut bytes = head(match self.verb {
            Verb::Send => 0,
            Verb::Write => 1,
            Verb::Read => 2,
        });
        bytes[6] = match self.mode {
            Mode::Latency => 0,
            Mode::Bandwidth => 1,
        };
        bytes[8..12].copy_from_slice(&self.size.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.iterations.to_le_bytes());
        bytes[16..18].copy_from_slice(&self.depth.to_le_bytes());
        bytes
    }

    /// Parses the test in `private_data`.
    ///
    /// # Errors
    /// The reason for refusing it.
    pub fn parse(private_data: &[u8]) -> Result<Self, Refusal> {
        let bytes = body(private_data).ok_or(Refusal::Unknown)?;
        let test = Self {
            verb: match bytes[5] {
                0 => Verb::Send,
                1 => Verb::Write,
                2 => Verb::Read,
                _ => return Err(Refusal::Unknown),
            },
            mode: match bytes[6] {
                0 => Mode::Latency,
                1 => Mode::Bandwidth,
                _ => return Err(Refusal::Unknown),
            },
            size: word(bytes, 8),
            iterations: word(bytes, 12),
            depth: u16::from_le_bytes([bytes[16], bytes[17]]),
        };
        match test {
            Self { size: 0, .. } => Err(Refusal::Size),
            Self { iterations: 0, .. } | Self { depth: 0, .. } => Err(Refusal::Nothing),
            test => Ok(test),
        }
    }
}

/// The answer of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The server accepts the test, and lends this memory, which a test of sends does not use.
    Taken(Remote),
    Refused(Refusal),
}

impl Answer {
    pub(super) fn emit(self) -> [u8; MESSAGE_LENGTH] {
        match self {
            Self::Taken(remote) => {
                let mut bytes = head(0);
                bytes[8..].copy_from_slice(&emit_region(remote));
                bytes
            }
            Self::Refused(why) => {
                let mut bytes = head(1);
                bytes[6] = match why {
                    Refusal::Unknown => 0,
                    Refusal::Size => 1,
                    Refusal::Nothing => 2,
                    Refusal::Depth => 3,
                    Refusal::Busy => 4,
                };
                bytes
            }
        }
    }

    pub(super) fn parse(private_data: &[u8]) -> Option<Self> {
        let bytes = body(private_data)?;
        Some(match (bytes[5], bytes[6]) {
            (0, _) => Self::Taken(parse_region(&bytes[8..])?),
            (1, 1) => Self::Refused(Refusal::Size),
            (1, 2) => Self::Refused(Refusal::Nothing),
            (1, 3) => Self::Refused(Refusal::Depth),
            (1, 4) => Self::Refused(Refusal::Busy),
            (1, _) => Self::Refused(Refusal::Unknown),
            _ => return None,
        })
    }
}

/// The message that carries a lent region of memory.
pub(super) fn emit_region(remote: Remote) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&remote.key.0.to_le_bytes());
    bytes[4..12].copy_from_slice(&remote.address.to_le_bytes());
    bytes[12..].copy_from_slice(&remote.length.to_le_bytes());
    bytes
}

pub(super) fn parse_region(bytes: &[u8]) -> Option<Remote> {
    let (key, rest) = bytes.split_first_chunk()?;
    let (address, rest) = rest.split_first_chunk()?;
    Some(Remote {
        key: Key(u32::from_le_bytes(*key)),
        address: u64::from_le_bytes(*address),
        length: u32::from_le_bytes(rest.try_into().ok()?),
    })
}
