//! A modelled network between live ends: connections that arrive here go on to another address, and their bytes pass a
//! [`Network`] in real time on the way.
//!
//! What arrives at a socket enters the model as if an application had given it to the modelled TCP; what the model
//! delivers is written to the other socket. A socket that takes no more closes the model's window, and a model that has no room
//! leaves bytes in the other socket: both kernels' own flow control holds their ends back.

mod end;
mod pipe;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;

use engine::{Engine, Instant, Nanos, Pool, settle};
use link::network::{ConnectionId, Input, Network, Output, Side};
use link::tcp::Gone;

use crate::reactor::{Attention, Context, Driver, Sources, Turn};
use crate::tcp::{Connection, Listener};
use pipe::{Pipe, Pumped};

/// The kernel's timers are good to a millisecond: a sleep ends so long before something is due, and the rest is spun.
const AWAKE_BEFORE: Nanos = Nanos::from_millis(2);
/// A connection on which nothing happened for so long is looked at only when the kernel has news of it.
const REST_AFTER: Nanos = Nanos::from_millis(20);

/// What a person may want to know.
#[derive(Debug)]
pub enum Event {
    /// A connection has come.
    Accepted(SocketAddr),
    /// The other end could not be reached, and the connection was refused for that.
    Refused(SocketAddr, io::Error),
    /// A connection is over: whose it was, and how it ended.
    Ended(SocketAddr, Gone),
    /// A connection could not be taken.
    AcceptFailed(io::Error),
    /// There are as many connections as a network carries.
    TooMany(SocketAddr),
    /// It is time for counters; see [`Emulator::counters`].
    Tick,
}

/// What has passed in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Direction {
    /// Frames that were sent, and their bytes.
    pub frames: u64,
    /// Bytes of those frames.
    pub frame_bytes: u64,
    /// Frames that were lost.
    pub lost: u64,
    /// Frames that are under way: in queues, on the line.
    pub under_way: u64,
    /// Bytes that the applications have sent and that have arrived.
    pub bytes: u64,
}

/// What has passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Connections that are open, and all that there were.
    pub open: usize,
    /// All connections that there were.
    pub connections: u64,
    /// Towards the address that is connected to.
    pub there: Direction,
    /// The other way.
    pub back: Direction,
    /// Segments that the modelled TCP has sent again.
    pub retransmitted: u64,
}

/// The driver; see the module.
#[derive(Debug)]
pub struct Emulator<R> {
    network: Network,
    listener: Listener,
    /// Where connections go on to.
    to: Vec<SocketAddr>,
    pipes: BTreeMap<ConnectionId, Pipe>,
    pool: Pool,
    /// When the network's time began.
    origin: Instant,
    connections: u64,
    delivered: [u64; 2],
    every: Option<Nanos>,
    tick: Option<Instant>,
    stopping: bool,
    registered: bool,
    report: R,
}

impl<R: FnMut(Event)> Emulator<R> {
    /// Joins whoever comes to `listener` with `to`, through `network`, whose time begins `now`.
    pub fn new(now: Instant, network: Network, listener: Listener, to: Vec<SocketAddr>, report: R) -> Self {
        Self {
            network,
            listener,
            to,
            pipes: BTreeMap::new(),
            pool: Pool::default(),
            origin: now,
            connections: 0,
            delivered: [0; 2],
            every: None,
            tick: None,
            stopping: false,
            registered: false,
            report,
        }
    }

    /// Has [`Event::Tick`] reported this often.
    pub fn tick_every(&mut self, time: Nanos) {
        self.every = Some(time);
        self.tick = Some(self.origin + time);
    }

    /// What has passed so far.
    pub fn counters(&self) -> Counters {
        let direction = |side: Side| {
            let counts = self.network.counts(side);
            Direction {
                frames: counts.entered,
                frame_bytes: self.network.bytes(side),
                lost: counts.lost,
                under_way: (counts.entered + counts.copied).saturating_sub(counts.left + counts.lost),
                bytes: self.delivered[side.other().index()],
            }
        };
        Counters {
            open: self.pipes.len(),
            connections: self.connections,
            there: direction(Side::Near),
            back: direction(Side::Far),
            retransmitted: self.network.statistics().retransmitted,
        }
    }

