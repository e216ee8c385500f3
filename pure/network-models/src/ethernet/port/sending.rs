//! The choice of the frame that a port sends, when it is sent, and how much of it.

use engine::{Instant, Nanos};

use super::{Port, Suspended, Waiting};
use crate::ethernet::settings::{Handover, PortSettings};
use crate::frame::{CHECK_SEQUENCE, INTER_FRAME_GAP, PREAMBLE};
use crate::tsn::credit::Credit;
use crate::{Class, Frame, Transmitter};

/// A piece of a preemptable frame that is being sent.
#[derive(Clone, Debug)]
pub(super) struct Sending {
    waiting: Waiting,
    queue: usize,
    start: Instant,
    /// When the last bit of the piece is out.
    pub(super) end: Instant,
    /// Number of bytes of the frame that had not been sent before this piece, including the check
    /// sequence.
    left: u32,
    /// Number of bytes of the frame in this piece.
    piece: u32,
    /// The transmitter before this piece, in case the piece ends early.
    before: Transmitter,
    credit: Option<Credit>,
}

/// Link time in bytes of `length` bytes of a frame with their preamble.
pub(super) const fn bytes_of(length: u32) -> u64 {
    length as u64 + PREAMBLE as u64
}

impl Port {
    /// Lets the port choose again after a change: now, or as soon as the link is free.
    pub(super) fn reconsider(&mut self, now: Instant) {
        let at = match self.sending {
            // An express frame may interrupt the piece that is being sent.
            Some(_) => now,
            None => now.max(self.transmitter.free()),
        };
        self.decide = Some(self.decide.map_or(at, |before| before.min(at)));
    }

    /// Chooses what to send at `now`.
    pub(super) fn choose(&mut self, now: Instant) {
        self.decide = None;
        if self.sending.is_some() {
            self.interrupt(now);
            return;
        }
        if !self.transmitter.is_free(now) {
            self.decide = Some(self.transmitter.free());
            return;
        }
        self.fill_saturated(now);
        let mut wake = None;
        for queue in (0..Class::COUNT).rev() {
            loop {
                match self.ready_at(queue, now) {
                    Ready::Nothing => {}
                    // The frame fits no window and would block its queue for ever.
                    Ready::Never => {
                        self.drop_head(queue);
                        continue;
                    }
                    Ready::At(at) if at > now => wake = Some(wake.map_or(at, |wake: Instant| wake.min(at))),
                    Ready::At(_) => {
                        self.send(queue, now);
                        return;
                    }
                }
                break;
            }
        }
        self.decide = wake;
    }

    /// Queues a frame for each saturated source whose queue is empty.
    fn fill_saturated(&mut self, now: Instant) {
        if self.sources.is_empty() {
            return;
        }
        for index in 0..self.sources.len() {
            let source = self.sources[index].source;
            let queue = self.settings.queue_of[source.class.index()];
            if self.sources[index].is_saturated() && self.queues[queue].is_empty() {
                let frame = Frame::new(0, source.length, source.class, engine::Buffer::EMPTY);
                self.queue(now, Waiting { frame, foreign: true });
                self.decide = None;
            }
        }
    }

    fn is_express(&self, queue: usize) -> bool {
        self.settings.preemption.is_none_or(|preemption| preemption.express.is_open(queue))
    }

    /// Number of bytes of the queue's first frame that still have to be sent.
    fn left(&self, queue: usize) -> Option<u32> {
        match &self.suspended {
            Some(suspended) if suspended.queue == queue => Some(suspended.left),
            // The MAC for preemptable frames handles one frame at a time.
            Some(_) if !self.is_express(queue) => None,
            _ => self.queues[queue].front().map(|waiting| waiting.frame.length),
        }
    }

    /// When the first frame of a queue, or a piece of it, may start.
    fn ready_at(&mut self, queue: usize, now: Instant) -> Ready {
        if self.occupied >> queue & 1 == 0 && self.suspended.is_none() {
            return Ready::Nothing;
        }
        let Some(left) = self.left(queue) else { return Ready::Nothing };
        let gates = self.settings.gates.as_ref();
        let mut at = now;
        if let Some(credit) = &mut self.credits[queue] {
            credit.settle(now, true, gates, queue);
            match credit.ready(now, gates, queue) {
                Some(ready) => at = ready,
                None => return Ready::Never,
            }
        }
        let Some(gates) = gates else { return Ready::At(at) };
        let rate = self.settings.rate;
        let whole = rate.time_of(bytes_of(left));
        match self.settings.preemption.filter(|_| !self.is_express(queue)) {
            Some(preemption) if preemption.cut(left, 0).is_some() => {
                let piece = rate.time_of(bytes_of(preemption.fragment_min() + CHECK_SEQUENCE));
                gates.earliest(queue, at, piece.min(whole)).map_or(Ready::Never, Ready::At)
            }
            _ => gates.earliest(queue, at, whole).map_or(Ready::Never, Ready::At),
        }
    }

    fn drop_head(&mut self, queue: usize) {
        if self.is_suspended(queue) {
            if let Some(suspended) = self.suspended.take() {
                self.drop(&suspended.waiting);
            }
            return;
        }
        if let Some(waiting) = self.take(queue) {
            self.drop(&waiting);
        }
    }

    fn take(&mut self, queue: usize) -> Option<Waiting> {
        let waiting = self.queues[queue].pop_front();
        if self.queues[queue].is_empty() {
            self.occupied &= !(1 << queue);
        }
        waiting
    }

