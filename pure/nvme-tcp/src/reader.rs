//! Receives PDUs at either end: first the header, then the data, which may arrive in parts.

use core::ops::Range;

use crate::inbound::Inbound;
use crate::wire::{
    Agreement, CommonHeader, Crc32c, DIGEST_LENGTH, Fault, Framing, PduKind, Receiver, u32_at,
};

/// The result of a look at the received bytes.
pub(crate) enum Step<Output> {
    Output(Output),
    /// Something was processed; look again.
    Again,
    /// More bytes are needed.
    Idle,
}

/// The place of a PDU's data in a larger block, and the progress of the transfer.
#[derive(Debug)]
pub(crate) struct Span {
    start: usize,
    /// Where the next byte belongs.
    at: usize,
    end: usize,
    digest: bool,
}

impl Span {
    pub(crate) const fn new(range: Range<usize>, framing: Framing) -> Self {
        Self { start: range.start, at: range.start, end: range.end, digest: framing.data_digest }
    }

    /// The whole place of the data.
    pub(crate) const fn range(&self) -> Range<usize> {
        self.start..self.end
    }

    /// The place of the remaining bytes.
    pub(crate) const fn rest(&self) -> Range<usize> {
        self.at..self.end
    }

    /// Notes the arrival of the next `count` bytes.
    ///
    /// # Panics
    /// When fewer than `count` bytes remain.
    pub(crate) fn advance(&mut self, count: usize) {
        assert!(count <= self.end - self.at, "{count} B landed where {} had room", self.end - self.at);
        self.at += count;
    }
}

/// The PDUs that one end receives.
#[derive(Debug)]
pub(crate) struct Reader {
    pub(crate) inbound: Inbound,
    receiver: Receiver,
    /// The agreement for PDUs in the receiving direction.
    pub(crate) agreement: Agreement,
    crc32c: Crc32c,
}

impl Reader {
    pub(crate) fn new(receiver: Receiver, crc32c: Crc32c) -> Self {
        Self { inbound: Inbound::default(), receiver, agreement: Agreement::NONE, crc32c }
    }

    /// The common header of the next PDU and its layout, once the common header has arrived. With
    /// `is_first`, the PDU must be one that initialises the connection; otherwise it must not. A
    /// Terminate Connection Request is allowed at any time.
    #[inline]
    pub(crate) fn next(&mut self, is_first: bool) -> Result<Option<(CommonHeader, Framing)>, Fault> {
        let Some(bytes) = self.inbound.head(CommonHeader::LENGTH).and_then(<[u8]>::first_chunk) else {
            return Ok(None);
        };
        let header = CommonHeader::parse(bytes)?;
        let framing = Framing::check(&header, self.receiver, self.agreement)?;
        let initialises = matches!(header.kind, PduKind::InitializeRequest | PduKind::InitializeResponse);
        let terminates = matches!(header.kind, PduKind::HostTerminate | PduKind::ControllerTerminate);
        if initialises != is_first && !terminates {
            return Err(Fault::SEQUENCE);
        }
        Ok(Some((header, framing)))
    }

    /// Whether everything before the data has arrived. Checks the header digest.
    #[inline]
    pub(crate) fn has_head(&mut self, framing: Framing) -> Result<bool, Fault> {
        let Some(head) = self.inbound.head(framing.head()) else { return Ok(false) };
        if framing.header_digest {
            let length = usize::from(framing.header_length);
            let digest = u32_at(head, length);
            if (self.crc32c)(0, &head[..length]) != digest {
                return Err(Fault::header_digest(digest));
            }
        }
        Ok(true)
    }

    /// The header of a PDU whose head has arrived.
    ///
    /// # Panics
    /// When the head has not arrived.
    #[inline]
    pub(crate) fn header<const N: usize>(&mut self, framing: Framing) -> &[u8; N] {
        let bytes = self.inbound.head(framing.head()).and_then(<[u8]>::first_chunk);
        bytes.expect("the head has arrived completely")
    }

    /// Moves the received bytes of `span` into `place`, which must have room for all remaining
    /// ones. Returns the digest behind the data once the data and the digest are complete.
    pub(crate) fn fill(&mut self, span: &mut Span, place: Option<&mut [u8]>) -> Option<Digest> {
        if let Some(place) = place {
            span.at += self.inbound.fill(place);
        }
        if span.at < span.end {
            return None;
        }
        if !span.digest {
            return Some(Digest(None));
        }
        let digest = u32_at(self.inbound.head(DIGEST_LENGTH)?, 0);
        self.inbound.consume(DIGEST_LENGTH);
        Some(Digest(Some(digest)))
    }
}

/// The digest behind the data, if digests were negotiated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Digest(Option<u32>);

impl Digest {
    /// The digest at `length` of `whole`, behind the data.
    #[inline]
    pub(crate) fn behind(whole: &[u8], length: usize, framing: Framing) -> Self {
        Self(framing.data_digest.then(|| u32_at(whole, length)))
    }

    /// Whether the digest matches `data`. Without digests, any data match.
    #[inline]
    pub(crate) fn is_of(self, crc32c: Crc32c, data: &[u8]) -> bool {
        self.0.is_none_or(|digest| crc32c(0, data) == digest)
    }
}
