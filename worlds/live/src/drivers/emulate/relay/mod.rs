//! Connections that arrive here go on to another address, and on the way their bytes pass a
//! [`Network`] in real time.
//!
//! Bytes that arrive at a socket enter the model as if an application had given them to the
//! modelled TCP. Bytes that the model delivers are written to the other socket. A socket that takes
//! no more closes the model's window, and a model without room leaves bytes in the other socket. So
//! the flow control of both kernels holds their ends back.

mod end;
pub(super) mod pipe;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;

use engine::{Instant, Nanos};
use network_models::network::{ConnectionId, Input, Network, Output, Side};
use network_models::tcp::Gone;

use super::Direction;
use super::emulator::{Emulator, Ends, Middle};
use crate::carrier::ACCEPTS_PER_TURN;
use crate::carrier::tcp::{Connection, Listener};
use crate::reactor::{Attention, Context, Sources};
use pipe::{Flow, Pipe, Pumped};

/// A connection that was idle for this long is looked at only when the kernel has news of it.
const REST_AFTER: Nanos = Nanos::from_millis(20);

/// An event to report to users.
#[derive(Debug)]
pub enum Event {
    /// A connection has come from this address.
    Accepted(SocketAddr),
    /// A connection was refused because the other end could not be reached.
    Refused(SocketAddr, io::Error),
    /// The connection of this peer is over, and ended in this way.
    Ended(SocketAddr, Gone),
    /// A connection could not be taken.
    AcceptFailed(io::Error),
    /// A connection was refused because there are as many as a network carries.
    TooMany(SocketAddr),
    /// Bytes out of the model were taken by their socket this long after they were due. Not
    /// reported where the socket's reader lets bytes wait.
    Written(Nanos),
    /// It is time to look at the counters; see [`Relay::counters`].
    Tick,
}

/// Counters of everything that has passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Connections that are open.
    pub open: usize,
    /// All connections that there ever were.
    pub connections: u64,
    /// Towards the address to which connections go on.
    pub there: Direction,
    /// From the address to which connections go on.
    pub back: Direction,
    /// Segments that the modelled TCP has sent again.
    pub retransmitted: u64,
}

/// The driver that passes connections through the model.
pub type Relay<R> = Emulator<Network, Connections<R>>;

/// The connections that have come, and those that go on.
#[derive(Debug)]
pub struct Connections<R> {
    listener: Listener,
    /// The addresses to which connections go on; they are tried in turn.
    to: Vec<SocketAddr>,
    pipes: BTreeMap<ConnectionId, Pipe>,
    /// How late the bytes were that the latest look at a pipe has written.
    late: Vec<Nanos>,
    taken: u64,
    report: R,
}

impl<R: FnMut(Event)> Relay<R> {
    /// Joins connections that come to `listener` with `to`, through `network`, whose time begins
    /// `now`.
    pub fn new(now: Instant, network: Network, listener: Listener, to: Vec<SocketAddr>, report: R) -> Self {
        let (pipes, late) = (BTreeMap::new(), Vec::new());
        Self::between(now, network, Connections { listener, to, pipes, late, taken: 0, report })
    }

    /// The counters so far.
    pub fn counters(&self) -> Counters {
        let [there, back] = self.middle.directions();
        Counters {
            open: self.ends.pipes.len(),
            connections: self.ends.taken,
            there,
            back,
            retransmitted: self.middle.model.network().statistics().retransmitted,
        }
    }
}

impl<R: FnMut(Event)> Connections<R> {
    /// Takes the connections that have come; returns whether there were any.
    fn accept(&mut self, middle: &mut Middle<Network>, now: Instant, sources: &Sources) -> bool {
        let mut any = false;
        for _ in 0..ACCEPTS_PER_TURN {
            match self.listener.accept() {
                Ok(Some(near)) => self.take(middle, now, near, sources),
                Ok(None) => break,
                Err(error) => {
                    (self.report)(Event::AcceptFailed(error));
                    break;
                }
            }
            any = true;
        }
        any
    }

