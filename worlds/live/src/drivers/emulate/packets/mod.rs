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

use engine::{BufferMut, Instant, Nanos, Pool};
use network_models::network::Side;
use network_models::passage::{Packet, Passage};

use super::Direction;
use super::model::Model;
use super::pace::Pace;
use crate::reactor::{Attention, Context, Driver, Sources, Turn};

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
#[derive(Debug)]
pub struct Packets<R> {
    model: Model<Passage>,
    interfaces: [Tun; 2],
    pool: Pool,
    /// The block that receives the next packet.
    block: Option<BufferMut>,
    pace: Pace,
    delivered: [u64; 2],
    strange: u64,
    refused: u64,
    report: R,
}

impl<R: FnMut(Event)> Packets<R> {
    /// Joins two interfaces through `passage`, whose time begins `now`.
    pub fn new(now: Instant, passage: Passage, interfaces: [Tun; 2], report: R) -> Self {
        Self {
            model: Model::new(passage, now),
            interfaces,
            pool: Pool::default(),
            block: None,
            pace: Pace::new(now),
            delivered: [0; 2],
            strange: 0,
            refused: 0,
            report,
        }
    }

    /// Reports [`Event::Tick`] at this interval, from `now` on.
    pub fn tick_every(&mut self, now: Instant, time: Nanos) {
        self.pace.tick_every(now, time);
    }

    /// The counters so far.
    pub fn counters(&self) -> Counters {
        let passage = self.model.network();
        let direction = |side: Side| {
            let bytes = self.delivered[side.other().index()];
            Direction::of(passage.counts(side), passage.bytes(side), bytes)
        };
        let (there, back) = (direction(Side::Near), direction(Side::Far));
        Counters { there, back, strange: self.strange, refused: self.refused }
    }

    /// Takes the packets that a namespace has sent; returns whether there were any.
    fn receive(&mut self, side: Side, context: &Context<'_>) -> io::Result<bool> {
        let interface = &self.interfaces[side.index()];
        // The interface's MTU may be changed by others. A packet longer than the model's MTU is
        // cut, and not passed on.
        let room = usize::try_from(self.model.network().mtu()).expect("at least 32 bits") + 1;
        for taken in 0..BURST {
            let mut block = self.block.take().unwrap_or_else(|| self.pool.take(room));
            let Some(count) = interface.receive(&mut block)? else {
                self.block = Some(block);
                return Ok(taken > 0);
            };
            block.truncate(count);
            let data = self.pool.seal(block);
            if is_ip(&data) {
                self.model.input(context.clock.now(), Packet { side, data });
            } else {
                self.strange += 1;
            }
        }
        Ok(true)
    }

    /// Lets due events happen, and hands on the packets that have arrived; returns whether there
    /// were any.
    fn deliver(&mut self, context: &Context<'_>) -> io::Result<bool> {
        let mut any = false;
        self.model.settle(context.clock.now());
        while let Some((due, packet)) = self.model.poll_output() {
            any = true;
            if !self.interfaces[packet.side.index()].send(&packet.data)? {
                self.refused += 1;
                continue;
            }
            self.delivered[packet.side.index()] += packet.data.len() as u64;
            let now = context.clock.now();
            self.pace.was_gone(now);
            (self.report)(Event::Written(now - due));
        }
        Ok(any)
    }
}

/// Whether this may be an IP packet: it has an existing version and room for a header.
fn is_ip(packet: &[u8]) -> bool {
    packet.len() >= HEADER_MIN && packet.first().is_some_and(|first| matches!(first >> 4, 4 | 6))
}

impl<R: FnMut(Event)> Driver for Packets<R> {
    fn start(&mut self, sources: &Sources) -> io::Result<()> {
        self.pace.begin(sources)?;
        let mut interfaces = self.interfaces.iter();
        interfaces.try_for_each(|interface| sources.add(interface.as_raw_fd(), Attention::EachTurn))
    }

    fn turn(&mut self, context: &Context<'_>) -> io::Result<Turn> {
        if self.pace.is_stopping() {
            return Ok(Turn::Done);
        }
        let mut busy = false;
        for side in Side::BOTH {
            // Due packets go out before anything else.
            busy |= self.deliver(context)?;
            busy |= self.receive(side, context)?;
        }
        if !busy {
            self.pace.rehearse(self.model.due(), context, &mut self.pool);
        }
        if self.pace.ticks(context.now) {
            (self.report)(Event::Tick);
        }
        self.pace.wait(self.model.due(), context)?;
        Ok(if busy { Turn::Busy } else { Turn::Idle })
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.pace.poll_timeout()
    }

    fn on_stop(&mut self, _: Instant) {
        self.pace.stop();
    }
}
