//! Datagrams become records of packets in the chunk that is written. They cannot wait: what has no
//! room is received all the same, counted, and declared lost.

mod raw;

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use engine::Instant;
use record::format::{Content, LinkType, PACKET_HEAD, PacketFlags, PacketHead, Place, Time, TimeSource};
use record::sequence::{Counts, Ledger, Loss, Losses, SequenceRule};
use record::{Missed, Recorder};

use super::failing::Failing;
use super::{real_time, time};
use crate::sys::datagrams::{Arrived, BATCH_MAX, Batch, Stamp, dropped};

/// The place that is kept for each datagram until a longer one has come, in bytes.
const LENGTH_FIRST: usize = 1_536;
/// How often a socket is emptied before others have their turn.
const TURNS: usize = 4;
/// How often what a socket still has is received at the end. Somebody who sends without end does
/// not keep a recording from ending.
const TURNS_AT_END: usize = 256;
/// What fails if a socket does, for those who are told.
const RECEIVING: &str = "receiving datagrams";

/// What a source of packets heard.
#[derive(Clone, Copy, Debug)]
pub struct Heard {
    /// Packets that came, those included that had no room.
    pub packets: u64,
    /// What their numbers said; `None` if they have no numbers that are followed.
    pub numbers: Option<Counts>,
}

/// A datagram that could not stay where it arrived.
struct Held {
    losses: Losses,
    time: Time,
    bytes: Vec<u8>,
}

/// A socket's datagrams.
pub(super) struct Datagrams {
    socket: OwnedFd,
    batch: Batch,
    ledger: Ledger,
    /// Length of the head before each datagram: 0 if their bytes are put one behind the other.
    head: usize,
    /// The longest datagram so far: each has so much room.
    length: usize,
    /// How many packets the kernel had dropped when it was asked last, modulo 2^32.
    dropped: u32,
    held: VecDeque<Held>,
    /// Where datagrams are received that have no room.
    spare: Vec<u8>,
    datagrams: u64,
    link: LinkType,
    failing: Failing,
}

impl AsFd for Datagrams {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Whose bytes are recorded where and when.
pub(super) struct Desk<'a> {
    recorder: &'a mut Recorder,
    stream: usize,
    now: Instant,
    head: usize,
}

impl<'a> Desk<'a> {
    /// A desk for records of packets.
    pub(super) const fn new(recorder: &'a mut Recorder, stream: usize, now: Instant) -> Self {
        Self { recorder, stream, now, head: PACKET_HEAD }
    }
}

