//! The packets of a connection, in both directions.

use engine::{Buffer, Instant, Nanos};
use rdma::{Disconnected, State, WorkError};

use super::{Connection, Phase, Shared};
use crate::limiter::Limiter;
use crate::requester::{self, Requester};
use crate::responder::{self, Fault, Responder};
use crate::sequence::Sequence;
use crate::wire::{Head, Header, Packet};

/// Minimum time between two congestion notifications to a peer.
const NOTIFY_EVERY: Nanos = Nanos::from_micros(50);
/// Maximum number of packets that overtake a waiting acknowledgement. The peer waits for the
/// answers in them, and one late acknowledgement covers more packets.
const DEFERRALS_MAX: u8 = 8;

/// Both halves of a connection.
#[derive(Debug)]
pub(crate) struct Channel {
    /// The peer's queue pair.
    pub(crate) peer: u32,
    pub(crate) requester: Requester,
    pub(crate) responder: Responder,
    limiter: Limiter,
    /// When the rate limit permits the next packet.
    pub(super) limited_until: Option<Instant>,
    /// Number of packets that have overtaken the waiting acknowledgement.
    deferrals: u8,
    /// Packets of the peer were marked, and a notification is due.
    must_notify: bool,
    /// When the last notification was sent.
    notified_at: Option<Instant>,
}

impl Channel {
    /// A channel whose first packets have these numbers. Each end sends the number that the other
    /// end has announced.
    pub(super) fn new(
        requester: requester::Settings,
        responder: responder::Settings,
        (expected, first): (u32, u32),
        shared: &Shared,
    ) -> Self {
        let (pool, domain) = (shared.pool.clone(), shared.domain.clone());
        Self {
            peer: requester.peer,
            requester: Requester::new(requester, Sequence::new(first), pool.clone()),
            responder: Responder::new(responder, Sequence::new(expected), domain, pool),
            limiter: Limiter::new(shared.config.line_rate),
            limited_until: None,
            deferrals: 0,
            must_notify: false,
            notified_at: None,
        }
    }
}

impl Connection {
    /// Handles a packet of the peer that the network has marked.
    pub(crate) fn on_mark(&mut self, now: Instant) {
        if let Some(channel) = self.channel.as_mut().filter(|_| self.phase == Phase::Established) {
            channel.must_notify |= channel.notified_at.is_none_or(|at| at + NOTIFY_EVERY <= now);
        }
    }

    /// Handles a packet for this queue pair.
    pub(crate) fn on_packet(&mut self, now: Instant, packet: &Packet, payload: Buffer, shared: &mut Shared) {
        let is_request =
            matches!(packet.header, Header::Send { .. } | Header::Write { .. } | Header::ReadRequest(_))
                || packet.header == Header::Unsupported;
        if is_request && self.phase == Phase::Accepting {
            // The message that the peer is ready was lost. The packet shows that the peer is ready.
            self.on_ready();
        }
        let is_open = self.phase == Phase::Established;
        if is_open {
            // The peer knows that this end is ready.
            self.answered();
        }
        let Some(channel) = self.channel.as_mut() else { return };
        if is_request {
            // After a fault, the peer gets the reason, even if it repeats its request.
            if !is_open && !channel.responder.has_failed() {
                return;
            }
            if let Err(fault) = channel.responder.on_request(packet, payload, &mut self.pair) {
                let why = match fault {
                    Fault::Protocol(what) => Disconnected::PeerFault(what),
                    Fault::Access(error) => Disconnected::Access(error),
                };
                self.fail(now, why, WorkError::Flushed, shared);
            }
            return;
        }
        if !is_open {
            return;
        }
        let number = packet.base.number;
        let result = match packet.header {
            Header::Acknowledge(acknowledge) => {
                channel.requester.on_acknowledge(now, number, acknowledge, &mut self.pair)
            }
            Header::ReadResponse { part, .. } => {
                channel.requester.on_read_response(now, number, part, payload, &mut self.pair)
            }
            Header::Congestion => {
                channel.limiter.on_notification(now);
                Ok(())
            }
            _ => Ok(()),
        };
        if let Err(error) = result {
            let why = match error {
                WorkError::BadResponse => Disconnected::PeerFault("an unexpected response"),
                WorkError::RemoteAccess => {
                    Disconnected::Reported("this end may not access the memory that its request names")
                }
                WorkError::RemoteInvalidRequest => Disconnected::Reported("a request of this end is invalid"),
                WorkError::ReceiverNotReady => Disconnected::Reported("it has no receive request"),
                _ => Disconnected::Reported("it could not perform a request"),
            };
            self.fail(now, why, error, shared);
        }
    }

    /// The next packet to send, if there is one.
    pub(crate) fn poll_packet(&mut self, now: Instant) -> Option<(Head, Buffer)> {
        let channel = self.channel.as_mut()?;
        if core::mem::take(&mut channel.must_notify) {
            channel.notified_at = Some(now);
            let header = Header::Congestion;
            return Some((Head::new(header.base(channel.peer, 0, false), &header), Buffer::EMPTY));
        }
        channel.limited_until = channel.limiter.blocked_until(now);
        if channel.limited_until.is_some() && channel.responder.has_data_next() {
            return None;
        }
        let may_send = self.phase == Phase::Established && self.pair.state() == State::ReadyToSend;
        let may_defer = channel.deferrals < DEFERRALS_MAX && channel.responder.only_acknowledges();
        if may_defer
            && may_send
            && channel.limited_until.is_none()
            && let Some((head, payload)) = channel.requester.poll(now, &mut self.pair)
        {
            channel.deferrals += 1;
            channel.limiter.on_sent(now, payload.len());
            return Some((head, payload));
        }
        if let Some((head, payload)) = channel.responder.poll(&self.pair) {
            channel.deferrals = 0;
            channel.limiter.on_sent(now, payload.len());
            return Some((head, payload));
        }
        if channel.limited_until.is_some() || !may_send {
            return None;
        }
        let (head, payload) = channel.requester.poll(now, &mut self.pair)?;
        channel.limiter.on_sent(now, payload.len());
        Some((head, payload))
    }
}