    /// Sends the first frame of `queue`, or the piece of it that fits.
    fn send(&mut self, queue: usize, now: Instant) {
        let (waiting, left, whole) = match self.suspended.take_if(|suspended| suspended.queue == queue) {
            Some(Suspended { waiting, left, .. }) => (waiting, left, false),
            None => match self.take(queue) {
                Some(waiting) => {
                    let left = waiting.frame.length;
                    (waiting, left, true)
                }
                None => return,
            },
        };
        if self.is_express(queue) {
            let end = self.transmit(queue, now, bytes_of(left));
            let header = match self.settings.handover {
                Handover::Header if whole => {
                    Some(now + self.settings.rate.time_of(PortSettings::HEADER_BYTES))
                }
                _ => None,
            };
            self.leave(waiting, header.filter(|header| *header < end), end);
        } else {
            let piece = self.piece(queue, now, left);
            let (before, credit) = (self.transmitter, self.credits[queue]);
            let end = self.transmit(queue, now, piece_bytes(piece, left));
            self.sending = Some(Sending { waiting, queue, start: now, end, left, piece, before, credit });
        }
        if self.occupied != 0
            || self.suspended.is_some()
            || self.sources.iter().any(|source| source.is_saturated())
        {
            let at = if self.sending.is_some() { now } else { self.transmitter.free() };
            self.decide = Some(at);
            if self.sending.is_some() {
                // An express frame may wait for its gate or its credit.
                self.decide = None;
                self.interrupt(now);
            }
        }
    }

    /// Number of bytes of a preemptable frame that are sent before its gate closes.
    fn piece(&self, queue: usize, now: Instant, left: u32) -> u32 {
        let (Some(gates), Some(preemption)) = (&self.settings.gates, self.settings.preemption) else {
            return left;
        };
        let whole = self.settings.rate.time_of(bytes_of(left));
        let open = gates.open_for(queue, now, whole);
        if open >= whole {
            return left;
        }
        preemption.fitting(left, self.settings.rate.bytes_in(open)).unwrap_or(left)
    }

    /// Occupies the link with `bytes` and the gap after them. Returns when `bytes` are out.
    fn transmit(&mut self, queue: usize, now: Instant, bytes: u64) -> Instant {
        let rate = self.settings.rate;
        let end = self.transmitter.send(now, rate, bytes);
        let free = self.transmitter.send(now, rate, u64::from(INTER_FRAME_GAP));
        if let Some(credit) = &mut self.credits[queue] {
            credit.send(free, rate.picoseconds(bytes + u64::from(INTER_FRAME_GAP)), rate);
        }
        end
    }

    /// Handles the end of the piece that was being sent.
    pub(super) fn end_piece(&mut self, now: Instant) {
        let Some(Sending { waiting, queue, end, left, piece, .. }) = self.sending.take() else { return };
        if piece < left {
            self.suspended = Some(Suspended { waiting, queue, left: left - piece });
        } else {
            self.leave(waiting, None, end);
        }
        self.decide = None;
        if self.occupied != 0
            || self.suspended.is_some()
            || self.sources.iter().any(|source| source.is_saturated())
        {
            self.decide = Some(now.max(self.transmitter.free()));
        }
    }

    /// Ends the piece that is being sent at the earliest permitted point, if an express frame could
    /// be sent then.
    fn interrupt(&mut self, now: Instant) {
        let Some(preemption) = self.settings.preemption else { return };
        let mut wake: Option<Instant> = None;
        for queue in (0..Class::COUNT).rev().filter(|queue| preemption.express.is_open(*queue)) {
            match self.ready_at(queue, now) {
                Ready::At(at) if at <= now => {
                    wake = None;
                    self.cut(now);
                    break;
                }
                Ready::At(at) => wake = Some(wake.map_or(at, |wake| wake.min(at))),
                Ready::Nothing | Ready::Never => {}
            }
        }
        let end = self.sending.as_ref().map(|sending| sending.end);
        self.decide = wake.filter(|wake| end.is_some_and(|end| *wake < end));
    }

    fn cut(&mut self, now: Instant) {
        let rate = self.settings.rate;
        let (Some(preemption), Some(sending)) = (self.settings.preemption, &mut self.sending) else { return };
        let sent = rate.bytes_in(now - sending.start + Nanos::new(1)) + 1;
        let sent = u32::try_from(sent.saturating_sub(u64::from(PREAMBLE))).unwrap_or(u32::MAX);
        let Some(piece) = preemption.cut(sending.left, sent).filter(|piece| *piece < sending.piece) else {
            return;
        };
        let (queue, start, left) = (sending.queue, sending.start, sending.left);
        sending.piece = piece;
        self.transmitter = sending.before;
        self.credits[queue] = sending.credit;
        let end = self.transmit(queue, start, piece_bytes(piece, left));
        if let Some(sending) = &mut self.sending {
            sending.end = end;
        }
    }
}

/// Link time in bytes of a piece of a frame that has `left` bytes. A piece that doesn't end the
/// frame has a check sequence of its own.
const fn piece_bytes(piece: u32, left: u32) -> u64 {
    bytes_of(piece) + if piece < left { CHECK_SEQUENCE as u64 } else { 0 }
}

/// When the first frame of a queue may be sent.
enum Ready {
    /// The queue has no frame to send.
    Nothing,
    /// The frame may start at this time.
    At(Instant),
    /// The frame does not fit into any window.
    Never,
}
