//! A whole TLP.

use core::ops::Range;

use engine::Buffer;
use serde::{Deserialize, Serialize};

use super::enables::ALL;
use super::head::{Found, emit_prefixes, parse_into};
use super::{Bdf, Head, Header, Kind, Part, Prefixes, Tag, TlpError};

/// A transaction-layer packet (TLP): prefixes, header, payload, digest.
///
/// Parsing borrows the payload (`Tlp<&[u8]>`). A TLP that travels between engines owns a
/// reference-counted piece of the received block ([`Packet`]). Neither form copies the payload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tlp<P> {
    /// Local prefixes, then end-to-end prefixes, as on the wire. Almost every TLP has none.
    pub prefixes: Prefixes,
    /// The decoded header.
    pub header: Header,
    /// The payload: [`Header::payload_len`] bytes, in whole double words.
    pub payload: P,
    /// The end-to-end CRC (ECRC), which follows the payload if the header's TD bit is set.
    pub digest: Option<u32>,
}

/// Lengths of the two forms of a header, in bytes.
const HEADER_3DW: usize = 12;
const HEADER_4DW: usize = 16;

/// A TLP that owns its payload: the form in which engines pass packets to each other.
pub type Packet = Tlp<Buffer>;

// Packets move from engine to engine, so they must stay small.
const _: () = assert!(size_of::<Packet>() <= 72);

impl<'a> Tlp<&'a [u8]> {
    /// Parses the TLP that fills `bytes`.
    ///
    /// # Errors
    /// When the TLP is malformed or truncated, or when bytes follow it.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, TlpError> {
        let mut tlp = Self::new(Header::BLANK, bytes);
        tlp.payload = &bytes[tlp.parse_whole(bytes)?];
        Ok(tlp)
    }

    /// Parses the TLP at the start of `bytes`, and returns it with the bytes behind it.
    ///
    /// # Errors
    /// When the TLP is malformed or truncated.
    #[inline]
    pub fn parse_first(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), TlpError> {
        let mut tlp = Self::new(Header::BLANK, bytes);
        let (payload, length) = tlp.parse_into(bytes)?;
        tlp.payload = &bytes[payload];
        Ok((tlp, &bytes[length..]))
    }
}

impl Packet {
    /// Parses the TLP that fills `bytes`. The payload shares the block.
    ///
    /// # Errors
    /// When the TLP is malformed or truncated, or when bytes follow it.
    pub fn parse(bytes: &Buffer) -> Result<Self, TlpError> {
        Self::parse_within(bytes, 0..bytes.len())
    }

    /// Parses the TLP that fills `range` of `block`. The payload shares the block.
    ///
    /// # Errors
    /// When the TLP is malformed or truncated, or when bytes follow it within the range.
    ///
    /// # Panics
    /// When `range` does not lie within the block.
    #[inline]
    pub fn parse_within(block: &Buffer, range: Range<usize>) -> Result<Self, TlpError> {
        let mut packet = Self::blank();
        packet.read_within(block, range)?;
        Ok(packet)
    }

    /// A packet to be filled by [`Packet::read_within`]. It has no meaning before that.
    pub const fn blank() -> Self {
        Self::new(Header::BLANK, Buffer::EMPTY)
    }

    /// Parses the TLP that fills `range` of `block`, as [`Packet::parse_within`], but into this
    /// packet. A packet that stays where it is need not be moved.
    ///
    /// # Errors
    /// As for [`Packet::parse_within`]. The packet then has no meaning.
    ///
    /// # Panics
    /// When `range` does not lie within the block.
    #[inline]
    pub fn read_within(&mut self, block: &Buffer, range: Range<usize>) -> Result<(), TlpError> {
        (self.prefixes, self.digest) = (Prefixes::NONE, None);
        let start = range.start;
        let payload = self.parse_whole(&block[range])?;
        self.payload = block.slice(start + payload.start..start + payload.end);
        Ok(())
    }

    /// The payload without the padding of its first and last double word. For a write these are the
    /// bytes from the first enabled to the last enabled one; for the completion of a memory read,
    /// its data. The result shares the block.
    pub fn data(&self) -> Buffer {
        let (start, length) = self.data_range();
        self.payload.slice(start..start + length)
    }
}

impl<P> Tlp<P> {
    /// A TLP without prefixes or digest.
    pub const fn new(header: Header, payload: P) -> Self {
        Self { prefixes: Prefixes::NONE, header, payload, digest: None }
    }

    /// Parses the TLP at the start of `bytes` into this blank one, except for its payload. Returns
    /// the payload's range and the length of the TLP. Parses in place, to avoid moving the header.
    #[inline]
    fn parse_into(&mut self, bytes: &[u8]) -> Result<(Range<usize>, usize), TlpError> {
        let Found { digest, start, payload } = parse_into(bytes, &mut self.prefixes, &mut self.header)?;
        let end = start + payload;
        let have = bytes.len();
        let truncated = TlpError::Truncated { part: Part::Payload, need: end, have };
        let rest = bytes.get(end..).ok_or(truncated)?;
        if !digest {
            return Ok((start..end, end));
        }
        let truncated = TlpError::Truncated { part: Part::Digest, need: end + 4, have };
        let digest = rest.first_chunk().ok_or(truncated)?;
        self.digest = Some(u32::from_be_bytes(*digest));
        Ok((start..end, end + 4))
    }

