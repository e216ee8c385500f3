//! Packets that did not come, by the numbers of those that came.
//!
//! A [`Tracker`] is shown every datagram of a socket. It separates flows, allows that packets come
//! in another order, and returns how many count as lost. Datagrams without a number that it knows
//! are counted, and have no other effect.

mod blocks;
mod headers;
mod heaps;
mod ledger;
mod rows;
mod rule;
#[cfg(test)]
mod tests;
mod window;

use alloc::vec::Vec;
use core::num::NonZeroU64;

use blocks::Blocks;
use heaps::Heaps;
pub use ledger::{Ledger, Losses};
pub(crate) use rule::LENGTH as RULE_LENGTH;
pub use rule::SequenceRule;
use window::{Came, Counting, Length, WINDOW_MAX, Window};

/// The most flows of a socket that a tracker follows. Another one takes the place of the one that
/// was silent for the longest time.
pub const FLOWS_MAX: usize = 64;
/// The default window: a packet counts as lost once a packet with a number higher by the window has
/// come.
pub const WINDOW_DEFAULT: u32 = 32;
/// The longest number of a field that one names, in bytes.
pub const FIELD_MAX: usize = 8;

/// The numbers of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// RTP (RFC 3550): 16 bits for each synchronization source.
    Rtp,
    /// VITA 49: a packet count of 4 bits for each stream identifier and kind of packet. Packets may
    /// come at most 4 late, and at most 11 that are lost in a row are seen.
    Vita49,
    /// GigE Vision stream protocol: blocks of packets, with short or extended numbers.
    Gvsp,
    /// SPEAD: heaps of bytes, up to 16 of them in turns.
    Spead {
        /// The increase of the number with each heap; the tracker learns it if it is not given.
        step: Option<NonZeroU64>,
    },
    /// A field at a fixed place.
    Field(Field),
}

/// A number at a fixed place of each packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// The place of its first byte.
    pub offset: usize,
    /// Its length in bytes: 1 to [`FIELD_MAX`].
    pub bytes: usize,
    /// The increase of the number with each packet; not 0.
    pub step: u64,
    /// Whether its lowest byte is the first.
    pub little_endian: bool,
}

/// Packets that count as lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loss {
    /// How many.
    pub packets: u64,
    /// The bytes of their datagrams together; 0 if these are not known.
    pub bytes: u64,
}

impl Loss {
    /// Adds packets. If bytes of one are not known, then those of both are not.
    fn add(&mut self, more: Self) {
        let is_known = |loss: &Self| loss.packets == 0 || loss.bytes > 0;
        let bytes = self.bytes.saturating_add(more.bytes);
        self.bytes = if is_known(self) && is_known(&more) { bytes } else { 0 };
        self.packets = self.packets.saturating_add(more.packets);
    }
}

/// The meaning of a datagram's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbered {
    /// It is next, or ahead.
    New,
    /// It came later than others with higher numbers, and was not counted as lost.
    Reordered,
    /// It was counted as lost before it came.
    Late,
    /// One with its number came before.
    Twice,
    /// It has no number that is known here, or one far from all others.
    Foreign,
    /// It begins a new row of numbers: the sender has started over.
    Anew,
}

impl From<Came> for Numbered {
    fn from(came: Came) -> Self {
        match came {
            Came::Ahead => Self::New,
            Came::Reordered => Self::Reordered,
            Came::Late => Self::Late,
            Came::Twice => Self::Twice,
            Came::Far => Self::Foreign,
            Came::Anew => Self::Anew,
        }
    }
}

/// How often datagrams said what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// [`Numbered::Reordered`].
    pub reordered: u64,
    /// [`Numbered::Late`].
    pub late: u64,
    /// [`Numbered::Twice`].
    pub twice: u64,
    /// [`Numbered::Foreign`].
    pub foreign: u64,
    /// [`Numbered::Anew`].
    pub anew: u64,
}

#[derive(Debug)]
enum Numbers {
    Row { counting: Counting, window: Option<Window>, length: Length },
    Blocks(Blocks),
    Heaps(Heaps),
}

#[derive(Debug)]
struct Flow {
    /// Sender, and the flow's number in the header.
    name: (u64, u64),
    used: u64,
    numbers: Numbers,
}

/// Follows the numbers of the datagrams of a socket.
#[derive(Debug)]
pub struct Tracker {
    protocol: Protocol,
    window: u32,
    flows: Vec<Flow>,
    /// Datagrams so far.
    seen: u64,
    counts: Counts,
}

