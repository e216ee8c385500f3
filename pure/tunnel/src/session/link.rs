//! The state that two ends share while their link is up, across connections.

use alloc::collections::VecDeque;

use engine::{Crc32c, Instant, Nanos};
use pcie::ordering::{Allowance, Lane, Queue, data_credits};
use pcie::wire::Packet;
use serde::{Deserialize, Serialize};

use super::ProtocolError;
use super::ahead::AheadQueue;
use crate::credits::{CreditLimits, Granting, Spending};
use crate::frame::{
    Frame, FrameHeader, FrameKind, HEADER_LENGTH, Identity, Registers, ResetPhase, STAMPS_LENGTH, Sequence,
    SessionId, Stamps, TLP_LENGTH_MAX, Tally, emit_stamps, seal, trailer,
};

/// How many numbered frames are kept to be sent again. With this many, a sender waits for an
/// acknowledgement before it sends more.
pub const REPLAY_FRAMES_MAX: usize = 8192;
/// How many payload bytes are kept to be sent again, give or take one TLP.
pub const REPLAY_BYTES_MAX: usize = 16 << 20;
/// How many resets may wait for their answer.
pub(super) const RESETS_MAX: u32 = 16;

/// The most bytes that a TLP frame without a digest has beyond its payload.
const OVERHEAD_MAX: usize = HEADER_LENGTH + STAMPS_LENGTH + (TLP_LENGTH_MAX - 4096);

#[derive(Debug, Serialize, Deserialize)]
enum Numbered {
    Tlp(Packet),
    Reset(ResetPhase),
    Registers(Registers),
}

impl Numbered {
    /// Bytes of the frame's payload.
    fn payload(&self) -> usize {
        match self {
            Self::Tlp(packet) => packet.payload.len(),
            Self::Reset(_) => 0,
            Self::Registers(registers) => registers.length(),
        }
    }
    const fn is_posted(&self) -> bool {
        match self {
            Self::Tlp(packet) => packet.is_posted(),
            Self::Reset(_) | Self::Registers(_) => false,
        }
    }
}

/// The most bytes that a numbered frame has beyond its payload.
const fn overhead_max(digest: Option<Crc32c>) -> usize {
    OVERHEAD_MAX + trailer(FrameKind::Tlp, digest)
}

/// The state that two ends share while their link is up, across connections.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Link {
    pub(super) id: SessionId,
    pub(super) peer: Identity,
    /// The longest payload that the peer accepts, in bytes.
    pub(super) max_payload: u16,
    pub(super) hold: Nanos,
    /// How often the peer wants to hear from us.
    pub(super) ping_interval: Nanos,
    pub(super) stamped: bool,
    /// The function for digests, if all frames of the present or latest connection have digests.
    #[serde(with = "engine::state::crc32c_if_any")]
    digest: Option<Crc32c>,
    /// Whether any frame has come over the present or latest connection.
    pub(super) heard: bool,
    /// Whether the peer has come back to the link, and so has learnt of it.
    resumed: bool,
    /// Whether the peer wants a Tally with each Pong.
    pub(super) tallied: bool,
    /// The peer's latest tally of memory sent ahead, and when the Ping was sent that asked for it.
    pub(super) tally: Option<(Instant, Tally)>,
    /// When the Ping was sent that was answered last.
    pub(super) answered_ping: Instant,
    pub(super) up_since: Instant,

    /// Packets that have no credit, or no room among the replay frames.
    queue: Queue,
    spending: Spending,
    /// Whether nothing in the queue can go before the peer grants credits or acknowledges frames.
    blocked: bool,
    /// Numbered frames that are not acknowledged, from number `oldest` on.
    replay: VecDeque<Numbered>,
    replay_bytes: usize,
    /// How many of the replay frames are posted requests.
    replay_posted: usize,
    oldest: Sequence,
    /// How many replay frames, the last ones, must still be put on the connection, and an upper
    /// bound of their bytes.
    unsent: usize,
    unsent_bytes: usize,
    /// How many unsent frames, the first ones, were sent on an earlier connection.
    again: usize,
    /// Frames that go before the unsent numbered frames, and that are not sent again.
    pub(super) ahead: AheadQueue,
    /// Whether the peer wants to be shown registers.
    pub(super) wants_registers: bool,
    /// Over how many connections the link may be spread.
    pub(super) strands: usize,

    granting: Granting,
    expected: Sequence,
    /// When the newest numbered frame arrived.
    received_at: Instant,
    /// Frames and bytes that have arrived since this end last acknowledged.
    unacknowledged_frames: u32,
    unacknowledged_bytes: usize,
    /// Resets that have not been answered. At the upstream end, packets that come up meanwhile were
    /// sent before the reset.
    pub(super) resets_pending: u32,
}

