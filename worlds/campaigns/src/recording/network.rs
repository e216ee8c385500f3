//! A socket behind a lossy network, and a check of a recording's account of its datagrams.

use std::collections::{BTreeSet, VecDeque};

use engine::{Buffer, Engine, Instant, Nanos, Rng};
use network_models::faults::{Behaviour, Jitter};
use network_models::network::{Config, Side};
use network_models::passage::{Packet, Passage};
use network_models::{AnyHop, Chance, Faults, Path, Rate, Wire};
use record::format::{Gap, PACKET_HEAD, PacketHead, Place, Reason, Time};
use record::packing::{Arrival, Lane, Packer, Places, Taker};
use record::sequence::{Field, Ledger, Protocol, Tracker};
use record::{Missed, Progress};

/// The bytes of a datagram that say its number and its length.
const STAMP: usize = 12;
/// The longest packet of the network in bytes, and the longest datagram.
const MTU: u32 = 9_000;
const LENGTH_MAX: u64 = 5_000;
/// How often a socket is emptied before others have their turn, as by a live recorder.
const TURNS: usize = 4;

/// A datagram in a socket's buffer.
#[derive(Debug)]
struct Waiting {
    data: Buffer,
    time: Time,
    /// How many the socket had dropped before.
    dropped: u32,
}

/// The parts of a stream that a recorder got.
#[derive(Debug, Default)]
pub(super) struct Given {
    /// Every byte; lost ones are zero.
    pub(super) bytes: Vec<u8>,
    /// The lost bytes among them: where they begin and end.
    pub(super) gaps: Vec<(u64, u64)>,
    /// The number of packets that had no room, that the socket dropped, and that never came.
    ring: u64,
    socket: u64,
    wire: u64,
}

/// A recorder that is watched.
struct Watched<'a> {
    taker: &'a mut dyn Taker,
    given: &'a mut Given,
}

/// Bytes that have come, those included that were let go before a trigger.
pub(super) fn came(taker: &dyn Taker) -> u64 {
    let progress = taker.progress();
    progress.bytes_in + progress.passed
}

impl Taker for Watched<'_> {
    fn room(&mut self, now: Instant, stream: usize) -> Option<&mut [u8]> {
        self.taker.room(now, stream)
    }

    fn filled(&mut self, now: Instant, stream: usize, bytes: usize, time: Time) {
        let room = self.taker.room(now, stream).expect("it was just filled");
        self.given.bytes.extend_from_slice(&room[..bytes]);
        self.taker.filled(now, stream, bytes, time);
    }

    fn end_chunk(&mut self, stream: usize) {
        self.taker.end_chunk(stream);
    }

    fn miss(&mut self, now: Instant, stream: usize, missed: Missed) {
        match missed.place {
            Place::Socket => self.given.socket += missed.packets,
            Place::Wire => self.given.wire += missed.packets,
            _ => self.given.ring += missed.packets,
        }
        let before = came(self.taker);
        self.taker.miss(now, stream, missed);
        // A recording that ends takes no more.
        let taken = came(self.taker) - before;
        let from = self.given.bytes.len() as u64;
        if taken > 0 {
            let end = from + taken;
            self.given.gaps.push((from, end));
            self.given.bytes.resize(usize::try_from(end).expect("a few megabytes"), 0);
        }
    }

    fn keeps_places(&self) -> bool {
        self.taker.keeps_places()
    }

    fn progress(&self) -> Progress {
        self.taker.progress()
    }

    fn gaps(&self) -> &[Gap] {
        self.taker.gaps()
    }

    fn is_recording(&self) -> bool {
        self.taker.is_recording()
    }

    fn finish(&mut self, reason: Reason) {
        self.taker.finish(reason);
    }
}

/// Datagrams over a network that loses some, doubles some and delays some, to a socket that drops
/// datagrams without room in its buffer.
#[derive(Debug)]
pub(super) struct Network {
    passage: Passage,
    sent: u64,
    /// The shortest datagram, and how much longer others are.
    length: u64,
    more: u64,
    socket: VecDeque<Waiting>,
    /// How many datagrams the socket has room for.
    socket_max: usize,
    dropped: u32,
    /// How long a receiver sleeps while others have their turn, and when it looks next.
    every: Nanos,
    look: Option<Instant>,
    packer: Packer,
    is_raw: bool,
    pub(super) given: Given,
    /// The numbers of the datagrams that were received, in order.
    received: Vec<u64>,
    is_finished: bool,
}

