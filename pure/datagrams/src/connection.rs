//! One end of a connection: a stream of bytes each way.

use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

use engine::{Buffer, Instant, Nanos, Pool};

use crate::congestion::Congestion;
use crate::incoming::{Incoming, Taken};
use crate::mtu::PathMtu;
use crate::outgoing::Outgoing;
use crate::packet::{Ack, Datagram, HEAD, Name, Purpose};
use crate::recovery::{ACK_DELAY, Fate, PROBES_OUTAGE, Recovery, Sent};

/// The pause before the first question is repeated, which doubles with each.
const HELLO_AGAIN: Nanos = Nanos::from_millis(50);
/// The longest pause between two questions.
const HELLO_AGAIN_MAX: Nanos = Nanos::from_millis(500);
/// A peer that acknowledges nothing for this time is considered gone.
pub const SILENCE_MAX: Nanos = Nanos::from_secs(10);
/// The receive window of a peer that has not announced one: less than every window.
const WINDOW_FIRST: u32 = 256 << 10;

/// This many packets in order get an acknowledgement at once. Fewer wait for [`ACK_DELAY`]: an
/// answer of the user in the meantime acknowledges them without a packet of its own. RFC 9000
/// (13.2.2) recommends two for an unknown peer; here the peer's pacing allows for more.
const ACK_EVERY: u32 = 8;

/// A peer that reports this often in a row that it does not know the connection is believed. A
/// single such datagram may be corrupt.
const UNKNOWN_MAX: u32 = 3;

/// This many reports that the peer's address is unreachable, over this time, are believed.
const REFUSALS_MAX: u32 = 3;
const REFUSED_FOR: Nanos = Nanos::from_millis(200);

/// Why a connection has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// This end has ended it.
    Here,
    /// The peer has ended it.
    There,
    /// The peer does not know the connection any more: it was restarted.
    Forgotten,
    /// The network reports that the peer's address is unreachable.
    Refused,
    /// The peer has acknowledged nothing for [`SILENCE_MAX`].
    Silence,
    /// The peer acknowledges packets that were not sent.
    Nonsense,
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Here => f.write_str("it was ended here"),
            Self::There => f.write_str("the other end has ended it"),
            Self::Forgotten => f.write_str("the other end does not know it any more"),
            Self::Refused => f.write_str("nothing listens there, as the network reports"),
            Self::Silence => write!(f, "the other end has acknowledged nothing for {SILENCE_MAX}"),
            Self::Nonsense => f.write_str("the other end acknowledges packets that were not sent"),
        }
    }
}

impl core::error::Error for Ended {}

/// The counts of an end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Datagrams that were sent.
    pub sent: u64,
    /// Number of received datagrams that were new.
    pub received: u64,
    /// Number of packets considered lost.
    pub lost: u64,
    /// Number of packets that were duplicates, or too late to be known.
    pub again: u64,
}

/// How far the two ends have met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// When to send or repeat the request.
    Asking {
        again_at: Instant,
        pause: Nanos,
    },
    Established,
}

/// One end of a connection. [`Endpoint`](crate::Endpoint) passes it the packets of the network.
#[derive(Debug)]
pub struct Connection {
    own: Name,
    peer: Name,
    /// The port of the end that was dialled.
    port: u16,
    /// The value of that end's latest challenge.
    echo: u64,
    state: State,
    ended: Option<Ended>,
    incoming: Incoming,
    outgoing: Outgoing,
    recovery: Recovery,
    congestion: Congestion,
    mtu: PathMtu,
    pool: Pool,
    /// The number of the latest packet that was sent.
    number: u64,
    /// Received packets that require an acknowledgement, and when it is due.
    unacknowledged: u32,
    ack_at: Option<Instant>,
    /// Packets that must be sent at once.
    due: Due,
    /// Until when pacing holds back data.
    paced_until: Option<Instant>,
    /// Since when the peer owes an acknowledgement.
    silent_since: Option<Instant>,
    /// How often in a row the peer reported that it does not know the connection.
    unknown: u32,
    /// How often in a row the network refused a datagram, and since when.
    refused: (u32, Instant),
    counters: Counters,
}

/// Datagrams that nothing holds back.
#[derive(Clone, Copy, Debug, Default)]
struct Due {
    hello: bool,
    welcome: bool,
    ack: bool,
    probe: bool,
    /// The message that there is room again. A sender without room has nothing in flight and sets
    /// no timer, so this is repeated until it arrives.
    room: bool,
    end: bool,
}

