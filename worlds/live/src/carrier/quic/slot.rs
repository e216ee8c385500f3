//! One connection: QUIC's state machine, and the flags that the connection's endpoint and stream
//! set for each other.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use engine::Origin;
use quinn_proto::crypto::rustls::HandshakeData;
use quinn_proto::{Connection, ConnectionHandle, Dir, Event, Side, StreamEvent, StreamId, VarInt};

use super::PROTOCOL;
use super::loss::{CODE_ABORTED, CODE_DONE, Loss};
use crate::carrier::identity::{Fingerprint, Verifier, proved_over_quic};

/// After this many datagrams in a row that the network reports as refused, with nothing from the
/// peer between, the peer counts as gone. A single report may be forged, or meant for an earlier
/// user of the port.
const REFUSALS_MAX: u32 = 3;
/// The refusals must span at least this time: a peer that has moved to another address is heard
/// from there within it.
const REFUSED_FOR: Duration = Duration::from_millis(200);

/// One connection, as its endpoint and its stream share it.
pub(super) struct Slot {
    pub(super) handle: ConnectionHandle,
    pub(super) connection: Connection,
    pub(super) peer: SocketAddr,
    /// The stream, once it is open.
    pub(super) stream: Option<StreamId>,
    /// A stream owns the connection, and itself calls for it to be sent.
    pub(super) owned: bool,
    /// There may be something to send.
    pub(super) dirty: bool,
    /// There may be something to read.
    pub(super) readable: bool,
    /// The stream takes no data at present.
    pub(super) blocked: bool,
    /// The peer has acknowledged all data and the end of the stream.
    pub(super) finished: bool,
    /// Why the connection has ended, if it has.
    pub(super) lost: Option<Loss>,
    /// The next deadline of the state machine.
    pub(super) wake: Option<Instant>,
    /// When the connection is ended unless by then the peer has opened the stream or, after a
    /// close, has acknowledged its end.
    pub(super) deadline: Option<Instant>,
    /// At a near end: the verifier of the far end's key.
    pub(super) verifier: Option<Arc<Verifier>>,
    /// The number of refusals in a row, and when the first of them came.
    refusals: (u32, Option<Instant>),
}

/// An event of a connection on which its endpoint acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Happened {
    /// The handshake is complete.
    Established,
    /// The peer has opened its stream.
    Opened,
}

impl Slot {
    pub(super) fn new(handle: ConnectionHandle, connection: Connection, deadline: Option<Instant>) -> Self {
        Self {
            handle,
            peer: connection.remote_address(),
            connection,
            stream: None,
            owned: false,
            dirty: true,
            readable: false,
            blocked: false,
            finished: false,
            lost: None,
            wake: None,
            deadline,
            verifier: None,
            refusals: (0, None),
        }
    }

    /// Whether the peer comes from `origin` and has not opened its stream.
    pub(super) fn is_unopened_from(&self, origin: Origin) -> bool {
        self.stream.is_none() && Origin::of(self.peer.ip()) == origin
    }

    /// Takes note of an event; returns it if the endpoint must act on it.
    pub(super) fn on_event(&mut self, now: Instant, event: Event) -> Option<Happened> {
        match event {
            Event::Connected => self.on_established(now),
            Event::ConnectionLost { reason } => {
                self.lose(reason.into());
                None
            }
            Event::Stream(event) => self.on_stream(event),
            Event::HandshakeDataReady | Event::DatagramReceived | Event::DatagramsUnblocked => None,
        }
    }

    fn on_established(&mut self, now: Instant) -> Option<Happened> {
        let data = self.connection.crypto_session().handshake_data();
        let protocol =
            data.and_then(|data| data.downcast::<HandshakeData>().ok()).and_then(|data| data.protocol);
        if protocol.as_deref() != Some(PROTOCOL) {
            self.close(now, Loss::OtherProtocol);
            return None;
        }
        if self.connection.side() == Side::Client {
            self.stream = self.connection.streams().open(Dir::Bi);
            if self.stream.is_none() {
                self.close(now, Loss::OtherProtocol);
                return None;
            }
        }
        Some(Happened::Established)
    }

    fn on_stream(&mut self, event: StreamEvent) -> Option<Happened> {
        match event {
            StreamEvent::Opened { dir: Dir::Bi } if self.stream.is_none() => {
                self.stream = self.connection.streams().accept(Dir::Bi);
                self.readable = true;
                self.deadline = None;
                self.stream.map(|_| Happened::Opened)
            }
            StreamEvent::Readable { .. } => {
                self.readable = true;
                None
            }
            StreamEvent::Writable { .. } => {
                self.blocked = false;
                None
            }
            StreamEvent::Finished { .. } => {
                self.finished = true;
                None
            }
            StreamEvent::Stopped { .. } => {
                self.lose(Loss::Reset);
                None
            }
            StreamEvent::Opened { .. } | StreamEvent::Available { .. } => None,
        }
    }

    /// Records that the connection has ended. The first reason counts.
    pub(super) fn lose(&mut self, loss: Loss) {
        self.readable = true;
        self.lost.get_or_insert(loss);
    }

    /// Ends the connection and informs the peer.
    pub(super) fn close(&mut self, now: Instant, loss: Loss) {
        let code = if loss == Loss::Done { CODE_DONE } else { CODE_ABORTED };
        self.lose(loss);
        if !self.connection.is_closed() {
            self.connection.close(now, VarInt::from_u32(code), Bytes::new());
            self.dirty = true;
        }
    }

    /// Takes note that a datagram has come from the peer.
    pub(super) const fn on_heard(&mut self) {
        self.refusals = (0, None);
        self.dirty = true;
    }

    /// Takes note that the network reports a datagram as refused: the port is closed.
    pub(super) fn on_refused(&mut self, now: Instant) {
        let (count, first) = &mut self.refusals;
        *count += 1;
        let length = now - *first.get_or_insert(now);
        if *count >= REFUSALS_MAX && length >= REFUSED_FOR || self.connection.is_handshaking() {
            self.close(now, Loss::Gone);
        }
    }

    /// The key that the peer has proved.
    pub(super) fn key(&self) -> Option<Fingerprint> {
        proved_over_quic(self.connection.crypto_session().peer_identity())
    }

    /// When the connection next has something due, if ever.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.wake.into_iter().chain(self.deadline).min()
    }

    /// Fires due deadlines; returns whether any was due.
    pub(super) fn handle_timeout(&mut self, now: Instant) -> bool {
        let mut fired = false;
        if self.deadline.is_some_and(|at| at <= now) {
            self.deadline = None;
            self.close(now, Loss::Aborted);
            fired = true;
        }
        if self.wake.is_some_and(|at| at <= now) {
            self.connection.handle_timeout(now);
            fired = true;
        }
        self.dirty |= fired;
        fired
    }
}
