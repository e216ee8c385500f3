//! The device's end of the tunnel: one session, and a gate before it.
//!
//! Connections are open to every peer. A connection without a timely, well-formed Hello is refused
//! with the reason and closed. A second host is refused because the device is in use; the refusal
//! does not name the user. None of this touches the session. Only the host that has the session can
//! take it over, with the secret that it was given.

mod front;
mod gate;
pub(crate) mod store;
#[cfg(test)]
mod tests;

pub use front::{Front, Greeted};
pub use gate::{Callers, WAITING_MAX, WAITING_PER_ADDRESS_MAX};
pub use store::{KEPT_FOR, PIECES_MAX, Store};

use alloc::borrow::ToOwned;
use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use core::net::IpAddr;

use engine::{Buffer, Crc32c, Engine, Entropy, Instant, Nanos, Origin};
use pcie::switch::Strand;
use pcie::wire::Packet;
use serde::{Deserialize, Serialize};

use crate::access::{Access, Fingerprint};
use crate::event::Event;
use crate::frame::{Keys, RefuseCode, Registers, Tally};
use crate::session::{self, Arrival, Config, HandshakeError, Session, Ungreeted};
use crate::strands::{LinkEnd, STRANDS_MAX};
use front::Claim;
use gate::{Caller, Gate, Verdict};

/// The refusal while a session is held.
const HELD: &str = "held for a host whose connection was lost";

/// Names an accepted connection. The world chooses the number and does not use it again while input
/// of the connection may still come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ConnectionId(pub u32);

/// Inputs of the device's end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A connection was accepted from this address.
    Accepted(ConnectionId, IpAddr),
    /// The host of a connection has proved that it has this key. Comes before the first piece of
    /// the stream.
    Identified(ConnectionId, Fingerprint),
    /// A piece of a connection's byte stream, cut anywhere.
    Received(ConnectionId, Buffer),
    /// A connection ended.
    Disconnected(ConnectionId),
}

/// Outputs of the device's end: requests to the world, and events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Output {
    /// A packet for the device.
    Tlp {
        /// The packet to pass on.
        packet: Packet,
        /// When the packet arrived, and the time stamps of its frame.
        arrival: Arrival,
    },
    /// Reset the device (hot reset), because a session begins or ends, or because the host asks for
    /// it.
    DeviceReset,
    /// Append these bytes to a connection's stream.
    Transmit {
        /// The connection to send on.
        connection: ConnectionId,
        /// The bytes to append.
        bytes: Buffer,
    },
    /// End a connection once all bytes before this output are on their way. The connection brings
    /// no further input.
    Close {
        /// The connection to end.
        connection: ConnectionId,
    },
    /// An event for the application.
    Event {
        /// The connection that the event concerns, if any.
        connection: Option<ConnectionId>,
        /// The event to report.
        event: Event,
    },
}

/// The device's end of the tunnel: an [`Engine`] with one session and a gate before it.
#[derive(Serialize, Deserialize)]
pub struct Downstream {
    session: LinkEnd,
    /// Host memory that the host's end has sent ahead of the device's reads.
    store: Store,
    /// Counts of the store when the session began.
    counted: Tally,
    gate: Gate,
    handshake: Nanos,
    /// The connections that carry the session: one for each strand.
    attached: [Option<ConnectionId>; STRANDS_MAX],
    /// The hosts that may have a session.
    access: Access,
    /// The key that the host of the session has proved, if any.
    owner: Option<Fingerprint>,
    /// Why no host is admitted now, if the device is away.
    away: Option<String>,
    outputs: VecDeque<Output>,
}

impl Downstream {
    /// Takes the means of a new world, after the state was handed over: its randomness, if the
    /// former world had the system's, and its function for digests.
    pub fn adopt(&mut self, entropy: &Entropy, crc32c: Crc32c) {
        self.session.adopt(entropy, crc32c);
        self.gate.adopt(crc32c);
    }

