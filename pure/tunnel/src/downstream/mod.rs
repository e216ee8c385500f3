//! The device's end of the tunnel: one session, and a gate before it.
//!
//! Anybody may connect. Who doesn't say Hello in time and in form is told why and sent away; a second host is told that
//! the device is in use, and not by whom. None of that touches the session, which only the host that has it can take over:
//! with the secret that it was given.

mod gate;
#[cfg(test)]
mod tests;

pub use gate::{WAITING_MAX, WAITING_PER_ADDRESS_MAX};

use alloc::borrow::ToOwned;
use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use core::net::IpAddr;

use engine::{Buffer, Engine, Entropy, Instant, Nanos};
use pcie::wire::Packet;

use crate::event::Event;
use crate::frame::{Keys, RefuseCode, Registers, Tally};
use crate::lookahead::Store;
use crate::session::{self, Arrival, Config, HandshakeError, Session, Ungreeted};
use crate::strands::{Bundle, STRANDS_MAX, Strand};
use gate::{Caller, Gate, Origin, Verdict};

/// Names an accepted connection; chosen by the world, and not used again while anything of it may still come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u32);

/// What the world tells the device's end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A connection was accepted, from this address.
    Accepted(ConnectionId, IpAddr),
    /// A piece of a connection's byte stream, cut anywhere.
    Received(ConnectionId, Buffer),
    /// A connection ended.
    Disconnected(ConnectionId),
}

/// What the device's end asks of the world, or tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// A packet for the device.
    Tlp {
        /// The packet.
        packet: Packet,
        /// When it arrived and what its frame says about time.
        arrival: Arrival,
    },
    /// Reset the device (hot reset): a session begins or ends, or the host wants it.
    DeviceReset,
    /// Append these bytes to a connection's stream.
    Transmit {
        /// The connection.
        connection: ConnectionId,
        /// The bytes.
        bytes: Buffer,
    },
    /// End a connection once all bytes before this are on their way. Nothing more is expected of it.
    Close {
        /// The connection.
        connection: ConnectionId,
    },
    /// For the application.
    Event {
        /// The connection, if it is about one.
        connection: Option<ConnectionId>,
        /// What happened.
        event: Event,
    },
}

/// See the module.
pub struct Downstream {
    session: Bundle,
    /// What the host's end has sent ahead of the device's asking.
    store: Store,
    /// What the store had counted when the session began.
    counted: Tally,
    gate: Gate,
    handshake: Nanos,
    /// The connections that carry the session: one for each strand.
    attached: [Option<ConnectionId>; STRANDS_MAX],
    /// From where the host of the session came last.
    home: Option<Origin>,
    /// Why no host is taken now, if none is.
    away: Option<String>,
    outputs: VecDeque<Output>,
}

impl Downstream {
    /// The end of a device that nobody uses yet. What comes out of `entropy` admits hosts to their sessions: where there are
    /// strangers, it is the system's.
    pub fn new(config: Config, entropy: impl Into<Entropy>) -> Self {
        Self {
            handshake: config.handshake,
            store: Store::new(config.ahead),
            counted: Tally::default(),
            gate: Gate::new(config.crc32c),
            session: Bundle::downstream(config, entropy),
            home: None,
            attached: [None; STRANDS_MAX],
            away: None,
            outputs: VecDeque::new(),
        }
    }

