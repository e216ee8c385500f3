//! The container's bytes; `format.md` describes them.
//!
//! A medium is divided into slots of one chunk each. A chunk is a [`Header`] and its payload. All
//! numbers are little-endian.
#![cfg_attr(doc, doc = include_str!("../../format.md"))]

mod certificate;
mod gap;
mod index;
mod member;
mod packet;
mod ring;
mod superblock;
mod trigger;

pub use certificate::{Certificate, Reason, Signature, StreamTotals};
pub use gap::{Cause, Gap, Place};
pub use index::{Entry, Index};
pub use member::{MEMBER_SLOT, MEMBERS_MAX, Member};
pub use packet::{Content, LinkType, PACKET_HEAD, Packet, PacketFlags, PacketHead, Packets};
pub use ring::{Holding, PINS_MAX, Pin};
pub use superblock::Superblock;
pub use trigger::Trigger;

use core::fmt;

use engine::Crc32c;

/// The first bytes of every chunk.
pub const MAGIC: [u8; 8] = *b"FARLCHNK";
/// The version of the format.
pub const VERSION: u16 = 1;
/// Length of a header in bytes. The payload follows.
pub const HEADER_LENGTH: usize = 128;
/// The shortest chunk in bytes.
pub const CHUNK_MIN: u32 = 16 << 10;
/// The longest chunk in bytes.
pub const CHUNK_MAX: u32 = 1 << 20;
/// The length of a chunk in bytes, unless another is chosen.
pub const CHUNK_DEFAULT: u32 = 128 << 10;
/// Chunks start at multiples of this many bytes, as direct I/O wants it.
pub const ALIGNMENT: u32 = 4096;
/// The slot of the superblock.
pub const SUPERBLOCK_SLOT: u64 = 0;
/// The slot kept free for the certificate, so that a full medium has room for it.
pub const CERTIFICATE_SLOT: u64 = 1;
/// The slot kept free for the last gap records.
pub const GAP_SLOT: u64 = 2;
/// The two slots in which a ring records in turn which bytes it holds. They are a ring's first ones
/// behind the slot of the last gap records.
pub const HOLDING_SLOTS: [u64; 2] = [3, 4];
/// The first slot of recorded data, unless the recording is a ring: a ring has two more slots
/// before it.
pub const FIRST_SLOT: u64 = 3;
/// The most streams of a recording.
pub const STREAMS_MAX: usize = 64;

/// Where the digest of the header lies; the header's bytes before it are digested.
const HEADER_CRC: usize = HEADER_LENGTH - 4;

/// The kind of a chunk's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The description of the recording: [`Superblock`].
    Superblock,
    /// Bytes of a stream.
    Data,
    /// Losses: [`Gap`] records.
    Gaps,
    /// Where chunks lie: [`Index`].
    Index,
    /// The account of the whole: [`Certificate`].
    Certificate,
    /// The bytes that a ring holds: [`Holding`].
    Holding,
    /// Which medium of a striped recording it is: [`Member`].
    Member,
    /// When the recording was triggered: [`Trigger`].
    Trigger,
}

impl Kind {
    const fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Superblock,
            2 => Self::Data,
            3 => Self::Gaps,
            4 => Self::Index,
            5 => Self::Certificate,
            6 => Self::Holding,
            7 => Self::Member,
            8 => Self::Trigger,
            _ => return None,
        })
    }

    /// Whether a chunk of this kind may lie in this slot of a recording. A chunk about the whole
    /// recording has a slot of its own, which holds no other kind.
    pub const fn belongs_in(self, slot: u64) -> bool {
        match self {
            Self::Superblock => slot == SUPERBLOCK_SLOT,
            Self::Certificate => slot == CERTIFICATE_SLOT,
            Self::Gaps => slot >= GAP_SLOT,
            Self::Holding => slot == HOLDING_SLOTS[0] || slot == HOLDING_SLOTS[1],
            Self::Data | Self::Index | Self::Trigger => slot >= FIRST_SLOT,
            // It lies beside the recording's slots.
            Self::Member => false,
        }
    }

    const fn to_byte(self) -> u8 {
        match self {
            Self::Superblock => 1,
            Self::Data => 2,
            Self::Gaps => 3,
            Self::Index => 4,
            Self::Certificate => 5,
            Self::Holding => 6,
            Self::Member => 7,
            Self::Trigger => 8,
        }
    }
}

/// Which clock a time is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeSource {
    /// There is no time.
    None,
    /// The host's real-time clock, when the recorder received the bytes.
    Host,
    /// The host's real-time clock, when the kernel received the bytes.
    Kernel,
    /// The clock of a network adapter.
    Hardware,
    /// Another clock, by its number in the format.
    Other(u8),
}