/// The parameters of a new link.
pub(super) struct NewLink {
    pub(super) id: SessionId,
    pub(super) peer: Identity,
    pub(super) max_payload: u16,
    pub(super) hold: Nanos,
    pub(super) ping_interval: Nanos,
    pub(super) stamped: bool,
    pub(super) digest: Option<Crc32c>,
    pub(super) window: CreditLimits,
    pub(super) ahead: u32,
    pub(super) tallied: bool,
    pub(super) wants_registers: bool,
    pub(super) strands: usize,
}

impl Link {
    /// Takes the function for digests of a new world, if there are any.
    pub(super) fn adopt(&mut self, crc32c: Crc32c) {
        self.digest = self.digest.map(|_| crc32c);
    }

    pub(super) fn new(now: Instant, new: NewLink) -> Self {
        Self {
            id: new.id,
            peer: new.peer,
            max_payload: new.max_payload,
            hold: new.hold,
            ping_interval: new.ping_interval,
            stamped: new.stamped,
            digest: new.digest,
            heard: false,
            resumed: false,
            tallied: new.tallied,
            tally: None,
            answered_ping: Instant::ZERO,
            up_since: now,
            queue: Queue::new(),
            spending: Spending::default(),
            blocked: false,
            replay: VecDeque::new(),
            replay_bytes: 0,
            replay_posted: 0,
            oldest: Sequence::FIRST,
            unsent: 0,
            unsent_bytes: 0,
            again: 0,
            ahead: AheadQueue::new(new.ahead),
            wants_registers: new.wants_registers,
            strands: new.strands,
            granting: Granting::new(new.window),
            expected: Sequence::FIRST,
            received_at: Instant::ZERO,
            unacknowledged_frames: 0,
            unacknowledged_bytes: 0,
            resets_pending: 0,
        }
    }

    /// Whether the peer is known to have learnt of this link. The frames that announced it may have
    /// been lost.
    pub(super) const fn is_confirmed(&self) -> bool {
        self.heard || self.resumed
    }
    pub(super) const fn oldest(&self) -> Sequence {
        self.oldest
    }
    /// Number of the next frame to be put on the connection.
    pub(super) fn cursor(&self) -> Sequence {
        self.sequence_at(self.replay.len() - self.unsent)
    }
    pub(super) const fn expected(&self) -> Sequence {
        self.expected
    }
    /// The number that the next newly numbered frame will have.
    pub(super) fn next(&self) -> Sequence {
        self.sequence_at(self.replay.len())
    }
    fn sequence_at(&self, index: usize) -> Sequence {
        self.oldest.plus(u32::try_from(index).expect("the replay buffer is bounded"))
    }
    pub(super) fn queued_packets(&self) -> usize {
        self.queue.len() + self.unsent
    }
    /// Payload bytes of the packets that wait.
    pub(super) const fn queued_bytes(&self) -> usize {
        self.queue.bytes() + self.unsent_bytes - self.unsent * overhead_max(self.digest)
    }
    pub(super) const fn replay_bytes(&self) -> usize {
        self.replay_bytes
    }

    /// Takes in a packet, and numbers it at once if it may go.
    pub(super) fn push(&mut self, packet: Packet) {
        if self.queue.is_empty()
            && self.has_room()
            && self.spending.take(Lane::of(&packet.header), data_credits(&packet))
        {
            self.number(Numbered::Tlp(packet));
        } else {
            self.queue.push(packet);
            self.blocked = false;
        }
    }

    fn number(&mut self, frame: Numbered) {
        self.unsent += 1;
        self.unsent_bytes += overhead_max(self.digest) + frame.payload();
        self.replay_bytes += frame.payload();
        self.replay_posted += usize::from(frame.is_posted());
        self.replay.push_back(frame);
    }