    /// The network's time.
    fn model_time(&self, now: Instant) -> Instant {
        Instant::ZERO + (now - self.origin)
    }

    fn accept(&mut self, now: Instant, sources: &Sources) -> bool {
        let mut any = false;
        loop {
            match self.listener.accept() {
                Ok(Some(near)) => self.take(now, near, sources),
                Ok(None) => return any,
                Err(error) => {
                    (self.report)(Event::AcceptFailed(error));
                    return any;
                }
            }
            any = true;
        }
    }

    fn take(&mut self, now: Instant, near: Connection, sources: &Sources) {
        let (peer, model) = (near.peer(), self.model_time(now));
        let Some(id) = self.network.open(model, Side::Near) else {
            (self.report)(Event::TooMany(peer));
            return pipe::reset(near);
        };
        if let Err(error) = sources.add(near.as_raw_fd(), Attention::EachTurn) {
            self.network.handle_input(model, Input::Reset { connection: id, side: Side::Near });
            return (self.report)(Event::AcceptFailed(error));
        }
        self.connections += 1;
        self.pipes.insert(id, Pipe::new(near, now));
        (self.report)(Event::Accepted(peer));
    }

    /// Moves what the sockets have to give and to take; returns whether there was anything.
    fn pump(&mut self, context: &Context<'_>) -> io::Result<bool> {
        let mut busy = false;
        let mut over = Vec::new();
        for (&id, pipe) in &mut self.pipes {
            if pipe.at_rest && !context.news && !pipe.stirred {
                continue;
            }
            let now = context.clock.now();
            let model = Instant::ZERO + (now - self.origin);
            let pumped = pipe.pump(now, model, id, &mut self.network, &mut self.pool, context.sources())?;
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

    /// Lets the network do what is due, and hands its outputs to the pipes.
    fn settle(&mut self, now: Instant) -> bool {
        let mut any = false;
        let model = self.model_time(now);
        let (pipes, to, delivered) = (&mut self.pipes, &self.to, &mut self.delivered);
        settle(&mut self.network, model, |output| {
            any = true;
            let (id, side) = match &output {
                Output::Incoming { connection, side }
                | Output::Opened { connection, side }
                | Output::Data { connection, side, .. }
                | Output::Writable { connection, side }
                | Output::Finished { connection, side }
                | Output::Closed { connection, side, .. } => (*connection, *side),
            };
            let Some(pipe) = pipes.get_mut(&id) else { return };
            pipe.busy_at = now;
            pipe.stirred = true;
            match output {
                Output::Incoming { .. } => pipe.dial(to.clone(), now),
                Output::Opened { .. } | Output::Writable { .. } => {}
                Output::Data { data, .. } => {
                    delivered[side.index()] += data.len() as u64;
                    pipe.ends[side.index()].deliver(data);
                }
                Output::Finished { .. } => pipe.ends[side.index()].finish(),
                Output::Closed { why, .. } => pipe.ends[side.index()].end(why),
            }
        });
        any
    }

    fn report_tick(&mut self, now: Instant) {
        if let (Some(every), Some(at)) = (self.every, self.tick)
            && at <= now
        {
            self.tick = Some(now + every);
            (self.report)(Event::Tick);
        }
    }
}

impl<R: FnMut(Event)> Driver for Emulator<R> {
    fn turn(&mut self, context: &Context<'_>) -> io::Result<Turn> {
        if self.stopping {
            return Ok(Turn::Done);
        }
        if !self.registered {
            self.registered = true;
            context.sources().add(self.listener.as_raw_fd(), Attention::OnNews)?;
        }
        let mut busy = context.news && self.accept(context.now, context.sources());
        busy |= self.pump(context)?;
        if self.settle(context.clock.now()) {
            busy = true;
            // What has arrived is written at once.
            self.pump(context)?;
        }
        self.report_tick(context.now);
        Ok(if busy { Turn::Busy } else { Turn::Idle })
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let model = self.network.poll_timeout().map(|at| {
            let at = Nanos::new(at.as_nanos()).saturating_sub(AWAKE_BEFORE);
            self.origin + at
        });
        let dials = self.pipes.values().filter_map(Pipe::poll_timeout);
        dials.chain(model).chain(self.tick).min()
    }

    fn on_stop(&mut self, _: Instant) {
        self.stopping = true;
    }
}
