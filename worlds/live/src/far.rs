//! The far box, live: a listener, its connections, the engines and the media, in one loop.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;

use engine::{Engine, Instant, Pool, drain, fire, next_wake};
use machine::far::{ConnectionId, Far, Input, Output};
use nvme::controller::Notification;
use nvme::media;
use tunnel::downstream;

use crate::clock::Clock;
use crate::media::Media;
use crate::reactor::{Attention, Context, Driver, Sources, Turn};
use crate::tcp::{Connection, Listener, Received};

/// Pieces taken from one connection in a turn, so that none starves the others or the media.
const PIECES_PER_TURN: usize = 16;
/// A piece shorter than this was probably the last: everything else comes before another look.
const SHORT: usize = 16 << 10;

/// What the application is told.
#[derive(Debug)]
pub enum Event {
    /// Something happened to the link, or to a connection of a peer.
    Link(Option<SocketAddr>, tunnel::Event),
    /// The controller has changed what may be worth remembering.
    Notify(Notification),
    /// A connection could not be accepted.
    AcceptFailed(io::Error),
}

struct Peer {
    id: ConnectionId,
    connection: Connection,
    /// To be dropped when everything is sent: the engine has closed it.
    closing: bool,
}

/// See the module.
pub struct FarDriver<F> {
    far: Far,
    listener: Listener,
    listening: bool,
    peers: Vec<Peer>,
    next_id: u32,
    media: Media,
    media_registered: bool,
    completions: VecDeque<media::Completion>,
    pool: Pool,
    report: F,
    wake: Option<Instant>,
    /// Deadlines may have changed since `wake` was found out. They are looked at when there is time for it.
    unsettled: bool,
    stopping: bool,
}

impl<F: FnMut(Event)> FarDriver<F> {
    /// Drives `far` with the connections of `listener` and the media that its namespaces name. What happens is told to
    /// `report`.
    pub fn new(far: Far, listener: Listener, media: Media, report: F) -> Self {
        Self {
            far,
            listener,
            listening: false,
            peers: Vec::new(),
            next_id: 0,
            media,
            media_registered: false,
            completions: VecDeque::new(),
            pool: Pool::default(),
            report,
            wake: None,
            unsettled: true,
            stopping: false,
        }
    }

    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    fn register(&mut self, sources: &Sources) -> io::Result<()> {
        if !self.listening {
            sources.add(self.listener.as_raw_fd(), Attention::OnNews)?;
            self.listening = true;
        }
        if !self.media_registered {
            for descriptor in self.media.poll_fds() {
                sources.add(descriptor, Attention::EachTurn)?;
            }
            self.media_registered = true;
        }
        Ok(())
    }

    fn accept(&mut self, now: Instant, sources: &Sources) -> io::Result<bool> {
        let mut accepted = false;
        loop {
            let connection = match self.listener.accept() {
                Ok(Some(connection)) => connection,
                Ok(None) => return Ok(accepted),
                // No descriptor is left: those who have one go on.
                Err(error) => {
                    (self.report)(Event::AcceptFailed(error));
                    return Ok(accepted);
                }
            };
            accepted = true;
            sources.add(connection.as_raw_fd(), Attention::EachTurn)?;
            let id = ConnectionId(self.next_id);
            self.next_id = self.next_id.wrapping_add(1);
            self.peers.push(Peer { id, connection, closing: false });
            self.far.handle_input(now, Input::Network(downstream::Input::Accepted(id)));
            self.exchange(now);
        }
    }

    /// Takes what the peers have sent; returns whether there was anything.
    fn receive(&mut self, clock: Clock) -> bool {
        let mut busy = false;
        for index in 0..self.peers.len() {
            for _ in 0..PIECES_PER_TURN {
                let peer = &mut self.peers[index];
                let id = peer.id;
                let mut short = false;
                let input = match peer.connection.receive(&mut self.pool) {
                    Ok(Received::Nothing) => break,
                    Ok(Received::Data(_)) if peer.closing => continue,
                    Ok(Received::Data(bytes)) => {
                        short = bytes.len() < SHORT;
                        downstream::Input::Received(id, bytes)
                    }
                    Ok(Received::Closed) | Err(_) => {
                        if core::mem::replace(&mut peer.closing, true) {
                            break;
                        }
                        downstream::Input::Disconnected(id)
                    }
                };
                busy = true;
                let mut now = clock.now();
                self.far.handle_input(now, Input::Network(input));
                if self.far.is_timed() {
                    now = clock.now();
                    self.far.advance(now);
                }
                // An answer leaves before anything else is looked at.
                self.exchange(now);
                if let Some(peer) = self.peers.get_mut(index) {
                    // What fails here is seen with the next receive.
                    let _ = peer.connection.flush();
                }
                if short {
                    break;
                }
            }
        }
        busy
    }