impl Tracker {
    /// A tracker of `protocol`. A packet counts as lost once one came with a number that is higher
    /// by `window`, at most 100.
    pub const fn new(protocol: Protocol, window: u32) -> Self {
        let window = if window > WINDOW_MAX { WINDOW_MAX } else { window };
        let counts = Counts { reordered: 0, late: 0, twice: 0, foreign: 0, anew: 0 };
        Self { protocol, window, flows: Vec::new(), seen: 0, counts }
    }

    /// Takes in a datagram from `sender`, which is any number that distinguishes senders. Returns
    /// the meaning of its number, and the loss before it.
    pub fn on_datagram(&mut self, sender: u64, datagram: &[u8]) -> (Numbered, Loss) {
        self.seen += 1;
        let length = u32::try_from(datagram.len()).unwrap_or(u32::MAX);
        let mut lost = Loss::default();
        let numbered = self.on_numbers(sender, datagram, length, &mut lost).unwrap_or(Numbered::Foreign);
        match numbered {
            Numbered::New => {}
            Numbered::Reordered => self.counts.reordered += 1,
            Numbered::Late => self.counts.late += 1,
            Numbered::Twice => self.counts.twice += 1,
            Numbered::Foreign => self.counts.foreign += 1,
            Numbered::Anew => self.counts.anew += 1,
        }
        (numbered, lost)
    }

    /// The loss at the end: packets missing within the windows count as lost now.
    pub fn finish(&mut self) -> Loss {
        let mut lost = Loss::default();
        self.flows.drain(..).for_each(|flow| end(flow, &mut lost));
        lost
    }

    /// How often datagrams said what.
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// The rule by which losses are found.
    pub const fn rule(&self) -> SequenceRule {
        SequenceRule::Numbers { protocol: self.protocol, window: self.window }
    }

    /// The number of flows that are followed.
    pub const fn flows(&self) -> usize {
        self.flows.len()
    }

    fn on_numbers(&mut self, sender: u64, datagram: &[u8], length: u32, lost: &mut Loss) -> Option<Numbered> {
        let window = self.window;
        let counting = rule::counting(&self.protocol, window);
        let row = Numbers::Row { counting, window: None, length: Length::default() };
        let (mark, new) = match self.protocol {
            Protocol::Rtp => (headers::rtp(datagram)?, row),
            Protocol::Vita49 => (headers::vita49(datagram)?, row),
            Protocol::Field(field) => (headers::field(datagram, &field)?, row),
            Protocol::Gvsp => {
                let (is_extended, piece) = headers::gvsp(datagram)?;
                let new = || Numbers::Blocks(Blocks::new(is_extended, window));
                let numbers = self.flow((sender, u64::from(is_extended)), new, lost);
                let Numbers::Blocks(blocks) = numbers else { return None };
                return Some(blocks.on_packet(piece, length, lost));
            }
            Protocol::Spead { step } => {
                let (bits, piece) = headers::spead(datagram)?;
                let new = || Numbers::Heaps(Heaps::new(bits, step.map(NonZeroU64::get)));
                let numbers = self.flow((sender, bits.into()), new, lost);
                let Numbers::Heaps(heaps) = numbers else { return None };
                return Some(heaps.on_packet(piece, length, lost));
            }
        };
        let numbers = self.flow((sender, mark.flow), || new, lost);
        let Numbers::Row { counting, window, length: usual } = numbers else { return None };
        let Some(window) = window else {
            usual.on_packet(length);
            *window = Some(Window::new(mark.number));
            return Some(Numbered::New);
        };
        let (came, packets) = window.on_number(*counting, mark.number);
        // Datagrams that only look as if they belonged here say nothing about length.
        if came != Came::Far {
            usual.on_packet(length);
        }
        lost.add(usual.loss(packets));
        Some(came.into())
    }

    fn flow(&mut self, name: (u64, u64), new: impl FnOnce() -> Numbers, lost: &mut Loss) -> &mut Numbers {
        let used = self.seen;
        let at = self.flows.iter().position(|flow| flow.name == name).unwrap_or_else(|| {
            if self.flows.len() == FLOWS_MAX {
                let oldest = (0..FLOWS_MAX).min_by_key(|at| self.flows[*at].used).unwrap_or(0);
                end(self.flows.swap_remove(oldest), lost);
            }
            self.flows.push(Flow { name, used, numbers: new() });
            self.flows.len() - 1
        });
        self.flows[at].used = used;
        &mut self.flows[at].numbers
    }
}

/// The loss of a flow that the tracker no longer follows.
fn end(flow: Flow, lost: &mut Loss) {
    match flow.numbers {
        Numbers::Row { window, length, .. } => {
            let packets = window.map_or(0, |mut window| window.flush());
            lost.add(length.loss(packets));
        }
        Numbers::Blocks(mut blocks) => blocks.finish(lost),
        Numbers::Heaps(mut heaps) => heaps.finish(lost),
    }
}