    /// Sends a packet of the device to the host; see [`Session::send`]. A read of memory that the host's end has sent ahead is
    /// answered at once instead.
    #[inline]
    pub fn send(&mut self, now: Instant, packet: Packet) {
        let arrival = Arrival { at: now, stamps: None };
        let outputs = &mut self.outputs;
        let answer = |packet| outputs.push_back(Output::Tlp { packet, arrival });
        if !self.store.take(now, &packet, answer) {
            let strand = self.session.strand_of(&packet);
            self.session.send_on(now, strand, packet);
        }
    }
    /// Ends the session and takes no further one, telling the host `text`.
    pub fn close(&mut self, now: Instant, text: &str) {
        self.session.close(now, text);
    }
    /// The device has gone, `text` says how: ends the session, and tells every host to come again later until
    /// [`Downstream::resume`].
    pub fn suspend(&mut self, now: Instant, text: &str) {
        self.session.close(now, text);
        self.drain();
        self.away = Some(text.to_owned());
    }
    /// The device is there (again): takes a host.
    pub fn resume(&mut self, now: Instant) {
        if self.away.take().is_some() {
            self.session.main_mut().restart(now);
        }
    }
    /// Shows the host's end registers of the function, as they are after what was sent so far; see [`Session::show`].
    pub fn show(&mut self, registers: Registers) {
        self.session.show(registers);
    }
    /// Payload bytes that wait for credits or a connection: a device with much to send may pause.
    pub fn queued_bytes(&self) -> usize {
        self.session.queued_bytes()
    }
    /// Tells the time; see [`Session::advance`].
    pub fn advance(&mut self, now: Instant) {
        self.session.advance(now);
    }
    /// Whether the next output is something received, not something to send.
    pub fn has_received(&self) -> bool {
        !self.outputs.is_empty() || self.session.has_received()
    }
    /// The next packet for the device, read into `packet` in place of what that was; when it arrived. What does not
    /// come out here comes out as an output.
    #[inline]
    pub fn poll_packet(&mut self, packet: &mut Packet) -> Option<Arrival> {
        if !self.outputs.is_empty() {
            return None;
        }
        while let Some((now, ahead, bytes)) = self.session.poll_ahead() {
            self.store.insert(now, ahead, bytes);
        }
        self.session.poll_packet(packet)
    }
    /// What was sent ahead, for its statistics.
    pub const fn store(&self) -> &Store {
        &self.store
    }
    /// The sessions of all connections of the link, the main one first: one unless the link is spread.
    pub fn strands(&self) -> impl Iterator<Item = &Session> {
        self.session.sessions().take(if self.session.is_spread() { STRANDS_MAX } else { 1 })
    }
    /// The session, for its clock, statistics and peer.
    pub const fn session(&self) -> &Session {
        self.session.main()
    }

    fn on_accepted(&mut self, now: Instant, connection: ConnectionId, address: IpAddr) {
        let favoured = self.home.filter(|_| self.session.main().peer().is_some());
        let deadline = now + self.handshake;
        if let Some(victim) = self.gate.accept(connection, Origin::of(address), deadline, favoured) {
            let text = "many connections say nothing, and this one has waited longest".to_owned();
            self.refuse(victim, RefuseCode::Busy, text);
        }
    }

    fn on_received(&mut self, now: Instant, connection: ConnectionId, piece: Buffer) {
        if let Some(strand) = self.strand_of(connection) {
            self.session.handle_input(now, strand, session::Input::Received(piece));
            return;
        }
        match self.gate.receive(connection, &piece) {
            None | Some(Verdict::Waits) => (),
            Some(Verdict::Host(caller, bytes)) => self.on_host(now, connection, &caller, bytes),
            Some(Verdict::No(Ungreeted::Refuse(code, text))) => self.refuse(connection, code, text),
            Some(Verdict::No(Ungreeted::ByPeer(code, text))) => {
                self.outputs.push_back(Output::Close { connection });
                self.tell_failure(connection, HandshakeError::RefusedByPeer { code, text });
            }
        }
    }

    /// The strand that a connection carries.
    #[inline]
    fn strand_of(&self, connection: ConnectionId) -> Option<Strand> {
        self.attached.iter().position(|attached| *attached == Some(connection))
    }

    fn on_host(&mut self, now: Instant, connection: ConnectionId, caller: &Caller, bytes: [Buffer; 2]) {
        if let Some(text) = self.away.clone() {
            return self.refuse(connection, RefuseCode::Busy, text);
        }
        let refusal = match caller.member {
            None => self.taken_by_another(caller),
            Some(member) if self.session.admits(caller.instance, member, caller.secret) => None,
            Some(_) => Some((RefuseCode::Busy, "there is no such link to be a strand of".to_owned())),
        };
        if let Some((code, text)) = refusal {
            return self.refuse(connection, code, text);
        }
        self.home = Some(caller.origin);
        let strand = caller.member.map_or(0, |member| usize::from(member.strand));
        if let Some(former) = self.attached[strand] {
            // The host has a new connection before we have seen the end of the former one.
            self.session.handle_input(now, strand, session::Input::Disconnected);
            self.drain();
            self.attached[strand] = None;
            self.outputs.push_back(Output::Close { connection: former });
        }
        self.drain();
        self.attached[strand] = Some(connection);
        self.session.connect(now, strand);
        for bytes in bytes {
            if !bytes.is_empty() {
                self.session.handle_input(now, strand, session::Input::Received(bytes));
            }
        }
    }

    /// What a host is told that wants the device while another has it, or itself without a proof of that: nothing about who
    /// is there.
    fn taken_by_another(&self, caller: &Caller) -> Option<(RefuseCode, String)> {
        let session = self.session.main();
        let peer = session.peer()?;
        let is_lost = self.attached[0].is_none();
        // A host that a Welcome has not reached has no proof.
        let is_unheard = !session.is_confirmed() && (is_lost || peer.instance == caller.instance);
        if is_unheard || session.knows(caller.secret) {
            return None;
        }
        Some(if is_lost {
            // Soon its host is back, or the device is free.
            (RefuseCode::Busy, "held for a host whose connection was lost".to_owned())
        } else {
            (RefuseCode::InUse, "in use; who has it is told where the device is".to_owned())
        })
    }

