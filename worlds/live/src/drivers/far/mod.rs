//! The far box, live: a listener, its connections, the engines and their backing, in one loop.

mod admission;
mod backing;
mod opening;
mod server;
mod ssd;
mod strangers;
mod succession;
#[cfg(test)]
mod tests;

use admission::Doorkeeper;
pub use backing::{Backing, Reaping};
pub use server::Server;
pub use ssd::Ssd;
use strangers::Strangers;

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};

use assemblies::external_device::{self, ExternalDevice};
use assemblies::far::{ConnectionId, Device, Far, Input, Output, Seats};
use assemblies::watch::Port;
use engine::{Engine, Instant, Pool, Watch};
use nvme::subsystem::{Notification, Subsystem};
use tunnel::downstream;

use crate::carrier::Stream;
use crate::carrier::datagrams;
use crate::carrier::identity::{Admission, AdmissionError};
use crate::carrier::quic;
use crate::carrier::shm;
use crate::carrier::tcp::Listener;
use crate::carrier::{LOOKS, Received};
use crate::media::Media;
use crate::media::state;
use crate::reactor::{Attention, CLOSE_MAX, Context, Driver, Glance, Pump, Shell, Sources, Turn};
use crate::sys::descriptors;
use crate::sys::tcp_info::TcpInfo;

/// Number of pieces taken from one connection in a turn, so that none starves the others or
/// the media.
const PIECES_PER_TURN: usize = 16;
/// A piece shorter than this many bytes was probably the last: everything else comes before
/// another look.
const SHORT: usize = 16 << 10;

/// An event of a far box for the application.
#[derive(Debug)]
pub enum Event {
    /// An event of the link, or of a connection whose peer has this address.
    Link(Option<SocketAddr>, tunnel::Event),
    /// The controller has changed something that may be worth remembering.
    Notify(Notification),
    /// The list of admitted hosts was read anew, or could not be.
    Admission(Result<(), AdmissionError>),
    /// A connection could not be accepted.
    AcceptFailed(io::Error),
    /// An event of the device that another process has.
    ExternalDevice(external_device::Event),
    /// No process serves a device at its socket; reported once until one does.
    NoServer(io::Error),
    /// The descriptors for the device's interrupts could not be created.
    NoDescriptors(io::Error),
    /// A notice about the SSD's saved state.
    State(state::Notice),
}

struct Peer {
    id: ConnectionId,
    stream: Stream,
    /// The engine has the key of the peer, or knows that it has none.
    identified: bool,
    /// The first bytes, until they determine the kind of the connection; `None` afterwards.
    opening: Option<Vec<u8>>,
    /// The connection has carried the session: its host has proved all that it must.
    is_host: bool,
    /// The engine has closed the connection: when it is dropped at the latest. It is dropped as
    /// soon as everything is sent. A connection that has ended is dropped at once.
    closing: Option<Instant>,
}

impl Peer {
    /// Whether the connection is to be dropped, after the last that can be said.
    fn is_done(&mut self, now: Instant, has_failed: bool) -> bool {
        let Some(until) = self.closing else { return false };
        let is_last = has_failed || until <= now || !self.stream.can_say();
        if is_last {
            self.stream.close();
            return true;
        }
        self.stream.unsent() == 0 && self.stream.close()
    }
}

/// The surroundings of the engines of a far box.
struct FarShell<F, B: Backing> {
    peers: Vec<Peer>,
    backing: B,
    /// Inputs from the backing for the device.
    inputs: VecDeque<<B::Device as Device>::Input>,
    report: F,
}

/// Drives a far box: a listener, its connections, the engines and the backing.
pub struct FarDriver<F, B: Backing = Ssd> {
    far: Pump<Seats<B::Device>>,
    shell: FarShell<F, B>,
    listener: Listener,
    /// The listener for QUIC connections, if any.
    quic: Option<quic::Listener>,
    /// The listener for hosts of the same machine, if any.
    shm: Option<shm::Listener>,
    /// The listeners for connections by datagrams.
    datagrams: Vec<datagrams::Listener>,
    doorkeeper: Doorkeeper,
    strangers: Strangers,
    next_id: u32,
    pool: Pool,
    /// Whether it has been reported that connections are turned away.
    is_refusing: bool,
    /// The latest time that the engines were given within a turn: their time never goes back.
    latest: Instant,
    stopping: bool,
    /// Whether another process is about to go on with the engines.
    resting: bool,
}