    fn take(&mut self, middle: &mut Middle<Network>, now: Instant, near: Connection, sources: &Sources) {
        let peer = near.peer();
        let Some(id) = middle.model.open(now, Side::Near) else {
            (self.report)(Event::TooMany(peer));
            return pipe::reset(near);
        };
        if let Err(error) = sources.add(near.as_raw_fd(), Attention::EachTurn) {
            middle.model.input(now, Input::Reset { connection: id, side: Side::Near });
            return (self.report)(Event::AcceptFailed(error));
        }
        self.taken += 1;
        self.pipes.insert(id, Pipe::new(near, now));
        (self.report)(Event::Accepted(peer));
    }

    /// Moves bytes from and to the sockets; returns whether there were any.
    fn pump(&mut self, middle: &mut Middle<Network>, context: &Context<'_>) -> io::Result<bool> {
        let mut busy = false;
        let mut over = Vec::new();
        for (&id, pipe) in &mut self.pipes {
            if pipe.at_rest && !context.news && !pipe.stirred {
                continue;
            }
            let now = context.clock.now();
            let Middle { model, pool, pace, .. } = middle;
            let mut flow = Flow { id, context, model, pool, late: &mut self.late };
            let pumped = pipe.pump(now, &mut flow)?;
            if !self.late.is_empty() {
                pace.was_gone(now);
            }
            self.late.drain(..).for_each(|late| (self.report)(Event::Written(late)));
            match pumped {
                Pumped::Nothing => {
                    if !pipe.at_rest && now - pipe.busy_at >= REST_AFTER && pipe.may_rest() {
                        pipe.rest(true, context.sources())?;
                    }
                }
                Pumped::Something => {
                    busy = true;
                    pipe.busy_at = now;
                    pipe.rest(false, context.sources())?;
                }
                Pumped::Unreachable(error) => {
                    busy = true;
                    (self.report)(Event::Refused(pipe.peer, error));
                }
                Pumped::Over(why) => over.push((id, why)),
            }
        }
        for (id, why) in over {
            busy = true;
            if let Some(pipe) = self.pipes.remove(&id) {
                (self.report)(Event::Ended(pipe.peer, why));
            }
        }
        Ok(busy)
    }

    /// Lets the network do its due work, and hands its outputs to the pipes; returns whether there
    /// were any.
    fn deliver(&mut self, middle: &mut Middle<Network>, now: Instant) -> bool {
        let mut any = false;
        middle.model.run_until(now);
        while let Some((due, output)) = middle.model.next_output() {
            any = true;
            let (id, side) = match &output {
                Output::Incoming { connection, side }
                | Output::Opened { connection, side }
                | Output::Data { connection, side, .. }
                | Output::Writable { connection, side }
                | Output::Finished { connection, side }
                | Output::Closed { connection, side, .. } => (*connection, *side),
            };
            let Some(pipe) = self.pipes.get_mut(&id) else { continue };
            if matches!(output, Output::Incoming { .. }) {
                pipe.dial(self.to.clone(), now);
            }
            middle.delivered[side.index()] += pipe.take(now, due, output) as u64;
        }
        any
    }
}

impl<R: FnMut(Event)> Ends<Network> for Connections<R> {
    fn start(&mut self, sources: &Sources) -> io::Result<()> {
        sources.add(self.listener.as_raw_fd(), Attention::OnNews)
    }

    fn exchange(&mut self, middle: &mut Middle<Network>, context: &Context<'_>) -> io::Result<bool> {
        let mut busy = context.news && self.accept(middle, context.now, context.sources());
        busy |= self.pump(middle, context)?;
        if self.deliver(middle, context.clock.now()) {
            busy = true;
            // Received bytes are written at once.
            self.pump(middle, context)?;
        }
        Ok(busy)
    }

    fn tick(&mut self) {
        (self.report)(Event::Tick);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.pipes.values().filter_map(Pipe::poll_timeout).min()
    }
}
