//! Connection management: finds the connection of a message, and answers messages without one.

use core::net::IpAddr;

use alloc::rc::Rc;

use engine::{Instant, Nanos};
use rdma::{QueuePair, SharedCompletionQueue, State, WorkError};

use super::{Device, HALF_OPEN_MAX, Slot};
use crate::PathMtu;
use crate::connection::{Connection, Phase, random};
use crate::wire::{
    Disconnect, Identifiers, Message, REJECT_DATA, Reject, Reply, Request, Which, port_of_service, reason,
};

/// How long the device remembers the request of a connection that is over.
const PAST_TIME: Nanos = Nanos::from_secs(10);
/// Maximum number of remembered requests.
const PAST_MAX: usize = 4096;

impl Device {
    /// Creates a connection.
    pub(super) fn insert(&mut self, phase: Phase, peer: IpAddr, remote: u32) -> Option<Slot> {
        let start = random(&mut self.shared);
        let slot = self.table.reserve(self.shared.config.connections, start)?;
        let identifiers = Identifiers { local: slot.identifier(random(&mut self.shared)), remote };
        let completions = SharedCompletionQueue::default();
        let mut pair = QueuePair::new(rdma::Config {
            id: slot.queue_pair(),
            send_depth: self.shared.config.send_depth,
            receive_depth: self.shared.config.receive_depth,
            shared_receives: None,
            completions: Rc::clone(&completions),
        });
        // Receive requests may be posted before the connection is established.
        let _: Result<(), rdma::TransitionError> = pair.modify(State::Initialised);
        let mut connection = Connection::new(phase, peer, identifiers, (pair, completions), &mut self.shared);
        // Until a user takes it.
        connection.is_orphan = phase == Phase::Requested;
        let is_half_open = connection.is_half_open();
        self.table.put(slot, connection);
        self.count_half_open(false, is_half_open);
        Some(slot)
    }

    /// Forgets a connection that is over.
    pub(super) fn remove(&mut self, slot: Slot) {
        let Some(mut connection) = self.table.remove(slot) else { return };
        if let Some(wake) = connection.wake {
            self.wakes.remove(&(wake, slot));
        }
        connection.pair.fail(WorkError::Flushed);
        self.shared.domain.borrow_mut().release(slot.queue_pair());
        let key = (connection.peer, connection.identifiers.remote);
        if self.requests.get(&key) == Some(&Some(slot)) {
            self.requests.insert(key, None);
            self.past.push_back((self.now + PAST_TIME, key));
            if self.past.len() > PAST_MAX {
                self.forget_oldest();
            }
        }
    }