impl<F: FnMut(Event)> FarDriver<F> {
    /// Drives `far` with the connections of `listener` and the media of its namespaces. `report` is
    /// called with each event.
    pub fn new(far: impl Into<Seats>, listener: Listener, media: Media, report: F) -> Self {
        Self::around(far.into(), listener, Ssd::new(media), report)
    }

    /// Applies `change` to the namespaces of the SSD, which are in its command core, and to the
    /// media under them, while a host may use them.
    pub fn with_namespaces<T>(
        &mut self,
        now: Instant,
        change: impl FnOnce(&mut Subsystem, &mut Media) -> T,
    ) -> T {
        let now = now.max(self.latest);
        self.latest = now;
        let media = self.shell.backing.media_to_change();
        let result = self.far.engine_mut().with_core(now, |core| change(core, media));
        self.far.exchange(now, &mut self.shell);
        result
    }
}

impl<F: FnMut(Event)> FarDriver<F, Server> {
    /// Drives `far` with the connections of `listener` and the device that `server` has. `report`
    /// is called with each event.
    pub fn external_device(
        far: Far<ExternalDevice<OwnedFd>>,
        listener: Listener,
        server: Server,
        report: F,
    ) -> Self {
        Self::around(far.into(), listener, server, report)
    }
}

impl<F: FnMut(Event), B: Backing> FarDriver<F, B> {
    fn around(mut far: Seats<B::Device>, listener: Listener, backing: B, report: F) -> Self {
        far.set_waiting_max(descriptors::strangers_max());
        Self {
            far: Pump::new(far),
            shell: FarShell { peers: Vec::new(), backing, inputs: VecDeque::new(), report },
            listener,
            quic: None,
            shm: None,
            datagrams: Vec::new(),
            doorkeeper: Doorkeeper::default(),
            strangers: Strangers::default(),
            next_id: 0,
            pool: Pool::default(),
            is_refusing: false,
            latest: Instant::ZERO,
            stopping: false,
            resting: false,
        }
    }

    /// Accepts QUIC connections from `listener` as well.
    #[must_use]
    pub fn with_quic(mut self, listener: quic::Listener) -> Self {
        self.quic = Some(listener);
        self
    }

    /// Accepts connections in shared memory from `listener` as well.
    #[must_use]
    pub fn with_shm(mut self, listener: shm::Listener) -> Self {
        self.shm = Some(listener);
        self
    }

    /// Accepts connections by datagrams from `listener` as well.
    #[must_use]
    pub fn with_datagrams(mut self, listener: datagrams::Listener) -> Self {
        self.datagrams.push(listener);
        self
    }

    /// Admits the hosts that `admission` names, from `now` on.
    #[must_use]
    pub fn with_admission(mut self, now: Instant, admission: Admission) -> Self {
        self.doorkeeper = Doorkeeper::new(admission, now, self.far.engine_mut());
        self
    }

    /// The hosts that the far box admits.
    pub const fn admission(&self) -> &Admission {
        &self.doorkeeper.admission
    }

    /// The far box's engines: a seat for each host.
    pub const fn far(&self) -> &Seats<B::Device> {
        self.far.engine()
    }

    /// The watchers of the packets of a seat's device.
    ///
    /// # Panics
    /// When there is no such seat.
    pub fn watch(&mut self, seat: usize) -> &mut Watch<Port> {
        self.far.engine_mut().watch(seat)
    }

    /// The kernel's information on each TCP connection of the hosts.
    pub fn tcp_info(&self) -> impl Iterator<Item = TcpInfo> {
        self.shell.peers.iter().flat_map(|peer| peer.stream.tcp_info())
    }

    /// Counts of the datagrams of each connection of the hosts that these carry.
    pub fn datagrams(&self) -> impl Iterator<Item = datagrams::Info> {
        self.shell.peers.iter().filter_map(|peer| peer.stream.datagrams())
    }

    /// The address of the TCP listener.
    pub const fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    /// Handles bytes from the session's connections; returns whether there were any.
    fn receive(&mut self, context: &Context<'_>) -> bool {
        let mut busy = false;
        for index in 0..self.shell.peers.len() {
            if self.shell.peers.get(index).is_some_and(|peer| peer.is_host) {
                busy |= self.receive_from(index, context);
            }
        }
        busy
    }