impl Connection {
    pub(crate) fn dialling(now: Instant, own: Name, port: u16, datagram_max: usize) -> Self {
        let asking = State::Asking { again_at: now + HELLO_AGAIN, pause: HELLO_AGAIN };
        let due = Due { hello: true, ..Due::default() };
        Self { port, state: asking, due, ..Self::accepted(now, own, own, datagram_max) }
    }

    pub(crate) fn accepted(now: Instant, own: Name, peer: Name, datagram_max: usize) -> Self {
        let mtu = PathMtu::new(datagram_max);
        Self {
            own,
            peer,
            port: 0,
            echo: 0,
            state: State::Established,
            ended: None,
            incoming: Incoming::default(),
            outgoing: Outgoing::new(WINDOW_FIRST),
            recovery: Recovery::new(now),
            congestion: Congestion::new(now, mtu.current() as u64),
            mtu,
            pool: Pool::default(),
            number: 0,
            unacknowledged: 0,
            ack_at: None,
            due: Due { welcome: true, ..Due::default() },
            paced_until: None,
            silent_since: None,
            unknown: 0,
            refused: (0, now),
            counters: Counters::default(),
        }
    }

    /// Whether the two ends have met.
    pub const fn is_established(&self) -> bool {
        matches!(self.state, State::Established)
    }

    /// Why the connection has ended, if it has. Data received before can still be read.
    pub const fn ended(&self) -> Option<Ended> {
        self.ended
    }

    /// The counts.
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// The smoothed round trip; 100 ms before one was measured.
    pub fn round_trip(&self) -> Nanos {
        self.recovery.round_trip()
    }

    /// Maximum number of bytes in flight, by congestion control.
    pub const fn window(&self) -> u64 {
        self.congestion.window()
    }

    /// Number of bytes of packets in flight.
    pub const fn under_way(&self) -> u64 {
        self.recovery.bytes()
    }

    /// The longest datagrams that are known to pass, in bytes.
    pub const fn datagram_bytes(&self) -> usize {
        self.mtu.current()
    }

    /// Sends `bytes` behind all others.
    pub fn send(&mut self, bytes: Buffer) {
        self.outgoing.push(bytes);
    }

    /// Number of bytes that the peer has not acknowledged.
    pub const fn unacknowledged(&self) -> u64 {
        self.outgoing.unacknowledged()
    }

    /// Number of bytes that were never sent.
    pub const fn unsent(&self) -> u64 {
        self.outgoing.unsent()
    }

    /// The next received bytes.
    pub fn receive(&mut self) -> Option<Buffer> {
        let (bytes, has_room) = self.incoming.pop(&mut self.pool)?;
        self.due.room |= has_room && self.ended.is_none();
        Some(bytes)
    }

    /// Ends the connection, and informs the peer once. Unacknowledged data may be lost.
    pub fn end(&mut self) {
        if self.ended.is_none() {
            self.ended = Some(Ended::Here);
            self.due = Due { end: self.is_established(), ..Due::default() };
        }
    }

    fn lose(&mut self, why: Ended) {
        self.ended.get_or_insert(why);
        self.due = Due::default();
    }

    /// Handles a repeated request of the dialling end: the answer was lost.
    pub(crate) const fn on_hello(&mut self) {
        self.due.welcome = true;
    }

    /// Handles a challenge of the dialled end, which requires the request again, with `value`.
    pub(crate) fn on_challenge(&mut self, value: u64) {
        if !self.is_established() && self.echo != value {
            (self.echo, self.due.hello) = (value, true);
        }
    }

    pub(crate) fn on_welcome(&mut self, now: Instant, peer: Name) {
        if let State::Asking { pause, again_at } = self.state {
            (self.peer, self.state) = (peer, State::Established);
            // Without a repetition, the answer has measured the round trip.
            if pause == HELLO_AGAIN && again_at > now {
                let length = HELLO_AGAIN.saturating_sub(again_at - now);
                self.recovery.measure(length, Nanos::default());
            }
            // The far end learns that the answer has arrived.
            self.due = Due { probe: true, ..Due::default() };
        }
    }

    pub(crate) fn on_end(&mut self) {
        self.lose(Ended::There);
    }

