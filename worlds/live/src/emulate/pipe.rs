//! A connection that passes the model: two sockets.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use engine::{Engine, Instant, Pool};
use link::network::{ConnectionId, Input, Network, Side};
use link::tcp::Gone;

use super::end::End;
use crate::reactor::{Attention, Sources};
use crate::tcp::{Connection, Dialer, Dialled};

/// What a look at a pipe has come to.
#[derive(Debug)]
pub(super) enum Pumped {
    Nothing,
    Something,
    /// The other end can't be connected to.
    Unreachable(io::Error),
    /// It is over.
    Over(Gone),
}

/// The two sockets of a connection.
#[derive(Debug)]
pub(super) struct Pipe {
    /// Who came.
    pub(super) peer: SocketAddr,
    pub(super) ends: [End; 2],
    /// The connection to the other end, while it is made, and how many addresses are left to try.
    dialer: Option<(Dialer, usize)>,
    pub(super) busy_at: Instant,
    /// Looked at only when the kernel has news.
    pub(super) at_rest: bool,
    /// The model has something new for it.
    pub(super) stirred: bool,
}

impl Pipe {
    pub(super) fn new(near: Connection, now: Instant) -> Self {
        let peer = near.peer();
        let ends = [End::of(near), End::default()];
        Self { peer, ends, dialer: None, busy_at: now, at_rest: false, stirred: false }
    }

    /// The model's SYN has arrived: connects to the other end.
    pub(super) fn dial(&mut self, to: Vec<SocketAddr>, now: Instant) {
        let tries = to.len();
        self.dialer = Some((Dialer::new(to, now), tries));
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.dialer.as_ref().and_then(|(dialer, _)| dialer.poll_timeout())
    }

    pub(super) fn may_rest(&self) -> bool {
        self.dialer.is_none() && self.ends.iter().all(End::may_rest)
    }

    /// Looks at the sockets only when the kernel has news of them, or in each turn again.
    pub(super) fn rest(&mut self, rest: bool, sources: &Sources) -> io::Result<()> {
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

    /// Goes on with connecting to the other end.
    fn poll_dial(
        &mut self,
        now: Instant,
        model: Instant,
        connection: ConnectionId,
        network: &mut Network,
        sources: &Sources,
    ) -> io::Result<Pumped> {
        let Some((dialer, tries)) = &mut self.dialer else { return Ok(Pumped::Nothing) };
        match dialer.poll(now) {
            Dialled::Waiting => Ok(Pumped::Nothing),
            Dialled::Began(descriptor) => {
                sources.add(descriptor, Attention::EachTurn)?;
                Ok(Pumped::Something)
            }
            Dialled::Connected(far) => {
                self.dialer = None;
                self.ends[Side::Far.index()].socket = Some(far);
                network.handle_input(model, Input::Accept(connection));
                Ok(Pumped::Something)
            }
            Dialled::Failed(..) if *tries > 1 => {
                *tries -= 1;
                Ok(Pumped::Something)
            }
            Dialled::Failed(_, error) => {
                self.dialer = None;
                self.ends[Side::Far.index()].end(Gone::Refused);
                network.handle_input(model, Input::Reset { connection, side: Side::Far });
                Ok(Pumped::Unreachable(error))
            }
        }
    }

    /// Moves what there is, both ways.
    pub(super) fn pump(
        &mut self,
        now: Instant,
        model: Instant,
        id: ConnectionId,
        network: &mut Network,
        pool: &mut Pool,
        sources: &Sources,
    ) -> io::Result<Pumped> {
        let mut any = std::mem::take(&mut self.stirred);
        match self.poll_dial(now, model, id, network, sources)? {
            Pumped::Nothing => {}
            Pumped::Something => any = true,
            failed => return Ok(failed),
        }
        for side in Side::BOTH {
            let end = &mut self.ends[side.index()];
            let moved = end.send(model, (id, side), network).and_then(|sent| {
                let received = end.receive(model, (id, side), network, pool)?;
                Ok(sent || received)
            });
            match moved {
                Ok(moved) => any |= moved,
                // The socket is gone without a close: so is the model's end.
                Err(_) => {
                    any = true;
                    network.handle_input(model, Input::Reset { connection: id, side });
                    end.end(Gone::Reset);
                    end.socket = None;
                }
            }
        }
        self.end_sockets();
        match self.ends.each_ref().map(End::is_over) {
            [Some(one), Some(other)] => Ok(Pumped::Over(if one == Gone::Closed { other } else { one })),
            _ if any => Ok(Pumped::Something),
            _ => Ok(Pumped::Nothing),
        }
    }

    /// Closes the sockets whose ends of the model are gone, in the way that they have gone.
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
pub(super) fn reset(connection: Connection) {
    let socket = connection.into_socket();
    // Without it the peer sees a close, which is the next best thing.
    let _ = socket2::SockRef::from(&socket).set_linger(Some(Duration::ZERO));
}
