//! A modelled network between live ends: connections that arrive here go on to another address, and their bytes pass a
//! [`Network`] in real time on the way.
//!
//! What arrives at a socket enters the model as if an application had given it to the modelled TCP; what the model
//! delivers is written to the other socket. A socket that takes no more closes the model's window, and a model that has no room
//! leaves bytes in the other socket: both kernels' own flow control holds their ends back.

mod end;
mod model;
mod pipe;
mod rehearsal;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;

use engine::{Instant, Nanos, Pool};
use link::network::{ConnectionId, Input, Network, Output, Side};
use link::tcp::Gone;

use crate::reactor::{Attention, Context, Driver, Sources, Turn};
use crate::tcp::{Connection, Listener};
use model::Model;
use pipe::{Flow, Pipe, Pumped};
use rehearsal::Rehearsal;

/// The kernel's timers are good to a millisecond: a sleep ends so long before something is due, and the rest is spun.
const AWAKE_BEFORE: Nanos = Nanos::from_millis(2);
/// While something is waited for, the way is rehearsed so often unless it is gone anyway, and not so shortly before it is due.
const REHEARSE_EVERY: Nanos = Nanos::from_micros(200);
const REHEARSE_BEFORE: Nanos = Nanos::from_micros(150);
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
    /// Bytes that had come out of the model were taken by their socket so long after they were due. Not told where the
    /// socket's reader let them wait.
    Written(Nanos),
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
    model: Model,
    listener: Listener,
    /// Where connections go on to.
    to: Vec<SocketAddr>,
    pipes: BTreeMap<ConnectionId, Pipe>,
    pool: Pool,
    /// How late the bytes were that a look at a pipe has written.
    late: Vec<Nanos>,
    rehearsal: Option<Rehearsal>,
    /// When the way was last gone.
    warm_at: Instant,
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
            model: Model::new(network, now),
            listener,
            to,
            pipes: BTreeMap::new(),
            pool: Pool::default(),
            late: Vec::new(),
            // Without it everything is a little later.
            rehearsal: Rehearsal::new(now).ok(),
            warm_at: now,
            connections: 0,
            delivered: [0; 2],
            every: None,
            tick: None,
            stopping: false,
            registered: false,
            report,
        }
    }

    /// Has [`Event::Tick`] reported this often, from `now` on.
    pub fn tick_every(&mut self, now: Instant, time: Nanos) {
        self.every = Some(time);
        self.tick = Some(now + time);
    }

    /// What has passed so far.
    pub fn counters(&self) -> Counters {
        let network = self.model.network();
        let direction = |side: Side| {
            let counts = network.counts(side);
            Direction {
                frames: counts.entered,
                frame_bytes: network.bytes(side),
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
            retransmitted: network.statistics().retransmitted,
        }
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
        let peer = near.peer();
        let Some(id) = self.model.open(now, Side::Near) else {
            (self.report)(Event::TooMany(peer));
            return pipe::reset(near);
        };
        if let Err(error) = sources.add(near.as_raw_fd(), Attention::EachTurn) {
            self.model.input(now, Input::Reset { connection: id, side: Side::Near });
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
            let mut flow =
                Flow { id, context, model: &mut self.model, pool: &mut self.pool, late: &mut self.late };
            let pumped = pipe.pump(now, &mut flow)?;
            if !self.late.is_empty() {
                self.warm_at = now;
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

    /// Lets the network do what is due, and hands its outputs to the pipes.
    fn settle(&mut self, now: Instant) -> bool {
        let mut any = false;
        self.model.settle(now);
        while let Some((due, output)) = self.model.poll_output() {
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
            self.delivered[side.index()] += pipe.take(now, due, output) as u64;
        }
        any
    }

    /// Keeps the way warm while this thread only waits for what is due soon.
    fn rehearse(&mut self, context: &Context<'_>) {
        let now = context.clock.now();
        let Some(wait) = self.model.due().map(|due| due - now) else { return };
        if wait < REHEARSE_BEFORE || wait > AWAKE_BEFORE || now - self.warm_at < REHEARSE_EVERY {
            return;
        }
        self.warm_at = now;
        if let Some(rehearsal) = &mut self.rehearsal
            && rehearsal.run(context, &mut self.pool).is_err()
        {
            self.rehearsal = None;
        }
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

/// The time so long before `at`.
fn before(at: Instant, time: Nanos) -> Instant {
    Instant::from_nanos(at.as_nanos().saturating_sub(time.get()))
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
        if !busy {
            self.rehearse(context);
        }
        self.report_tick(context.now);
        Ok(if busy { Turn::Busy } else { Turn::Idle })
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let model = self.model.due().map(|at| before(at, AWAKE_BEFORE));
        let dials = self.pipes.values().filter_map(Pipe::poll_timeout);
        dials.chain(model).chain(self.tick).min()
    }

    fn on_stop(&mut self, _: Instant) {
        self.stopping = true;
    }
}