fn lossy(rng: &mut Rng) -> Passage {
    let behaviour = Behaviour {
        loss: Chance::parts_per_million(u32::try_from(rng.below(50_000)).unwrap_or(0)),
        corruption: Chance::parts_per_million(u32::try_from(rng.below(5_000)).unwrap_or(0)),
        duplication: Chance::percent(1),
        reorder: Chance::percent(1),
        reorder_by: Nanos::from_micros(300),
        jitter: Jitter::Uniform(Nanos::from_micros(100)),
        ..Behaviour::default()
    };
    let path = |rng: &mut Rng| {
        let wire = Wire::new(Nanos::from_micros(50), Some(Rate::from_gigabits(1)));
        Path::new([AnyHop::from(wire), AnyHop::from(Faults::new(behaviour, rng.fork("faults")))])
    };
    Passage::new(&Config { mtu: MTU, ..Config::default() }, [path(rng), path(rng)])
}

impl Network {
    /// Draws a network, a socket and how its datagrams are recorded; raw ones without a container.
    pub(super) fn new(rng: &mut Rng, is_raw: bool) -> Self {
        let passage = lossy(rng);
        let mut own = rng.fork("socket");
        let (length, more) = match own.below(3) {
            0 => (1_200, 0),
            1 => (400 + own.below(2_000), 0),
            _ => (400, LENGTH_MAX - 400),
        };
        let field = Field { offset: 0, bytes: 8, step: 1, little_endian: true };
        let window = if is_raw { 0 } else { [0, 1, 32, 100][usize::try_from(own.below(4)).unwrap_or(0)] };
        let ledger = Ledger::new(Some(Tracker::new(Protocol::Field(field), window)));
        let every = [10, 300, 3_000][usize::try_from(own.below(3)).unwrap_or(0)];
        Self {
            passage,
            sent: 0,
            length,
            more,
            socket: VecDeque::new(),
            socket_max: 4 + usize::try_from(own.below(200)).unwrap_or(0),
            dropped: 0,
            every: Nanos::from_micros(every),
            look: None,
            packer: Packer::new(ledger, !is_raw && own.one_in(2)),
            is_raw,
            given: Given::default(),
            received: Vec::new(),
            is_finished: false,
        }
    }

    /// Whether nothing is on its way.
    pub(super) fn is_empty(&self) -> bool {
        self.passage.poll_timeout().is_none() && self.socket.is_empty()
    }

    /// Whether the socket has dropped datagrams.
    pub(super) const fn has_dropped(&self) -> bool {
        self.dropped > 0
    }

