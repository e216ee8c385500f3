//! Cuts a byte stream, which arrives in arbitrary pieces, into frames.

use core::ops::Range;

use engine::{Buffer, BufferMut, Crc32c, Pool};
use serde::{Deserialize, Serialize};

use crate::frame::{DIGEST_LENGTH, FrameError, FrameHeader, FrameKind, HEADER_LENGTH, is_of, trailer};

/// Cuts a byte stream into frames. A frame that lies whole within a received piece is read in
/// place. Only frames that straddle pieces are copied, once, into a block of a pool.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct FrameReader {
    piece: Buffer,
    /// Offset of the next byte in the piece.
    at: usize,
    head: [u8; HEADER_LENGTH],
    head_length: usize,
    body: Option<Straddling>,
    /// The body of the latest frame, if it straddled pieces.
    whole: Option<Buffer>,
    /// The function that checks the digests of frames after the handshake, if they have digests.
    #[serde(with = "engine::state::crc32c_if_any")]
    digest: Option<Crc32c>,
    /// How many whole frames have come.
    frames: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct Straddling {
    header: FrameHeader,
    block: BufferMut,
    length: usize,
}

impl FrameReader {
    /// Continues the stream with `piece`. To be called only when the earlier pieces contain no
    /// further frame.
    pub(crate) fn push(&mut self, piece: Buffer) {
        assert!(self.at == self.piece.len(), "a piece of the stream was not read to its end");
        (self.piece, self.at) = (piece, 0);
    }

    /// Forgets everything, since another stream begins.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Sets the function that checks the digests of further frames, if they have digests.
    pub(crate) const fn set_digest(&mut self, digest: Option<Crc32c>) {
        self.digest = digest;
    }
    /// Whether frames have digests.
    pub(crate) const fn is_checked(&self) -> bool {
        self.digest.is_some()
    }
    /// The number of frames before one that has begun and is incomplete, if there is such a frame.
    pub(crate) fn begun(&self) -> Option<u64> {
        (self.head_length > 0 || self.body.is_some()).then_some(self.frames)
    }

    /// The block that contains the body of the latest frame.
    pub(crate) const fn block(&self) -> &Buffer {
        match &self.whole {
            Some(whole) => whole,
            None => &self.piece,
        }
    }

    /// Whether the next frame is that of a TLP and lies whole within the piece.
    #[inline]
    pub(crate) fn has_tlp(&self) -> bool {
        if self.head_length > 0 || self.body.is_some() {
            return false;
        }
        match self.piece[self.at..].split_first_chunk::<HEADER_LENGTH>() {
            Some(([kind, _, high, low, ..], body)) => {
                let length = usize::from(u16::from_be_bytes([*high, *low]));
                *kind == FrameKind::Tlp as u8 && body.len() >= length + trailer(FrameKind::Tlp, self.digest)
            }
            None => false,
        }
    }

    /// The next whole frame, if it has arrived, and where its body is in [`FrameReader::block`].
    pub(crate) fn next(
        &mut self,
        pool: &mut Pool,
    ) -> Result<Option<(FrameHeader, Range<usize>)>, FrameError> {
        let rest = &self.piece[self.at..];
        if self.head_length == 0
            && self.body.is_none()
            && let Some((head, body)) = rest.split_first_chunk()
        {
            let header = FrameHeader::parse(head)?;
            let length = usize::from(header.length);
            let trailer = trailer(header.kind, self.digest);
            if body.len() >= length + trailer {
                check(self.digest, head, &body[..length + trailer], length)?;
                let start = self.at + HEADER_LENGTH;
                self.at = start + length + trailer;
                self.whole = None;
                self.frames += 1;
                return Ok(Some((header, start..start + length)));
            }
        }
        self.next_straddling(pool)
    }

