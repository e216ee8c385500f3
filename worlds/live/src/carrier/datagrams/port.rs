//! A socket or interface, and the connections over it.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use datagrams::{Connection, Endpoint, Id};
use engine::{Instant, Nanos, Origin};

use super::info::Info;
use super::wire::{Seen, Wire};
use crate::sys::clock::Clock;
use crate::sys::entropy;

/// The most bytes of one send.
const SEND_BYTES: usize = 64_000;
/// The most sends in a row. More follow in the next turn.
const SENDS_MAX: usize = 256;
/// The pause before datagrams that the system did not take are sent again.
const AGAIN: Nanos = Nanos::from_micros(200);
/// How often interfaces that are down, or gone, are looked at.
const DOWN_EVERY: Nanos = Nanos::from_secs(1);
/// How often deadlines are looked at while something always comes.
const SETTLE_EVERY: Nanos = Nanos::from_micros(100);

/// The form in which streams share a port.
pub(super) type Shared = Rc<RefCell<Port>>;

/// Datagrams of equal length, of which the last may be shorter, for one peer.
#[derive(Debug)]
struct Unsent {
    to: SocketAddr,
    bytes: Vec<u8>,
    length: usize,
}

/// A socket or interface, and the connections over it.
pub(super) struct Port {
    wire: Wire,
    pub(super) endpoint: Endpoint<SocketAddr>,
    /// Datagrams that the system did not take; they are sent before all others.
    unsent: VecDeque<Unsent>,
    /// Blocks for sent datagrams.
    room: Vec<u8>,
    again_at: Option<Instant>,
    /// When interfaces that are waited for are looked at again.
    check_at: Option<Instant>,
    /// Why nothing comes any more, if the interfaces were deleted.
    lost: Option<(io::ErrorKind, String)>,
    /// Whether there may be something to send: something has come, was given, or was due.
    has_work: bool,
    /// The endpoint's next deadline, and whether that may have changed since `settled_at`.
    wake: Option<Instant>,
    is_unsettled: bool,
    settled_at: Instant,
    clock: Clock,
    /// The same moment by that clock and by ours.
    epoch: (Instant, Instant),
}

impl Port {
    /// A port without connections. Others may dial it if `is_open`.
    pub(super) fn new(wire: Wire, is_open: bool, now: Instant) -> Self {
        let clock = Clock::start();
        Self {
            endpoint: Endpoint::new(entropy::system(), wire.datagram_max(), is_open.then_some(wire.port()))
                .with_networks(|address| Origin::of(address.ip()).octets()),
            wire,
            unsent: VecDeque::new(),
            room: Vec::new(),
            again_at: None,
            check_at: None,
            lost: None,
            has_work: false,
            wake: None,
            is_unsettled: true,
            settled_at: now,
            clock,
            epoch: (clock.now(), now),
        }
    }

    /// The carrier of the datagrams.
    pub(super) const fn wire(&self) -> &Wire {
        &self.wire
    }

    /// Dials `address`.
    pub(super) fn dial(&mut self, address: SocketAddr) -> Id {
        let now = self.now();
        let id = self.endpoint.connect(now, address, self.wire.port());
        self.wire.open_lane(Some(id.name()));
        self.touch();
        self.transmit();
        id
    }

    /// The time. A turn's own time is not good enough to measure round trips of a few microseconds.
    pub(super) fn now(&self) -> Instant {
        let (real, ours) = self.epoch;
        ours + (self.clock.now() - real)
    }

    /// A connection was given something, or has given something away: it may have to send.
    pub(super) const fn touch(&mut self) {
        (self.has_work, self.is_unsettled) = (true, true);
    }

    /// The connection `id`.
    ///
    /// # Panics
    /// When it was removed.
    pub(super) fn connection(&mut self, id: Id) -> &mut Connection {
        self.endpoint.get(id).expect("a connection is kept as long as its stream")
    }

    /// Counts of the datagrams of the connection `id` to `peer`.
    pub(super) fn info(&mut self, id: Id, peer: SocketAddr) -> Info {
        let (late, (paths, copies)) = (self.wire.missed(), self.wire.paths(peer));
        let connection = self.connection(id);
        Info {
            datagrams: connection.counters(),
            round_trip: connection.round_trip(),
            window: connection.window(),
            under_way: connection.under_way(),
            datagram_bytes: connection.datagram_bytes(),
            late,
            paths,
            copies,
        }
    }

