//! A target of NVMe/TCP: listeners, connections and media in one loop.

mod arrivals;
mod changes;
mod letters;
mod link;
mod lively;
mod mailbox;
mod pairs;
mod shell;
mod storage;
mod strangers;
mod worker;

pub use mailbox::{Mailbox, Moved, Obituary};

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::rc::Rc;

use std::cell::RefCell;

use assemblies::fabric::Fabric;
use assemblies::target::{Config, ConnectionId, Input, Target};
use assemblies::watch::Port as WatchedPort;
use engine::{Engine, Instant, Nanos, Pool, Watch};
use nvme::subsystem::Notification;
use nvme_fabrics::target::{Directory, SubsystemKey};
use nvme_fabrics::wire::PortId;
use nvme_tcp::SharedPool;

use crate::carrier::LOOKS;
use crate::carrier::tcp::Listener;
use crate::drivers::fabrics::Received;
use crate::drivers::fabrics::tls::Acceptor;
use crate::media::state::Notice;
use crate::reactor::{Attention, Context, Driver, Pump, Sources, Turn};
use crate::sys::tcp_info::TcpInfo;
use link::Link;
use pairs::Pairs;
use shell::TargetShell;
use strangers::Strangers;
use worker::Worker;

/// The most pieces taken from one connection in a turn, so that none starves the others or
/// the media.
const PIECES_PER_TURN: usize = 16;
/// The most connections that are looked at in each turn. The kernel reports news of further ones.
const LIVELY_MAX: usize = 256;
/// A connection that was silent for this long is looked at only when the kernel has news of it.
const SILENT: Nanos = Nanos::from_millis(10);
/// Thousandths of a processor for the exponentiations of hosts that have proved nothing.
pub const WORK_SHARE: u32 = 50;
/// How long to wait before asking the system again to let a port or medium end a sleep.
const REGISTER_AGAIN: Nanos = Nanos::from_millis(10);

/// An event for the application.
#[derive(Debug)]
pub enum Event {
    /// Something happened to a connection or an association.
    Target(assemblies::target::Event),
    /// A host that speaks TLS has not proved its identity.
    NotEncrypted {
        /// Address of the host.
        peer: SocketAddr,
        /// Why the handshake has failed, in words.
        why: String,
    },
    /// The controllers of a subsystem have changed something that may be worth remembering.
    Notify(SubsystemKey, Notification),
    /// A notice about the kept state of a subsystem.
    State(SubsystemKey, Notice),
    /// A connection could not be accepted. Reported once until a connection is accepted again.
    AcceptFailed(io::Error),
    /// The socket of a port of RoCE, or the device of one of verbs, has failed: its connections are
    /// over. It is opened again, until that succeeds.
    PortFailed(SocketAddr, io::Error),
    /// Such a port works again.
    PortRestored(SocketAddr),
}

/// Limits of connections whose hosts have not proved their identities.
#[derive(Clone, Copy, Debug)]
pub struct StrangerLimits {
    /// How many there may be.
    pub places: usize,
    /// How long a host may take to prove its identity.
    pub proof_max: Nanos,
    /// Thousandths of a processor for the exponentiations of their authentications.
    pub work_share: u32,
}

impl StrangerLimits {
    /// The limits of one of `count` reactors that share these. The first one accepts all
    /// connections, and has three quarters; connections whose subsystems belong to other reactors
    /// go on there.
    #[must_use]
    pub fn part_of(self, index: usize, count: usize) -> Self {
        let others = count.saturating_sub(1);
        let part = |all: usize| match (index, others) {
            (_, 0) => all,
            (0, _) => all - all / 4,
            (_, others) => all / 4 / others,
        };
        let work_share = u32::try_from(part(self.work_share as usize)).unwrap_or(self.work_share).max(1);
        Self { places: part(self.places), work_share, ..self }
    }
}

/// A port that is listened on.
#[derive(Debug)]
struct Port {
    id: PortId,
    fabric: Fabric,
    listener: Listener,
    is_registered: bool,
}