    /// Creates the end of a device without a host. Secrets that admit hosts to their sessions come
    /// from `entropy`: where strangers can connect, use the system's entropy.
    pub fn new(config: Config, entropy: impl Into<Entropy>) -> Self {
        Self {
            handshake: config.handshake,
            store: Store::new(config.ahead),
            counted: Tally::default(),
            gate: Gate::new(config.crc32c),
            session: LinkEnd::downstream(config, entropy),
            access: Access::Anyone,
            owner: None,
            attached: [None; STRANDS_MAX],
            away: None,
            outputs: VecDeque::new(),
        }
    }

    /// Sends a packet of the device to the host; see [`Session::send`]. A read of memory that the
    /// host's end has sent ahead is answered at once instead.
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
    /// Ends the session, admits no further one, and sends the host `text` as the reason.
    pub fn close(&mut self, now: Instant, text: &str) {
        self.session.close(now, text);
    }
    /// Ends the session because the device has gone, as `text` says. Every host is asked to come
    /// again later until [`Downstream::resume`].
    pub fn suspend(&mut self, now: Instant, text: &str) {
        self.session.close(now, text);
        self.drain();
        self.away = Some(text.to_owned());
    }
    /// Admits from now on whom `access` names. Ends the session of a host that it does not name.
    pub fn set_access(&mut self, now: Instant, access: Access) {
        self.access = access;
        if self.session.main().peer().is_some() && !self.access.admits(self.owner) {
            self.session.close(now, "this host's key is no longer admitted");
            self.drain();
            self.session.main_mut().restart(now);
        }
    }
    /// The key that the host of the session has proved. `None` without a session, and for a host
    /// without a key.
    pub fn owner(&self) -> Option<Fingerprint> {
        self.session.main().peer().and(self.owner)
    }
    /// Admits hosts again after [`Downstream::suspend`], since the device is back.
    pub fn resume(&mut self, now: Instant) {
        if self.away.take().is_some() {
            self.session.main_mut().restart(now);
        }
    }
    /// Shows registers of the function to the host's end, as they are after the packets sent so
    /// far; see [`Session::show`].
    pub fn show(&mut self, registers: Registers) {
        self.session.show(registers);
    }
    /// Payload bytes that wait for credits or a connection. A device with much to send can watch
    /// this number and pause.
    pub fn queued_bytes(&self) -> usize {
        self.session.queued_bytes()
    }
    /// Advances the session's time; see [`Session::advance`].
    pub fn advance(&mut self, now: Instant) {
        self.session.advance(now);
    }
    /// Sets the longest segment of a connection; see [`Session::set_segment_max`]. To be called
    /// before the first piece of the stream.
    pub fn set_segment_max(&mut self, connection: ConnectionId, bytes: usize) {
        self.gate.set_segment_max(connection, bytes);
    }
    /// Has `places` connections wait for their Hello at most, between 1 and [`WAITING_MAX`]; one
    /// address may have a quarter of them.
    pub fn set_waiting_max(&mut self, places: usize) {
        self.gate.set_places(places);
    }
    /// Counts of the connections that have come.
    pub fn callers(&self) -> Callers {
        self.gate.callers()
    }
    /// Whether a connection carries the session, so that its host has proved all that it must.
    pub fn is_attached(&self, connection: ConnectionId) -> bool {
        self.strand_of(connection).is_some()
    }
    /// Whether any connection carries the session.
    pub fn has_host(&self) -> bool {
        self.attached.iter().any(Option::is_some)
    }
    /// Defers the bytes of a connection, if they are for the device, which has no
    /// room for it. The session does not take this for a silence of the host. Returns false for any
    /// other connection: its bytes are read, so that hosts are greeted.
    pub fn hold_back(&mut self, now: Instant, connection: ConnectionId) -> bool {
        self.strand_of(connection).is_some_and(|strand| self.session.hold_back(now, strand))
    }
    /// Whether the next output is something received, rather than something to send.
    pub fn has_received(&self) -> bool {
        !self.outputs.is_empty() || self.session.has_received()
    }
    /// Reads the next packet for the device into `packet`, replacing its contents, and returns its
    /// arrival. Packets that do not come out here come out as outputs.
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
    /// The host memory that was sent ahead, with its statistics.
    pub const fn store(&self) -> &Store {
        &self.store
    }
    /// The sessions of all connections of the link, the main one first. A link that is not spread
    /// has one.
    pub fn strands(&self) -> impl Iterator<Item = &Session> {
        self.session.sessions().take(if self.session.is_spread() { STRANDS_MAX } else { 1 })
    }
    /// The main session, with its clock, statistics and peer.
    pub const fn session(&self) -> &Session {
        self.session.main()
    }

