//! Connections that share a socket or an interface.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::hash::Hash;

use engine::{Entropy, Instant, Nanos};

use crate::challenge::Challenges;
use crate::connection::Connection;
use crate::packet::{Datagram, MEETING_BYTES, Name, PORT_MAX};

/// Maximum number of accepted connections. Further hosts get no answer. The tunnel's gate keeps
/// half as many waiting, so that the gate decides which of them must go.
const CONNECTIONS_MAX: usize = 128;
/// Number of hosts that may request a connection without proof of their address. Further hosts get
/// a challenge, and the endpoint keeps no state for them until they answer.
const UNCHALLENGED_MAX: usize = 8;
/// Maximum number of hosts of one network that have requested a connection and not shown that they
/// received the answer.
const ASKING_PER_NETWORK_MAX: usize = 16;
/// Maximum number of hosts that have requested a connection and not shown that they received the
/// answer. A further host takes the place of the earliest one.
const ASKING_MAX: usize = 64;
/// How long a host may take to show that it got the answer.
const ASKING_FOR: Nanos = Nanos::from_secs(5);
/// The most answers to datagrams of unknown connections that wait to be sent.
const ANSWERS_MAX: usize = 256;

/// A connection of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id(Name);

impl Id {
    /// The name by which datagrams call this end, as they have it.
    pub const fn name(self) -> [u8; 8] {
        self.0.0.to_be_bytes()
    }
}

#[derive(Debug)]
struct Slot<A> {
    connection: Connection,
    address: A,
    /// The peer's question, if it may be repeated, and when it is too late for that.
    asked: Option<(Name, Instant)>,
}

/// The answer to a datagram that belongs to no connection.
#[derive(Clone, Copy, Debug)]
enum Answer {
    Unknown(Name),
    Challenge(Name, u64),
}

/// The name of a network: addresses that one sender can choose among have the same.
pub type Network = [u8; 16];

/// The connections over one socket or interface, whose peers have addresses of type `A`. Datagrams
/// of a connection from another address than its peer's are dropped.
#[derive(Debug)]
pub struct Endpoint<A> {
    slots: BTreeMap<Name, Slot<A>>,
    arrived: VecDeque<Id>,
    answers: VecDeque<(A, Answer)>,
    entropy: Entropy,
    challenges: Challenges,
    /// The network of an address, by which connections are counted.
    network: fn(A) -> Network,
    datagram_max: usize,
    /// Where others may dial, if they may.
    port: Option<u16>,
    dropped: u64,
}

impl<A: Copy + PartialEq + Hash> Endpoint<A> {
    /// An endpoint without connections. Datagrams have at most `datagram_max` bytes; a path need
    /// not carry more than [`MEETING_BYTES`]. Others may dial it at `port`, if one is given, of at
    /// most [`PORT_MAX`]: several processes may share an address, each with a port of its own.
    pub fn new(mut entropy: Entropy, datagram_max: usize, port: Option<u16>) -> Self {
        Self {
            challenges: Challenges::new(&mut entropy),
            network: |_| Network::default(),
            slots: BTreeMap::new(),
            arrived: VecDeque::new(),
            answers: VecDeque::new(),
            entropy,
            datagram_max: datagram_max.clamp(MEETING_BYTES, 65_507),
            port: port.map(|port| port.min(PORT_MAX)),
            dropped: 0,
        }
    }

    /// Counts the places of addresses by the networks that `network` gives.
    #[must_use]
    pub fn with_networks(mut self, network: fn(A) -> Network) -> Self {
        self.network = network;
        self
    }

    /// A name that no connection has, of random bits.
    fn name(&mut self, of: impl Fn(u64) -> Name) -> Name {
        loop {
            let name = of(self.entropy.next_u64());
            if !self.slots.contains_key(&name) {
                return name;
            }
        }
    }

    /// Dials the endpoint at `address` that has this port.
    pub fn connect(&mut self, now: Instant, address: A, port: u16) -> Id {
        let name = self.name(Name::dialling);
        let connection = Connection::dialling(now, name, port, self.datagram_max);
        self.slots.insert(name, Slot { connection, address, asked: None });
        Id(name)
    }

    /// The next connection that a peer has opened.
    pub fn accept(&mut self) -> Option<(Id, A)> {
        let id = self.arrived.pop_front()?;
        Some((id, self.slots.get(&id.0)?.address))
    }

    /// Whether [`Endpoint::accept`] has a connection.
    pub fn has_arrivals(&self) -> bool {
        !self.arrived.is_empty()
    }

    /// The connection `id`, until it is removed.
    pub fn get(&mut self, id: Id) -> Option<&mut Connection> {
        self.slots.get_mut(&id.0).map(|slot| &mut slot.connection)
    }

    /// Forgets a connection. Datagrams of it are answered as unknown from now on.
    pub fn remove(&mut self, id: Id) {
        self.slots.remove(&id.0);
    }

    /// Whether there is a connection with `address`, or one that this end is opening. A host that
    /// has requested a connection, and not shown that it received the answer, does not count yet.
    pub fn has_peer(&self, address: A) -> bool {
        self.slots.values().any(|slot| slot.address == address && slot.asked.is_none())
    }

