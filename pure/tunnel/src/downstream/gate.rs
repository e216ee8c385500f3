//! Connections whose Hello has not arrived yet.

use alloc::vec::Vec;

use engine::{Buffer, Crc32c, Instant, Origin};
use serde::{Deserialize, Serialize};

use super::ConnectionId;
use crate::Fingerprint;
use crate::frame::{
    Frame, FrameError, FrameHeader, FrameKind, HEADER_LENGTH, HELLO_BODY_MAX, InstanceId, Member, RefuseCode,
    Role, Secret, Sequence, sign,
};
use crate::session::{SEGMENT_MAX, Ungreeted, greeting};

/// How many connections may be waiting for their Hello to arrive.
pub const WAITING_MAX: usize = 64;
/// How many connections that wait for their Hello may come from one IPv4 address or one IPv6
/// network.
pub const WAITING_PER_ADDRESS_MAX: usize = WAITING_MAX / PER_ADDRESS;
/// The part of the places that one address may have.
const PER_ADDRESS: usize = 4;
/// The number of addresses that the gate remembers of hosts that had a session.
const HOMES_MAX: usize = 16;

/// The sender of a Hello.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caller {
    /// The instance of the host.
    pub(super) instance: InstanceId,
    /// The strand that the caller wants to be, unless it wants a link of its own.
    pub(super) member: Option<Member>,
    /// The secret by which the caller proves a session that it has, or had.
    pub(super) secret: Option<Secret>,
    /// Where the caller comes from.
    pub(super) origin: Origin,
    /// The key that the caller has proved, if any.
    pub(super) key: Option<Fingerprint>,
    /// The longest segment that the connection takes, in bytes.
    pub(super) segment_max: usize,
}

/// The state of a connection at the gate.
pub(super) enum Verdict {
    /// The Hello is not complete.
    Waits,
    /// A host has said Hello in the first buffer. The rest of the piece is in the second.
    Host(Caller, [Buffer; 2]),
    /// The connection is refused.
    No(Ungreeted),
}

#[derive(Serialize, Deserialize)]
struct Waiting {
    connection: ConnectionId,
    origin: Origin,
    key: Option<Fingerprint>,
    segment_max: usize,
    deadline: Instant,
    /// The bytes of the Hello's frame that have arrived.
    bytes: Vec<u8>,
}

/// Counts of the connections that have come to the gate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Callers {
    /// Connections whose Hello is awaited now.
    pub waiting: usize,
    /// Connections that were accepted.
    pub accepted: u64,
    /// Connections that carried a session.
    pub admitted: u64,
    /// Connections that were refused because of their Hello, or of its key.
    pub refused: u64,
    /// Connections whose Hello did not come in time.
    pub late: u64,
    /// Connections that left their places to later ones.
    pub displaced: u64,
}

/// Waits for the Hello of each new connection. The gate keeps no more than one frame of a stranger.
/// It always has room for a further connection: the origin with the most places loses one.
#[derive(Serialize, Deserialize)]
pub(super) struct Gate {
    #[serde(with = "engine::state::crc32c")]
    crc32c: Crc32c,
    /// Connections in order of arrival, the oldest first.
    waiting: Vec<Waiting>,
    /// The number of connections that may wait.
    places: usize,
    /// Where hosts that had a session came from, the latest last.
    homes: Vec<Origin>,
    pub(super) callers: Callers,
}

impl Gate {
    /// Takes the function for digests of a new world.
    pub(super) const fn adopt(&mut self, crc32c: Crc32c) {
        self.crc32c = crc32c;
    }

    pub(super) const fn new(crc32c: Crc32c) -> Self {
        let callers = Callers { waiting: 0, accepted: 0, admitted: 0, refused: 0, late: 0, displaced: 0 };
        Self { crc32c, waiting: Vec::new(), places: WAITING_MAX, homes: Vec::new(), callers }
    }

    /// Has `places` connections wait at most, between 1 and [`WAITING_MAX`].
    pub(super) fn set_places(&mut self, places: usize) {
        self.places = places.clamp(1, WAITING_MAX);
    }

    /// Remembers that a host that had a session came from `origin`: connections from there leave
    /// the gate only if there are no others.
    pub(super) fn remember(&mut self, origin: Origin) {
        self.homes.retain(|home| *home != origin);
        if self.homes.len() == HOMES_MAX {
            self.homes.remove(0);
        }
        self.homes.push(origin);
        self.callers.admitted += 1;
    }

    /// The counts of connections so far.
    pub(super) fn callers(&self) -> Callers {
        Callers { waiting: self.waiting.len(), ..self.callers }
    }

    /// Takes in a new connection, and returns the connection that must leave for it, if any.
    pub(super) fn accept(
        &mut self,
        connection: ConnectionId,
        origin: Origin,
        deadline: Instant,
    ) -> Option<ConnectionId> {
        self.forget(connection);
        self.callers.accepted += 1;
        let victim = if self.count(origin) >= self.places.div_ceil(PER_ADDRESS) {
            self.oldest(origin)
        } else if self.waiting.len() >= self.places {
            // Of origins with as many places, the one whose connection has waited longest.
            let others = self.waiting.iter().rev().map(|waiting| waiting.origin);
            let weight = |other: &Origin| (!self.homes.contains(other), self.count(*other));
            self.oldest(others.max_by_key(weight).unwrap_or(origin))
        } else {
            None
        };
        let victim = victim.map(|index| self.waiting.remove(index).connection);
        self.callers.displaced += u64::from(victim.is_some());
        let (key, segment_max, bytes) = (None, SEGMENT_MAX, Vec::new());
        self.waiting.push(Waiting { connection, origin, key, segment_max, deadline, bytes });
        victim
    }

