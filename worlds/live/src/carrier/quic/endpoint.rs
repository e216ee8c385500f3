//! An endpoint: one UDP socket, the connections over it, and the QUIC state machines between them.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, RawFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use engine::{Nanos, Origin};
use quinn_proto::{
    ClientConfig, ConnectionHandle, DatagramEvent, EndpointConfig, Incoming, ServerConfig, Transmit,
};
use tunnel::downstream::WAITING_MAX;

use super::slot::{Happened, Slot};
use super::socket::{Look, Socket};
use crate::carrier::identity::Verifier;
use crate::sys::precedence::Precedence;

/// The server name that TLS asks for. No peer is trusted because of it.
const NAME: &str = "farlane";
/// The most connections at once, including those being opened or closed. The tunnel's gate keeps
/// half as many waiting, so that the gate decides which of them go.
pub(super) const CONNECTIONS_MAX: usize = 2 * WAITING_MAX;
/// The most connections at once that are being opened by peers that have not proved their address.
/// Further peers must prove theirs first, which takes a round trip.
const UNPROVEN_MAX: usize = 8;
/// The most connections at once from one IPv4 address or one IPv6 network whose peers have not
/// opened their streams. More than [`UNPROVEN_MAX`], so that a peer with a forged address can't
/// take all places of that address's owner.
pub(super) const UNOPENED_PER_ORIGIN_MAX: usize = 16;
/// How many connections whose peers have not opened their streams one origin may have when `count`
/// places are taken: at most half of those that are free, so that a few origins can't take all. An
/// origin that has none may have one.
pub(super) const fn unopened_max(count: usize) -> usize {
    match CONNECTIONS_MAX.saturating_sub(count) / 2 {
        0 => 1,
        half if half < UNOPENED_PER_ORIGIN_MAX => half,
        _ => UNOPENED_PER_ORIGIN_MAX,
    }
}

/// The time from its first packet within which a peer must have opened its stream.
const OPEN_WITHIN: Duration = Duration::from_secs(5);
/// The most sends of one connection in a row. More follow in the next turn.
const SENDS_MAX: usize = 256;

/// The form in which an endpoint's streams share the endpoint and their connections.
pub(super) type Shared = Rc<RefCell<Endpoint>>;
pub(super) type SharedSlot = Rc<RefCell<Slot>>;

/// One UDP socket and the connections over it.
pub(super) struct Endpoint {
    socket: Socket,
    engine: quinn_proto::Endpoint,
    /// The connections, by the state machine's own handles.
    slots: Vec<Option<SharedSlot>>,
    /// Connections whose peers have opened their streams, and that are not accepted yet.
    arrived: VecDeque<SharedSlot>,
    /// Datagrams that the socket did not take; they are sent before anything else.
    unsent: Option<(Transmit, Vec<u8>)>,
    scratch: Vec<u8>,
    wake: Option<Instant>,
    /// The same moment on both clocks.
    epoch: (Instant, engine::Instant),
}

impl Endpoint {
    /// Makes a far end's endpoint, to which peers connect.
    pub(super) fn server(
        address: SocketAddr,
        (config, server): (EndpointConfig, ServerConfig),
        precedence: Precedence,
        now: engine::Instant,
    ) -> io::Result<Self> {
        Ok(Self::new(Socket::bind(address, precedence)?, config, Some(server), now))
    }

    /// Makes a near end's endpoint, which connects to `peer`.
    pub(super) fn client(peer: SocketAddr, precedence: Precedence, now: engine::Instant) -> io::Result<Self> {
        Ok(Self::new(Socket::connect(peer, precedence)?, EndpointConfig::default(), None, now))
    }

    fn new(
        socket: Socket,
        config: EndpointConfig,
        server: Option<ServerConfig>,
        now: engine::Instant,
    ) -> Self {
        let engine =
            quinn_proto::Endpoint::new(Arc::new(config), server.map(Arc::new), socket.keeps_whole(), None);
        Self {
            socket,
            engine,
            slots: Vec::new(),
            arrived: VecDeque::new(),
            unsent: None,
            scratch: Vec::new(),
            wake: None,
            epoch: (Instant::now(), now),
        }
    }

    /// The address of the socket.
    pub(super) fn address(&self) -> io::Result<SocketAddr> {
        self.socket.address()
    }