impl Desk<'_> {
    pub(super) fn miss(&mut self, loss: Loss, when: u64, place: Place) {
        let heads = loss.packets.saturating_mul(self.head as u64);
        let bytes = if loss.bytes > 0 { loss.bytes.saturating_add(heads) } else { 0 };
        let missed = Missed { packets: loss.packets, bytes, when, place };
        self.recorder.miss(self.now, self.stream, missed);
    }

    fn declare(&mut self, losses: &Losses, when: u64) {
        for (loss, place) in each(losses) {
            self.miss(loss, when, place);
        }
    }

    /// Room for at least so many bytes, in a new chunk if need be.
    fn room(&mut self, bytes: usize) -> Option<&mut [u8]> {
        if self.recorder.room(self.now, self.stream)?.len() < bytes {
            self.recorder.end_chunk(self.stream);
        }
        self.recorder.room(self.now, self.stream).filter(|room| room.len() >= bytes)
    }

    fn filled(&mut self, bytes: usize, time: Time) {
        if bytes > 0 {
            self.recorder.filled(self.now, self.stream, bytes, time);
        }
    }

    /// Records a packet of these parts, or declares it lost.
    pub(super) fn put(&mut self, losses: &Losses, flags: PacketFlags, time: Time, parts: &[&[u8]]) {
        self.declare(losses, time.nanos);
        let length = parts.iter().map(|part| part.len()).sum();
        let head = self.head;
        let Some(room) = self.room(head + length) else { return self.lose_at_ring(length, time.nanos) };
        write_head(&mut room[..head], length, flags, time);
        let mut at = head;
        for part in parts {
            room[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        self.filled(at, time);
    }

    fn lose_at_ring(&mut self, length: usize, when: u64) {
        let bytes = (self.head + length) as u64;
        let missed = Missed { packets: 1, bytes, when, place: Place::Ring };
        self.recorder.miss(self.now, self.stream, missed);
    }
}

/// What was lost where; of a restart nothing.
fn each(losses: &Losses) -> impl Iterator<Item = (Loss, Place)> {
    let known = [(losses.socket, Place::Socket), (losses.wire, Place::Wire)];
    let restart = losses.restarted.then(|| (Loss::default(), Place::Wire));
    known.into_iter().filter(|(loss, _)| loss.packets > 0).chain(restart)
}

fn write_head(room: &mut [u8], length: usize, flags: PacketFlags, time: Time) {
    if let Some(head) = room.first_chunk_mut::<PACKET_HEAD>() {
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        *head = PacketHead { flags, ..PacketHead::new(length, time) }.emit();
    }
}

pub(super) fn time_of(stamp: Stamp) -> Time {
    match stamp {
        Stamp::None => real_time(),
        Stamp::Kernel(time) => time::stamped(time.get()),
        Stamp::Hardware(time) => Time { nanos: time.get(), source: TimeSource::Hardware },
    }
}

impl Datagrams {
    pub(super) fn new(socket: OwnedFd, ledger: Ledger, framed: bool, link: LinkType) -> Self {
        Self {
            socket,
            batch: Batch::new(),
            ledger,
            head: if framed { PACKET_HEAD } else { 0 },
            length: LENGTH_FIRST,
            dropped: 0,
            held: VecDeque::new(),
            spare: Vec::new(),
            datagrams: 0,
            link,
            failing: Failing::default(),
        }
    }

    pub(super) const fn content(&self) -> Content {
        if self.head > 0 { Content::Packets(self.link) } else { Content::Bytes }
    }

    pub(super) fn rule(&self) -> SequenceRule {
        self.ledger.rule()
    }

    /// Whether receiving fails.
    pub(super) const fn fails(&self) -> bool {
        self.failing.fails()
    }

    pub(super) fn heard(&self) -> Heard {
        Heard { packets: self.datagrams, numbers: self.ledger.counts() }
    }

    /// Takes what has come, at most about `left` bytes. Returns whether there was anything.
    pub(super) fn take(
        &mut self,
        now: Instant,
        stream: usize,
        recorder: &mut Recorder,
        left: Option<u64>,
    ) -> bool {
        let mut has_moved = false;
        let end = left.map(|left| recorder.progress().bytes_in.saturating_add(left));
        for _ in 0..TURNS {
            let left = end.map(|end| end.saturating_sub(recorder.progress().bytes_in));
            let mut desk = Desk { recorder, stream, now, head: self.head };
            let count = if left == Some(0) { 0 } else { self.receive(&mut desk, left) };
            has_moved |= count > 0;
            if count < BATCH_MAX / 2 {
                break;
            }
        }
        has_moved
    }

    /// The recording ends: what has come is taken, and what is missing is lost.
    pub(super) fn finish(&mut self, now: Instant, stream: usize, recorder: &mut Recorder, drain: bool) {
        let mut desk = Desk { recorder, stream, now, head: self.head };
        let turns = if drain { TURNS_AT_END } else { 0 };
        let _ = (0..turns).find(|_| self.receive(&mut desk, None) == 0);
        self.ask_dropped(&mut desk);
        let missing = self.ledger.finish();
        if missing.packets > 0 {
            desk.miss(missing, real_time().nanos, Place::Wire);
        }
    }

    /// Receives once. Returns the number of datagrams.
    fn receive(&mut self, desk: &mut Desk<'_>, left: Option<u64>) -> usize {
        let slot = self.head + self.length;
        let most = left.map_or(BATCH_MAX, |left| usize::try_from(left / slot as u64).unwrap_or(BATCH_MAX));
        let end = slot * most.clamp(1, BATCH_MAX);
        let count = match desk.room(slot) {
            Some(room) => {
                let end = room.len().min(end);
                let room = &mut room[..end];
                let arrived = self.batch.receive(&self.socket, room, self.head, slot);
                let arrived = arrived.map(<[_]>::to_vec);
                self.failing.on_result(RECEIVING, &arrived);
                let arrived = arrived.unwrap_or_default();
                let stayed = self.sort(room, &arrived);
                for (arrived, (losses, time)) in arrived.iter().zip(&stayed) {
                    desk.declare(losses, time.nanos);
                    desk.filled(self.head + arrived.length, *time);
                }
                for Held { losses, time, bytes } in self.held.drain(..) {
                    desk.put(&losses, PacketFlags::default(), time, &[&bytes]);
                }
                arrived.len()
            }
            None => {
                self.spare.resize(end, 0);
                let arrived = self.batch.receive(&self.socket, &mut self.spare, self.head, slot);
                let arrived = arrived.map(<[_]>::to_vec);
                self.failing.on_result(RECEIVING, &arrived);
                let arrived = arrived.unwrap_or_default();
                for (at, arrived) in arrived.iter().enumerate() {
                    let when = time_of(arrived.stamp).nanos;
                    let bytes = self.whole(at, arrived, &self.spare[at * slot + self.head..(at + 1) * slot]);
                    let losses = self.account(arrived, &bytes);
                    desk.declare(&losses, when);
                    desk.lose_at_ring(arrived.length, when);
                }
                arrived.len()
            }
        };
        self.datagrams += count as u64;
        if count == 0 {
            self.ask_dropped(desk);
        }
        count
    }

    /// Puts datagrams one behind the other, each behind its head, as long as they may stay in this
    /// chunk; the others are held. Returns what was lost before each that stays, and its time.
    fn sort(&mut self, room: &mut [u8], arrived: &[Arrived]) -> Vec<(Losses, Time)> {
        let (head, length) = (self.head, self.length);
        let mut stayed = Vec::with_capacity(arrived.len());
        let mut end = 0;
        for (at, one) in arrived.iter().enumerate() {
            let (start, time) = (at * (head + length) + head, time_of(one.stamp));
            let place = &room[start..start + length];
            let is_long = one.length > length;
            let losses = match is_long {
                true => self.account(one, &self.whole(at, one, place)),
                false => self.account(one, &place[..one.length]),
            };
            // Lost bytes end the chunk.
            let is_cut = losses.socket.bytes > 0 || losses.wire.bytes > 0;
            if is_long || is_cut || !self.held.is_empty() {
                let bytes = self.whole(at, one, place);
                self.held.push_back(Held { losses, time, bytes });
                continue;
            }
            room.copy_within(start..start + one.length, end + head);
            write_head(&mut room[end..end + head], one.length, PacketFlags::default(), time);
            end += head + one.length;
            stayed.push((losses, time));
        }
        self.length = arrived.iter().map(|one| one.length).fold(length, usize::max);
        stayed
    }

    /// The bytes of a datagram of which the first are at `place`.
    fn whole(&self, at: usize, arrived: &Arrived, place: &[u8]) -> Vec<u8> {
        let inside = arrived.length.min(place.len());
        [&place[..inside], self.batch.rest(at, arrived.length - inside)].concat()
    }

    fn account(&mut self, arrived: &Arrived, bytes: &[u8]) -> Losses {
        let more = arrived.dropped.map_or(0, |dropped| self.newly_dropped(dropped));
        self.ledger.on_datagram(arrived.sender, bytes, more)
    }

    /// How many packets were dropped since the kernel was asked last. It may have been asked after
    /// a datagram came.
    fn newly_dropped(&mut self, dropped: u32) -> u64 {
        let more = u64::try_from(dropped.wrapping_sub(self.dropped).cast_signed()).unwrap_or(0);
        self.dropped = if more > 0 { dropped } else { self.dropped };
        more
    }

    /// What was dropped behind the last datagram, if anything was.
    fn dropped_behind(&mut self) -> Option<Loss> {
        let more = dropped(&self.socket).map_or(0, |dropped| self.newly_dropped(dropped));
        (more > 0).then(|| self.ledger.on_dropped(more))
    }

    /// Learns what was dropped behind the last datagram.
    fn ask_dropped(&mut self, desk: &mut Desk<'_>) {
        if let Some(loss) = self.dropped_behind() {
            desk.miss(loss, real_time().nanos, Place::Socket);
        }
    }
}