    /// Takes a host that was greeted elsewhere: [`Front::choose`] chose this session.
    pub fn admit(&mut self, now: Instant, greeted: Greeted) {
        let Greeted { connection, caller, bytes } = greeted;
        self.on_host(now, connection, &caller, bytes);
    }

    fn on_accepted(&mut self, now: Instant, connection: ConnectionId, address: IpAddr) {
        let deadline = now + self.handshake;
        if let Some(victim) = self.gate.accept(connection, Origin::of(address), deadline) {
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
            Some(Verdict::No(Ungreeted::Refuse(code, text))) => self.reject(connection, code, text),
            Some(Verdict::No(Ungreeted::ByPeer(code, text))) => {
                self.gate.callers.refused += 1;
                self.outputs.push_back(Output::Close { connection });
                self.report_failure(connection, HandshakeError::RefusedByPeer { code, text });
            }
        }
    }

    /// The strand that a connection carries, if any.
    #[inline]
    fn strand_of(&self, connection: ConnectionId) -> Option<Strand> {
        let mut attached = Strand::first(STRANDS_MAX).zip(&self.attached);
        attached.find(|(_, attached)| **attached == Some(connection)).map(|(strand, _)| strand)
    }

    fn on_host(&mut self, now: Instant, connection: ConnectionId, caller: &Caller, bytes: [Buffer; 2]) {
        if let Some(text) = self.away.clone() {
            return self.reject(connection, RefuseCode::Busy, text);
        }
        if !self.access.admits(caller.key) {
            return self.reject(connection, RefuseCode::Forbidden, forbidden(caller.key));
        }
        let refusal = match caller.member {
            None => self.taken_by_another(caller),
            Some(member)
                if caller.key == self.owner
                    && self.session.admits(caller.instance, member, caller.secret) =>
            {
                None
            }
            Some(_) => Some((RefuseCode::Busy, "there is no such link to be a strand of".to_owned())),
        };
        if let Some((code, text)) = refusal {
            return self.reject(connection, code, text);
        }
        self.gate.remember(caller.origin);
        self.owner = caller.key;
        let strand = caller.member.map_or(Strand::MAIN, |member| {
            Strand(u8::try_from(member.strand).expect("a link has few strands"))
        });
        if let Some(former) = self.attached[strand.index()] {
            // The host has a new connection before this end has noticed the end of the former one.
            self.session.handle_input(now, strand, session::Input::Disconnected);
            self.drain();
            self.attached[strand.index()] = None;
            self.outputs.push_back(Output::Close { connection: former });
        }
        self.drain();
        self.attached[strand.index()] = Some(connection);
        self.session.connect(now, strand);
        self.session.set_segment_max(strand, caller.segment_max);
        for bytes in bytes {
            if !bytes.is_empty() {
                self.session.handle_input(now, strand, session::Input::Received(bytes));
            }
        }
    }

    /// The refusal for a host that wants the device while another host has it, or while this host
    /// has it but cannot prove so. It does not reveal which host has the device.
    fn taken_by_another(&self, caller: &Caller) -> Option<(RefuseCode, String)> {
        let session = self.session.main();
        let peer = session.peer()?;
        let is_lost = self.attached[0].is_none();
        // A host that the Welcome has not reached has no proof.
        let is_unheard = !session.is_confirmed() && (is_lost || peer.instance == caller.instance);
        if caller.key == self.owner && (is_unheard || session.knows(caller.secret)) {
            return None;
        }
        Some(if is_lost {
            // Soon the host is back, or the device is free.
            (RefuseCode::Busy, HELD.to_owned())
        } else {
            (RefuseCode::InUse, "in use; the far end's status names the user".to_owned())
        })
    }

