//! A connection that passes the model, with its two sockets.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use engine::{Instant, Nanos, Pool};
use network_models::network::{ConnectionId, Input, Network, Output, Side};
use network_models::tcp::Gone;

use super::end::End;
use crate::carrier::tcp::{Connection, Dialer, Dialled, Options};
use crate::drivers::emulate::model::Model;
use crate::reactor::{Attention, Context, Sources};

/// The result of a look at a pipe.
#[derive(Debug)]
pub(in crate::drivers::emulate) enum Pumped {
    Nothing,
    Something,
    /// The other end can't be connected to.
    Unreachable(io::Error),
    /// The connection is over.
    Over(Gone),
}

/// The context of a look at a pipe.
#[derive(Debug)]
pub(in crate::drivers::emulate) struct Flow<'a> {
    /// The connection of the pipe.
    pub(in crate::drivers::emulate) id: ConnectionId,
    pub(in crate::drivers::emulate) context: &'a Context<'a>,
    pub(in crate::drivers::emulate) model: &'a mut Model<Network>,
    pub(in crate::drivers::emulate) pool: &'a mut Pool,
    /// How late each piece of the written bytes was.
    pub(in crate::drivers::emulate) late: &'a mut Vec<Nanos>,
}

/// The two sockets of a connection.
#[derive(Debug)]
pub(in crate::drivers::emulate) struct Pipe {
    /// The address of the client.
    pub(in crate::drivers::emulate) peer: SocketAddr,
    pub(super) ends: [End; 2],
    /// The connection to the other end while it is being made, and how many addresses are left to
    /// try.
    dialer: Option<(Dialer, usize)>,
    pub(in crate::drivers::emulate) busy_at: Instant,
    /// The pipe is looked at only when the kernel has news.
    pub(in crate::drivers::emulate) at_rest: bool,
    /// The model has something new for the pipe.
    pub(in crate::drivers::emulate) stirred: bool,
}

impl Pipe {
    pub(in crate::drivers::emulate) fn new(mut near: Connection, now: Instant) -> Self {
        near.stamp();
        let peer = near.peer();
        let ends = [End::of(near), End::default()];
        Self { peer, ends, dialer: None, busy_at: now, at_rest: false, stirred: false }
    }

    /// Connects to the other end, because the model's SYN has arrived.
    pub(in crate::drivers::emulate) fn dial(&mut self, to: Vec<SocketAddr>, now: Instant) {
        let tries = to.len();
        self.dialer = Some((Dialer::new(to, Options::default(), now), tries));
    }

    /// Takes the connection to the other end.
    pub(in crate::drivers::emulate) fn join(&mut self, mut far: Connection) {
        far.stamp();
        self.dialer = None;
        self.ends[Side::Far.index()].socket = Some(far);
    }

    /// Takes an output of the model that should have come at `due`; returns its number of bytes.
    pub(in crate::drivers::emulate) fn take(&mut self, now: Instant, due: Instant, output: Output) -> usize {
        self.busy_at = now;
        self.stirred = true;
        match output {
            Output::Incoming { .. } | Output::Opened { .. } | Output::Writable { .. } => {}
            Output::Data { data, side, .. } => {
                let length = data.len();
                self.ends[side.index()].deliver(due, data);
                return length;
            }
            Output::Finished { side, .. } => self.ends[side.index()].finish(),
            Output::Closed { side, why, .. } => self.ends[side.index()].end(why),
        }
        0
    }

    pub(in crate::drivers::emulate) fn poll_timeout(&self) -> Option<Instant> {
        self.dialer.as_ref().and_then(|(dialer, _)| dialer.poll_timeout())
    }

    pub(in crate::drivers::emulate) fn may_rest(&self) -> bool {
        self.dialer.is_none() && self.ends.iter().all(End::may_rest)
    }