    pub(super) fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Begins to connect to the socket's peer.
    pub(super) fn connect(
        &mut self,
        client: ClientConfig,
        verifier: Arc<Verifier>,
    ) -> io::Result<SharedSlot> {
        let (now, peer) = (Instant::now(), self.socket.peer().expect("a near end's socket has a peer"));
        let (handle, connection) = self.engine.connect(now, client, peer, NAME).map_err(io::Error::other)?;
        let slot = self.insert(Slot::new(handle, connection, None));
        slot.borrow_mut().verifier = Some(verifier);
        self.transmit(&mut slot.borrow_mut(), now);
        self.find_wake();
        Ok(slot)
    }

    fn insert(&mut self, slot: Slot) -> SharedSlot {
        let index = slot.handle.0;
        if self.slots.len() <= index {
            self.slots.resize_with(index + 1, || None);
        }
        let slot = Rc::new(RefCell::new(slot));
        self.slots[index] = Some(Rc::clone(&slot));
        slot
    }

    fn slot(&self, handle: ConnectionHandle) -> Option<SharedSlot> {
        self.slots.get(handle.0)?.clone()
    }

    fn slots(&self) -> impl Iterator<Item = &SharedSlot> {
        self.slots.iter().flatten()
    }

    /// The next connection whose peer has opened its stream.
    pub(super) fn accept(&mut self) -> Option<SharedSlot> {
        let slot = self.arrived.pop_front()?;
        slot.borrow_mut().owned = true;
        Some(slot)
    }

    /// Whether [`Endpoint::accept`] has a connection.
    pub(super) fn has_arrivals(&self) -> bool {
        !self.arrived.is_empty()
    }

    /// The time of the next call to [`Endpoint::pump`] if nothing comes before.
    pub(super) fn poll_timeout(&self) -> Option<engine::Instant> {
        let (real, ours) = self.epoch;
        self.wake.map(|at| {
            let length = at.saturating_duration_since(real);
            ours + Nanos::new(u64::try_from(length.as_nanos()).unwrap_or(u64::MAX / 2))
        })
    }

    /// Takes the datagrams that have come and fires due deadlines; returns whether any had come.
    ///
    /// # Errors
    /// When the socket fails for a reason other than the network.
    pub(super) fn pump(&mut self) -> io::Result<bool> {
        let look = self.socket.look()?;
        let now = Instant::now();
        match look {
            Look::Pieces(count) => {
                for index in 0..count {
                    self.on_piece(now, index);
                }
            }
            Look::Undelivered { refused } => self.on_undelivered(now, refused),
            Look::Nothing if self.wake.is_none_or(|at| at > now) => return Ok(false),
            Look::Nothing => {}
        }
        self.serve(now);
        Ok(look != Look::Nothing)
    }

    /// Calls for another look at the socket, which has more than was looked at: the kernel does not
    /// report that again.
    pub(super) fn look_again(&mut self) {
        self.wake = Some(Instant::now());
    }

    /// Handles timeouts and events of each connection, and sends where no stream will do so.
    fn serve(&mut self, now: Instant) {
        for index in 0..self.slots.len() {
            let Some(slot) = self.slots[index].clone() else { continue };
            let mut slot = slot.borrow_mut();
            let fired = slot.handle_timeout(now);
            if slot.dirty {
                self.digest(&mut slot, now);
            }
            // The owner of the stream answers received bytes, and an acknowledgement travels with
            // the answer.
            if slot.dirty && (fired || !slot.owned) {
                self.transmit(&mut slot, now);
            }
        }
        self.find_wake();
    }

    fn find_wake(&mut self) {
        self.wake = self.slots().filter_map(|slot| slot.borrow().poll_timeout()).min();
    }