    /// When something happens next.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.passage.poll_timeout().into_iter().chain(self.look).min()
    }

    /// The length of the next datagram.
    pub(super) fn length(&self, rng: &mut Rng) -> u64 {
        if self.more > 0 { self.length + rng.below(self.more + 1) } else { self.length }
    }

    pub(super) fn send(&mut self, at: Instant, length: u64) {
        let length = usize::try_from(length).unwrap_or(STAMP).max(STAMP);
        let data = Buffer::copy_from_slice(&datagram(self.sent, length));
        self.sent += 1;
        self.passage.handle_input(at, Packet { side: Side::Near, data });
    }

    /// Lets datagrams come to the socket, and receives them if it is time.
    pub(super) fn run(&mut self, lane: &mut Lane<'_>, time: Time) {
        self.arrive(lane.now, time);
        if self.look.is_none_or(|at| at > lane.now) {
            return;
        }
        let mut count = 0;
        for _ in 0..TURNS {
            count = self.receive(lane, time);
            if count < record::packing::TOGETHER_MAX / 2 {
                break;
            }
        }
        self.look = (count > 0).then_some(lane.now + self.every);
    }

    fn arrive(&mut self, now: Instant, time: Time) {
        self.passage.handle_timeout(now);
        while let Some(packet) = self.passage.poll_output() {
            match self.socket.len() < self.socket_max {
                true => self.socket.push_back(Waiting { data: packet.data, time, dropped: self.dropped }),
                false => self.dropped += 1,
            }
            self.look.get_or_insert(now + self.every);
        }
    }

    /// The recording ends. Waiting datagrams are received.
    pub(super) fn finish(&mut self, lane: &mut Lane<'_>, time: Time) {
        while self.receive(lane, time) > 0 {}
        let taker = &mut Watched { taker: lane.taker, given: &mut self.given };
        self.packer.finish(&mut Lane { taker, stream: lane.stream, now: lane.now }, time.nanos);
        self.is_finished = true;
    }

    /// Receives as many as one call does. Returns their number.
    fn receive(&mut self, lane: &mut Lane<'_>, time: Time) -> usize {
        let taker = &mut Watched { taker: lane.taker, given: &mut self.given };
        let lane = &mut Lane { taker, stream: lane.stream, now: lane.now };
        let Places { room, slot, head } = self.packer.places(lane, None);
        let mut came = Vec::new();
        for place in room.chunks_exact_mut(slot) {
            let Some(waiting) = self.socket.pop_front() else { break };
            let place = &mut place[head..];
            let inside = waiting.data.len().min(place.len());
            place[..inside].copy_from_slice(&waiting.data[..inside]);
            self.received.push(stamp(&waiting.data).map_or(u64::MAX, |(number, _)| number));
            came.push((waiting, inside));
        }
        let arrivals = came.iter().map(|(waiting, inside)| Arrival {
            length: waiting.data.len(),
            sender: 1,
            time: waiting.time,
            dropped: Some(waiting.dropped).filter(|dropped| *dropped > 0),
            rest: &waiting.data[*inside..],
        });
        let count = self.packer.received(lane, arrivals);
        if count == 0 {
            self.packer.on_dropped(lane, self.dropped, time.nanos);
        }
        count
    }

    /// The faults of the data that the recorder got: a datagram that was received is there once and
    /// whole, in the order of its coming, or it counts as lost because it had no room. Without a
    /// container, one that comes late or twice is left out. A datagram that never came counts as
    /// lost.
    pub(super) fn wrong(&self) -> Vec<String> {
        let (found, mut wrong) = self.found();
        let counts = self.packer.counts().unwrap_or_default();
        let left_out = if self.is_raw { counts.late + counts.twice } else { 0 };
        let (there, received, ring) = (found.len() as u64, self.received.len() as u64, self.given.ring);
        if there + ring + left_out != received {
            wrong.push(format!(
                "{received} datagrams were received, {there} are there, {ring} had no room, {counts:?}"
            ));
        }
        let mut received = self.received.iter();
        if let Some(number) = found.iter().find(|number| !received.any(|other| other == *number)) {
            wrong.push(format!("datagram {number} is not in its place"));
        }
        wrong.extend(self.wrong_losses());
        wrong
    }

    /// The fault of the account of datagrams that were not received.
    fn wrong_losses(&self) -> Option<String> {
        let counts = self.packer.counts().unwrap_or_default();
        let (first, last) = (self.received.first()?, self.received.iter().max()?);
        let there: BTreeSet<_> = self.received.iter().filter(|number| *number >= first).collect();
        let missing = last - first + 1 - there.len() as u64;
        let Given { socket, wire, .. } = self.given;
        let follows_all = counts.foreign + counts.anew == 0;
        let is_short = self.is_finished && follows_all && socket + wire < missing;
        let is_long = follows_all && wire > missing + counts.late;
        let is_wrong = is_short || is_long || socket > self.dropped.into();
        is_wrong.then(|| {
            format!(
                "{missing} datagrams are missing and the socket has dropped {}: {wire} lost on the wire, \
                 {socket} at the socket, {counts:?}",
                self.dropped
            )
        })
    }

    /// The numbers of the datagrams in the stream, and their faults.
    fn found(&self) -> (Vec<u64>, Vec<String>) {
        let (mut found, mut wrong, mut at) = (Vec::new(), Vec::new(), 0);
        let end = self.given.bytes.len() as u64;
        for (from, behind) in self.given.gaps.iter().copied().chain([(end, end)]) {
            let place = |at: u64| usize::try_from(at).expect("a place in memory");
            let mut piece = &self.given.bytes[place(at)..place(from)];
            while !piece.is_empty() {
                let head = if self.packer.has_heads() { PACKET_HEAD } else { 0 };
                let length = stamp(piece.get(head..).unwrap_or_default()).map_or(0, |(_, length)| length);
                match piece.split_at_checked(head + length).filter(|_| length > 0) {
                    Some((record, rest)) => {
                        let (number, _) = stamp(&record[head..]).expect("it was just read");
                        if !is_record(record, head, number) {
                            wrong.push(format!("the record of datagram {number} at {at} has other bytes"));
                            return (found, wrong);
                        }
                        found.push(number);
                        piece = rest;
                    }
                    // The rest had no room.
                    None if self.is_raw => break,
                    None => {
                        wrong.push(format!("{} B before {from} are no datagram", piece.len()));
                        return (found, wrong);
                    }
                }
            }
            at = behind;
        }
        (found, wrong)
    }
}

/// The bytes of a datagram.
fn datagram(number: u64, length: usize) -> Vec<u8> {
    let stamp = number.to_le_bytes().into_iter().chain(u32::try_from(length).unwrap_or(0).to_le_bytes());
    let rest = (0..).map(|at: u64| (number * 31 + at).to_le_bytes()[0] | 1);
    stamp.chain(rest).take(length).collect()
}

/// The number and the length of a datagram.
fn stamp(datagram: &[u8]) -> Option<(u64, usize)> {
    let (number, rest) = datagram.split_first_chunk()?;
    let length = u32::from_le_bytes(*rest.first_chunk()?);
    Some((u64::from_le_bytes(*number), usize::try_from(length).ok()?))
}

/// Whether a record is the datagram with this number behind its head.
fn is_record(record: &[u8], head: usize, number: u64) -> bool {
    let (head, bytes) = record.split_at(head);
    let is_head = |head| PacketHead::parse(head).length as usize == bytes.len();
    head.first_chunk().is_none_or(is_head) && bytes == datagram(number, bytes.len())
}