    /// Handles bytes from the peer at `index`, if there is such a peer.
    fn receive_from(&mut self, index: usize, context: &Context<'_>) -> bool {
        // The turn's own time is good enough, unless a watcher records when things happen.
        let mut now = context.now.max(self.latest);
        let mut busy = false;
        for _ in 0..PIECES_PER_TURN {
            let Some(peer) = self.shell.peers.get_mut(index) else { return busy };
            let id = peer.id;
            // Until the device has room, a host's bytes for it stay in the socket.
            if !self.shell.backing.has_room() && self.far.engine_mut().hold_back(now, id) {
                self.latest = now;
                peer.stream.keep_up(&mut self.pool);
                break;
            }
            let mut short = false;
            let input = match peer.stream.receive(&mut self.pool) {
                Ok(Received::Nothing) => break,
                Ok(Received::Data(_)) if peer.closing.is_some() => continue,
                Ok(Received::Data(bytes)) => {
                    short = bytes.len() < SHORT;
                    if !core::mem::replace(&mut peer.identified, true)
                        && let Some(key) = peer.stream.key()
                    {
                        let input = Input::Network(downstream::Input::Identified(id, key));
                        self.far.engine_mut().handle_input(now, input);
                    }
                    let peer = &mut self.shell.peers[index];
                    let bytes = match &peer.opening {
                        None => Some(bytes),
                        Some(_) => self.open(now, index, bytes),
                    };
                    busy = true;
                    let Some(bytes) = bytes else { continue };
                    downstream::Input::Received(id, bytes)
                }
                Ok(Received::Closed) | Err(_) => {
                    if peer.closing.replace(Instant::ZERO).is_some() {
                        break;
                    }
                    downstream::Input::Disconnected(id)
                }
            };
            busy = true;
            let far = self.far.engine_mut();
            if far.is_timed() {
                now = context.clock.now();
            }
            far.handle_input(now, Input::Network(input));
            if far.is_timed() {
                now = context.clock.now();
                far.advance(now);
            }
            // An answer is sent before anything else is looked at.
            self.latest = now;
            self.far.exchange(now, &mut self.shell);
            let far = self.far.engine();
            if let Some(peer) = self.shell.peers.get_mut(index) {
                peer.is_host |= far.is_attached(peer.id);
                // The next receive finds a failure.
                let _ = peer.stream.flush();
            }
            if short {
                break;
            }
        }
        busy
    }

    /// Takes the backing's inputs for the device.
    fn reap(&mut self, now: Instant, sources: &Sources) -> io::Result<bool> {
        let FarShell { backing, inputs, report, .. } = &mut self.shell;
        backing.reap(self.far.engine().present().function(), &mut Reaping { now, sources, inputs, report })
    }

    /// Sends waiting bytes, and drops closed connections that have nothing more to send.
    fn flush(&mut self, now: Instant, sources: &Sources) -> bool {
        let mut busy = self.shell.backing.flush();
        self.shell.peers.retain_mut(|peer| {
            let sent = peer.stream.flush();
            busy |= sent.as_ref().is_ok_and(|sent| *sent > 0);
            let done = peer.is_done(now, sent.is_err());
            if done {
                peer.stream.unregister(sources);
            }
            !done
        });
        busy
    }
}

impl<F, B: Backing> FarShell<F, B> {
    /// Whether there are hosts, and everything that can come from them shows in memory.
    fn is_polled(&self) -> bool {
        let mut hosts = self.peers.iter().filter(|peer| peer.is_host).peekable();
        hosts.peek().is_some() && hosts.all(|peer| peer.closing.is_none() && peer.stream.is_polled())
    }
}

impl<F: FnMut(Event), B: Backing> Shell<Seats<B::Device>> for FarShell<F, B> {
    fn pass(
        &mut self,
        now: Instant,
        output: Output<<B::Device as Device>::Output>,
        _: &mut Seats<B::Device>,
    ) {
        let Self { peers, backing, inputs, report } = self;
        match output {
            Output::Transmit(id, bytes) => {
                if let Some(peer) = peers.iter_mut().find(|peer| peer.id == id) {
                    peer.stream.send(bytes);
                }
            }
            Output::Close(id) => {
                if let Some(peer) = peers.iter_mut().find(|peer| peer.id == id) {
                    peer.closing.get_or_insert(now + strangers::LINGER);
                }
            }
            Output::Device(output) => backing.on_output(output, inputs, report),
            Output::Event(id, event) => {
                let peer = id.and_then(|id| peers.iter().find(|peer| peer.id == id));
                report(Event::Link(peer.map(|peer| peer.stream.peer()), event));
            }
        }
    }