/// The driver of a target: it joins the engines to listeners, connections and media.
pub struct TargetDriver<F> {
    target: Pump<Target>,
    shell: TargetShell<F>,
    ports: Vec<Port>,
    pairs: Pairs,
    strangers: Strangers,
    worker: Worker,
    /// Connections of admitted hosts that are looked at in each turn.
    lively: Vec<ConnectionId>,
    /// Subsystems with media whose descriptors may not end a sleep yet.
    unregistered: Vec<SubsystemKey>,
    /// The descriptors of media that end a sleep, with their subsystems.
    registered: Vec<(SubsystemKey, RawFd)>,
    pool: SharedPool,
    /// The identities that hosts with TLS may prove.
    acceptor: Acceptor,
    /// The exchange of accepted connections with other reactors.
    mailbox: Option<Mailbox>,
    /// The application knows that connections are turned away.
    is_refusing: bool,
    /// The latest time that the engines got.
    now: Instant,
    stopping: bool,
}

impl<F: FnMut(Event)> TargetDriver<F> {
    /// Creates a target that offers the contents of `directory`; subsystems and ports are added
    /// later. `report` gets events.
    pub fn new(now: Instant, directory: Directory, report: F) -> Self {
        let pool: SharedPool = Rc::new(RefCell::new(Pool::default()));
        let mut connection = nvme_tcp::controller::Config::new(Rc::clone(&pool));
        connection.crc32c = crate::sys::digest::crc32c;
        let acceptor = Acceptor::new(&directory);
        let connection = connection.into();
        let config = Config { connection, directory, rng: crate::sys::entropy::system() };
        let mut target = Target::new(now, config);
        target.work_outside(WORK_SHARE);
        Self {
            target: Pump::new(target),
            shell: TargetShell::new(report),
            ports: Vec::new(),
            pairs: Pairs::default(),
            strangers: Strangers::default(),
            worker: Worker::default(),
            lively: Vec::new(),
            unregistered: Vec::new(),
            registered: Vec::new(),
            pool,
            acceptor,
            mailbox: None,
            is_refusing: false,
            now,
            stopping: false,
        }
    }

    /// Listens at `listener` as port `id`, for connections of `fabric`.
    pub fn add_port(&mut self, id: PortId, fabric: Fabric, listener: Listener) {
        self.ports.push(Port { id, fabric, listener, is_registered: false });
    }

    /// Takes connections from `mailbox`, and gives it the connections that belong to
    /// other reactors.
    pub fn set_mailbox(&mut self, mailbox: Mailbox) {
        self.mailbox = Some(mailbox);
    }

    /// Limits the memory held for hosts to about `bytes`, as [`Target::set_memory_max`] does.
    pub const fn set_memory_max(&mut self, bytes: u64) {
        self.target.engine_mut().set_memory_max(bytes);
    }

    /// Sets the limits of connections whose hosts have not proved their identities.
    pub fn limit_strangers(&mut self, limits: StrangerLimits) {
        let StrangerLimits { places, proof_max, work_share } = limits;
        let engine = self.target.engine_mut();
        engine.set_strangers_max(places);
        engine.set_proof_max(proof_max);
        engine.work_outside(work_share);
    }

    /// The watchers of the bytes of the target's connections.
    pub fn watch(&mut self) -> &mut Watch<WatchedPort> {
        self.target.engine_mut().watch()
    }

    /// The engines of the target.
    pub const fn target(&self) -> &Target {
        self.target.engine()
    }

    /// Stops listening at a port. Connections that came through the port stay, except those of
    /// queue pairs: their carrier goes with the port.
    pub fn remove_port(&mut self, id: PortId) {
        self.ports.retain(|port| port.id != id);
        for index in 0..self.shell.links.len() {
            let is_pair = |link: &mut Link| link.port == id && link.socket.is_none();
            if self.shell.links[index].take_if(is_pair).is_some() {
                let connection = u32::try_from(index).expect("connections are fewer than 2^32");
                self.on_gone(self.now, ConnectionId(connection));
            }
        }
        // This informs the hosts.
        self.pairs.flush(self.now);
        self.pairs.remove_port(id);
    }