    /// Whether a further frame can be kept to be sent again.
    fn has_room(&self) -> bool {
        self.replay.len() < REPLAY_FRAMES_MAX && self.replay_bytes < REPLAY_BYTES_MAX
    }

    /// Drops all packets that are not numbered and numbers a reset. Returns how many packets were
    /// dropped.
    pub(super) fn push_reset(&mut self, phase: ResetPhase) -> usize {
        let dropped = self.queue.len();
        self.queue.clear();
        self.ahead.clear();
        self.number(Numbered::Reset(phase));
        dropped
    }

    /// Numbers `registers`. Drops them if they cannot be kept, or if they would overtake packets
    /// that wait for credits and may be older.
    pub(super) fn push_registers(&mut self, registers: Registers) {
        if self.queue.is_empty() && self.has_room() {
            self.number(Numbered::Registers(registers));
        }
    }

    /// Whether the peer has all posted requests that were sent.
    pub(super) fn is_flushed(&self) -> bool {
        self.replay_posted == 0 && self.queue.is_empty()
    }

    /// The limits to send to the peer, which count as sent.
    pub(super) fn announce_credits(&mut self) -> CreditLimits {
        self.granting.announce()
    }
    pub(super) fn allow(&mut self, limits: CreditLimits) -> Result<(), ProtocolError> {
        self.blocked = false;
        if self.spending.allow(limits) { Ok(()) } else { Err(ProtocolError::CreditLimit) }
    }
    /// Whether it is time to grant the peer credits: in a segment of its own if `alone`, else in
    /// any.
    pub(super) const fn credits_due(&self, alone: bool) -> bool {
        if alone { self.granting.is_worth_segment() } else { self.granting.is_worth_company() }
    }
    pub(super) const fn unacknowledged(&self) -> (u32, usize) {
        (self.unacknowledged_frames, self.unacknowledged_bytes)
    }

    /// Checks a frame's number and handles its acknowledgement.
    pub(super) fn on_header(&mut self, header: &FrameHeader) -> Result<(), ProtocolError> {
        if header.sequence != self.expected {
            let (expected, found) = (self.expected, header.sequence);
            return Err(ProtocolError::Sequence { expected, found });
        }
        self.heard = true;
        self.on_acknowledge(header.acknowledge)
    }

    fn on_acknowledge(&mut self, acknowledge: Sequence) -> Result<(), ProtocolError> {
        if acknowledge == self.oldest {
            return Ok(());
        }
        let next = self.cursor();
        if !acknowledge.is_within(self.oldest, next) {
            let oldest = self.oldest;
            return Err(ProtocolError::Acknowledge { oldest, next, found: acknowledge });
        }
        self.forget_before(acknowledge);
        self.blocked = false;
        Ok(())
    }

    fn forget_before(&mut self, acknowledge: Sequence) {
        for _ in 0..acknowledge.since(self.oldest) {
            if let Some(frame) = self.replay.pop_front() {
                self.replay_bytes -= frame.payload();
                self.replay_posted -= usize::from(frame.is_posted());
            }
        }
        self.oldest = acknowledge;
    }

    /// Counts a numbered frame that has arrived with the right header.
    pub(super) const fn on_numbered(&mut self, now: Instant, length: usize) {
        self.expected = self.expected.plus(1);
        self.received_at = now;
        self.unacknowledged_frames += 1;
        self.unacknowledged_bytes += length;
    }
    pub(super) fn granting(&mut self) -> &mut Granting {
        &mut self.granting
    }

    /// Whether each end still has the frames that the other lacks. `peer_expects` is the next frame
    /// that the peer expects. `peer_oldest` to `peer_next` are the frames that the peer can send.
    pub(super) fn can_resume(
        &self,
        peer_expects: Sequence,
        peer_oldest: Sequence,
        peer_next: Sequence,
    ) -> bool {
        peer_expects.is_within(self.oldest, self.next()) && self.expected.is_within(peer_oldest, peer_next)
    }