    fn answer(&mut self, now: Instant, far: &mut Seats<B::Device>) -> bool {
        let has_answers = !self.inputs.is_empty();
        while let Some(input) = self.inputs.pop_front() {
            far.handle_input(now, Input::Device(input));
        }
        has_answers
    }
}

impl<F: FnMut(Event), B: Backing> Driver for FarDriver<F, B> {
    fn start(&mut self, sources: &Sources) -> io::Result<()> {
        sources.add(self.listener.as_raw_fd(), Attention::OnNews)?;
        if let Some(quic) = &self.quic {
            sources.add(quic.as_raw_fd(), Attention::OnNews)?;
        }
        if let Some(shm) = &self.shm {
            sources.add(shm.as_raw_fd(), Attention::OnNews)?;
        }
        for listener in &self.datagrams {
            sources.add(listener.as_raw_fd(), Attention::OnNews)?;
        }
        self.shell.backing.start(sources)
    }

    fn turn(&mut self, context: &Context<'_>) -> io::Result<Turn> {
        let sources = context.sources();
        self.shell.backing.register_new(sources)?;
        let mut busy = false;
        if self.has_callers(context) && !self.stopping && !self.resting {
            // A host that says goodbye has released the device before any host behind it is heard.
            busy = self.receive(context);
            busy |= self.greet(context);
        }
        for listener in &mut self.datagrams {
            listener.turn(context.now, sources);
        }
        // A watcher that records when things happen has got later times than the turn's own.
        let now = context.now.max(self.latest);
        busy |= self.doorkeeper.turn(now, self.far.engine_mut(), &mut self.shell.report);
        for peer in &mut self.shell.peers {
            busy |= peer.stream.turn(context.now, sources);
        }
        // Further looks pay only when nothing else is likely to happen soon.
        let waits = busy || self.shell.backing.is_busy() || self.shell.is_polled();
        let looks = if waits { 1 } else { LOOKS };
        busy |= (0..looks).any(|_| self.receive(context));
        // The engines were given later times during the turn, and their time never goes back.
        let now = if busy { context.clock.now() } else { context.now };
        busy |= self.reap(now, sources)?;
        if !self.shell.inputs.is_empty() {
            self.far.exchange(now, &mut self.shell);
        }
        if self.far.wants_settling(now, busy) {
            self.far.settle(now, &mut self.shell);
        }
        busy |= self.flush(now, sources);
        // Only this call starts the requests that were submitted last.
        busy |= self.reap(now, sources)?;
        if self.stopping && self.shell.peers.is_empty() && !self.shell.backing.is_busy() {
            return Ok(Turn::Done);
        }
        Ok(if busy || !self.shell.inputs.is_empty() { Turn::Busy } else { Turn::Idle })
    }

    fn glance(&mut self, context: &Context<'_>) -> Glance {
        // A watcher that records when things happen needs the clock, which a glance does not read.
        if self.shell.backing.is_busy() || !self.shell.is_polled() || self.far().is_timed() {
            return Glance::Blind;
        }
        if self.receive(context) { Glance::Done } else { Glance::Nothing }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let streams = self.shell.peers.iter().filter_map(|peer| peer.stream.poll_timeout());
        let quic = self.quic.as_ref().and_then(quic::Listener::poll_timeout);
        self.far
            .poll_timeout()
            .into_iter()
            .chain(self.shell.backing.poll_timeout())
            .chain(streams)
            .chain(quic)
            .chain(self.datagrams.iter().filter_map(datagrams::Listener::poll_timeout))
            .chain(self.doorkeeper.poll_timeout())
            .chain(self.shell.peers.iter().filter_map(|peer| peer.closing))
            .chain(self.strangers.poll_timeout())
            .min()
    }

    fn on_stop(&mut self, now: Instant) {
        self.stopping = true;
        self.strangers = Strangers::default();
        self.far.engine_mut().close(now, "the far end is shutting down");
        self.far.exchange(now, &mut self.shell);
        self.shell.backing.on_stop(self.far.engine().present().function());
        for peer in &mut self.shell.peers {
            peer.closing.get_or_insert(now + CLOSE_MAX);
        }
    }
}

impl<F, B: Backing> fmt::Debug for FarDriver<F, B>
where
    Seats<B::Device>: fmt::Debug,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FarDriver").field("far", self.far.engine()).finish_non_exhaustive()
    }
}