    /// How many connections of an origin wait here.
    fn count(&self, origin: Origin) -> usize {
        self.waiting.iter().filter(|waiting| waiting.origin == origin).count()
    }

    /// The connection of an origin that has waited longest without saying anything, or else the one
    /// that has waited longest.
    fn oldest(&self, origin: Origin) -> Option<usize> {
        let of_origin = |waiting: &Waiting| waiting.origin == origin;
        let is_silent = |waiting: &Waiting| of_origin(waiting) && waiting.bytes.is_empty();
        self.waiting.iter().position(is_silent).or_else(|| self.waiting.iter().position(of_origin))
    }

    /// Takes note that the host of a connection has proved `key`.
    pub(super) fn identify(&mut self, connection: ConnectionId, key: Fingerprint) {
        if let Some(waiting) = self.of(connection) {
            waiting.key = Some(key);
        }
    }

    /// Takes note of the longest segment that a connection takes.
    pub(super) fn set_segment_max(&mut self, connection: ConnectionId, bytes: usize) {
        if let Some(waiting) = self.of(connection) {
            waiting.segment_max = bytes;
        }
    }

    fn of(&mut self, connection: ConnectionId) -> Option<&mut Waiting> {
        self.waiting.iter_mut().find(|waiting| waiting.connection == connection)
    }

    pub(super) fn forget(&mut self, connection: ConnectionId) {
        self.waiting.retain(|waiting| waiting.connection != connection);
    }

    /// Handles a piece of the stream of `connection`; `None` if the connection is not here. A
    /// connection with any verdict but [`Verdict::Waits`] is forgotten.
    pub(super) fn receive(&mut self, connection: ConnectionId, piece: &Buffer) -> Option<Verdict> {
        let index = self.waiting.iter().position(|waiting| waiting.connection == connection)?;
        let verdict = self.waiting[index].receive(piece, self.crc32c);
        if !matches!(verdict, Verdict::Waits) {
            self.waiting.remove(index);
        }
        Some(verdict)
    }

    /// Removes a connection whose Hello is late.
    pub(super) fn expire(&mut self, now: Instant) -> Option<ConnectionId> {
        let index = self.waiting.iter().position(|waiting| waiting.deadline <= now)?;
        self.callers.late += 1;
        Some(self.waiting.remove(index).connection)
    }

    pub(super) fn earliest(&self) -> Option<Instant> {
        self.waiting.iter().map(|waiting| waiting.deadline).min()
    }

    /// Encodes a Refuse.
    pub(super) fn refusal(&self, code: RefuseCode, text: &str) -> Buffer {
        let mut bytes = [0; HEADER_LENGTH + HELLO_BODY_MAX];
        let length = Frame::Refuse(code, text).emit(Sequence::FIRST, Sequence::FIRST, &mut bytes);
        sign(self.crc32c, &mut bytes[..length]);
        Buffer::copy_from_slice(&bytes[..length])
    }
}

impl Waiting {
    fn receive(&mut self, piece: &Buffer, crc32c: Crc32c) -> Verdict {
        let mut rest = &piece[..];
        let frame = loop {
            let lacking = match self.lacking() {
                Err(error) => break Err(error),
                Ok(0) => break self.frame(),
                Ok(_) if rest.is_empty() => return Verdict::Waits,
                Ok(lacking) => lacking,
            };
            let (taken, left) = rest.split_at(lacking.min(rest.len()));
            self.bytes.extend_from_slice(taken);
            rest = left;
        };
        match greeting(&frame, FrameKind::Hello, Role::Upstream, crc32c) {
            Ok((_, hello)) => {
                let rest = piece.slice(piece.len() - rest.len()..piece.len());
                let (instance, member, secret) = (hello.instance, hello.member, hello.secret);
                let Self { origin, key, segment_max, .. } = *self;
                let caller = Caller { instance, member, secret, origin, key, segment_max };
                Verdict::Host(caller, [Buffer::copy_from_slice(&self.bytes), rest])
            }
            Err(no) => Verdict::No(no),
        }
    }

    /// How many bytes are missing, first of the header and then of the body.
    fn lacking(&self) -> Result<usize, FrameError> {
        let have = self.bytes.len();
        let Some(head) = self.bytes.first_chunk() else {
            // The first byte suffices to recognise a stranger.
            self.bytes.first().map_or(Ok(FrameKind::Hello), |octet| FrameKind::parse(*octet))?;
            return Ok(HEADER_LENGTH - have);
        };
        let header = FrameHeader::parse(head)?;
        if !matches!(header.kind, FrameKind::Hello | FrameKind::Refuse) {
            // A frame of another kind is refused; its body is not worth waiting for.
            return Ok(0);
        }
        Ok(HEADER_LENGTH + usize::from(header.length) - have)
    }

    /// Decodes the frame, which is complete, or a header that has no place here.
    fn frame(&self) -> Result<(FrameHeader, Buffer), FrameError> {
        let (need, have) = (HEADER_LENGTH, self.bytes.len());
        let (head, body) = self.bytes.split_first_chunk().ok_or(FrameError::Truncated { need, have })?;
        Ok((FrameHeader::parse(head)?, Buffer::copy_from_slice(body)))
    }
}