    fn on_piece(&mut self, now: Instant, index: usize) {
        let piece = self.socket.piece(index);
        let (meta, ecn) = (piece.meta, piece.ecn());
        let mut bytes = BytesMut::from(piece.bytes);
        while !bytes.is_empty() {
            let datagram = bytes.split_to(meta.stride.clamp(1, bytes.len()));
            self.scratch.clear();
            let event = self.engine.handle(now, meta.addr, meta.dst_ip, ecn, datagram, &mut self.scratch);
            match event {
                Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                    if let Some(slot) = self.slot(handle) {
                        let mut slot = slot.borrow_mut();
                        slot.on_heard();
                        slot.connection.handle_event(event);
                    }
                }
                Some(DatagramEvent::NewConnection(incoming)) => self.on_incoming(now, incoming),
                Some(DatagramEvent::Response(transmit)) => self.respond(&transmit),
                None => {}
            }
        }
    }

    /// Handles a peer's first packet.
    fn on_incoming(&mut self, now: Instant, incoming: Incoming) {
        let unproven = self.slots().filter(|slot| slot.borrow().connection.is_handshaking()).count();
        let count = self.slots().count();
        let origin = Origin::of(incoming.remote_address().ip());
        let unopened = self.slots().filter(|slot| slot.borrow().is_unopened_from(origin)).count();
        self.scratch.clear();
        if count >= CONNECTIONS_MAX || unopened >= unopened_max(count) {
            let transmit = self.engine.refuse(incoming, &mut self.scratch);
            return self.respond(&transmit);
        }
        if !incoming.remote_address_validated() && unproven >= UNPROVEN_MAX {
            match self.engine.retry(incoming, &mut self.scratch) {
                Ok(transmit) => self.respond(&transmit),
                Err(error) => self.engine.ignore(error.into_incoming()),
            }
            return;
        }
        match self.engine.accept(incoming, now, &mut self.scratch, None) {
            Ok((handle, connection)) => {
                self.insert(Slot::new(handle, connection, Some(now + OPEN_WITHIN)));
            }
            Err(error) => {
                if let Some(transmit) = error.response {
                    self.respond(&transmit);
                }
            }
        }
    }

    /// Sends a response that belongs to no connection, if the socket takes it. If not, the peer
    /// asks again.
    fn respond(&self, transmit: &Transmit) {
        let _ = self.socket.send(transmit, &self.scratch, None);
    }

    /// Handles the report of datagrams that the network did not deliver.
    fn on_undelivered(&mut self, now: Instant, refused: bool) {
        let peers = match self.socket.peer() {
            Some(peer) if refused => vec![peer],
            Some(_) => Vec::new(),
            None => self.socket.refused(),
        };
        for slot in self.slots() {
            let mut slot = slot.borrow_mut();
            let count = peers.iter().filter(|peer| **peer == slot.peer).count();
            (0..count).for_each(|_| slot.on_refused(now));
        }
    }

    /// Passes on the events of a connection.
    fn digest(&mut self, slot: &mut Slot, now: Instant) {
        while let Some(event) = slot.connection.poll_endpoint_events() {
            if event.is_drained() {
                self.slots[slot.handle.0] = None;
            }
            if let Some(event) = self.engine.handle_event(slot.handle, event) {
                slot.connection.handle_event(event);
            }
        }
        while let Some(event) = slot.connection.poll() {
            match slot.on_event(now, event) {
                Some(Happened::Established) => self.ask_others(slot.handle, slot.peer.ip()),
                Some(Happened::Opened) => self.arrived.extend(self.slot(slot.handle)),
                None => {}
            }
        }
        slot.wake = slot.connection.poll_timeout();
    }

    /// Pings the other connections with this address. A peer that was restarted connects anew while
    /// its old connection lasts. The old port is closed, and the network says so in answer to the
    /// ping.
    fn ask_others(&self, new: ConnectionHandle, address: IpAddr) {
        for other in self.slots() {
            // The new connection itself is borrowed already.
            let Ok(mut other) = other.try_borrow_mut() else { continue };
            if other.handle != new && other.peer.ip() == address && !other.connection.is_handshaking() {
                other.connection.ping();
                other.dirty = true;
            }
        }
    }

    /// Sends the datagrams that a connection has to send.
    pub(super) fn transmit(&mut self, slot: &mut Slot, now: Instant) {
        self.send_all(slot, now);
        self.digest(slot, now);
        // The connection itself is borrowed.
        let others = self.slots().filter_map(|slot| slot.try_borrow().ok()?.poll_timeout()).min();
        self.wake = slot.poll_timeout().into_iter().chain(others).min();
    }

    fn send_all(&mut self, slot: &mut Slot, now: Instant) {
        if let Some((transmit, bytes)) = self.unsent.take()
            && !self.socket.send(&transmit, &bytes, None)
        {
            self.unsent = Some((transmit, bytes));
            return;
        }
        for _ in 0..SENDS_MAX {
            self.scratch.clear();
            let segments = self.socket.segments();
            let Some(transmit) = slot.connection.poll_transmit(now, segments, &mut self.scratch) else {
                slot.dirty = false;
                return;
            };
            if !self.socket.send(&transmit, &self.scratch, None) {
                self.unsent = Some((transmit, std::mem::take(&mut self.scratch)));
                return;
            }
        }
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Endpoint({} connections)", self.slots().count())
    }
}
