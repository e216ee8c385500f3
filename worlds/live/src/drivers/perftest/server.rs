//! The measured end.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::rc::Rc;

use engine::{Instant, Nanos};
use rdma::Endpoint;
use rdma::measure::{Desk, Limits, Server, Test};
use tracing::warn;

use super::stream::{OverIwarp, Stream, Streams};
use super::{CONNECTIONS_MAX, Memory, Provider, limits};
use crate::carrier::tcp::Listener;
use crate::drivers::fabrics::Socket;
use crate::drivers::roce::{Change, PathMtu, Roce, RoceEndpoint};
use crate::drivers::verbs::{self, Verbs, VerbsEndpoint};
use crate::reactor::{Attention, Context, Driver, Pump, Sources, Turn};

/// How long the last words of a connection may take.
const LAST_WORDS: Nanos = Nanos::from_secs(1);

/// A connection over iWARP.
#[derive(Debug)]
struct Connection {
    stream: Stream,
    server: Pump<OverIwarp<Server<iwarp::Connection>>>,
    /// Until when its last words must be said, once it is over.
    until: Option<Instant>,
}

#[derive(Debug)]
enum Carried {
    Iwarp(Listener, Vec<Connection>),
    Roce(Box<Roce>, Vec<Server<RoceEndpoint>>),
    Verbs(Box<Verbs>, Vec<Server<VerbsEndpoint>>),
}

/// A server of measurements.
#[derive(Debug)]
pub struct Measured {
    carried: Carried,
    makes: Makes,
    address: SocketAddr,
    is_over: bool,
}

/// The resources for new ends of connections.
#[derive(Debug)]
struct Makes {
    memory: Memory,
    /// Where clients of perftest find both of their connections, if they are served.
    desk: Option<Desk>,
}

impl Makes {
    fn server<E: Endpoint>(&self, now: Instant, end: E, connections: usize) -> Server<E> {
        let limits: Limits = limits(connections);
        Server::new(now, end, limits, Rc::clone(&self.memory.pool), self.desk.clone())
    }
}

/// Lets a server do its due work. Returns whether its connection goes on.
fn settle<E: Endpoint>(server: &mut Server<E>, now: Instant) -> bool {
    let goes_on = server.settle(now);
    if let Some(fault) = server.take_fault() {
        warn!("a client was rejected: {fault}");
    }
    goes_on
}

impl Measured {
    /// A server at `address`. A client that
    /// says nothing in its private data is rping; or a program of perftest that measures
    /// `perftest`, if that is given.
    ///
    /// # Errors
    /// When the system refuses the address. RoCE needs UDP port 4791 there, and verbs a device.
    pub fn open(provider: Provider, address: SocketAddr, perftest: Option<Test>) -> io::Result<Self> {
        let memory = Memory::new();
        let mut bound = address;
        let carried = match provider {
            Provider::Iwarp => {
                let listener = Listener::bind(address)?;
                bound = listener.address();
                Carried::Iwarp(listener, Vec::new())
            }
            Provider::Roce => {
                let world = memory.roce(address, PathMtu::B4096)?;
                world.device().borrow_mut().listen(address.port());
                Carried::Roce(Box::new(world), Vec::new())
            }
            Provider::Verbs => {
                let mut world = memory.verbs()?;
                bound = world.listen(address)?;
                Carried::Verbs(Box::new(world), Vec::new())
            }
        };
        let makes = Makes { memory, desk: perftest.map(Desk::new) };
        Ok(Self { carried, makes, address: bound, is_over: false })
    }

    /// How many clients are connected.
    pub fn connections(&self) -> usize {
        match &self.carried {
            Carried::Iwarp(_, connections) => connections.len(),
            Carried::Roce(_, servers) => servers.len(),
            Carried::Verbs(_, servers) => servers.len(),
        }
    }