    /// What this session is to a host that has said Hello elsewhere.
    fn claim(&self, caller: &Caller) -> Claim {
        let session = self.session.main();
        let is_its_key = caller.key == self.owner;
        if let Some(member) = caller.member {
            let is_its = is_its_key && self.session.admits(caller.instance, member, caller.secret);
            return if is_its { Claim::Own } else { Claim::Taken };
        }
        let Some(peer) = session.peer() else { return Claim::Free };
        let is_lost = self.attached[0].is_none();
        let is_unheard = is_its_key && !session.is_confirmed();
        match is_lost {
            _ if is_its_key && session.knows(caller.secret) => Claim::Own,
            _ if is_unheard && peer.instance == caller.instance => Claim::Own,
            true if is_unheard => Claim::Unheard,
            true if is_its_key && caller.key.is_some() => Claim::HeldForKey,
            true => Claim::Held,
            false => Claim::Taken,
        }
    }

    fn on_disconnected(&mut self, now: Instant, connection: ConnectionId) {
        self.gate.forget(connection);
        if let Some(strand) = self.strand_of(connection) {
            self.session.handle_input(now, strand, session::Input::Disconnected);
            self.drain();
            self.attached[strand.index()] = None;
        }
    }

    /// Refuses a connection because of its Hello.
    fn reject(&mut self, connection: ConnectionId, code: RefuseCode, text: String) {
        self.gate.callers.refused += 1;
        self.refuse(connection, code, text);
    }

    fn refuse(&mut self, connection: ConnectionId, code: RefuseCode, text: String) {
        self.outputs.push_back(Output::Transmit { connection, bytes: self.gate.refusal(code, &text) });
        self.outputs.push_back(Output::Close { connection });
        self.report_failure(connection, HandshakeError::Refused { code, text });
    }

    fn report_failure(&mut self, connection: ConnectionId, error: HandshakeError) {
        let event = Event::HandshakeFailed(error);
        self.outputs.push_back(Output::Event { connection: Some(connection), event });
    }

    /// Handles all outputs that the session still has for its present connection.
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

    /// Translates an output of the session for the world. If it becomes two outputs, the first has
    /// been queued.
    fn translate(&mut self, strand: Strand, output: session::Output) -> Option<Output> {
        use session::Output as From;
        let of_session = !matches!(
            output,
            From::Tlp { .. } | From::Transmit(_) | From::Ahead(..) | From::Forget(_) | From::WantsTally
        );
        if of_session {
            // Memory sent ahead is valid for one connection only, and not across a reset of the
            // device.
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
                self.attached[strand.index()].map(|connection| Output::Transmit { connection, bytes })
            }
            From::CloseConnection => {
                self.attached[strand.index()].take().map(|connection| Output::Close { connection })
            }
            // The state of a further strand has no effect while the link is up.
            _ if !strand.is_main() => None,
            From::WantsTally => {
                let tally = self.store.tally().since(&self.counted);
                self.session.main_mut().report_tally(tally);
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
            // Only an upstream end dials or is shown registers.
            From::Connect | From::Registers(_) => None,
        }
    }
}

/// The reason sent to a host whose key is not admitted, or that has none.
fn forbidden(key: Option<Fingerprint>) -> String {
    match key {
        Some(key) => format!(
            "the key {key} is not admitted here; the far end's owner admits it with farlane export --allow {key}"
        ),
        None => "hosts must prove a key here, and this one came without; give the far end's key in the URL: \
                 tcp://HOST:PORT?key=FINGERPRINT"
            .to_owned(),
    }
}

impl Engine for Downstream {
    type Input<'a> = Input;
    type Output = Output;

    fn handle_input(&mut self, now: Instant, input: Input) {
        match input {
            Input::Accepted(connection, address) => self.on_accepted(now, connection, address),
            Input::Identified(connection, key) => self.gate.identify(connection, key),
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
            if let Some(output) = engine::pop(&mut self.outputs) {
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
        Instant::earlier(self.session.poll_timeout(), self.gate.earliest())
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