    /// Handles the network's report that the peer's address is unreachable. A connection that is
    /// not established yet is given up at once. Otherwise a report may be forged, or meant for an
    /// earlier user of the address, so several in a row are required.
    pub(crate) fn on_refused(&mut self, now: Instant) {
        let is_established = self.is_established();
        let (count, since) = &mut self.refused;
        *count += 1;
        if *count == 1 {
            *since = now;
        }
        if !is_established || *count >= REFUSALS_MAX && now - *since >= REFUSED_FOR {
            self.lose(Ended::Refused);
        }
    }

    /// Handles the peer's report that it knows no connection called `name`.
    pub(crate) fn on_unknown(&mut self, name: Name) {
        if self.is_established() && name == self.peer {
            self.unknown += 1;
            if self.unknown >= UNKNOWN_MAX {
                self.lose(Ended::Forgotten);
            }
        }
    }

    /// Handles a packet of this connection.
    pub(crate) fn on_packet(
        &mut self,
        now: Instant,
        (purpose, number, ack): (Purpose, u64, &Ack),
        (offset, bytes): (u64, &[u8]),
    ) {
        if self.ended.is_some() || !self.is_established() {
            return;
        }
        match self.incoming.take(now, number, (offset, bytes), &mut self.pool) {
            Taken::Again => {
                self.counters.again += 1;
                // Perhaps the acknowledgement got lost.
                self.due.ack |= purpose != Purpose::Ack;
                return;
            }
            Taken::NoRoom => return,
            taken if purpose != Purpose::Ack => {
                self.unacknowledged += 1;
                self.due.ack |= taken == Taken::OutOfOrder || self.unacknowledged >= ACK_EVERY;
                self.ack_at.get_or_insert(now + ACK_DELAY);
            }
            Taken::InOrder | Taken::OutOfOrder => {}
        }
        self.counters.received += 1;
        self.due.welcome = false;
        (self.unknown, self.refused.0) = (0, 0);
        self.on_ack(now, ack);
    }

    fn on_ack(&mut self, now: Instant, ack: &Ack) {
        let flight = self.recovery.bytes();
        let Self { outgoing, congestion, mtu, counters, recovery, .. } = self;
        let datagram = mtu.current() as u64;
        let was_full = flight * 2 >= congestion.window();
        let mut each = |packet: &Sent, fate| match fate {
            Fate::Came if packet.is_probe => mtu.on_came(length(packet)),
            Fate::Came => congestion.on_acknowledged(packet.at, packet.bytes, datagram, was_full),
            Fate::Lost => {
                counters.lost += 1;
                lost(now, packet, outgoing, congestion, mtu);
            }
        };
        let before = recovery.bytes();
        let makes_sense = recovery.on_ack(now, ack, self.number, &mut each);
        congestion.on_datagram(mtu.current() as u64);
        if recovery.bytes() < before {
            self.silent_since = recovery.is_waiting().then_some(now);
        }
        if !makes_sense || !outgoing.acknowledge(ack.whole, ack.window) {
            self.lose(Ended::Nonsense);
        }
    }

    /// Appends the next datagram to `room`, if one is to be sent now.
    pub fn poll_transmit(&mut self, now: Instant, room: &mut Vec<u8>) -> bool {
        let has_sent = self.poll_meeting(room) || self.ended.is_none() && self.poll_packet(now, room);
        self.counters.sent += u64::from(has_sent);
        has_sent
    }

    fn poll_meeting(&mut self, room: &mut Vec<u8>) -> bool {
        let take = core::mem::take::<bool>;
        let datagram = if take(&mut self.due.hello) {
            Datagram::Hello { from: self.own, port: self.port, echo: self.echo }
        } else if take(&mut self.due.welcome) {
            Datagram::Welcome { to: self.peer, from: self.own }
        } else if take(&mut self.due.end) {
            Datagram::End { to: self.peer }
        } else {
            return false;
        };
        datagram.emit(room);
        true
    }

    fn poll_packet(&mut self, now: Instant, room: &mut Vec<u8>) -> bool {
        if !self.is_established() {
            return false;
        }
        let most = (self.mtu.current() - HEAD) as u64;
        if core::mem::take(&mut self.due.probe) {
            let part = self.outgoing.oldest();
            let part = part.start..part.end.min(part.start + most);
            self.emit(now, part, None, room);
            return true;
        }
        if core::mem::take(&mut self.due.room) {
            self.emit(now, 0..0, None, room);
            return true;
        }
        if self.outgoing.has_work()
            && self.may_send(now, self.outgoing.peek(most) + HEAD as u64)
            && let Some(part) = self.outgoing.pop(most)
        {
            self.emit(now, part, None, room);
            return true;
        }
        // A longer datagram is tried once something was received.
        if self.incoming.has_any()
            && let Some(length) = self.mtu.poll_probe()
        {
            self.emit(now, 0..0, Some(length), room);
            return true;
        }
        if core::mem::take(&mut self.due.ack) {
            self.write(now, Purpose::Ack, &(0..0), room);
            return true;
        }
        false
    }