impl TimeSource {
    const fn from_byte(byte: u8) -> Self {
        match byte {
            0 => Self::None,
            1 => Self::Host,
            2 => Self::Kernel,
            3 => Self::Hardware,
            other => Self::Other(other),
        }
    }

    const fn to_byte(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Host => 1,
            Self::Kernel => 2,
            Self::Hardware => 3,
            Self::Other(other) => other,
        }
    }
}

/// A time, and the clock that gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time {
    /// Nanoseconds since 1970-01-01 00:00 UTC.
    pub nanos: u64,
    /// The clock.
    pub source: TimeSource,
}

impl Time {
    /// No time.
    pub const NONE: Self = Self { nanos: 0, source: TimeSource::None };
}

/// The head of every chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The kind of the payload.
    pub kind: Kind,
    /// The recording that the chunk belongs to.
    pub recording: [u8; 16],
    /// The slot in which the chunk lies. A chunk found elsewhere was misdirected.
    pub slot: u64,
    /// The number of the chunk in the recording, in the order in which chunks were begun.
    pub sequence: u64,
    /// The length of every slot in bytes: a multiple of [`ALIGNMENT`].
    pub chunk: u32,
    /// The number of the stream whose bytes these are; 0 where the payload is no stream's.
    pub stream: u32,
    /// The place of the payload's first byte in its stream, counted from 0, lost bytes included.
    pub offset: u64,
    /// The length of the payload in bytes.
    pub length: u32,
    /// When the first byte of the payload arrived.
    pub time: Time,
    /// Whose bytes lay in this slot of a ring before, if they were held.
    pub overwrote: Option<Overwrote>,
}

/// Bytes that a chunk of a ring has overwritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overwrote {
    /// The number of their stream.
    pub stream: u32,
    /// The place behind the last of them: the ring no longer holds earlier bytes of the stream,
    /// unless they are pinned.
    pub end: u64,
}

/// Why bytes are no chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkError {
    /// All bytes are zero: nothing was written here.
    Empty,
    /// The first eight bytes are others than [`MAGIC`].
    Magic,
    /// The bytes end before the chunk does.
    Short,
    /// The digest of the header differs.
    HeaderDigest,
    /// The version is not [`VERSION`].
    Version(u16),
    /// A field has a value that the format does not allow.
    Field,
    /// The digest of the payload differs: a torn write, or a changed bit.
    PayloadDigest,
    /// The chunk belongs into this slot.
    Misdirected(u64),
    /// The slot is for a chunk of another kind.
    Place,
}

impl fmt::Display for ChunkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(f, "nothing is written here"),
            Self::Magic => write!(f, "it does not begin as a chunk"),
            Self::Short => write!(f, "it ends early"),
            Self::HeaderDigest => write!(f, "its header was changed or torn"),
            Self::Version(version) => write!(f, "it has version {version}, expected {VERSION}"),
            Self::Field => write!(f, "its header has a value that the format does not allow"),
            Self::PayloadDigest => write!(f, "its payload was changed or torn"),
            Self::Misdirected(slot) => write!(f, "it belongs into slot {slot}"),
            Self::Place => write!(f, "the slot is for a chunk of another kind"),
        }
    }
}

impl Header {
    /// Writes the header to the first [`HEADER_LENGTH`] bytes of `chunk`, with the digests of the
    /// header and of the payload that stands behind it.
    ///
    /// # Panics
    /// When `chunk` is shorter than header and payload.
    pub fn emit(&self, chunk: &mut [u8], crc: Crc32c) {
        let (head, payload) = chunk.split_at_mut(HEADER_LENGTH);
        head.fill(0);
        head[0..8].copy_from_slice(&MAGIC);
        head[8..10].copy_from_slice(&VERSION.to_le_bytes());
        head[10] = self.kind.to_byte();
        head[12..16].copy_from_slice(&128_u32.to_le_bytes());
        head[16..32].copy_from_slice(&self.recording);
        head[32..40].copy_from_slice(&self.slot.to_le_bytes());
        head[40..48].copy_from_slice(&self.sequence.to_le_bytes());
        head[48..52].copy_from_slice(&self.chunk.to_le_bytes());
        head[52..56].copy_from_slice(&self.stream.to_le_bytes());
        head[56..64].copy_from_slice(&self.offset.to_le_bytes());
        head[64..68].copy_from_slice(&self.length.to_le_bytes());
        head[68] = self.time.source.to_byte();
        head[72..80].copy_from_slice(&self.time.nanos.to_le_bytes());
        if let Some(before) = self.overwrote {
            head[80..84].copy_from_slice(&(before.stream + 1).to_le_bytes());
            head[88..96].copy_from_slice(&before.end.to_le_bytes());
        }
        let digest = crc(0, &payload[..self.length as usize]);
        head[120..124].copy_from_slice(&digest.to_le_bytes());
        let digest = crc(0, &head[..HEADER_CRC]);
        head[HEADER_CRC..].copy_from_slice(&digest.to_le_bytes());
    }

