//! Packets between the kernels of two network namespaces, sent through a modelled path. Each
//! namespace has a network interface (TUN); between the two, frames take their time, wait in queues
//! and are lost.
//!
//! Nothing here is a connection, and nothing is sent again: that is up to the senders, and the
//! purpose of this emulator.

mod namespace;
#[cfg(test)]
mod tests;
mod tun;

use std::io;
use std::os::fd::AsRawFd;

use engine::{BufferMut, Instant, Nanos};
use network_models::network::Side;
use network_models::passage::{Packet, Passage};

use super::Direction;
use super::emulator::{Emulator, Ends, Middle};
use crate::reactor::{Attention, Context, Sources};

pub use namespace::Namespace;
pub use tun::{Settings, Tun};

/// The most packets taken from one side before the other side and due events get their turn.
const BURST: usize = 64;
/// The shortest IP header, that of version 4 (RFC 791, 3.1).
const HEADER_MIN: usize = 20;

/// An event to report to users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A packet was handed to its interface this long after it was due.
    Written(Nanos),
    /// It is time to look at the counters; see [`Packets::counters`].
    Tick,
}

/// Counters of everything that has passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// From the first namespace to the second.
    pub there: Direction,
    /// From the second namespace to the first.
    pub back: Direction,
    /// Packets from the interfaces that are no IP packets; they are not passed on.
    pub strange: u64,
    /// Packets from the model that were not taken: their interface was down, or the system had no
    /// memory.
    pub refused: u64,
}

/// The driver that passes packets between two interfaces and the model.
pub type Packets<R> = Emulator<Passage, Interfaces<R>>;

/// The interfaces of both namespaces.
#[derive(Debug)]
pub struct Interfaces<R> {
    both: [Tun; 2],
    /// The block that receives the next packet.
    block: Option<BufferMut>,
    strange: u64,
    refused: u64,
    report: R,
}

impl<R: FnMut(Event)> Packets<R> {
    /// Joins two interfaces through `passage`, whose time begins `now`.
    pub fn new(now: Instant, passage: Passage, interfaces: [Tun; 2], report: R) -> Self {
        let ends = Interfaces { both: interfaces, block: None, strange: 0, refused: 0, report };
        Self::between(now, passage, ends)
    }

    /// The counters so far.
    pub fn counters(&self) -> Counters {
        let [there, back] = self.middle.directions();
        Counters { there, back, strange: self.ends.strange, refused: self.ends.refused }
    }
}

impl<R: FnMut(Event)> Interfaces<R> {
    /// Takes the packets that a namespace has sent; returns whether there were any.
    fn receive(
        &mut self,
        side: Side,
        middle: &mut Middle<Passage>,
        context: &Context<'_>,
    ) -> io::Result<bool> {
        let Middle { model, pool, .. } = middle;
        let interface = &self.both[side.index()];
        // The interface's MTU may be changed by others. A packet longer than the model's MTU is
        // cut, and not passed on.
        let room = usize::try_from(model.network().mtu()).expect("at least 32 bits") + 1;
        for taken in 0..BURST {
            let mut block = self.block.take().unwrap_or_else(|| pool.take(room));
            let Some(count) = interface.receive(&mut block)? else {
                self.block = Some(block);
                return Ok(taken > 0);
            };
            block.truncate(count);
            let data = pool.seal(block);
            if is_ip(&data) {
                model.input(context.clock.now(), Packet { side, data });
            } else {
                self.strange += 1;
            }
        }
        Ok(true)
    }

    /// Lets due events happen, and hands on the packets that have arrived; returns whether there
    /// were any.
    fn deliver(&mut self, middle: &mut Middle<Passage>, context: &Context<'_>) -> io::Result<bool> {
        let mut any = false;
        middle.model.run_until(context.clock.now());
        while let Some((due, packet)) = middle.model.next_output() {
            any = true;
            if !self.both[packet.side.index()].send(&packet.data)? {
                self.refused += 1;
                continue;
            }
            middle.delivered[packet.side.index()] += packet.data.len() as u64;
            let now = context.clock.now();
            middle.pace.was_gone(now);
            (self.report)(Event::Written(now - due));
        }
        Ok(any)
    }
}

/// Whether this may be an IP packet: it has an existing version and room for a header.
fn is_ip(packet: &[u8]) -> bool {
    packet.len() >= HEADER_MIN && packet.first().is_some_and(|first| matches!(first >> 4, 4 | 6))
}

impl<R: FnMut(Event)> Ends<Passage> for Interfaces<R> {
    fn start(&mut self, sources: &Sources) -> io::Result<()> {
        self.both.iter().try_for_each(|interface| sources.add(interface.as_raw_fd(), Attention::EachTurn))
    }

    fn exchange(&mut self, middle: &mut Middle<Passage>, context: &Context<'_>) -> io::Result<bool> {
        let mut busy = false;
        for side in Side::BOTH {
            // Due packets go out before anything else.
            busy |= self.deliver(middle, context)?;
            busy |= self.receive(side, middle, context)?;
        }
        Ok(busy)
    }

    fn tick(&mut self) {
        (self.report)(Event::Tick);
    }
}
