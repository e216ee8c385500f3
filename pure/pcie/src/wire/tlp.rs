//! A whole TLP.

use engine::Buffer;

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

/// A TLP that owns its payload: what engines pass to each other.
pub type Packet = Tlp<Buffer>;

// Packets are moved from engine to engine.
const _: () = assert!(size_of::<Packet>() <= 104);

impl<'a> Tlp<&'a [u8]> {
    /// Parses the TLP that fills `bytes`.
    ///
    /// # Errors
    /// When it is malformed, cut off, or followed by anything.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, TlpError> {
        let (tlp, rest) = Self::parse_first(bytes)?;
        match rest {
            [] => Ok(tlp),
            _ => Err(TlpError::TrailingBytes { need: bytes.len() - rest.len(), have: bytes.len() }),
        }
    }

    /// Parses the TLP at the start of `bytes`, and returns it with the bytes behind it.
    ///
    /// # Errors
    /// When it is malformed or cut off.
    #[inline]
    pub fn parse_first(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), TlpError> {
        let head = Head::parse(bytes)?;
        let have = bytes.len();
        let end = head.encoded_len() + head.header.payload_len();
        let payload = bytes.get(head.encoded_len()..end);
        let payload = payload.ok_or(TlpError::Truncated { part: Part::Payload, need: end, have })?;
        let rest = &bytes[end..];
        let (digest, rest) = match (head.digest, rest) {
            (false, rest) => (None, rest),
            (true, [a, b, c, d, rest @ ..]) => (Some(u32::from_be_bytes([*a, *b, *c, *d])), rest),
            (true, _) => return Err(TlpError::Truncated { part: Part::Digest, need: end + 4, have }),
        };
        Ok((Self { prefixes: head.prefixes, header: head.header, payload, digest }, rest))
    }
}

impl Packet {
    /// Parses the TLP that fills `bytes`; the payload shares the block.
    ///
    /// # Errors
    /// When it is malformed, cut off, or followed by anything.
    pub fn parse(bytes: &Buffer) -> Result<Self, TlpError> {
        let Tlp { prefixes, header, payload, digest } = Tlp::<&[u8]>::parse(bytes)?;
        let start = prefixes.encoded_len() + header.encoded_len();
        let payload = bytes.slice(start..start + payload.len());
        Ok(Self { prefixes, header, payload, digest })
    }

    /// The payload without what fills up its first and last double word: the bytes from the first enabled to the last
    /// enabled of a write, the bytes that a completion brings of a memory read. Shares the block.
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

    /// What precedes the payload.
    pub const fn head(&self) -> Head {
        Head { prefixes: self.prefixes, header: self.header, digest: self.digest.is_some() }
    }

    /// Length of the whole TLP on the wire, in bytes.
    pub const fn encoded_len(&self) -> usize {
        self.header.payload_len()
            + self.prefixes.encoded_len()
            + self.header.encoded_len()
            + if self.digest.is_some() { 4 } else { 0 }
    }

    /// Writes prefixes and header and returns their length; payload and [`Tlp::trailer`] follow on the wire.
    #[inline]
    pub fn emit_header(&self, bytes: &mut [u8; Head::LENGTH_MAX]) -> usize {
        self.head().emit(bytes)
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
        let mut head = [0; Head::LENGTH_MAX];
        let start = self.emit_header(&mut head);
        let end = start + payload.len();
        bytes[..start].copy_from_slice(&head[..start]);
        bytes[start..end].copy_from_slice(payload);
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
            prefixes: self.prefixes,
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
                let start = usize::from(completion.lower_address & 3);
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
