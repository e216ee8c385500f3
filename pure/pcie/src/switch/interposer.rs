//! The interface of an interposer between a switch and the links below its downstream ports.
//!
//! Where such a link is long, an [`Interposer`] saves round trips. It sees every packet that
//! passes. It may answer a request in the device's place, hold a packet for a moment, and send host
//! memory ahead of a packet that makes the device read this memory. [`FarLink`] is its interface to
//! a link. The owner of the switch and the links calls the interposer.

use core::fmt;

use engine::{Buffer, Instant};
use serde::{Deserialize, Serialize};

use super::Switch;
use crate::wire::{Bdf, Packet};

/// Names a strand of a link; counted from 0. All packets keep their order with those of the main
/// strand. Packets of two further strands need no order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Strand(pub u8);

impl Strand {
    /// The strand that every link has.
    pub const MAIN: Self = Self(0);

    /// The first `count` strands of a link, at most 255, the main one first.
    #[inline]
    pub fn first(count: usize) -> impl Iterator<Item = Self> {
        (0..u8::try_from(count).unwrap_or(u8::MAX)).map(Self)
    }
    /// Whether this is the main strand.
    pub const fn is_main(self) -> bool {
        self.0 == 0
    }
    /// The index of the strand in a list of all strands.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl core::fmt::Display for Strand {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.0.fmt(f)
    }
}

/// Names pieces of memory that are forgotten together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AheadKey(pub u32);

impl AheadKey {
    /// All pieces of memory, where memory is forgotten.
    pub const ALL: Self = Self(0);
}

/// A piece of host memory that is sent to the device's end of a link, which then answers the
/// device's reads of this memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ahead {
    /// First address of the memory, a multiple of 4.
    pub address: u64,
    /// Key by which the memory is forgotten; never [`AheadKey::ALL`].
    pub key: AheadKey,
    /// The function that answers reads of this memory.
    pub completer: Bdf,
    /// The longest payload of a completion for this memory, in bytes: a power of two from 128 to
    /// 4096.
    pub payload_size: u16,
    /// Whether the memory is useless as soon as any of it was read.
    pub once: bool,
}

/// A link below a downstream port, as an [`Interposer`] uses it.
pub trait FarLink {
    /// Whether packets leave at once; false while a lost connection is being restored.
    fn is_open(&self) -> bool;
    /// Whether the device's end is known to have received all posted requests that were sent.
    fn is_flushed(&self) -> bool;
    /// How many bytes of memory sent ahead the device's end keeps. If 0, the caller must send none.
    fn ahead_window(&self) -> u32;
    /// Whether the link has several strands now.
    fn is_spread(&self) -> bool;
    /// The strand of a queue of the device, or the main one if that strand is not open. Queue 0 is
    /// in order with everything.
    fn strand_of_queue(&self, queue: u16) -> Strand;
    /// Sends a packet on a strand, or on the main one if that strand is not open.
    fn send_on(&mut self, now: Instant, strand: Strand, packet: Packet);
    /// Sends memory ahead of the packets that are sent on a strand from now on. The caller respects
    /// the [window](FarLink::ahead_window). Returns false if the memory is not sent.
    fn send_ahead_on(&mut self, strand: Strand, ahead: Ahead, bytes: Buffer) -> bool;
    /// Makes the device's end forget all memory with `key` before it sees any packet that is sent
    /// from now on.
    fn forget_ahead(&mut self, key: AheadKey);
    /// Informs the device's end, on strand `via`, that its writes to `ranges` need only the order
    /// of `strand`, until `key` is forgotten. A range is an address and a length.
    fn lay(&mut self, now: Instant, via: Strand, strand: Strand, key: AheadKey, ranges: &[(u64, u32)]);
}

/// The context of a call to an [`Interposer`].
pub struct Surroundings<'a, L> {
    /// The time of the call.
    pub now: Instant,
    /// The switch above.
    pub switch: &'a Switch,
    /// The links below the switch's downstream ports, in their order.
    pub links: &'a mut [L],
    /// Whether no packet waits between this interposer and the link of the call.
    pub is_clear: bool,
}