    /// Number of datagrams that were not of this protocol, or of no connection, or from another
    /// address.
    pub const fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Handles a datagram received from `from`.
    pub fn handle_datagram(&mut self, now: Instant, from: A, bytes: &[u8]) {
        let datagram = match Datagram::parse(bytes) {
            Ok(datagram) => datagram,
            Err(_) => return self.drop_one(),
        };
        match datagram {
            Datagram::Hello { from: name, port, echo } => self.on_hello(now, from, (name, port, echo)),
            Datagram::Challenge { to, value } => {
                if let Some(slot) = self.slot(to, from) {
                    slot.connection.on_challenge(value);
                }
            }
            Datagram::Welcome { to, from: name } => {
                if let Some(slot) = self.slot(to, from) {
                    slot.connection.on_welcome(now, name);
                }
            }
            Datagram::End { to } => {
                if let Some(slot) = self.slot(to, from) {
                    slot.connection.on_end();
                }
            }
            Datagram::Unknown { name } => {
                self.slots
                    .values_mut()
                    .filter(|slot| slot.address == from)
                    .for_each(|slot| slot.connection.on_unknown(name));
            }
            Datagram::Packet { to, purpose, number, ack, offset, bytes } => {
                let Some(slot) = self.slot(to, from) else {
                    // Several processes of one station share its address: packets for others are
                    // not for this one.
                    let is_mine =
                        self.port.is_some_and(|port| to.is_of(port)) && !self.slots.contains_key(&to);
                    if is_mine {
                        self.answer(from, Answer::Unknown(to));
                    }
                    return;
                };
                slot.connection.on_packet(now, (purpose, number, &ack), (offset, bytes));
                if slot.asked.take().is_some() {
                    self.arrived.push_back(Id(to));
                }
            }
        }
    }

    /// Handles the network's report that `address` is unreachable.
    pub fn handle_refusal(&mut self, now: Instant, address: A) {
        let slots = self.slots.values_mut().filter(|slot| slot.address == address);
        slots.for_each(|slot| slot.connection.on_refused(now));
    }

    const fn drop_one(&mut self) {
        self.dropped += 1;
    }

    /// The connection called `name`, if its peer is at `address`.
    fn slot(&mut self, name: Name, address: A) -> Option<&mut Slot<A>> {
        let found = self.slots.get_mut(&name).filter(|slot| slot.address == address);
        if found.is_none() {
            self.dropped += 1;
        }
        found
    }

    /// Queues an answer. A full queue drops it, and the peer repeats its request.
    fn answer(&mut self, to: A, answer: Answer) {
        if self.answers.len() < ANSWERS_MAX {
            self.answers.push_back((to, answer));
        }
    }

    /// Handles a host's request for a connection at `dialled`.
    fn on_hello(&mut self, now: Instant, address: A, (peer, dialled, echo): (Name, u16, u64)) {
        let Some(port) = self.port.filter(|port| *port == dialled) else { return self.drop_one() };
        let known = |slot: &&mut Slot<A>| {
            slot.address == address && slot.asked.is_some_and(|(asked, _)| asked == peer)
        };
        if let Some(slot) = self.slots.values_mut().find(known) {
            return slot.connection.on_hello();
        }
        let asking =
            || self.slots.iter().filter_map(|(name, slot)| Some((slot.asked?.1, *name, slot.address)));
        let count = asking().count();
        if count >= UNCHALLENGED_MAX && !self.challenges.is_met(now, &address, peer, echo) {
            let value = self.challenges.value(now, &address, peer);
            return self.answer(address, Answer::Challenge(peer, value));
        }
        if self.slots.len() - count >= CONNECTIONS_MAX {
            return self.drop_one();
        }
        let network = (self.network)(address);
        let is_near = |other: &(Instant, Name, A)| (self.network)(other.2) == network;
        let first = |(at, name, _): (Instant, Name, A)| (at, name);
        let leaving = if asking().filter(is_near).count() >= ASKING_PER_NETWORK_MAX {
            asking().filter(is_near).map(first).min()
        } else if count >= ASKING_MAX {
            asking().map(first).min()
        } else {
            None
        };
        if let Some((_, name)) = leaving {
            self.slots.remove(&name);
        }
        let name = self.name(|bits| Name::dialled(port, bits));
        let connection = Connection::accepted(now, name, peer, self.datagram_max);
        self.slots.insert(name, Slot { connection, address, asked: Some((peer, now + ASKING_FOR)) });
    }

    /// Appends the next datagram to `room`, if one is to be sent now; returns its destination.
    pub fn poll_transmit(&mut self, now: Instant, room: &mut Vec<u8>) -> Option<A> {
        if let Some((address, answer)) = self.answers.pop_front() {
            match answer {
                Answer::Unknown(name) => Datagram::Unknown { name },
                Answer::Challenge(to, value) => Datagram::Challenge { to, value },
            }
            .emit(room);
            return Some(address);
        }
        self.slots
            .values_mut()
            .find_map(|slot| slot.connection.poll_transmit(now, room).then_some(slot.address))
    }

    /// When [`Endpoint::handle_timeout`] is due, if ever.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let slots = self.slots.values();
        slots
            .flat_map(|slot| [slot.connection.poll_timeout(), slot.asked.map(|(_, until)| until)])
            .flatten()
            .min()
    }

    /// Handles everything that has become due.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.slots.retain(|_, slot| slot.asked.is_none_or(|(_, until)| until > now));
        self.slots.values_mut().for_each(|slot| slot.connection.handle_timeout(now));
    }
}
