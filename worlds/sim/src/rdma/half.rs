//! One side: its software, its card, and its packets.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use engine::{Buffer, Entropy, Instant, Rng};
use network_models::network::Side;
use network_models::trail::Trail;
use network_models::{Class, Frame, Hop, Path, Rate};
use rdma::{
    Config as PairConfig, Done, Event, Operation, ProtectionDomain, QueuePair, QueuePairId,
    SharedCompletionQueue, SharedPool, State,
};

use super::bus::Bus;
use super::packet::{Carried, Packet, Word};
use super::{Config, Ready};
use crate::marks::Cause;
use crate::models::hca::{Card, Encapsulation};
use crate::processor::Processor;

/// Picoseconds in a nanosecond.
const PICOS: u64 = 1_000;
/// Maximum number of frames that are followed at a time. Beyond it, the oldest are forgotten: they
/// were lost.
const FOLLOWED_MAX: usize = 1 << 14;

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Send,
    Write,
    Read,
}

impl Kind {
    pub(super) const fn of(operation: &Operation) -> Self {
        match operation {
            Operation::Send { .. } => Self::Send,
            Operation::Write { .. } => Self::Write,
            Operation::Read { .. } => Self::Read,
        }
    }
}

/// A request that the card has taken and that has not ended.
#[derive(Debug)]
pub(super) struct Outstanding {
    /// The number behind that of its last packet.
    pub(super) behind: u64,
    pub(super) kind: Kind,
    pub(super) done: Option<(Done, Cause)>,
}

/// One side: its software, its card, and its packets.
#[derive(Debug)]
pub(super) struct Half {
    pub(super) card: Card,
    pub(super) processor: Processor,
    pub(super) pair: QueuePair,
    pub(super) domain: ProtectionDomain,
    pub(super) completions: SharedCompletionQueue,
    pub(super) events: VecDeque<Event>,
    pub(super) cause: Cause,
    pub(super) ready: Ready,
    pub(super) bus: Bus,
    pub(super) line: Option<Rate>,
    /// When the card's logic is free for the next message.
    pub(super) logic_free: Instant,
    /// When the card's line has sent everything, in ps.
    pub(super) line_free: u64,
    pub(super) path: Path,
    pub(super) frames: u64,
    /// Frames that are followed: when each entered the path, its length and its cause.
    pub(super) followed: BTreeMap<u64, (Trail, Cause)>,
    pub(super) next: u64,
    /// Packets that the peer has not acknowledged, in order.
    pub(super) unacknowledged: VecDeque<Packet>,
    /// The number of the packet that is sent next.
    pub(super) sending: u64,
    pub(super) words: VecDeque<Word>,
    pub(super) outstanding: VecDeque<Outstanding>,
    pub(super) retry_at: Option<Instant>,
    /// Time-outs since the peer has acknowledged something.
    pub(super) retries: u32,
    /// The number of the peer's packet that is accepted next.
    pub(super) expected: u64,
    pub(super) has_complained: bool,
}

impl Half {
    pub(super) fn new(config: &Config, side: Side, path: Path, pool: &SharedPool, rng: Rng) -> Self {
        let (index, number) = (side.index(), if side == Side::Near { 1 } else { 2 });
        let completions = SharedCompletionQueue::default();
        let mut pair = QueuePair::new(PairConfig {
            id: QueuePairId(number),
            send_depth: config.limits.send_requests,
            receive_depth: config.limits.receive_requests,
            shared_receives: None,
            completions: Rc::clone(&completions),
        });
        pair.modify(State::Initialised).expect("a new queue pair may be initialised");
        let card = config.cards[index];
        Self {
            card,
            processor: Processor::new(config.drivers[index]),
            pair,
            domain: ProtectionDomain::new(config.regions_max, Rc::clone(pool), Entropy::Seeded(rng)),
            completions,
            events: VecDeque::new(),
            cause: None,
            ready: Ready::default(),
            bus: Bus::new(card),
            line: config.line[index],
            logic_free: Instant::ZERO,
            line_free: 0,
            path,
            frames: 0,
            followed: BTreeMap::new(),
            next: 0,
            unacknowledged: VecDeque::new(),
            sending: 0,
            words: VecDeque::new(),
            outstanding: VecDeque::new(),
            retry_at: None,
            retries: 0,
            expected: 0,
            has_complained: false,
        }
    }

