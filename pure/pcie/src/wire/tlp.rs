//! A whole TLP.

use core::ops::Range;

use engine::Buffer;

use super::head::{Found, emit_prefixes, parse_into};
use super::{Bdf, Head, Header, Kind, Part, Prefixes, Tag, TlpError};

/// A transaction-layer packet (TLP): prefixes, header, payload, digest.
///
/// Parsing borrows the payload (`Tlp<&[u8]>`); what travels between engines owns a reference-counted
/// piece of it ([`Packet`]). Neither copies it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tlp<P> {
    /// Local prefixes first, then end-to-end prefixes, as on the wire; almost always none.
    pub prefixes: Prefixes,
    /// The header, decoded.
    pub header: Header,
    /// The payload: [`Header::payload_len`] bytes, whole double words.
    pub payload: P,
    /// The end-to-end CRC (ECRC) that follows the payload where the header's TD bit is set.
    pub digest: Option<u32>,
}

/// Bytes of the two forms of a header.
const HEADER_3DW: usize = 12;
const HEADER_4DW: usize = 16;

/// A TLP that owns its payload: what engines pass to each other.
pub type Packet = Tlp<Buffer>;

// Packets are moved from engine to engine.
const _: () = assert!(size_of::<Packet>() <= 72);

impl<'a> Tlp<&'a [u8]> {
    /// Parses the TLP that fills `bytes`.
    ///
    /// # Errors
    /// When it is malformed, cut off, or followed by anything.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, TlpError> {
        let mut tlp = Self::new(Header::BLANK, bytes);
        tlp.payload = &bytes[tlp.parse_whole(bytes)?];
        Ok(tlp)
    }

    /// Parses the TLP at the start of `bytes`, and returns it with the bytes behind it.
    ///
    /// # Errors
    /// When it is malformed or cut off.
    #[inline]
    pub fn parse_first(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), TlpError> {
        let mut tlp = Self::new(Header::BLANK, bytes);
        let (payload, length) = tlp.parse_into(bytes)?;
        tlp.payload = &bytes[payload];
        Ok((tlp, &bytes[length..]))
    }
}

impl Packet {
    /// Parses the TLP that fills `bytes`; the payload shares the block.
    ///
    /// # Errors
    /// When it is malformed, cut off, or followed by anything.
    pub fn parse(bytes: &Buffer) -> Result<Self, TlpError> {
        Self::parse_within(bytes, 0..bytes.len())
    }

    /// As [`Packet::parse`], of the TLP that fills `range` of `block`.
    ///
    /// # Errors
    /// When it is malformed, cut off, or followed by anything within the range.
    ///
    /// # Panics
    /// When `range` does not lie within the block.
    #[inline]
    pub fn parse_within(block: &Buffer, range: Range<usize>) -> Result<Self, TlpError> {
        let mut packet = Self::blank();
        packet.read_within(block, range)?;
        Ok(packet)
    }

    /// A packet to [`Packet::read_within`]; of no meaning before that.
    pub const fn blank() -> Self {
        Self::new(Header::BLANK, Buffer::EMPTY)
    }

    /// As [`Packet::parse_within`], into this packet in place of what it was: where it then stays, nothing is moved.
    ///
    /// # Errors
    /// As for [`Packet::parse_within`]; the packet is then of no meaning.
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

    /// The payload without what fills up its first and last double word: the bytes from the first enabled to
    /// the last enabled of a write, the bytes that a completion brings of a memory read. Shares the block.
    pub fn data(&self) -> Buffer {
        let (start, length) = self.data_range();
        self.payload.slice(start..start + length)
    }
}

impl<P> Tlp<P> {
    /// A TLP without prefixes and digest.
    pub const fn new(header: Header, payload: P) -> Self {
        Self { prefixes: Prefixes::NONE, header, payload, digest: None }
    }

    /// Parses the TLP at the start of `bytes` into this blank one, all but its payload; returns where that
    /// is, and the TLP's length. In place, as its header is.
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

    /// As `parse_into`, for a TLP that must fill `bytes`.
    #[inline]
    fn parse_whole(&mut self, bytes: &[u8]) -> Result<Range<usize>, TlpError> {
        match self.parse_into(bytes)? {
            (payload, need) if need == bytes.len() => Ok(payload),
            (_, need) => Err(TlpError::TrailingBytes { need, have: bytes.len() }),
        }
    }

    /// What precedes the payload.
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

    /// The digest's bytes, which follow the payload.
    pub fn trailer(&self) -> Option<[u8; 4]> {
        self.digest.map(u32::to_be_bytes)
    }

    /// A posted request: a memory write or a message. Nothing answers it.
    pub const fn is_posted(&self) -> bool {
        self.header.is_posted()
    }

    /// A request that is answered by completions.
    pub const fn is_non_posted(&self) -> bool {
        self.header.is_non_posted()
    }

    /// A completion.
    pub const fn is_completion(&self) -> bool {
        self.header.is_completion()
    }

    /// Requester ID: who asked, in requests and completions alike.
    pub const fn requester(&self) -> Bdf {
        self.header.requester()
    }

    /// The transaction's tag; of no meaning for posted requests.
    pub const fn tag(&self) -> Tag {
        self.header.tag()
    }
}

impl<P: AsRef<[u8]>> Tlp<P> {
    /// Writes the TLP to the start of `bytes` and returns its length.
    ///
    /// # Panics
    /// When `bytes` is shorter than [`Tlp::encoded_len`], or the payload is not as long as the header says.
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
        // Either length as a constant is a store or two.
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

    /// A copy that owns its payload.
    pub fn to_packet(&self) -> Packet {
        Tlp {
            prefixes: self.prefixes.clone(),
            header: self.header,
            payload: Buffer::copy_from_slice(self.payload.as_ref()),
            digest: self.digest,
        }
    }

    /// The payload without what fills up its first and last double word, as [`Packet::data`] but borrowed.
    pub fn data_bytes(&self) -> &[u8] {
        let (start, length) = self.data_range();
        &self.payload.as_ref()[start..start + length]
    }

    /// Where the data is in the payload, and its length; always within the payload.
    fn data_range(&self) -> (usize, usize) {
        let have = self.payload.as_ref().len();
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