    /// Passes outputs to the world, and what memory answers at once back in, until both are quiet. Deadlines may have
    /// changed then.
    fn exchange(&mut self, now: Instant) {
        self.unsettled = true;
        loop {
            while let Some(completion) = self.completions.pop_front() {
                self.far.handle_input(now, Input::Media(completion));
            }
            let Self { far, peers, media, completions, report, .. } = self;
            drain(far, |output| match output {
                Output::Transmit(id, bytes) => {
                    if let Some(peer) = peers.iter_mut().find(|peer| peer.id == id)
                        && peer.connection.send(bytes).is_err()
                    {
                        // It takes nothing any more; its end is seen with the next receive.
                        peer.connection.abort();
                    }
                }
                Output::Close(id) => {
                    if let Some(peer) = peers.iter_mut().find(|peer| peer.id == id) {
                        peer.closing = true;
                    }
                }
                Output::Media(request) => {
                    media.submit(request, &mut |completion| completions.push_back(completion));
                }
                Output::Event(id, event) => {
                    let peer = id.and_then(|id| peers.iter().find(|peer| peer.id == id));
                    report(Event::Link(peer.map(|peer| peer.connection.peer()), event));
                }
                Output::Notify(notification) => report(Event::Notify(notification)),
            });
            if self.completions.is_empty() {
                return;
            }
        }
    }

    /// Fires what is due, and finds out when something is due next.
    fn settle(&mut self, now: Instant) {
        while self.wake.is_some_and(|at| at <= now) || self.unsettled {
            fire(&mut self.far, now);
            self.exchange(now);
            self.wake = next_wake(&self.far, now);
            self.unsettled = false;
        }
    }

    /// Sends what waits; drops the connections that have nothing more to send and are to end.
    fn flush(&mut self, sources: &Sources) -> bool {
        let mut busy = false;
        self.peers.retain_mut(|peer| {
            let sent = peer.connection.flush();
            busy |= sent.as_ref().is_ok_and(|sent| *sent > 0);
            let done = peer.closing && (sent.is_err() || peer.connection.unsent() == 0);
            if done {
                sources.remove(peer.connection.as_raw_fd());
                peer.connection.close();
            }
            !done
        });
        busy
    }
}

impl<F: FnMut(Event)> Driver for FarDriver<F> {
    fn turn(&mut self, context: &Context<'_>) -> io::Result<Turn> {
        let sources = context.sources();
        self.register(sources)?;
        let mut busy = context.news && !self.stopping && self.accept(context.now, sources)?;
        busy |= self.receive(context.clock);
        // The engines have been told later times since the turn began, and theirs never goes back.
        let now = if busy { context.clock.now() } else { context.now };
        let completions = &mut self.completions;
        busy |= self.media.reap(&mut |completion| completions.push_back(completion))? > 0;
        if !self.completions.is_empty() {
            self.exchange(now);
        }
        if !busy || self.wake.is_some_and(|at| at <= now) {
            self.settle(now);
        }
        busy |= self.flush(sources);
        // What was submitted last is on its way only after this.
        let completions = &mut self.completions;
        busy |= self.media.reap(&mut |completion| completions.push_back(completion))? > 0;
        if self.stopping && self.peers.is_empty() && self.media.in_flight() == 0 {
            return Ok(Turn::Done);
        }
        Ok(if busy || !self.completions.is_empty() { Turn::Busy } else { Turn::Idle })
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.wake
    }

    fn on_stop(&mut self, now: Instant) {
        self.stopping = true;
        self.far.close(now, "the far end is shutting down");
        self.exchange(now);
        for peer in &mut self.peers {
            peer.closing = true;
        }
    }
}

impl<F> fmt::Debug for FarDriver<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FarDriver").field("far", &self.far).finish_non_exhaustive()
    }
}