    /// The kernel's information on a host's TCP connection.
    pub fn tcp_info(&self, connection: ConnectionId) -> Option<TcpInfo> {
        let link = self.shell.links.get(connection.0 as usize)?.as_ref()?;
        TcpInfo::of(link.socket.as_ref()?).ok()
    }

    /// The fabric of each port, and its address.
    pub fn addresses(&self) -> impl Iterator<Item = (Fabric, SocketAddr)> {
        let streams = self.ports.iter().map(|port| (port.fabric, port.listener.address()));
        streams.chain(self.pairs.addresses())
    }

    /// Takes bytes of hosts on connections at rest, of which the kernel has news. Returns whether
    /// there were any.
    fn receive_at_rest(&mut self, context: &Context<'_>) -> bool {
        let mut busy = false;
        for name in context.named {
            let id = ConnectionId(*name);
            let link = self.shell.links.get(id.0 as usize).and_then(Option::as_ref);
            // The name may belong to a younger connection by now.
            if link.is_none_or(|link| link.is_lively || !link.is_admitted) {
                continue;
            }
            if self.receive_from(id, context) {
                busy = true;
                self.wake_up(id, context.sources());
            } else if let Some(link) = self.shell.links[id.0 as usize].as_mut()
                && let Some(socket) = link.socket.as_mut()
            {
                socket.rest(&mut self.pool.borrow_mut());
            }
        }
        busy
    }

    /// Takes bytes of hosts on the connections that are looked at in each turn.
    fn receive(&mut self, context: &Context<'_>) -> bool {
        let mut busy = false;
        let mut index = 0;
        while let Some(id) = self.lively.get(index).copied() {
            busy |= self.receive_from(id, context);
            index += 1;
        }
        busy
    }

    /// Has a connection looked at in each turn while it is not silent, if there is room for it.
    fn wake_up(&mut self, id: ConnectionId, sources: &Sources) {
        let mut is_full = self.lively.len() >= LIVELY_MAX;
        if let Some(link) = self.shell.links[id.0 as usize].as_mut()
            && let Some(socket) = &link.socket
        {
            // The kernel does not report bytes that TLS has decrypted already.
            is_full &= !socket.is_encrypted();
            let attention = if is_full { Attention::Named(id.0) } else { Attention::EachTurn };
            let changed = sources.change(socket.as_raw_fd(), attention);
            // The kernel would not report a connection whose change failed. If there is more to
            // receive, the change has the kernel report it again.
            if !is_full || changed.is_err() {
                link.is_lively = true;
                self.lively.push(id);
            }
        }
    }

    /// Looks again at connections whose hosts were made to wait, because the kernel does not report
    /// their input twice.
    fn listen_again(&mut self, sources: &Sources) -> bool {
        let wanted = core::mem::take(&mut self.shell.wanted);
        for id in &wanted {
            if let Some(link) = self.shell.links[id.0 as usize].as_mut() {
                link.heard = self.now;
                if link.socket.is_none() {
                    self.target.engine_mut().handle_input(self.now, Input::Stirred(*id));
                } else if !link.is_admitted {
                    self.strangers.look_again(*id);
                } else if !link.is_lively {
                    self.wake_up(*id, sources);
                }
            }
        }
        !wanted.is_empty()
    }

    fn put_to_rest(&mut self, context: &Context<'_>) {
        let Self { lively, shell: TargetShell { links, .. }, now, pool, .. } = self;
        lively.retain(|id| {
            let Some(link) = links[id.0 as usize].as_mut() else { return false };
            if *now - link.heard < SILENT {
                return true;
            }
            let Some(socket) = link.socket.as_mut() else { return false };
            let moved = context.sources().change(socket.as_raw_fd(), Attention::Named(id.0));
            link.is_lively = moved.is_err();
            if !link.is_lively {
                socket.rest(&mut pool.borrow_mut());
            }
            link.is_lively
        });
    }

