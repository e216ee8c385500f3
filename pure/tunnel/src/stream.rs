//! Frames out of a byte stream that arrives in arbitrary pieces.

use alloc::collections::VecDeque;

use engine::{Buffer, BufferMut, Pool};

use crate::frame::{FrameError, FrameHeader, FrameKind, HEADER_LENGTH};

/// Cuts a byte stream into frames. A frame that lies whole within a received piece is a slice of it; only those that
/// straddle pieces are copied, once, into a block of a pool.
#[derive(Debug, Default)]
pub(crate) struct FrameReader {
    pieces: VecDeque<Buffer>,
    /// Where in the first piece the next byte is.
    at: usize,
    head: [u8; HEADER_LENGTH],
    head_length: usize,
    body: Option<Straddling>,
}

#[derive(Debug)]
struct Straddling {
    header: FrameHeader,
    block: BufferMut,
    length: usize,
}

impl FrameReader {
    /// The stream goes on with `piece`.
    pub(crate) fn push(&mut self, piece: Buffer) {
        if !piece.is_empty() {
            self.pieces.push_back(piece);
        }
    }

    /// Forgets everything: another stream begins.
    pub(crate) fn clear(&mut self) {
        self.pieces.clear();
        (self.at, self.head_length, self.body) = (0, 0, None);
    }

    /// The next whole frame, if it has arrived.
    pub(crate) fn next(&mut self, pool: &mut Pool) -> Result<Option<(FrameHeader, Buffer)>, FrameError> {
        loop {
            let Some(piece) = self.pieces.front() else { return Ok(None) };
            let rest = &piece[self.at..];
            if rest.is_empty() {
                self.pieces.pop_front();
                self.at = 0;
                continue;
            }
            if let Some(straddling) = &mut self.body {
                let taken = rest.len().min(straddling.block.len() - straddling.length);
                straddling.block[straddling.length..][..taken].copy_from_slice(&rest[..taken]);
                straddling.length += taken;
                self.at += taken;
                if straddling.length < straddling.block.len() {
                    continue;
                }
                let whole = self.body.take().map(|whole| (whole.header, pool.seal(whole.block)));
                return Ok(whole);
            }
            if self.head_length == 0
                && let Some((head, body)) = rest.split_first_chunk()
            {
                let header = FrameHeader::parse(head)?;
                let length = usize::from(header.length);
                if body.len() >= length {
                    let start = self.at + HEADER_LENGTH;
                    self.at = start + length;
                    return Ok(Some((header, piece.slice(start..start + length))));
                }
            }
            let taken = rest.len().min(HEADER_LENGTH - self.head_length);
            self.head[self.head_length..][..taken].copy_from_slice(&rest[..taken]);
            self.head_length += taken;
            self.at += taken;
            if self.head_length == HEADER_LENGTH {
                let header = FrameHeader::parse(&self.head)?;
                self.head_length = 0;
                let block = pool.take(usize::from(header.length));
                self.body = Some(Straddling { header, block, length: 0 });
            } else {
                // A stranger is recognised by its first byte, however few it sends.
                FrameKind::parse(self.head[0])?;
            }
        }
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
                    found.push((header.sequence.bits(), body[7]));
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
        assert_eq!(body.as_ptr(), piece[HEADER_LENGTH..].as_ptr());
        reader.clear();
        reader.push(Buffer::copy_from_slice(b"G"));
        assert_eq!(reader.next(&mut pool), Err(FrameError::UnknownKind(b'G')));
    }
}