    /// Whether congestion control and pacing allow another datagram of `bytes`.
    fn may_send(&mut self, now: Instant, bytes: u64) -> bool {
        let datagram = self.mtu.current() as u64;
        if self.recovery.bytes() + bytes > self.congestion.window() {
            return false;
        }
        let at = self.congestion.pace(now, bytes, self.recovery.round_trip(), datagram);
        self.paced_until = (at > now).then_some(at);
        at <= now
    }

    /// Writes a packet that requires an acknowledgement, padded to `padded` bytes.
    fn emit(&mut self, now: Instant, part: Range<u64>, padded: Option<usize>, room: &mut Vec<u8>) {
        let begin = room.len();
        let purpose = if part.is_empty() { Purpose::Probe } else { Purpose::Data };
        self.write(now, purpose, &part, room);
        if let Some(length) = padded {
            room.resize(begin + length, 0);
            // A probe that was truncated on the way must not count as received.
            crate::packet::lengthen(&mut room[begin..]);
        }
        let bytes = (room.len() - begin) as u64;
        self.congestion.on_sent(bytes);
        let is_probe = padded.is_some();
        self.recovery.on_sent(Sent { number: self.number, at: now, part, bytes, is_probe });
        self.silent_since.get_or_insert(now);
    }

    fn write(&mut self, now: Instant, purpose: Purpose, part: &Range<u64>, room: &mut Vec<u8>) {
        let begin = room.len();
        self.number += 1;
        let (to, number, ack) = (self.peer, self.number, self.incoming.ack(now));
        (self.unacknowledged, self.ack_at, self.due.ack) = (0, None, false);
        let offset = part.start;
        Datagram::Packet { to, purpose, number, ack, offset, bytes: &[] }.emit(room);
        self.outgoing.copy(part, room);
        crate::packet::lengthen(&mut room[begin..]);
    }

    /// When [`Connection::handle_timeout`] is due, if ever.
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.ended.is_some() {
            return None;
        }
        match self.state {
            State::Asking { again_at, .. } => Some(again_at),
            State::Established => {
                let silence = self.silent_since.map(|since| since + SILENCE_MAX);
                let timers = [self.recovery.poll_timeout(), self.ack_at, self.paced_until, silence];
                timers.into_iter().flatten().min()
            }
        }
    }

    /// Handles everything that has become due.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.ended.is_some() {
            return;
        }
        if let State::Asking { again_at, pause } = &mut self.state {
            if *again_at <= now {
                *pause = (*pause * 2).min(HELLO_AGAIN_MAX);
                *again_at = now + *pause;
                self.due.hello = true;
            }
            return;
        }
        if self.silent_since.is_some_and(|since| since + SILENCE_MAX <= now) {
            return self.lose(Ended::Silence);
        }
        if self.ack_at.take_if(|at| *at <= now).is_some() {
            self.due.ack = true;
        }
        self.paced_until.take_if(|at| *at <= now);
        let Self { outgoing, congestion, mtu, counters, recovery, .. } = self;
        let each = |packet: &Sent, _| {
            counters.lost += 1;
            lost(now, packet, outgoing, congestion, mtu);
        };
        self.due.probe |= recovery.handle_timeout(now, each);
        if self.due.probe && recovery.probes == PROBES_OUTAGE {
            recovery.lose_all(|packet| {
                counters.lost += 1;
                lost(now, packet, outgoing, congestion, mtu);
            });
            mtu.on_outage();
            congestion.on_outage(mtu.current() as u64);
        }
    }
}

fn length(packet: &Sent) -> usize {
    usize::try_from(packet.bytes).unwrap_or(usize::MAX)
}

/// A packet got lost: its part is sent again, and unless it was a try, the network is full.
fn lost(
    now: Instant,
    packet: &Sent,
    outgoing: &mut Outgoing,
    congestion: &mut Congestion,
    mtu: &mut PathMtu,
) {
    if packet.is_probe {
        return mtu.on_lost(length(packet));
    }
    if !packet.part.is_empty() {
        outgoing.lose(packet.part.clone());
    }
    congestion.on_lost(now, packet.at, mtu.current() as u64);
}
