//! One direction of a TCP connection: segments become bytes in order.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::seen::Mark;

/// The most segments that wait for one before them.
const HELD_MAX: usize = 256;
/// The most bytes that a segment may be ahead of those before it.
const AHEAD_MAX: u32 = 16 << 20;

/// Bytes that arrived, put in their order.
#[derive(Debug, Default)]
pub(super) struct Stream {
    /// The sequence number of the next byte; none before the first segment.
    next: Option<u32>,
    /// Segments ahead of the next byte, by their distance from the byte with the number 0.
    held: BTreeMap<u32, (Mark, Vec<u8>)>,
    /// Bytes of these segments.
    held_bytes: usize,
}

/// The fate of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Placed {
    /// It is known, or waits for another one.
    Kept,
    /// Bytes before it are not in the capture. It was not accepted.
    Gap,
}

impl Stream {
    /// Whether no byte of the stream was seen.
    pub(super) const fn is_new(&self) -> bool {
        self.next.is_none()
    }

    /// The next byte has this number.
    pub(super) fn begin(&mut self, sequence: u32) {
        *self = Self { next: Some(sequence), ..Self::default() };
    }

    /// Bytes that wait for others before them.
    pub(super) const fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// The next bytes were not captured, if the segment that ends before them was the newest one.
    pub(super) fn skip(&mut self, end: u32, bytes: u32) -> bool {
        let is_next = self.next == Some(end);
        if is_next {
            self.next = Some(end.wrapping_add(bytes));
        }
        is_next
    }

    /// Shows to `show` the bytes of a segment and of those that waited for it, in their order. At
    /// most `room` bytes more may wait.
    pub(super) fn put(
        &mut self,
        at: Mark,
        (sequence, bytes): (u32, &[u8]),
        room: usize,
        mut show: impl FnMut(Mark, &[u8]),
    ) -> Placed {
        let next = *self.next.get_or_insert(sequence);
        let ahead = sequence.wrapping_sub(next);
        if ahead.cast_signed() > 0 {
            if ahead > AHEAD_MAX || self.held.len() >= HELD_MAX || bytes.len() > room {
                return Placed::Gap;
            }
            let known = self.held.insert(sequence, (at, bytes.to_vec()));
            self.held_bytes += bytes.len();
            self.held_bytes -= known.map_or(0, |(_, known)| known.len());
            return Placed::Kept;
        }
        self.advance(at, sequence, bytes, &mut show);
        while let Some(next) = self.next
            && let Some(waiting) =
                self.held.keys().copied().find(|of| next.wrapping_sub(*of).cast_signed() >= 0)
            && let Some((at, bytes)) = self.held.remove(&waiting)
        {
            self.held_bytes -= bytes.len();
            self.advance(at, waiting, &bytes, &mut show);
        }
        Placed::Kept
    }

    /// Shows the new part of a segment that begins at the next byte or before it.
    fn advance(&mut self, at: Mark, sequence: u32, bytes: &[u8], show: &mut impl FnMut(Mark, &[u8])) {
        let Some(next) = self.next else { return };
        let known = next.wrapping_sub(sequence) as usize;
        if let Some(new) = bytes.get(known..).filter(|new| !new.is_empty()) {
            show(at, new);
            self.next = Some(next.wrapping_add(u32::try_from(new.len()).unwrap_or(0)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_in_their_order_and_once() {
        let at = Mark::default();
        let whole: Vec<u8> = (0..200_u8).collect();
        // The numbers wrap within.
        let start = u32::MAX - 60;
        let mut stream = Stream::default();
        stream.begin(start);
        let mut found = Vec::new();
        for (from, to) in [(0_u8, 50), (70, 90), (40, 60), (90, 200), (0, 200), (60, 75), (10, 20)] {
            let sequence = start.wrapping_add(from.into());
            let placed = stream
                .put(at, (sequence, &whole[from.into()..to]), 200, |_, bytes| found.extend_from_slice(bytes));
            assert_eq!(placed, Placed::Kept);
        }
        assert_eq!((found, stream.held_bytes()), (whole, 0));
        let full = stream.put(at, (start.wrapping_add(201), &[7; 9]), 8, |_, _| panic!("a byte is missing"));
        assert_eq!((full, stream.held_bytes()), (Placed::Gap, 0));
        let placed =
            stream.put(at, (start.wrapping_add(300 << 20), &[7]), 200, |_, _| panic!("it is far ahead"));
        assert_eq!(placed, Placed::Gap);
    }
}