    fn receive_from(&mut self, id: ConnectionId, context: &Context<'_>) -> bool {
        let mut busy = false;
        let pieces = match self.shell.links[id.0 as usize].as_ref() {
            Some(link) if link.is_admitted => PIECES_PER_TURN,
            _ => {
                self.choose_lane();
                1
            }
        };
        for _ in 0..pieces {
            let Some(link) = self.shell.links[id.0 as usize].as_mut() else { break };
            if !link.is_ended && !self.target.engine().wants_input(id) {
                break;
            }
            let Some(socket) = link.socket.as_mut() else { break };
            let place = self.target.engine_to_poll().landing(id);
            let received = socket.receive(&mut self.pool.borrow_mut(), place);
            let (landed, bytes, is_all) = match received {
                Ok(Received::Nothing) => break,
                Ok(Received::Data { .. }) if link.is_ended => continue,
                Ok(Received::Data { landed, bytes, is_all }) => (landed, bytes, is_all),
                Ok(Received::Closed) | Err(_) => {
                    if let Err(why) = &received
                        && socket.is_encrypted()
                        && link.proved.is_none()
                    {
                        let (peer, why) = (socket.peer(), why.to_string());
                        // A key that is meant to be known may be known later.
                        if !self.target.engine().directory().is_partial {
                            socket.refuse_key();
                        }
                        self.target.engine_mut().count_refused("tls");
                        (self.shell.report)(Event::NotEncrypted { peer, why });
                    }
                    self.now = context.clock.now();
                    self.forget(self.now, id, context.sources());
                    return true;
                }
            };
            busy = true;
            let now = context.clock.now();
            (self.now, link.heard) = (now, now);
            if let Some(identity) = socket.take_proved() {
                link.proved = Some(identity.clone());
                self.target.engine_mut().handle_input(now, Input::Proved { connection: id, identity });
            }
            if landed > 0 {
                self.target.engine_mut().landed(now, id, landed);
            }
            if !bytes.is_empty() {
                self.target.engine_mut().handle_input(now, Input::Received { connection: id, bytes });
            }
            // An answer leaves before anything else is looked at.
            self.target.exchange(now, &mut self.shell);
            self.send(now, id);
            if is_all {
                break;
            }
        }
        busy
    }

    /// Chooses the reactor for the next I/O queue.
    fn choose_lane(&mut self) {
        if let Some(mailbox) = &self.mailbox {
            let lane = mailbox.least_loaded(self.target.engine().own_queues());
            self.target.engine_mut().set_next_lane(lane);
        }
    }

    /// Forgets a connection that is gone.
    fn forget(&mut self, now: Instant, id: ConnectionId, sources: &Sources) {
        if let Some(link) = self.shell.links[id.0 as usize].take() {
            if link.is_guest
                && let Some(mailbox) = &self.mailbox
            {
                mailbox.guest_is_gone();
            }
            match &link.socket {
                Some(socket) if link.is_admitted => sources.remove(socket.as_raw_fd()),
                Some(socket) => self.strangers.remove(socket.as_raw_fd()),
                None => {}
            }
            drop(link);
            self.on_gone(now, id);
        }
    }

    /// The link of a connection was taken away.
    fn on_gone(&mut self, now: Instant, id: ConnectionId) {
        self.pairs.forget(id);
        self.strangers.forget(id);
        self.lively.retain(|one| *one != id);
        self.shell.lingering.retain(|(_, one)| *one != id);
        self.shell.closing.retain(|one| *one != id);
        self.target.engine_mut().handle_input(now, Input::Closed(id));
        self.target.exchange(now, &mut self.shell);
    }

    /// Sends waiting bytes on a connection; returns whether any were taken.
    fn send(&mut self, now: Instant, id: ConnectionId) -> bool {
        let mut busy = false;
        loop {
            let link = self.shell.links[id.0 as usize].as_mut();
            let Some(socket) = link.and_then(|link| link.socket.as_mut()) else { return busy };
            let Some(outbox) = self.target.engine_to_poll().outbox(id).filter(|outbox| !outbox.is_empty())
            else {
                return busy;
            };
            match socket.send(outbox) {
                Ok(0) => return busy,
                Ok(count) => {
                    busy = true;
                    self.target.engine_mut().sent(now, id, count);
                    self.target.exchange(now, &mut self.shell);
                }
                Err(_) => {
                    // The next receive sees the end of the connection.
                    socket.give_up();
                    return busy;
                }
            }
        }
    }