    /// When something happens here next, besides the agenda and the software.
    pub(super) fn next(&self) -> Option<Instant> {
        [self.path.next(), self.retry_at, self.sends_at()].into_iter().flatten().min()
    }

    /// When the software may take a completion.
    pub(super) fn reaps_at(&self) -> Option<Instant> {
        self.ready.at().map(|at| at.max(self.processor.busy_until()))
    }

    /// When the next frame is sent.
    pub(super) fn sends_at(&self) -> Option<Instant> {
        let free = Instant::from_nanos(self.line_free.div_ceil(PICOS));
        if !self.words.is_empty() {
            return Some(free);
        }
        self.packet(self.sending).map(|packet| packet.ready.max(free))
    }

    /// The packet with this number, unless it was acknowledged.
    pub(super) fn packet(&self, number: u64) -> Option<&Packet> {
        let first = self.unacknowledged.front()?.number;
        self.unacknowledged.get(usize::try_from(number.checked_sub(first)?).ok()?)
    }

    /// Adds packets for a message of `bytes`, ready at the times in `parts`, with `carried` on the
    /// last.
    pub(super) fn add(
        &mut self,
        bytes: u32,
        extended: u32,
        mut ready: Vec<Instant>,
        carried: Carried,
        cause: Cause,
    ) {
        let mtu = self.card.mtu;
        let count = bytes.div_ceil(mtu).max(1);
        ready.resize(count as usize, ready.last().copied().unwrap_or(Instant::ZERO));
        let mut carried = Some(carried);
        for (index, at) in (0..count).zip(ready) {
            let is_last = index + 1 == count;
            let before = self.unacknowledged.back().map_or(Instant::ZERO, |packet| packet.ready);
            self.unacknowledged.push_back(Packet {
                number: self.next,
                bytes: (bytes - index * mtu).min(mtu),
                extended: if index == 0 { extended } else { 0 },
                carried: if is_last { carried.take() } else { None },
                ready: at.max(before),
                cause,
                is_sent: false,
            });
            self.next += 1;
        }
    }

    /// Puts a frame on the path at `now`, and returns its number.
    pub(super) fn enter(&mut self, now: Instant, bytes: u32, word: Word, cause: Cause, follow: bool) {
        let length = bytes + self.card.encapsulation.header();
        self.frames += 1;
        let mut frame =
            Frame::new(self.frames, length, Class::BEST_EFFORT, Buffer::copy_from_slice(&word.emit()));
        if self.card.encapsulation == Encapsulation::InfiniBand {
            // There is no minimum length of a frame.
            frame.length = length;
        }
        frame.sent = now;
        if let Some(rate) = self.line {
            let occupied = match self.card.encapsulation {
                Encapsulation::InfiniBand => u64::from(length),
                Encapsulation::RoceV2 => frame.wire_bytes(),
            };
            self.line_free = self.line_free.max(now.as_nanos() * PICOS) + rate.picoseconds(occupied);
        }
        if follow {
            if self.followed.len() >= FOLLOWED_MAX {
                self.followed.pop_first();
            }
            let (hops, length) = (Vec::new(), frame.length);
            let trail = Trail { length, made: now, sent: now, hops, arrived: now };
            self.followed.insert(frame.id, (trail, cause));
        }
        self.path.enter(now, frame);
    }
}

/// Fetches `bytes` of data from memory; returns when each packet's data are available.
pub(super) fn gather(half: &mut Half, now: Instant, bytes: u32) -> Vec<Instant> {
    let (mtu, mut ready) = (half.card.mtu, Vec::new());
    let end = half.bus.read(now, bytes, |done, at| {
        if done % mtu == 0 || done == bytes {
            ready.push(at);
        }
    });
    if ready.is_empty() {
        ready.push(end);
    }
    ready
}