    /// Chooses whether the sockets are looked at only when the kernel has news, or in each turn.
    pub(in crate::drivers::emulate) fn rest(&mut self, rest: bool, sources: &Sources) -> io::Result<()> {
        if rest == self.at_rest {
            return Ok(());
        }
        self.at_rest = rest;
        let attention = if rest { Attention::OnNews } else { Attention::EachTurn };
        for descriptor in self.ends.iter().filter_map(End::descriptor) {
            sources.change(descriptor, attention)?;
        }
        Ok(())
    }

    /// Advances the connection to the other end.
    fn poll_dial(&mut self, now: Instant, flow: &mut Flow<'_>) -> io::Result<Pumped> {
        let Some((dialer, tries)) = &mut self.dialer else { return Ok(Pumped::Nothing) };
        match dialer.poll(now) {
            Dialled::Waiting => Ok(Pumped::Nothing),
            Dialled::Began(descriptor) => {
                flow.context.sources().add(descriptor, Attention::EachTurn)?;
                Ok(Pumped::Something)
            }
            Dialled::Connected(far) => {
                self.join(far);
                flow.model.input(now, Input::Accept(flow.id));
                Ok(Pumped::Something)
            }
            Dialled::Failed(..) if *tries > 1 => {
                *tries -= 1;
                Ok(Pumped::Something)
            }
            Dialled::Failed(_, error) => {
                self.dialer = None;
                self.ends[Side::Far.index()].end(Gone::Refused);
                flow.model.input(now, Input::Reset { connection: flow.id, side: Side::Far });
                Ok(Pumped::Unreachable(error))
            }
        }
    }

    /// Moves all present bytes, both ways.
    pub(in crate::drivers::emulate) fn pump(
        &mut self,
        now: Instant,
        flow: &mut Flow<'_>,
    ) -> io::Result<Pumped> {
        let mut any = std::mem::take(&mut self.stirred);
        match self.poll_dial(now, flow)? {
            Pumped::Nothing => {}
            Pumped::Something => any = true,
            failed => return Ok(failed),
        }
        // Due bytes go out before anything else.
        for side in Side::BOTH {
            any |= self.look(now, side, flow, End::send);
        }
        for side in Side::BOTH {
            any |= self.look(now, side, flow, End::receive);
        }
        self.end_sockets();
        match self.ends.each_ref().map(End::is_over) {
            [Some(one), Some(other)] => Ok(Pumped::Over(if one == Gone::Closed { other } else { one })),
            _ if any => Ok(Pumped::Something),
            _ => Ok(Pumped::Nothing),
        }
    }

    /// Moves the bytes at one end in one direction; returns whether there were any.
    fn look(
        &mut self,
        now: Instant,
        side: Side,
        flow: &mut Flow<'_>,
        how: impl FnOnce(&mut End, Instant, Side, &mut Flow<'_>) -> io::Result<bool>,
    ) -> bool {
        let end = &mut self.ends[side.index()];
        how(end, now, side, flow).unwrap_or_else(|_| {
            // The socket is gone without a close, and so is the model's end.
            flow.model.input(now, Input::Reset { connection: flow.id, side });
            end.end(Gone::Reset);
            end.socket = None;
            true
        })
    }

    /// Closes the sockets whose ends in the model are gone, in the way in which these have gone.
    fn end_sockets(&mut self) {
        for end in &mut self.ends {
            match end.is_over() {
                None => {}
                // Both directions are closed already.
                Some(Gone::Closed) => end.socket = None,
                Some(Gone::Refused | Gone::Reset | Gone::TimedOut) => {
                    if let Some(socket) = end.socket.take() {
                        reset(socket);
                    }
                }
            }
        }
    }
}

/// Ends a connection with a reset instead of a close.
pub(in crate::drivers::emulate) fn reset(connection: Connection) {
    let socket = connection.into_socket();
    // Without this option the peer sees a close, which is the next best thing.
    let _ = socket2::SockRef::from(&socket).set_linger(Some(Duration::ZERO));
}