    /// Sends waiting bytes, and shuts down ended connections that have nothing more to send.
    fn flush(&mut self, now: Instant) -> bool {
        let mut busy = false;
        let mut sending = core::mem::take(&mut self.shell.sending);
        sending.retain(|id| {
            busy |= self.send(now, *id);
            // The kernel reports when a stranger takes bytes again.
            let is_admitted = self.shell.links[id.0 as usize].as_ref().is_some_and(|link| link.is_admitted);
            is_admitted && self.target.engine_to_poll().outbox(*id).is_some_and(|outbox| !outbox.is_empty())
        });
        sending.append(&mut self.shell.sending);
        self.shell.sending = sending;
        let Self { shell: TargetShell { closing, links, .. }, target, .. } = self;
        closing.retain(|id| {
            let is_said = target.engine_to_poll().outbox(*id).is_none_or(nvme_tcp::Outbox::is_empty);
            let Some(link) = links[id.0 as usize].as_mut() else { return false };
            if !is_said && link.is_admitted {
                return true;
            }
            if let Some(socket) = &mut link.socket {
                socket.shut();
            }
            busy = true;
            false
        });
        busy
    }

    /// Drops ended connections that hosts have had time to close.
    fn drop_lingering(&mut self, now: Instant, sources: &Sources) {
        while let Some((at, id)) = self.shell.lingering.first().copied()
            && at <= now
        {
            self.shell.lingering.remove(0);
            self.forget(now, id, sources);
        }
    }
}

impl<F: FnMut(Event)> Driver for TargetDriver<F> {
    fn start(&mut self, sources: &Sources) -> io::Result<()> {
        self.register(sources);
        Ok(())
    }

    fn turn(&mut self, context: &Context<'_>) -> io::Result<Turn> {
        let sources = context.sources();
        self.register(sources);
        self.now = self.now.max(context.now);
        self.shell.lively.heed(context.named);
        let mut busy = self.take_letters(self.now, sources);
        busy |= self.receive_at_rest(context);
        // Nothing else comes soon from anywhere.
        let looks = if busy || self.is_media_busy() { 1 } else { LOOKS };
        for _ in 0..looks {
            if self.receive_pairs(context.clock.now(), context.news) | self.receive(context) {
                busy = true;
                break;
            }
        }
        // Strangers come after hosts that have proved their identities.
        busy |= self.serve_strangers(context);
        self.put_to_rest(context);
        busy |= self.listen_again(sources);
        // The engines have got later times since the turn began, and their time never goes back.
        let now = self.now;
        busy |= self.reap(now)?;
        if self.target.wants_settling(now, busy) {
            self.target.settle(now, &mut self.shell);
        }
        busy |= self.flush(now);
        self.settle_strangers(sources);
        busy |= self.pairs.flush(now);
        if self.is_media_busy() {
            // Only this passes on the last submissions to the kernel.
            busy |= self.reap(now)?;
        }
        self.drop_lingering(now, sources);
        self.see_off();
        if self.stopping && self.is_over() {
            self.end_media();
            return Ok(Turn::Done);
        }
        // Connections that are to be listened to again are looked at in the next turn.
        busy |= !self.shell.wanted.is_empty();
        Ok(if busy { Turn::Busy } else { Turn::Idle })
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let lingering = self.shell.lingering.first().map(|(at, _)| *at);
        let media = self.media_timeout().into_iter();
        let again = (!self.is_registered()).then(|| self.now + REGISTER_AGAIN);
        media
            .chain(self.target.poll_timeout())
            .chain(lingering)
            .chain(again)
            .chain(self.strangers.poll_timeout())
            .chain(self.pairs.poll_timeout())
            .min()
    }

    fn on_stop(&mut self, now: Instant) {
        self.stopping = true;
        self.end_media();
        self.target.engine_mut().shut_down(now);
        self.target.exchange(now, &mut self.shell);
        self.see_off();
    }
}

impl<F> fmt::Debug for TargetDriver<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TargetDriver").field("target", self.target.engine()).finish_non_exhaustive()
    }
}