    /// Parses as `parse_into` does, but the TLP must fill `bytes`.
    #[inline]
    fn parse_whole(&mut self, bytes: &[u8]) -> Result<Range<usize>, TlpError> {
        match self.parse_into(bytes)? {
            (payload, need) if need == bytes.len() => Ok(payload),
            (_, need) => Err(TlpError::TrailingBytes { need, have: bytes.len() }),
        }
    }

    /// The part of the TLP that precedes the payload.
    pub fn head(&self) -> Head {
        Head { prefixes: self.prefixes.clone(), header: self.header, digest: self.digest.is_some() }
    }

    /// Length of the whole TLP on the wire, in bytes.
    pub const fn encoded_len(&self) -> usize {
        self.header.payload_len()
            + self.prefixes.encoded_len()
            + self.header.encoded_len()
            + if self.digest.is_some() { 4 } else { 0 }
    }

    /// The digest's four bytes, which follow the payload.
    pub fn trailer(&self) -> Option<[u8; 4]> {
        self.digest.map(u32::to_be_bytes)
    }

    /// Whether the TLP is a posted request: a memory write or a message, which has no answer.
    pub const fn is_posted(&self) -> bool {
        self.header.is_posted()
    }

    /// Whether the TLP is a non-posted request, which is answered by completions.
    pub const fn is_non_posted(&self) -> bool {
        self.header.is_non_posted()
    }

    /// Whether the TLP is a completion.
    pub const fn is_completion(&self) -> bool {
        self.header.is_completion()
    }

    /// Requester ID: the requesting function, in requests and completions alike.
    pub const fn requester(&self) -> Bdf {
        self.header.requester()
    }

    /// The transaction's tag, which is without meaning in a posted request.
    pub const fn tag(&self) -> Tag {
        self.header.tag()
    }
}

impl<P: AsRef<[u8]>> Tlp<P> {
    /// Writes the TLP to the start of `bytes` and returns its length in bytes.
    ///
    /// # Panics
    /// When `bytes` is shorter than [`Tlp::encoded_len`], or when the payload's length differs from
    /// the one that the header gives.
    #[inline]
    pub fn emit(&self, bytes: &mut [u8]) -> usize {
        let payload = self.payload.as_ref();
        assert!(payload.len() == self.header.payload_len(), "a payload of {} B for {self}", payload.len());
        let mut start = 0;
        if !self.prefixes.is_empty() {
            start = self.prefixes.encoded_len();
            emit_prefixes(&self.prefixes, &mut bytes[..start]);
        }
        let (header, length) = self.header.emit(self.digest.is_some());
        // A copy of constant length compiles to one or two stores.
        if length == HEADER_3DW {
            bytes[start..start + HEADER_3DW].copy_from_slice(&header[..HEADER_3DW]);
        } else {
            bytes[start..start + HEADER_4DW].copy_from_slice(&header);
        }
        start += length;
        let end = start + payload.len();
        if !payload.is_empty() {
            bytes[start..end].copy_from_slice(payload);
        }
        match self.trailer() {
            None => end,
            Some(digest) => {
                bytes[end..end + 4].copy_from_slice(&digest);
                end + 4
            }
        }
    }

    /// A copy of the TLP that owns its payload.
    pub fn to_packet(&self) -> Packet {
        Tlp {
            prefixes: self.prefixes.clone(),
            header: self.header,
            payload: Buffer::copy_from_slice(self.payload.as_ref()),
            digest: self.digest,
        }
    }

    /// The payload without the padding of its first and last double word; the borrowed form of
    /// [`Packet::data`].
    #[inline]
    pub fn data_bytes(&self) -> &[u8] {
        let (start, length) = self.data_range();
        &self.payload.as_ref()[start..start + length]
    }

    /// Start of the data in the payload, and its length in bytes; always within the payload.
    #[inline]
    fn data_range(&self) -> (usize, usize) {
        let have = self.payload.as_ref().len();
        // Most data are whole double words.
        if let Kind::Memory(request) = &self.header.kind
            && (request.first_enables, request.last_enables) == (ALL, ALL)
        {
            return (0, have.min(usize::from(self.header.length) * 4));
        }
        self.enabled_range(have)
    }

    /// The same for any packet.
    fn enabled_range(&self, have: usize) -> (usize, usize) {
        let (start, length) = match &self.header.kind {
            Kind::Completion(completion) => {
                let start = usize::from(completion.lower_address % 4);
                (start, usize::from(completion.byte_count))
            }
            Kind::Message(_) => (0, have),
            _ => {
                let length = usize::try_from(self.header.byte_length()).unwrap_or(usize::MAX);
                (usize::from(self.header.lead()), length)
            }
        };
        let start = start.min(have);
        (start, length.min(have - start))
    }
}