/// The fate of a packet that goes down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Passage {
    /// The packet continues on this strand.
    On(Strand),
    /// The interposer has taken the packet, and has left a blank one. It sends or answers the
    /// packet later.
    Kept,
    /// The packet is a request, and this is its answer. It need not continue.
    Answered(Packet),
}

/// A request of a device that an [`Interposer`] did not let pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The function in whose name the request came.
    pub function: Bdf,
    /// Whether the request was a write, which is dropped; other requests are answered.
    pub write: bool,
    /// Address of the request's first double word.
    pub address: u64,
    /// Length of the request in bytes, as whole double words.
    pub length: u32,
    /// Number of other refused requests of the port since the last reported refusal.
    pub untold: u64,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { function, address, length, .. } = self;
        let what = if self.write { "a write of" } else { "a read of" };
        write!(f, "function {function} was refused {what} {length} B at {address:#x}, ")?;
        f.write_str("which the host has not named to it")?;
        match self.untold {
            0 => Ok(()),
            untold => write!(f, " (and {untold} other requests since the last report)"),
        }
    }
}

/// The fate of a packet that comes up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ascent {
    /// The packet goes on.
    On,
    /// The packet goes no further. A non-posted request is answered with Unsupported Request.
    Refused,
}

/// A stage between a switch and the links below its downstream ports, which are counted from 0.
/// `()` is the empty stage: every packet passes.
pub trait Interposer {
    /// Handles a link that has come up or gone down. All knowledge of the device below is invalid.
    fn on_link(&mut self, port: usize, link: &impl FarLink);
    /// Handles a hot reset of the link: drops held packets for it.
    fn on_reset(&mut self, port: usize);
    /// Handles a strand that has opened or reopened. The device's end has forgotten which writes
    /// use it.
    fn on_strand(&mut self, _now: Instant, _port: usize, _strand: Strand, _link: &mut impl FarLink) {}
    /// Handles a packet that goes down to a port.
    fn on_down<L: FarLink>(
        &mut self,
        around: &mut Surroundings<'_, L>,
        port: usize,
        packet: &mut Packet,
    ) -> Passage;
    /// Handles a request for a port that was answered nearer to the switch, and therefore does not
    /// reach the interposer.
    fn on_answered(&mut self, _port: usize, _request: &Packet, _answer: &Packet, _link: &mut impl FarLink) {}
    /// Handles a packet that comes up from a port.
    fn on_up(&mut self, now: Instant, port: usize, packet: &Packet, link: &mut impl FarLink) -> Ascent;
    /// The next refusal to report, with its port. Not every refusal is reported.
    fn poll_refusal(&mut self) -> Option<(usize, Refusal)> {
        None
    }
    /// Handles a completion with the upstream port's ID as its requester. Returns whether the
    /// interposer takes it, as an interposer with requests of its own does.
    fn on_completion<L: FarLink>(&mut self, _around: &mut Surroundings<'_, L>, _packet: &Packet) -> bool {
        false
    }
    /// Whether the interposer holds packets for a port.
    fn is_holding(&self, _port: usize) -> bool {
        false
    }
    /// Handles the time of [`Interposer::poll_timeout`].
    fn handle_timeout<L: FarLink>(&mut self, around: &mut Surroundings<'_, L>);
    /// When [`Interposer::handle_timeout`] is due, if ever.
    fn poll_timeout(&self) -> Option<Instant>;
    /// The next packet for the root complex: an answer to a packet that was held, or a request with
    /// the upstream port's ID as its requester.
    fn poll_packet(&mut self) -> Option<Packet>;
}

impl Interposer for () {
    fn on_link(&mut self, _port: usize, _link: &impl FarLink) {}
    fn on_reset(&mut self, _port: usize) {}
    fn on_down<L: FarLink>(
        &mut self,
        _around: &mut Surroundings<'_, L>,
        _port: usize,
        _packet: &mut Packet,
    ) -> Passage {
        Passage::On(Strand::MAIN)
    }
    fn on_up(&mut self, _now: Instant, _port: usize, _packet: &Packet, _link: &mut impl FarLink) -> Ascent {
        Ascent::On
    }
    fn handle_timeout<L: FarLink>(&mut self, _around: &mut Surroundings<'_, L>) {}
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
    fn poll_packet(&mut self) -> Option<Packet> {
        None
    }
}
