//! One end of a connection: handshake, data, close.

use engine::{Instant, Nanos};

use super::receiver::Receiver;
use super::segment::{Flags, Segment};
use super::sender::{Acknowledged, Sender};
use super::{Parameters, Statistics};

/// Where an end stands (RFC 9293, section 3.3.2, with the states after a close told by its halves).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Waits for a SYN.
    Listen,
    /// Has one to send.
    Dialling,
    /// Has got one; the application has yet to say whether it wants the connection.
    Asked,
    /// Has got one and answers.
    Answering,
    Open,
    /// Gone.
    Gone,
}

/// What an end tells its application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// Somebody dials: accept or refuse.
    Asked,
    /// The handshake is over.
    Opened,
    /// It is gone.
    Gone(Gone),
}

/// Why a connection is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gone {
    /// Nobody listens at the other end.
    Refused,
    /// The other end has ended it without closing.
    Reset,
    /// Nothing came back.
    TimedOut,
    /// Both ends have closed it, and everything has arrived.
    Closed,
}

/// One end.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    state: State,
    parameters: Parameters,
    sender: Sender,
    receiver: Receiver,
    /// A SYN is to be sent; when it is sent again; how often it was.
    syn_due: bool,
    retry_at: Option<Instant>,
    syns: u32,
    syn_sent: Instant,
    reset_due: bool,
    event: Option<Event>,
}

impl Endpoint {
    /// An end that waits for the other one, on frames whose payload is at most `mtu` bytes.
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

    /// Takes the connection that was asked for.
    pub(crate) fn accept(&mut self) {
        if self.state == State::Asked {
            self.state = State::Answering;
            self.syn_due = true;
        }
    }

    /// Ends the connection at once; the peer is told, if the segment arrives.
    pub(crate) fn reset(&mut self) {
        if self.state != State::Gone {
            self.reset_due =
                self.state != State::Listen && !(self.state == State::Dialling && self.syns == 0);
            self.leave(None);
        }
    }

    /// Whether this end is gone.
    pub(crate) fn is_gone(&self) -> bool {
        self.state == State::Gone
    }

    /// Whether it has not heard of the connection yet.
    pub(crate) fn is_listening(&self) -> bool {
        self.state == State::Listen
    }

    /// Whether everything was closed and has arrived, both ways.
    pub(crate) fn is_closed(&self) -> bool {
        self.sender.is_done() && self.receiver.is_finished()
    }

    /// Whether it has something left to send though it is gone.
    pub(crate) const fn has_last_word(&self) -> bool {
        self.reset_due
    }

    pub(crate) const fn poll_event(&mut self) -> Option<Event> {
        self.event.take()
    }

    /// What was counted.
    pub(crate) const fn statistics(&self) -> Statistics {
        self.sender.statistics
    }

    fn leave(&mut self, why: Option<Gone>) {
        self.state = State::Gone;
        self.retry_at = None;
        self.event = why.map(Event::Gone);
    }

    /// The earliest of its deadlines.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        match self.state {
            State::Gone => None,
            State::Open => {
                [self.sender.poll_timeout(), self.receiver.poll_timeout()].into_iter().flatten().min()
            }
            _ => self.retry_at,
        }
    }

    /// Does what has become due.
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

    /// Takes a segment.
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
            // Our acknowledgement of it was lost.
            State::Open if segment.flags.syn => self.receiver.acknowledge(),
            State::Open => {
                let told = Acknowledged {
                    number: segment.acknowledgement,
                    window: segment.window,
                    blocks: segment.blocks.as_slice(),
                    carries: segment.length > 0 || segment.flags.fin,
                };
                self.sender.on_acknowledged(now, told);
                self.receiver.on_segment(now, segment);
            }
            // To whoever has not heard yet.
            State::Gone => self.reset_due = true,
            State::Listen | State::Dialling | State::Asked => {}
        }
    }

    fn on_reset(&mut self) {
        match self.state {
            State::Gone | State::Listen => {}
            State::Dialling => self.leave(Some(Gone::Refused)),
            // What was closed both ways has no more to lose.
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

    /// The next segment to send, until there is none.
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
        // Window scaling begins behind the handshake (RFC 7323, section 2.2).
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

    /// How many bytes have arrived in order.
    pub(crate) fn arrived(&self) -> u64 {
        // The first byte is number 1.
        self.receiver.arrived() - 1
    }

    /// Whether the peer has finished, and everything it sent has arrived.
    pub(crate) fn is_finished(&self) -> bool {
        self.receiver.is_finished()
    }

    /// The application has taken `bytes` of what has arrived.
    pub(crate) fn consume(&mut self, bytes: u32) {
        self.receiver.consume(bytes);
    }

    /// Bytes that the application may give now.
    pub(crate) fn room(&self) -> u32 {
        if self.is_gone() { 0 } else { self.sender.room() }
    }

    /// The application gives `bytes` more.
    pub(crate) fn write(&mut self, bytes: u32) {
        self.sender.write(bytes);
    }

    /// The application gives no more.
    pub(crate) const fn finish(&mut self) {
        self.sender.finish();
    }
}