    /// Like [`FrameReader::next`], for a frame that began in an earlier piece or ends in a later
    /// one.
    fn next_straddling(
        &mut self,
        pool: &mut Pool,
    ) -> Result<Option<(FrameHeader, Range<usize>)>, FrameError> {
        loop {
            let rest = &self.piece[self.at..];
            if rest.is_empty() {
                // Releases the block, which need not wait here for the next one.
                (self.piece, self.at) = (Buffer::EMPTY, 0);
                return Ok(None);
            }
            if let Some(straddling) = &mut self.body {
                let taken = rest.len().min(straddling.block.len() - straddling.length);
                straddling.block[straddling.length..][..taken].copy_from_slice(&rest[..taken]);
                straddling.length += taken;
                self.at += taken;
                if straddling.length == straddling.block.len()
                    && let Some(Straddling { header, block, .. }) = self.body.take()
                {
                    let length = usize::from(header.length);
                    check(self.digest, &self.head, &block, length)?;
                    self.whole = Some(pool.seal(block));
                    self.frames += 1;
                    return Ok(Some((header, 0..length)));
                }
                continue;
            }
            let taken = rest.len().min(HEADER_LENGTH - self.head_length);
            self.head[self.head_length..][..taken].copy_from_slice(&rest[..taken]);
            self.head_length += taken;
            self.at += taken;
            if self.head_length == HEADER_LENGTH {
                let header = FrameHeader::parse(&self.head)?;
                self.head_length = 0;
                let block = pool.take(usize::from(header.length) + trailer(header.kind, self.digest));
                self.body = Some(Straddling { header, block, length: 0 });
            } else {
                // The first byte suffices to recognise a stranger, however few bytes it sends.
                FrameKind::parse(self.head[0])?;
            }
        }
    }
}

/// Checks that a frame is as it was sent. `body` is `length` bytes of the frame, and its digest if
/// it has one.
#[inline]
fn check(
    digest: Option<Crc32c>,
    head: &[u8; HEADER_LENGTH],
    body: &[u8],
    length: usize,
) -> Result<(), FrameError> {
    match (digest, body.split_at_checked(length)) {
        (Some(crc32c), Some((body, found))) if found.len() == DIGEST_LENGTH => {
            if is_of(crc32c, found, head, body) { Ok(()) } else { Err(FrameError::Damaged) }
        }
        // A handshake frame has a check of its own.
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Frame, Sequence};
    use engine::Instant;
    use std::vec::Vec;

    fn frames() -> Vec<u8> {
        let mut bytes = Vec::new();
        for number in 0..5_u32 {
            let mut block = [0; 64];
            let ping = Frame::Ping(Instant::from_nanos(u64::from(number)));
            let length = ping.emit(Sequence::from_bits(number), Sequence::FIRST, &mut block);
            bytes.extend_from_slice(&block[..length]);
        }
        bytes
    }

    #[test]
    fn frames_come_out_whole_however_the_stream_is_cut() {
        let bytes = frames();
        for size in 1..=bytes.len() {
            let (mut reader, mut pool) = (FrameReader::default(), Pool::default());
            let mut found = Vec::new();
            for piece in bytes.chunks(size) {
                reader.push(Buffer::copy_from_slice(piece));
                while let Some((header, body)) = reader.next(&mut pool).unwrap() {
                    found.push((header.sequence.bits(), reader.block()[body][7]));
                }
            }
            assert_eq!(found, [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4)], "pieces of {size} B");
        }
    }

    #[test]
    fn whole_frames_are_slices_and_strangers_are_known_by_a_byte() {
        let (mut reader, mut pool) = (FrameReader::default(), Pool::default());
        let piece = Buffer::copy_from_slice(&frames());
        reader.push(piece.clone());
        let (_, body) = reader.next(&mut pool).unwrap().unwrap();
        assert_eq!(reader.block()[body].as_ptr(), piece[HEADER_LENGTH..].as_ptr());
        reader.clear();
        reader.push(Buffer::copy_from_slice(b"G"));
        assert_eq!(reader.next(&mut pool), Err(FrameError::UnknownKind(b'G')));
    }
}