    /// Forgets requests of connections that ended long ago.
    pub(super) fn forget_past(&mut self, now: Instant) {
        while self.past.front().is_some_and(|(at, _)| *at <= now) {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        if let Some((_, key)) = self.past.pop_front()
            && self.requests.get(&key) == Some(&None)
        {
            self.requests.remove(&key);
        }
    }

    /// Handles a message of connection management.
    pub(super) fn on_message(&mut self, now: Instant, peer: IpAddr, transaction: u64, message: &Message) {
        let identifiers = match message {
            Message::Request(request) => return self.on_request(now, peer, transaction, request),
            Message::Reply(Reply { identifiers, .. })
            | Message::Reject(Reject { identifiers, .. })
            | Message::Disconnect(Disconnect { identifiers, .. })
            | Message::MoreTime(identifiers, ..)
            | Message::ReadyToUse(identifiers)
            | Message::Disconnected(identifiers) => *identifiers,
        };
        let is_reply = matches!(message, Message::Reply(_));
        let slot = self.table.find(identifiers.remote).filter(|slot| {
            self.table.get(*slot).is_some_and(|connection| {
                // The peer's identifier is unknown until its reply arrives. A refusal need not have
                // one.
                let is_first = connection.phase == Phase::Requesting;
                let is_refusal = matches!(message, Message::Reject(_)) && identifiers.local == 0;
                let is_known = is_first || is_refusal || connection.identifiers.remote == identifiers.local;
                connection.peer == peer && is_known
            })
        });
        let Some((slot, connection)) = slot.and_then(|slot| Some((slot, self.table.get_mut(slot)?))) else {
            self.counters.dropped += 1;
            self.answer_unknown(peer, transaction, message, is_reply.then_some(identifiers));
            return;
        };
        let was_half_open = connection.is_half_open();
        match message {
            Message::Reply(reply) => connection.on_reply(now, reply, &mut self.shared),
            Message::ReadyToUse(_) => connection.on_ready(),
            Message::Reject(reject) => connection.on_reject(reject),
            Message::MoreTime(_, _, code) => connection.on_more_time(now, *code, &self.shared),
            Message::Disconnect(_) => connection.on_disconnect(transaction, &mut self.shared),
            Message::Disconnected(_) => connection.on_disconnected(),
            Message::Request(_) => {}
        }
        let is_half_open = connection.is_half_open();
        self.count_half_open(was_half_open, is_half_open);
        self.look_after(slot);
    }

    /// Answers a message for an unknown connection.
    fn answer_unknown(
        &mut self,
        peer: IpAddr,
        transaction: u64,
        message: &Message,
        reply: Option<Identifiers>,
    ) {
        if let Message::Disconnect(Disconnect { identifiers, .. }) = message {
            let back = Identifiers { local: identifiers.remote, remote: identifiers.local };
            self.shared.send(peer, &Message::Disconnected(back).emit(transaction));
        }
        if let Some(identifiers) = reply {
            let back = Identifiers { local: identifiers.remote, remote: identifiers.local };
            self.refuse(peer, transaction, back, (Which::Reply, reason::INVALID_IDENTIFIER, 0));
        }
    }

    fn refuse(
        &mut self,
        peer: IpAddr,
        transaction: u64,
        identifiers: Identifiers,
        (which, reason, information): (Which, u16, u8),
    ) {
        let reject = Reject { identifiers, which, reason, information, data: [0; REJECT_DATA] };
        self.shared.refuse(peer, transaction, &reject);
    }

    /// Handles a peer's request for a connection.
    fn on_request(&mut self, now: Instant, peer: IpAddr, transaction: u64, request: &Request) {
        let key = (peer, request.local);
        match self.requests.get(&key) {
            // A late copy of a request whose connection is over.
            Some(None) => return,
            Some(Some(slot)) => {
                if let Some(connection) = self.table.get(*slot) {
                    connection.on_repeated_request(&mut self.shared);
                }
                return;
            }
            None => {}
        }
        let no = match self.objection(request) {
            Some(no) => no,
            None => match self.insert(Phase::Requested, peer, request.local) {
                Some(slot) => {
                    self.requests.insert(key, Some(slot));
                    self.requested.push_back(slot);
                    if let Some(connection) = self.table.get_mut(slot) {
                        connection.on_request(now, transaction, request);
                    }
                    self.look_after(slot);
                    return;
                }
                None => (reason::NO_RESOURCES, 0),
            },
        };
        if no.0 == reason::NO_RESOURCES {
            self.counters.overflowed += 1;
        }
        let identifiers = Identifiers { local: 0, remote: request.local };
        self.refuse(peer, transaction, identifiers, (Which::Request, no.0, no.1));
    }

    /// The reason for refusing a request before the user sees it, and additional information.
    fn objection(&self, request: &Request) -> Option<(u16, u8)> {
        let port = port_of_service(request.service).filter(|port| self.listening.contains(port));
        let ours = self.shared.config.mtu;
        if port.is_none() || request.addresses.is_none() {
            Some((reason::INVALID_SERVICE, 0))
        } else if request.transport != 0 {
            Some((reason::INVALID_TRANSPORT, 0))
        } else if PathMtu::of_code(request.mtu).is_none_or(|theirs| theirs > ours) {
            Some((reason::INVALID_MTU, ours as u8))
        } else if self.half_open >= HALF_OPEN_MAX {
            Some((reason::NO_RESOURCES, 0))
        } else {
            None
        }
    }
}
