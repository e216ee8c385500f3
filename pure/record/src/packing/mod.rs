//! Packets become the bytes of a stream.
//!
//! Packets cannot wait. A [`Packer`] gives the places for the next ones ([`Packer::places`]): in
//! the chunk that is being filled, so that few bytes are copied. It then takes in the received
//! packets ([`Packer::received`]), and puts one behind the other, each behind its head. Packets
//! that have no room are received all the same, counted, and declared lost. So are the packets that
//! the kernel has dropped, and those that the numbers of packets show to be missing.

mod lane;
mod taker;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;

pub use lane::Lane;
pub use taker::Taker;

use crate::format::{PACKET_HEAD, PacketFlags, PacketHead, Place, Time};
use crate::sequence::{Counts, Ledger, Loss, Losses, SequenceRule};

/// The most packets that are received at once.
pub const TOGETHER_MAX: usize = 64;
/// The room that is kept for each packet until a longer one has come, in bytes.
const LENGTH_FIRST: usize = 1_536;

/// Where packets are to be received.
#[derive(Debug)]
pub struct Places<'a> {
    /// The places, one behind the other: at most [`TOGETHER_MAX`].
    pub room: &'a mut [u8],
    /// The length of a place in bytes.
    pub slot: usize,
    /// The length of the head in bytes: a packet's bytes begin this far behind its place's start.
    pub head: usize,
}

/// A packet that was received. Its first bytes are at its place.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// Its length in bytes.
    pub length: usize,
    /// A number that distinguishes senders.
    pub sender: u64,
    /// When it came.
    pub time: Time,
    /// How many packets the kernel has dropped up to then, modulo 2^32, if it says so.
    pub dropped: Option<u32>,
    /// The bytes for which its place was too short.
    pub rest: &'a [u8],
}

/// Losses before packets, and their places.
#[derive(Debug)]
struct Account {
    ledger: Ledger,
    /// How many packets the kernel had dropped when that was heard last, modulo 2^32.
    dropped: u32,
}

impl Account {
    fn on_packet(&mut self, arrival: &Arrival<'_>, bytes: &[u8]) -> Losses {
        let more = arrival.dropped.map_or(0, |dropped| self.newly_dropped(dropped));
        self.ledger.on_datagram(arrival.sender, bytes, more)
    }

    /// How many packets were dropped since that was heard last. Packets that came before may be
    /// heard of later.
    fn newly_dropped(&mut self, dropped: u32) -> u64 {
        let more = u64::try_from(dropped.wrapping_sub(self.dropped).cast_signed()).unwrap_or(0);
        self.dropped = if more > 0 { dropped } else { self.dropped };
        more
    }
}

/// A packet that cannot stay where it arrived.
#[derive(Clone, Copy, Debug)]
struct Held {
    losses: Losses,
    time: Time,
    length: usize,
}

/// Packs the packets of one source into a stream.
#[derive(Debug)]
pub struct Packer {
    account: Account,
    /// Length of the head before each packet: 0 if their bytes lie one behind the other.
    head: usize,
    /// The longest packet so far: each has so much room.
    length: usize,
    /// The length of the places that were given out last, and whether these are in the chunk.
    slot: usize,
    is_in_chunk: bool,
    /// Packets that are held, and their bytes one behind the other.
    held: Vec<Held>,
    held_bytes: Vec<u8>,
    /// Where packets are received that have no room.
    spare: Vec<u8>,
    packets: u64,
}

impl Packer {
    /// Packs packets behind heads, if there are to be any, and attributes losses by `ledger`.
    pub const fn new(ledger: Ledger, has_heads: bool) -> Self {
        Self {
            account: Account { ledger, dropped: 0 },
            head: if has_heads { PACKET_HEAD } else { 0 },
            length: LENGTH_FIRST,
            slot: 0,
            is_in_chunk: false,
            held: Vec::new(),
            held_bytes: Vec::new(),
            spare: Vec::new(),
            packets: 0,
        }
    }

