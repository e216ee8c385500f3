//! Builds outgoing segments: everything that waits shares a segment, and nothing waits for company.

use engine::{Buffer, BufferMut, Crc32c};

use super::{Connection, Item, Output, Session, Timer};
use crate::frame::{
    BODY_MAX, CREDIT_BODY, DIGEST_LENGTH, Frame, FrameKind, HEADER_LENGTH, HELLO_BODY_MAX, Pong, Sequence,
    TALLY_BODY, seal, sign, trailer,
};

/// The longest segment, in bytes: a piece of the stream that is handed out at once. The peer works
/// on it while the next one is prepared.
pub const SEGMENT_MAX: usize = 32 << 10;
/// The longest segment on any connection, in bytes; see [`Session::set_segment_max`].
pub const SEGMENT_LIMIT: usize = 64 << 10;
/// The most bytes of a handshake frame or a Close.
const LAST_MAX: usize = HEADER_LENGTH + HELLO_BODY_MAX + DIGEST_LENGTH;

/// Bytes that stay free in every segment for a Credit, a Ping, a Pong and a Tally.
const fn control_max(digest: Option<Crc32c>) -> usize {
    3 * (HEADER_LENGTH + CREDIT_BODY) + HEADER_LENGTH + TALLY_BODY + 4 * trailer(FrameKind::Credit, digest)
}

impl Session {
    /// Says how long a segment may be on the connection that has just begun, in bytes: at least
    /// [`SEGMENT_MAX`], which applies otherwise, and at most [`SEGMENT_LIMIT`].
    pub fn set_segment_max(&mut self, bytes: usize) {
        self.segment_max = bytes.clamp(SEGMENT_MAX, SEGMENT_LIMIT);
    }

    /// The next segment, if there is anything to send.
    pub(super) fn poll_transmit(&mut self) -> Option<Buffer> {
        if self.connection != Connection::Open {
            return None;
        }
        let link = self.link.as_mut()?;
        let alone =
            self.acknowledge_due || self.ping_due || self.pong_due.is_some() || link.credits_due(true);
        if !alone && !link.wants_to_send() {
            return None;
        }
        let control = control_max(self.digest);
        let room = link.sendable_bytes(self.segment_max - control);
        let mut block = self.pool.take(room + control);
        let bytes = &mut block[..];
        let (frames, mut length) = link.emit(self.now, &mut bytes[..room]);
        if !alone && length == 0 {
            return None;
        }
        let again = u64::try_from(link.count_again(frames)).unwrap_or(u64::MAX);
        length += self.emit_control(frames, &mut bytes[length..]);
        let frames = u64::try_from(frames).unwrap_or(u64::MAX);
        self.statistics.tlps_sent += frames - again;
        self.statistics.frames_replayed += again;
        Some(self.seal(block, length))
    }

    /// Adds the control frames that travel with the segment's `frames` or that make the segment
    /// worth sending. Returns their length.
    fn emit_control(&mut self, frames: usize, bytes: &mut [u8]) -> usize {
        let Some(link) = &mut self.link else { return 0 };
        let (sequence, acknowledge, digest) = (link.cursor(), link.expected(), self.digest);
        let put = |frame: &Frame<'_>, bytes: &mut [u8]| {
            let length = frame.emit(sequence, acknowledge, bytes);
            seal(digest, bytes, length)
        };
        let mut at = 0;
        if self.acknowledge_due || link.credits_due(false) {
            let credit = Frame::Credit(link.announce_credits());
            at += put(&credit, &mut bytes[at..]);
            let others = frames > 0 || self.ping_due || self.pong_due.is_some();
            self.statistics.acknowledgements_alone += u64::from(!others);
        }
        if core::mem::take(&mut self.ping_due) {
            self.ping_sent_at = Some(self.now);
            at += put(&Frame::Ping(self.now), &mut bytes[at..]);
        }
        if let Some((ping_sent_at, ping_received_at)) = self.pong_due.take() {
            let pong = Pong { ping_sent_at, ping_received_at, sent_at: self.now };
            at += put(&Frame::Pong(pong), &mut bytes[at..]);
            if let Some(tally) = self.tally_due.take() {
                at += put(&Frame::Tally(tally), &mut bytes[at..]);
            }
        }
        // Every frame has acknowledged the frames that had arrived. Credits that have not been
        // granted can wait: see `Config::normalise`.
        link.acknowledged();
        self.acknowledge_due = false;
        self.timers.disarm(Timer::Acknowledge);
        at
    }

    fn seal(&mut self, mut block: BufferMut, length: usize) -> Buffer {
        block.truncate(length);
        self.statistics.segments_sent += 1;
        self.statistics.bytes_sent += u64::try_from(length).unwrap_or(u64::MAX);
        self.pool.seal(block)
    }

    /// Hands out all segments that can go now.
    pub(super) fn flush(&mut self) {
        while let Some(segment) = self.poll_transmit() {
            self.items.push_back(Item::Output(Output::Transmit(segment)));
        }
    }

    /// Hands out a handshake frame or a Close in a segment of its own.
    pub(super) fn transmit(&mut self, frame: &Frame<'_>) {
        let (sequence, acknowledge) = match &self.link {
            _ if frame.kind() == FrameKind::Refuse => (Sequence::FIRST, Sequence::FIRST),
            // The number in a Hello or a Welcome is that of new frames. A field of their body has
            // which frames are not acknowledged.
            Some(link) if matches!(frame, Frame::Hello(_) | Frame::Welcome(_)) => {
                (link.next(), link.expected())
            }
            Some(link) => (link.cursor(), link.expected()),
            None => (Sequence::FIRST, Sequence::FIRST),
        };
        const { assert!(LAST_MAX <= HEADER_LENGTH + BODY_MAX) };
        let mut block = self.pool.take(LAST_MAX);
        let mut length = frame.emit(sequence, acknowledge, &mut block);
        if frame.kind().is_greeting() {
            sign(self.config.crc32c, &mut block[..length]);
        } else {
            length = seal(self.digest, &mut block, length);
        }
        let segment = self.seal(block, length);
        self.items.push_back(Item::Output(Output::Transmit(segment)));
    }

    /// Hands out a frame like [`Session::transmit`], and then ends the connection.
    pub(super) fn transmit_last(&mut self, frame: &Frame<'_>) {
        self.transmit(frame);
        self.items.push_back(Item::Output(Output::CloseConnection));
    }
}