    fn on_disconnected(&mut self, now: Instant, connection: ConnectionId) {
        self.gate.forget(connection);
        if let Some(strand) = self.strand_of(connection) {
            self.session.handle_input(now, strand, session::Input::Disconnected);
            self.drain();
            self.attached[strand] = None;
        }
    }

    fn refuse(&mut self, connection: ConnectionId, code: RefuseCode, text: String) {
        self.outputs.push_back(Output::Transmit { connection, bytes: self.gate.refusal(code, &text) });
        self.outputs.push_back(Output::Close { connection });
        self.tell_failure(connection, HandshakeError::Refused { code, text });
    }

    fn tell_failure(&mut self, connection: ConnectionId, error: HandshakeError) {
        let event = Event::HandshakeFailed(error);
        self.outputs.push_back(Output::Event { connection: Some(connection), event });
    }

    /// Takes what the session still has to say about its present connection.
    fn drain(&mut self) {
        while let Some((strand, output)) = self.session.poll_output() {
            if let Some(output) = self.translate(strand, output) {
                self.outputs.push_back(output);
            }
        }
    }

    fn event(&self, event: Event) -> Output {
        Output::Event { connection: self.attached[0], event }
    }

    /// What an output of the session is to the world. Where that is two outputs, the first has been queued.
    fn translate(&mut self, strand: Strand, output: session::Output) -> Option<Output> {
        use session::Output as From;
        let of_session = !matches!(
            output,
            From::Tlp { .. } | From::Transmit(_) | From::Ahead(..) | From::Forget(_) | From::WantsTally
        );
        if of_session {
            // What is sent ahead is of one connection, and of no device that was reset.
            self.store.clear();
        }
        match output {
            From::Ahead(ahead, bytes) => {
                self.store.insert(self.session.main().now(), ahead, bytes);
                None
            }
            From::Forget(keys) => {
                Keys(&keys).iter().for_each(|key| self.store.forget(key));
                None
            }
            From::Tlp { packet, arrival } => Some(Output::Tlp { packet, arrival }),
            From::Transmit(bytes) => {
                self.attached[strand].map(|connection| Output::Transmit { connection, bytes })
            }
            From::CloseConnection => {
                self.attached[strand].take().map(|connection| Output::Close { connection })
            }
            // What becomes of a strand concerns nobody as long as the link is there.
            _ if strand > 0 => None,
            From::WantsTally => {
                let tally = self.store.tally().since(&self.counted);
                self.session.main_mut().tell_tally(tally);
                None
            }
            From::LinkUp { peer } => {
                self.counted = *self.store.tally();
                self.outputs.push_back(Output::DeviceReset);
                Some(self.event(Event::LinkUp { peer }))
            }
            From::LinkDown { reason } => {
                self.outputs.push_back(Output::DeviceReset);
                Some(self.event(Event::LinkDown { reason }))
            }
            From::Interrupted { reason } => Some(self.event(Event::Interrupted { reason })),
            From::Resumed => Some(self.event(Event::Resumed)),
            From::HandshakeFailed(error) => Some(self.event(Event::HandshakeFailed(error))),
            From::Reset => Some(Output::DeviceReset),
            // Only an upstream end dials, or is shown registers.
            From::Connect | From::Registers(_) => None,
        }
    }
}

impl Engine for Downstream {
    type Input<'a> = Input;
    type Output = Output;

    fn handle_input(&mut self, now: Instant, input: Input) {
        match input {
            Input::Accepted(connection, address) => self.on_accepted(now, connection, address),
            Input::Received(connection, piece) => self.on_received(now, connection, piece),
            Input::Disconnected(connection) => self.on_disconnected(now, connection),
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        while let Some(connection) = self.gate.expire(now) {
            let text = format!("no Hello came within {}", self.handshake);
            self.refuse(connection, RefuseCode::Deadline, text);
        }
        self.session.handle_timeout(now);
    }

    fn poll_output(&mut self) -> Option<Output> {
        loop {
            if let Some(output) = self.outputs.pop_front() {
                return Some(output);
            }
            let (strand, output) = self.session.poll_output()?;
            if let Some(output) = self.translate(strand, output) {
                if self.outputs.is_empty() {
                    return Some(output);
                }
                self.outputs.push_back(output);
            }
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        [self.session.poll_timeout(), self.gate.earliest()].into_iter().flatten().min()
    }
}

impl core::fmt::Debug for Downstream {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Downstream")
            .field("session", &self.session)
            .field("attached", &self.attached)
            .finish_non_exhaustive()
    }
}