    /// Whether each packet has a head.
    pub const fn has_heads(&self) -> bool {
        self.head > 0
    }

    /// How many packets came, those included that had no room.
    pub const fn packets(&self) -> u64 {
        self.packets
    }

    /// The counts from the numbers of packets; `None` if the packer follows no numbers.
    pub fn counts(&self) -> Option<Counts> {
        self.account.ledger.counts()
    }

    /// The rule by which lost packets are found.
    pub fn rule(&self) -> SequenceRule {
        self.account.ledger.rule()
    }

    fn head(&self, lane: &Lane<'_>) -> usize {
        if lane.taker.keeps_places() { 0 } else { self.head }
    }

    /// Where the next packets are to be received. They have about `left` bytes at most.
    pub fn places<'a>(&'a mut self, lane: &'a mut Lane<'_>, left: Option<u64>) -> Places<'a> {
        let head = self.head(lane);
        let slot = head + self.length;
        let count =
            left.map_or(TOGETHER_MAX, |left| usize::try_from(left / slot as u64).unwrap_or(TOGETHER_MAX));
        let end = slot * count.clamp(1, TOGETHER_MAX);
        self.slot = slot;
        self.is_in_chunk = !lane.taker.keeps_places() && lane.room_for(slot).is_some();
        let room = match self.is_in_chunk {
            true => lane.room().unwrap_or_default(),
            false => {
                if self.spare.len() < end {
                    self.spare.resize(end, 0);
                }
                &mut self.spare
            }
        };
        let end = room.len().min(end);
        Places { room: &mut room[..end], slot, head }
    }

    /// Takes in the packets that have arrived at the first of the places that
    /// [`Packer::places`] gave out last, in order. Returns their number.
    pub fn received<'a>(
        &mut self,
        lane: &mut Lane<'_>,
        arrivals: impl Iterator<Item = Arrival<'a>>,
    ) -> usize {
        let before = self.packets;
        let mut longest = self.length;
        let arrivals = arrivals.inspect(|arrival| longest = longest.max(arrival.length));
        match self.is_in_chunk {
            true => self.received_in_chunk(lane, arrivals),
            false => self.received_elsewhere(lane, arrivals),
        }
        self.length = longest;
        usize::try_from(self.packets - before).unwrap_or(usize::MAX)
    }

    /// Puts packets one behind the other, as long as they may stay in this chunk. One before which
    /// bytes were lost may not, since lost bytes end the chunk; nor may those behind it.
    fn received_in_chunk<'a>(&mut self, lane: &mut Lane<'_>, arrivals: impl Iterator<Item = Arrival<'a>>) {
        let (head, slot) = (self.head, self.slot);
        let mut used = 0;
        for (at, arrival) in arrivals.enumerate() {
            self.packets += 1;
            let Arrival { length, time, .. } = arrival;
            // Room begins behind the bytes filled since.
            let start = at * slot - used;
            let room = lane.room().and_then(|room| room.get_mut(..start + slot));
            let Some(room) = room else {
                lane.lose_packet(head + length, time.nanos);
                continue;
            };
            let place = &room[start + head..];
            let is_whole = length <= place.len();
            let mut losses = None;
            if is_whole && self.held.is_empty() {
                let found = self.account.on_packet(&arrival, &place[..length]);
                if found.socket.bytes == 0 && found.wire.bytes == 0 {
                    if start > 0 {
                        room.copy_within(start + head..start + head + length, head);
                    }
                    write_head(&mut room[..head], length, PacketFlags::default(), time);
                    lane.miss_before(&found, head, time.nanos);
                    lane.filled(head + length, time);
                    used += head + length;
                    continue;
                }
                losses = Some(found);
            }
            let held = self.held_bytes.len();
            self.held_bytes.extend_from_slice(&place[..length.min(place.len())]);
            self.held_bytes.extend_from_slice(arrival.rest);
            let losses = losses.unwrap_or_else(|| self.account.on_packet(&arrival, &self.held_bytes[held..]));
            self.held.push(Held { losses, time, length });
        }
        self.put_held(lane);
    }

    fn put_held(&mut self, lane: &mut Lane<'_>) {
        let mut rest = &self.held_bytes[..];
        for Held { losses, time, length } in self.held.drain(..) {
            let (bytes, behind) = rest.split_at(length);
            lane.miss_before(&losses, self.head, time.nanos);
            put(lane, self.head, PacketFlags::default(), time, &[bytes]);
            rest = behind;
        }
        self.held_bytes.clear();
    }

    /// Packets without room are declared lost, unless they lie across chunks.
    fn received_elsewhere<'a>(&mut self, lane: &mut Lane<'_>, arrivals: impl Iterator<Item = Arrival<'a>>) {
        let (head, keeps_places) = (self.head(lane), lane.taker.keeps_places());
        for (place, arrival) in self.spare.chunks_exact(self.slot).zip(arrivals) {
            self.packets += 1;
            let (place, Arrival { length, time, .. }) = (&place[head..], arrival);
            let bytes = match place.get(..length) {
                Some(whole) => whole,
                None => {
                    self.held_bytes.clear();
                    self.held_bytes.extend_from_slice(place);
                    self.held_bytes.extend_from_slice(arrival.rest);
                    &self.held_bytes
                }
            };
            let losses = self.account.on_packet(&arrival, bytes);
            lane.miss_before(&losses, head, time.nanos);
            match keeps_places {
                false => lane.lose_packet(head + length, time.nanos),
                true if losses.is_old => {}
                true => lane.spread(bytes, time),
            }
        }
        self.held_bytes.clear();
    }

    /// Records a packet of these parts, which was received elsewhere, or declares it lost.
    pub fn put(&mut self, lane: &mut Lane<'_>, flags: PacketFlags, time: Time, parts: &[&[u8]]) {
        self.packets += 1;
        put(lane, self.head(lane), flags, time, parts);
    }

    /// Declares packets lost that the kernel has dropped at `when`. Their bytes are not known.
    pub fn miss(&self, lane: &mut Lane<'_>, packets: u64, when: u64) {
        lane.miss(Loss { packets, bytes: 0 }, self.head(lane), when, Place::Socket);
    }

    /// Takes in how many packets the kernel has dropped up to `when`, modulo 2^32.
    pub fn on_dropped(&mut self, lane: &mut Lane<'_>, dropped: u32, when: u64) {
        let more = self.account.newly_dropped(dropped);
        if more > 0 {
            let loss = self.account.ledger.on_dropped(more);
            lane.miss(loss, self.head(lane), when, Place::Socket);
        }
    }

    /// No more packets come: declares the missing ones lost at `when`.
    pub fn finish(&mut self, lane: &mut Lane<'_>, when: u64) {
        let missing = self.account.ledger.finish();
        if missing.packets > 0 {
            lane.miss(missing, self.head(lane), when, Place::Wire);
        }
    }
}

/// Records a packet of these parts behind its head, or declares it lost.
fn put(lane: &mut Lane<'_>, head: usize, flags: PacketFlags, time: Time, parts: &[&[u8]]) {
    let length = parts.iter().map(|part| part.len()).sum::<usize>();
    let Some(room) = lane.room_for(head + length) else {
        return lane.lose_packet(head + length, time.nanos);
    };
    write_head(&mut room[..head], length, flags, time);
    let mut at = head;
    for part in parts {
        room[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
    lane.filled(at, time);
}

/// Writes a packet's head to `room`, which has room for it or is empty.
fn write_head(room: &mut [u8], length: usize, flags: PacketFlags, time: Time) {
    if let Some(head) = room.first_chunk_mut::<PACKET_HEAD>() {
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        *head = PacketHead { flags, ..PacketHead::new(length, time) }.emit();
    }
}