    /// Takes the datagrams that have come and fires due deadlines; returns whether any had come.
    ///
    /// # Errors
    /// When the socket fails for a reason other than the network.
    pub(super) fn pump(&mut self) -> io::Result<bool> {
        self.fail_if_lost()?;
        let (now, endpoint) = (self.now(), &mut self.endpoint);
        let looked = self.wire.look(now, |from, bytes| endpoint.handle_datagram(now, from, bytes));
        if let Err(error) = &looked
            && self.wire.is_gone()
        {
            self.lost = Some((error.kind(), error.to_string()));
        }
        let seen = looked?;
        self.check_at = self.wire.is_waiting().then(|| now + DOWN_EVERY);
        if let Seen::Refused(addresses) = &seen {
            addresses.iter().for_each(|address| endpoint.handle_refusal(now, *address));
        }
        let has_seen = seen != Seen::Nothing;
        if has_seen {
            self.touch();
        }
        // A caller that waits for arrived datagrams should not also wait for a look at the
        // deadlines.
        if self.is_unsettled && (!has_seen || now - self.settled_at >= SETTLE_EVERY) {
            self.settle(now);
        }
        if Instant::earlier(self.wake, self.again_at).is_some_and(|at| at <= now) {
            self.again_at = None;
            self.endpoint.handle_timeout(now);
            self.touch();
            self.transmit();
            self.settle(now);
        }
        Ok(has_seen)
    }

    /// Why nothing comes any more, if the interfaces were deleted.
    pub(super) fn lost(&self) -> Option<&str> {
        self.lost.as_ref().map(|(_, why)| why.as_str())
    }

    /// Fails once the interfaces were deleted.
    ///
    /// # Errors
    /// The error with which they were lost.
    pub(super) fn fail_if_lost(&self) -> io::Result<()> {
        let Some((kind, why)) = &self.lost else { return Ok(()) };
        Err(io::Error::new(*kind, why.clone()))
    }

    /// Asks the endpoint for its next deadline.
    fn settle(&mut self, now: Instant) {
        (self.wake, self.is_unsettled, self.settled_at) = (self.endpoint.poll_timeout(), false, now);
    }

    /// Forgets a connection, and with the last one of its peer the state of that peer.
    pub(super) fn remove(&mut self, id: Id) {
        self.endpoint.remove(id);
        self.forget_strangers();
        self.is_unsettled = true;
    }

    /// Gives up the places at peers that have no connection any more.
    fn forget_strangers(&mut self) {
        let endpoint = &self.endpoint;
        self.wire.keep_peers(|address| endpoint.has_peer(address));
    }

    /// The time of the next call to [`Port::pump`] if nothing comes before.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        // Due work is not done any more.
        if self.lost.is_some() {
            return None;
        }
        let wake = if self.is_unsettled { self.endpoint.poll_timeout() } else { self.wake };
        Instant::earlier(wake, Instant::earlier(self.again_at, self.check_at))
    }

    /// Calls for another look at the socket, which has more than was looked at.
    pub(super) fn look_again(&mut self) {
        self.again_at = Some(self.now());
    }

    /// Sends all waiting datagrams.
    pub(super) fn transmit(&mut self) {
        if !self.has_work {
            return;
        }
        let now = self.now();
        self.is_unsettled = true;
        for _ in 0..SENDS_MAX {
            let next = self.unsent.pop_front().or_else(|| self.gather(now));
            let Some(mut unsent) = next else {
                self.has_work = false;
                self.forget_strangers();
                return;
            };
            let taken = self.wire.send(unsent.to, &unsent.bytes, unsent.length);
            if taken < unsent.bytes.len() {
                unsent.bytes.drain(..taken);
                self.again_at = Some(now + AGAIN);
                self.unsent.push_front(unsent);
                return;
            }
            // The block is used again.
            self.room = unsent.bytes;
        }
        self.again_at = Some(now);
    }

    /// The next datagrams that one send takes.
    fn gather(&mut self, now: Instant) -> Option<Unsent> {
        let (mut bytes, segments) = (core::mem::take(&mut self.room), self.wire.segments());
        bytes.clear();
        let Some(to) = self.endpoint.poll_transmit(now, &mut bytes) else {
            self.room = bytes;
            return None;
        };
        let length = bytes.len();
        for count in 1..segments {
            let begin = bytes.len();
            if begin < count * length || begin + length > SEND_BYTES {
                break;
            }
            let Some(next) = self.endpoint.poll_transmit(now, &mut bytes) else { break };
            if next != to || bytes.len() - begin > length {
                let rest = bytes.split_off(begin);
                self.unsent.push_back(Unsent { to: next, length: rest.len(), bytes: rest });
                break;
            }
        }
        Some(Unsent { to, bytes, length })
    }
}

impl fmt::Debug for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Port({:?}, {} dropped)", self.wire.name(), self.endpoint.dropped())
    }
}