    /// The address of the server.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Takes the connections that wait. Connections that cannot be taken are closed.
fn accept(listener: &Listener, connections: &mut Vec<Connection>, makes: &Makes, context: &Context<'_>) {
    // Too few descriptors are no reason to end: the connection was turned away.
    while let Ok(Some(connection)) = listener.accept() {
        let socket = Socket::from(connection);
        let added = context.sources().add(socket.as_raw_fd(), Attention::EachTurn);
        if added.is_err() || connections.len() >= CONNECTIONS_MAX {
            continue;
        }
        let end = iwarp::Connection::accept(context.now, makes.memory.iwarp());
        let server = Pump::new(OverIwarp(makes.server(context.now, end, connections.len())));
        connections.push(Connection { stream: Stream::new(socket), server, until: None });
    }
}

impl Connection {
    /// Continues. Returns whether anything passed, and whether the connection is there still.
    fn turn(&mut self, memory: &Memory, now: Instant) -> (bool, bool) {
        let received = self.stream.receive(self.server.engine_mut(), 0, &memory.pool, now);
        if !settle(&mut self.server.engine_mut().0, now) && self.until.is_none() {
            self.until = Some(now + LAST_WORDS);
        }
        let sent = self.server.settle(now, &mut Streams(core::slice::from_mut(&mut self.stream)));
        let is_late = self.until.is_some_and(|until| until <= now);
        (received || sent, !is_late && !self.stream.is_over(self.server.engine().0.endpoint()))
    }

    fn wake(&self) -> Instant {
        let own = self.until.unwrap_or_else(|| self.server.engine().0.deadline());
        self.server.poll_timeout().map_or(own, |at| at.min(own))
    }
}

impl Driver for Measured {
    fn start(&mut self, sources: &Sources) -> io::Result<()> {
        match &mut self.carried {
            Carried::Iwarp(listener, _) => sources.add(listener.as_raw_fd(), Attention::OnNews),
            Carried::Roce(world, _) => world.register(sources),
            Carried::Verbs(world, _) => world.register(sources),
        }
    }

    fn turn(&mut self, context: &Context<'_>) -> io::Result<Turn> {
        let now = context.now;
        let mut busy = false;
        match &mut self.carried {
            Carried::Iwarp(listener, connections) => {
                if context.news && !self.is_over {
                    accept(listener, connections, &self.makes, context);
                }
                connections.retain_mut(|connection| {
                    let (moved, is_there) = connection.turn(&self.makes.memory, now);
                    busy |= moved;
                    is_there
                });
            }
            Carried::Roce(world, servers) => {
                busy |= world.receive(now);
                while let Some(end) = RoceEndpoint::next_requested(world.device()) {
                    servers.push(self.makes.server(now, end, servers.len()));
                }
                servers.retain_mut(|server| settle(server, now));
                busy |= world.flush(now);
                if let Some(Change::Failed(error)) = world.take_change() {
                    return Err(error);
                }
            }
            Carried::Verbs(world, servers) => {
                world.register(context.sources())?;
                busy |= world.receive(now, context.news);
                while let Some((end, _)) = world.next_requested() {
                    servers.push(self.makes.server(now, end, servers.len()));
                }
                servers.retain_mut(|server| settle(server, now));
                busy |= world.flush(now);
                if let Some(verbs::Change::Failed(error)) = world.take_change() {
                    return Err(error);
                }
                // A device does not report a peer's writes.
                busy |= servers.iter().any(Server::is_watching);
            }
        }
        Ok(match (self.is_over, busy) {
            (true, _) => Turn::Done,
            (false, true) => Turn::Busy,
            (false, false) => Turn::Idle,
        })
    }

    fn poll_timeout(&self) -> Option<Instant> {
        match &self.carried {
            Carried::Iwarp(_, connections) => connections.iter().map(Connection::wake).min(),
            Carried::Roce(world, servers) => {
                servers.iter().map(Server::deadline).chain(world.poll_timeout()).min()
            }
            Carried::Verbs(world, servers) => {
                servers.iter().map(Server::deadline).chain(world.poll_timeout()).min()
            }
        }
    }

    fn on_stop(&mut self, _now: Instant) {
        self.is_over = true;
    }
}
