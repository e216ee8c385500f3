//! One end of a connection: handshake, data, close.

use engine::{Instant, Nanos};

use super::receiver::Receiver;
use super::segment::{Flags, Segment};
use super::sender::{Acknowledged, Sender};
use super::{Parameters, Statistics};

/// State of an end (RFC 9293, section 3.3.2). The states after a close are those of sender and
/// receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Waits for a SYN.
    Listen,
    /// Sends a SYN and waits for the answer.
    Dialling,
    /// Has received a SYN. The application has yet to accept the connection.
    Asked,
    /// Has received a SYN and answers it.
    Answering,
    Open,
    /// The connection has ended.
    Gone,
}

/// A report of an end to its application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The other end dials; the application accepts or refuses.
    Asked,
    /// The handshake is complete.
    Opened,
    /// The connection has ended.
    Gone(Gone),
}

/// Why a connection has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gone {
    /// The other end refused the connection.
    Refused,
    /// The other end ended the connection without closing it.
    Reset,
    /// No answer came in time.
    TimedOut,
    /// Both ends closed the connection, and all data has arrived.
    Closed,
}

/// One end of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    state: State,
    parameters: Parameters,
    sender: Sender,
    receiver: Receiver,
    /// Whether a SYN is to be sent, when it is sent again, and how often it was sent.
    syn_due: bool,
    retry_at: Option<Instant>,
    syns: u32,
    syn_sent: Instant,
    reset_due: bool,
    event: Option<Event>,
}

impl Endpoint {
    /// An end that waits for the other end to dial, on frames whose payload is at most `mtu` bytes.
    pub(crate) fn new(parameters: Parameters, mtu: u32) -> Self {
        let segment_max = parameters.segment_max(mtu);
        Self {
            state: State::Listen,
            parameters,
            sender: Sender::new(parameters, segment_max),
            receiver: Receiver::new(parameters, segment_max),
            syn_due: false,
            retry_at: None,
            syns: 0,
            syn_sent: Instant::ZERO,
            reset_due: false,
            event: None,
        }
    }

    /// Begins to dial.
    pub(crate) fn dial(&mut self) {
        self.state = State::Dialling;
        self.syn_due = true;
    }

    /// Accepts the connection that the other end asked for.
    pub(crate) fn accept(&mut self) {
        if self.state == State::Asked {
            self.state = State::Answering;
            self.syn_due = true;
        }
    }

    /// Ends the connection at once. The peer learns of it if the segment arrives.
    pub(crate) fn reset(&mut self) {
        if self.state != State::Gone {
            self.reset_due =
                self.state != State::Listen && !(self.state == State::Dialling && self.syns == 0);
            self.leave(None);
        }
    }

    /// Whether the connection has ended for this end.
    pub(crate) fn is_gone(&self) -> bool {
        self.state == State::Gone
    }

    /// Whether this end has not heard of the connection yet.
    pub(crate) fn is_listening(&self) -> bool {
        self.state == State::Listen
    }

    /// Whether both directions are closed and all data has arrived.
    pub(crate) fn is_closed(&self) -> bool {
        self.sender.is_done() && self.receiver.is_finished()
    }

    /// Whether this end still has a segment to send although the connection has ended.
    pub(crate) const fn has_last_word(&self) -> bool {
        self.reset_due
    }

    pub(crate) const fn poll_event(&mut self) -> Option<Event> {
        self.event.take()
    }

    /// Counters of this end.
    pub(crate) const fn statistics(&self) -> Statistics {
        self.sender.statistics
    }

    fn leave(&mut self, why: Option<Gone>) {
        self.state = State::Gone;
        self.retry_at = None;
        self.event = why.map(Event::Gone);
    }