    /// Continues over a new connection, from the frame that the peer expects.
    pub(super) fn resume(&mut self, peer_expects: Sequence, digest: Option<Crc32c>) {
        (self.resumed, self.heard, self.digest) = (true, false, digest);
        let never = self.unsent - self.again;
        self.forget_before(peer_expects);
        self.again = self.replay.len().saturating_sub(never);
        self.unsent = self.replay.len();
        let payload: usize = self.replay.iter().map(Numbered::payload).sum();
        self.unsent_bytes = payload + self.unsent * overhead_max(digest);
        self.blocked = false;
        // The other end has forgotten the memory that was sent ahead.
        self.ahead.clear();
        self.acknowledged();
    }

    /// Notes that the arrived frames have just been acknowledged to the peer.
    pub(super) const fn acknowledged(&mut self) {
        self.unacknowledged_frames = 0;
        self.unacknowledged_bytes = 0;
    }

    /// Whether there may be a numbered frame to send.
    pub(super) fn wants_to_send(&self) -> bool {
        self.unsent > 0 || (!self.blocked && !self.queue.is_empty())
    }

    /// An upper bound of the bytes of all frames that could be sent now, at most `most`.
    pub(super) fn sendable_bytes(&self, most: usize) -> usize {
        let numbered = self.unsent_bytes + self.queue.len() * overhead_max(self.digest) + self.queue.bytes();
        (numbered + self.ahead.length_max(self.digest)).min(most)
    }

    /// Puts frames into `bytes`, as many as credits and room allow. Returns the number of numbered
    /// frames, and the length of all frames.
    pub(super) fn emit(&mut self, now: Instant, bytes: &mut [u8]) -> (usize, usize) {
        let stamps = self.stamped.then_some(Stamps { sent_at: now, received_at: self.received_at });
        let (mut frames, mut at) = (0, 0);
        loop {
            while !self.ahead.is_empty() && self.ahead.is_due(self.cursor(), self.next()) {
                let header = (self.cursor(), self.expected);
                let Some(length) = self.ahead.emit(header, self.digest, &mut bytes[at..]) else {
                    return (frames, at);
                };
                at += length;
            }
            if self.unsent == 0 && !self.number_queued() {
                break;
            }
            let frame = &self.replay[self.replay.len() - self.unsent];
            let most = overhead_max(self.digest) + frame.payload();
            if most > bytes.len() - at {
                break;
            }
            let header = (self.cursor(), self.expected);
            let length = emit_numbered(frame, header, stamps.as_ref(), &mut bytes[at..]);
            at += seal(self.digest, &mut bytes[at..], length);
            self.unsent -= 1;
            self.unsent_bytes -= most;
            frames += 1;
        }
        (frames, at)
    }

    /// How many of the `frames` emitted last had been sent before.
    pub(super) fn count_again(&mut self, frames: usize) -> usize {
        let again = frames.min(self.again);
        self.again -= again;
        again
    }

    /// Numbers the next packet of the queue that may go. Returns false if there is none.
    fn number_queued(&mut self) -> bool {
        if !self.queue.is_empty()
            && self.has_room()
            && let Some(packet) = self.queue.pop(&mut self.spending)
        {
            self.number(Numbered::Tlp(packet));
            return true;
        }
        self.blocked = true;
        false
    }
}

fn emit_numbered(
    frame: &Numbered,
    (sequence, acknowledge): (Sequence, Sequence),
    stamps: Option<&Stamps>,
    bytes: &mut [u8],
) -> usize {
    let packet = match frame {
        Numbered::Reset(phase) => return Frame::Reset(*phase).emit(sequence, acknowledge, bytes),
        Numbered::Registers(registers) => {
            return Frame::Registers(registers.clone()).emit(sequence, acknowledge, bytes);
        }
        Numbered::Tlp(packet) => packet,
    };
    let (head, body) = bytes.split_first_chunk_mut().expect("the caller has room for the frame");
    let mut length = 0;
    if let Some(stamps) = stamps {
        body[..STAMPS_LENGTH].copy_from_slice(&emit_stamps(stamps));
        length = STAMPS_LENGTH;
    }
    length += packet.emit(&mut body[length..]);
    let header = FrameHeader {
        kind: FrameKind::Tlp,
        stamped: stamps.is_some(),
        length: u16::try_from(length).expect("no TLP is longer than TLP_LENGTH_MAX"),
        sequence,
        acknowledge,
    };
    *head = header.emit();
    HEADER_LENGTH + length
}
