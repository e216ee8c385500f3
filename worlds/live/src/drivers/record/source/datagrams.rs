//! A socket's datagrams, which become records of packets.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use engine::Instant;
use record::format::{Content, LinkType, Time, TimeSource};
use record::packing::{Arrival, Lane, Packer, Places, TOGETHER_MAX};
use record::sequence::{Counts, Ledger, SequenceRule};

use super::failing::Failing;
use super::{Feed, Intake, RETRY, Took};
use crate::drivers::record::{real_time, time};
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
    /// Whether the socket may have datagrams. It is not called again until something has come.
    has_news: bool,
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
        Self { socket, batch, packer, link, failing: Failing::default(), has_news: true }
    }

    /// Receives once. Returns the number of datagrams.
    fn receive(&mut self, lane: &mut Lane<'_>, left: Option<u64>) -> usize {
        let Places { room, slot, head } = self.packer.places(lane, left);
        let result = self.batch.receive(&self.socket, room, head, slot);
        self.failing.on_result(RECEIVING, &result);
        self.has_news = !matches!(&result, Err(error) if error.kind() == io::ErrorKind::WouldBlock);
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

impl Feed for Datagrams {
    fn take(&mut self, intake: &mut Intake<'_, '_>) -> Took {
        let (lane, mut took) = (&mut *intake.lane, Took::Nothing);
        let end = intake.left.map(|left| lane.taker.progress().bytes_in.saturating_add(left));
        for _ in 0..TURNS {
            let left = end.map(|end| end.saturating_sub(lane.taker.progress().bytes_in));
            let count = if left == Some(0) || !self.has_news { 0 } else { self.receive(lane, left) };
            if count > 0 {
                took = Took::Something;
            }
            if count < BATCH_MAX / 2 {
                break;
            }
        }
        took
    }

    fn wake(&mut self) {
        self.has_news = true;
    }

    fn descriptor(&self) -> Option<RawFd> {
        Some(self.socket.as_raw_fd())
    }

    /// A call that failed is tried again.
    fn wake_at(&self, now: Instant) -> Option<Instant> {
        self.has_news.then(|| now + RETRY)
    }

    /// With `drain`, the datagrams that have come are taken, and the missing ones declared lost.
    fn finish(&mut self, lane: &mut Lane<'_>, drain: bool) {
        let turns = if drain { TURNS_AT_END } else { 0 };
        let _ = (0..turns).find(|_| self.receive(lane, None) == 0);
        self.ask_dropped(lane);
        self.packer.finish(lane, real_time().nanos);
    }

    fn heard(&self) -> Option<Heard> {
        Some(Heard::of(&self.packer))
    }

    fn rule(&self) -> SequenceRule {
        self.packer.rule()
    }

    fn content(&self) -> Content {
        if self.packer.has_heads() { Content::Packets(self.link) } else { Content::Bytes }
    }
}