    /// The earliest deadline of this end.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        match self.state {
            State::Gone => None,
            State::Open => {
                [self.sender.poll_timeout(), self.receiver.poll_timeout()].into_iter().flatten().min()
            }
            _ => self.retry_at,
        }
    }

    /// Takes the steps due at `now`.
    pub(crate) fn on_timeout(&mut self, now: Instant) {
        match self.state {
            State::Gone => {}
            State::Open => {
                self.sender.on_timeout(now);
                self.receiver.on_timeout(now);
                if self.sender.has_given_up() {
                    self.leave(Some(Gone::TimedOut));
                }
            }
            _ if self.retry_at.is_some_and(|at| at <= now) => {
                self.retry_at = None;
                if self.syns > self.parameters.handshake_retries {
                    self.leave(Some(Gone::TimedOut));
                } else {
                    self.syn_due = true;
                }
            }
            _ => {}
        }
    }

    /// Takes a segment from the peer.
    pub(crate) fn on_segment(&mut self, now: Instant, segment: &Segment) {
        if segment.flags.rst {
            return self.on_reset();
        }
        match self.state {
            State::Listen if segment.flags.syn => {
                self.state = State::Asked;
                self.event = Some(Event::Asked);
                self.sender.open(now, segment.window, None);
            }
            State::Dialling if segment.flags.syn && segment.flags.ack => {
                self.open(now, segment.window);
                self.receiver.acknowledge();
            }
            State::Answering if segment.flags.syn => self.syn_due = true,
            State::Answering => {
                self.open(now, segment.window);
                self.on_segment(now, segment);
            }
            // The acknowledgement of the SYN was lost.
            State::Open if segment.flags.syn => self.receiver.acknowledge(),
            State::Open => {
                let heard = Acknowledged {
                    number: segment.acknowledgement,
                    window: segment.window,
                    blocks: segment.blocks.as_slice(),
                    carries: segment.length > 0 || segment.flags.fin,
                };
                self.sender.on_acknowledged(now, heard);
                self.receiver.on_segment(now, segment);
            }
            // The peer has not heard of the end yet.
            State::Gone => self.reset_due = true,
            State::Listen | State::Dialling | State::Asked => {}
        }
    }

    fn on_reset(&mut self) {
        match self.state {
            State::Gone | State::Listen => {}
            State::Dialling => self.leave(Some(Gone::Refused)),
            // A connection that was closed in both directions has nothing to lose.
            _ if self.is_closed() => self.leave(Some(Gone::Closed)),
            _ => self.leave(Some(Gone::Reset)),
        }
    }

    fn open(&mut self, now: Instant, window: u32) {
        let sample: Option<Nanos> = (self.syns == 1).then(|| now - self.syn_sent);
        self.sender.open(now, window, sample);
        self.state = State::Open;
        self.retry_at = None;
        self.event = Some(Event::Opened);
    }

    /// The next segment to send; `None` when there is none.
    pub(crate) fn poll(&mut self, now: Instant) -> Option<Segment> {
        if core::mem::take(&mut self.reset_due) {
            let flags = Flags { rst: true, ..Flags::default() };
            return Some(Segment { flags, sequence: self.sender.number(), ..Segment::default() });
        }
        match self.state {
            State::Dialling | State::Answering => self.poll_syn(now),
            State::Open => self.poll_open(now),
            _ => None,
        }
    }

    fn poll_syn(&mut self, now: Instant) -> Option<Segment> {
        if !core::mem::take(&mut self.syn_due) {
            return None;
        }
        let timeout = self.parameters.retransmission.initial * (1 << self.syns.min(32));
        self.retry_at = Some(now + timeout.min(self.parameters.retransmission.longest));
        self.syns += 1;
        self.syn_sent = now;
        let mut segment = Segment { sequence: 0, ..Segment::default() };
        self.receiver.fill(&mut segment);
        segment.flags = Flags { syn: true, ack: self.state == State::Answering, ..Flags::default() };
        // Window scaling begins after the handshake (RFC 7323, section 2.2).
        segment.window = segment.window.min(u32::from(u16::MAX));
        Some(segment)
    }

    fn poll_open(&mut self, now: Instant) -> Option<Segment> {
        // Selective acknowledgements travel without data, where there is room for them.
        if self.receiver.must_acknowledge() {
            let blocks = self.receiver.blocks();
            if !blocks.as_slice().is_empty() {
                let mut segment = Segment { sequence: self.sender.number(), blocks, ..Segment::default() };
                self.receiver.fill(&mut segment);
                return Some(segment);
            }
        }
        let mut segment = Segment::default();
        match self.sender.poll(now) {
            Some(piece) => {
                segment.sequence = piece.start;
                segment.length = piece.length;
                segment.flags.fin = piece.fin;
            }
            None if self.receiver.must_acknowledge() => segment.sequence = self.sender.number(),
            None => return None,
        }
        self.receiver.fill(&mut segment);
        Some(segment)
    }

    /// Number of bytes that have arrived in order.
    pub(crate) fn arrived(&self) -> u64 {
        // The first byte has number 1.
        self.receiver.arrived() - 1
    }

    /// Whether the peer has finished and all its data has arrived.
    pub(crate) fn is_finished(&self) -> bool {
        self.receiver.is_finished()
    }

    /// The application has used `bytes` of the data that has arrived.
    pub(crate) fn consume(&mut self, bytes: u32) {
        self.receiver.consume(bytes);
    }

    /// Number of bytes that the application may send now.
    pub(crate) fn room(&self) -> u32 {
        if self.is_gone() { 0 } else { self.sender.room() }
    }

    /// The application sends `bytes` more.
    pub(crate) fn write(&mut self, bytes: u32) {
        self.sender.write(bytes);
    }

    /// The application sends nothing more.
    pub(crate) const fn finish(&mut self) {
        self.sender.finish();
    }
}