    /// Parses the header at the start of `bytes`, and checks its own digest but not the payload's.
    ///
    /// # Errors
    /// When the bytes are no header.
    pub fn parse(bytes: &[u8], crc: Crc32c) -> Result<Self, ChunkError> {
        let Some(head) = bytes.get(..HEADER_LENGTH) else { return Err(ChunkError::Short) };
        if head[..8] != MAGIC {
            let is_empty = bytes.iter().all(|byte| *byte == 0);
            return Err(if is_empty { ChunkError::Empty } else { ChunkError::Magic });
        }
        if crc(0, &head[..HEADER_CRC]) != u32_at(head, HEADER_CRC) {
            return Err(ChunkError::HeaderDigest);
        }
        let version = u16::from_le_bytes([head[8], head[9]]);
        if version != VERSION {
            return Err(ChunkError::Version(version));
        }
        let kind = Kind::from_byte(head[10]).ok_or(ChunkError::Field)?;
        let mut recording = [0; 16];
        recording.copy_from_slice(&head[16..32]);
        let time = Time { nanos: u64_at(head, 72), source: TimeSource::from_byte(head[68]) };
        let overwrote = u32_at(head, 80).checked_sub(1);
        let overwrote = overwrote.map(|stream| Overwrote { stream, end: u64_at(head, 88) });
        let header = Self {
            kind,
            recording,
            slot: u64_at(head, 32),
            sequence: u64_at(head, 40),
            chunk: u32_at(head, 48),
            stream: u32_at(head, 52),
            offset: u64_at(head, 56),
            length: u32_at(head, 64),
            time,
            overwrote,
        };
        let longest = is_chunk_length(header.chunk).then(|| capacity(header.chunk));
        let end = header.offset.checked_add(u64::from(header.length));
        let is_right = longest.is_some_and(|longest| header.length as usize <= longest)
            && end.is_some()
            && (header.stream as usize) < STREAMS_MAX
            && overwrote.is_none_or(|before| (before.stream as usize) < STREAMS_MAX)
            && u32_at(head, 12) as usize == HEADER_LENGTH;
        if is_right { Ok(header) } else { Err(ChunkError::Field) }
    }

    /// Parses the chunk that was read from `slot`, and checks everything. Returns the header and
    /// the payload.
    ///
    /// # Errors
    /// When the bytes are no chunk, or one that belongs elsewhere.
    pub fn parse_chunk(slot: u64, bytes: &[u8], crc: Crc32c) -> Result<(Self, &[u8]), ChunkError> {
        let header = Self::parse(bytes, crc)?;
        let end = HEADER_LENGTH + header.length as usize;
        let payload = bytes.get(HEADER_LENGTH..end).ok_or(ChunkError::Short)?;
        if crc(0, payload) != u32_at(bytes, 120) {
            return Err(ChunkError::PayloadDigest);
        }
        if header.slot != slot {
            return Err(ChunkError::Misdirected(header.slot));
        }
        Ok((header, payload))
    }

    /// The place behind the payload's last byte in its stream.
    pub const fn end(&self) -> u64 {
        self.offset.saturating_add(self.length as u64)
    }
}

/// Whether chunks may have this length in bytes.
pub const fn is_chunk_length(chunk: u32) -> bool {
    chunk >= CHUNK_MIN && chunk <= CHUNK_MAX && chunk.is_multiple_of(ALIGNMENT)
}

/// How many bytes of payload a chunk of this length holds.
pub const fn capacity(chunk: u32) -> usize {
    chunk as usize - HEADER_LENGTH
}

/// Finds the length of the chunks of the medium that begins with `bytes`. The superblock gives it;
/// where that is lost, any other header at a multiple of [`ALIGNMENT`] does.
pub fn find_chunk_length(bytes: &[u8], crc: Crc32c) -> Option<u32> {
    let places = bytes.chunks(ALIGNMENT as usize);
    places
        .map_while(|place| (place.len() >= HEADER_LENGTH).then_some(place))
        .find_map(|place| Header::parse(place, crc).ok().map(|header| header.chunk))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(core::array::from_fn(|index| bytes[at + index]))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(core::array::from_fn(|index| bytes[at + index]))
}
