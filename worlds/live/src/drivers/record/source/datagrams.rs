//! A socket's datagrams, which become records of packets.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use record::format::{Content, LinkType, Time, TimeSource};
use record::packing::{Arrival, Lane, Packer, Places, TOGETHER_MAX};
use record::sequence::{Counts, Ledger, SequenceRule};

use super::failing::Failing;
use super::{real_time, time};
use crate::sys::datagrams::{Arrived, BATCH_MAX, Batch, Stamp, dropped};

const _: () = assert!(TOGETHER_MAX <= BATCH_MAX);

/// How often a socket is emptied before others have their turn.
const TURNS: usize = 4;
/// How many turns at the end receive the socket's remaining datagrams. A sender that sends without
/// end does not keep a recording from ending.
const TURNS_AT_END: usize = 256;
/// The call that fails if a socket does, for the log.
const RECEIVING: &str = "receiving datagrams";

/// The counts of a source of packets.
#[derive(Clone, Copy, Debug)]
pub struct Heard {
    /// Packets that came, those included that had no room.
    pub packets: u64,
    /// The counts from their numbers; `None` if the source follows no numbers.
    pub numbers: Option<Counts>,
}

impl Heard {
    pub(super) fn of(packer: &Packer) -> Self {
        Self { packets: packer.packets(), numbers: packer.counts() }
    }
}

/// A socket's datagrams.
pub(super) struct Datagrams {
    socket: OwnedFd,
    batch: Batch,
    packer: Packer,
    link: LinkType,
    failing: Failing,
}

impl AsFd for Datagrams {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
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
        let (batch, packer) = (Batch::new(), Packer::new(ledger, framed));
        Self { socket, batch, packer, link, failing: Failing::default() }
    }

    pub(super) const fn content(&self) -> Content {
        if self.packer.has_heads() { Content::Packets(self.link) } else { Content::Bytes }
    }

    pub(super) fn rule(&self) -> SequenceRule {
        self.packer.rule()
    }

    /// Whether receiving fails.
    pub(super) const fn fails(&self) -> bool {
        self.failing.fails()
    }

    pub(super) fn heard(&self) -> Heard {
        Heard::of(&self.packer)
    }

    /// Takes the datagrams that have come, at most about `left` bytes. Returns whether there was
    /// anything.
    pub(super) fn take(&mut self, lane: &mut Lane<'_>, left: Option<u64>) -> bool {
        let mut has_moved = false;
        let end = left.map(|left| lane.taker.progress().bytes_in.saturating_add(left));
        for _ in 0..TURNS {
            let left = end.map(|end| end.saturating_sub(lane.taker.progress().bytes_in));
            let count = if left == Some(0) { 0 } else { self.receive(lane, left) };
            has_moved |= count > 0;
            if count < BATCH_MAX / 2 {
                break;
            }
        }
        has_moved
    }

    /// The recording ends: with `drain`, it takes the datagrams that have come, and declares the
    /// missing ones lost.
    pub(super) fn finish(&mut self, lane: &mut Lane<'_>, drain: bool) {
        let turns = if drain { TURNS_AT_END } else { 0 };
        let _ = (0..turns).find(|_| self.receive(lane, None) == 0);
        self.ask_dropped(lane);
        self.packer.finish(lane, real_time().nanos);
    }

    /// Receives once. Returns the number of datagrams.
    fn receive(&mut self, lane: &mut Lane<'_>, left: Option<u64>) -> usize {
        let Places { room, slot, head } = self.packer.places(lane, left);
        let result = self.batch.receive(&self.socket, room, head, slot);
        self.failing.on_result(RECEIVING, &result);
        let arrivals = self.batch.arrived(slot - head).map(|(arrived, rest)| {
            let Arrived { length, sender, stamp, dropped } = *arrived;
            Arrival { length, sender, time: time_of(stamp), dropped, rest }
        });
        let count = self.packer.received(lane, arrivals);
        if count == 0 {
            self.ask_dropped(lane);
        }
        count
    }

    /// Learns how many datagrams were dropped behind the last one.
    fn ask_dropped(&mut self, lane: &mut Lane<'_>) {
        if let Ok(dropped) = dropped(&self.socket) {
            self.packer.on_dropped(lane, dropped, real_time().nanos);
        }
    }
}
