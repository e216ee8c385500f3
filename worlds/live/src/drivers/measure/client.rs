//! Who measures.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::time::Duration;

use engine::{Engine, Instant, Nanos};
use rdma::SharedPool;
use rdma::measure::{Client, Output, Test};

use super::stream::Stream;
use super::{Memory, Provider};
use crate::drivers::attached::{Application, Attached};
use crate::drivers::fabrics::Socket;
use crate::drivers::roce::{Change, Roce, RoceEndpoint, Route};
use crate::drivers::verbs::{self, Verbs, VerbsEndpoint};
use crate::reactor::{Attention, Context, Driver, Reactor, Turn};
use crate::sys::clock::Clock;

#[derive(Debug)]
enum Carried {
    Iwarp(Stream, Box<Client<iwarp::Connection>>),
    Roce(Box<Roce>, Box<Client<RoceEndpoint>>),
    Verbs(Box<Verbs>, Box<Client<VerbsEndpoint>>),
}

/// A measurement of a connection to a server.
#[derive(Debug)]
pub struct Measurement {
    carried: Carried,
    pool: SharedPool,
    news: VecDeque<Output>,
    is_stopping: bool,
}

impl Measurement {
    /// Connects to `server` and asks for `test`. The loop polls for `spin` before it sleeps. RoCE
    /// and devices use the address `local` of this machine [the one from which packets to the
    /// server go].
    ///
    /// # Errors
    /// When the server cannot be reached within `timeout`, or the system refuses a socket.
    pub fn begin(
        provider: Provider,
        server: SocketAddr,
        local: Option<IpAddr>,
        test: Test,
        (timeout, spin): (Duration, Nanos),
    ) -> io::Result<Attached<Self>> {
        let memory = Memory::new();
        let clock = Clock::start();
        let reactor = Reactor::new(clock, spin)?;
        let now = clock.now();
        let carried = match provider {
            Provider::Iwarp => {
                let socket = Socket::new(TcpStream::connect_timeout(&server, timeout)?)?;
                reactor.sources().add(socket.as_raw_fd(), Attention::EachTurn)?;
                let end = iwarp::Connection::connect(now, memory.iwarp(), &test.emit());
                let client = Client::new(end, test, &memory.pool);
                Carried::Iwarp(Stream::new(socket), Box::new(client))
            }
            Provider::Roce => {
                let route = Route::to(server.ip(), local)?;
                let mut world = memory.roce(route.local, route.mtu)?;
                world.register(reactor.sources())?;
                let end = RoceEndpoint::connect(world.device(), server.ip(), server.port(), &test.emit());
                let end = end.map_err(io::Error::other)?;
                Carried::Roce(Box::new(world), Box::new(Client::new(end, test, &memory.pool)))
            }
            Provider::Verbs => {
                let mut world = memory.verbs()?;
                world.register(reactor.sources())?;
                let end = world.connect(server, local, &test.emit())?;
                Carried::Verbs(Box::new(world), Box::new(Client::new(end, test, &memory.pool)))
            }
        };
        let driver = Self { carried, pool: memory.pool, news: VecDeque::new(), is_stopping: false };
        Ok(Attached::new(reactor, driver))
    }
}

impl Driver for Measurement {
    fn turn(&mut self, context: &Context<'_>) -> io::Result<Turn> {
        let now = context.now;
        let mut busy = false;
        match &mut self.carried {
            Carried::Iwarp(stream, client) => {
                let end = client.endpoint_mut();
                if end.poll_timeout().is_some_and(|at| at <= now) {
                    end.handle_timeout(now);
                }
                busy |= stream.receive(end, &self.pool, now);
                // What was received has its time from when it was.
                while let Some(output) = client.poll(context.clock.now()) {
                    self.news.push_back(output);
                }
                busy |= stream.send(client.endpoint_mut(), now);
                if self.is_stopping && stream.is_over(client.endpoint_mut()) {
                    return Ok(Turn::Done);
                }
            }
            Carried::Roce(world, client) => {
                busy |= world.receive(now);
                // What was received has its time from when it was.
                let now = if busy { context.clock.now() } else { now };
                while let Some(output) = client.poll(now) {
                    self.news.push_back(output);
                }
                busy |= world.flush(now);
                if let Some(Change::Failed(error)) = world.take_change() {
                    return Err(error);
                }
                if self.is_stopping && !busy {
                    return Ok(Turn::Done);
                }
            }
            Carried::Verbs(world, client) => {
                world.register(context.sources())?;
                busy |= world.receive(now, context.news);
                while let Some(output) = client.poll(context.clock.now()) {
                    self.news.push_back(output);
                }
                busy |= world.flush(context.clock.now());
                if let Some(verbs::Change::Failed(error)) = world.take_change() {
                    return Err(error);
                }
                if self.is_stopping && !busy {
                    return Ok(Turn::Done);
                }
            }
        }
        Ok(if busy { Turn::Busy } else { Turn::Idle })
    }

    fn poll_timeout(&self) -> Option<Instant> {
        match &self.carried {
            Carried::Iwarp(_, client) => client.endpoint().poll_timeout(),
            Carried::Roce(world, _) => world.poll_timeout(),
            Carried::Verbs(world, _) => world.poll_timeout(),
        }
    }

    fn on_stop(&mut self, _now: Instant) {
        self.is_stopping = true;
        match &mut self.carried {
            Carried::Iwarp(_, client) => rdma::Endpoint::disconnect(client.endpoint_mut()),
            Carried::Roce(_, client) => rdma::Endpoint::disconnect(client.endpoint_mut()),
            Carried::Verbs(_, client) => rdma::Endpoint::disconnect(client.endpoint_mut()),
        }
    }
}

impl Application for Measurement {
    type Event = Output;

    fn poll_event(&mut self) -> Option<Output> {
        self.news.pop_front()
    }

    fn has_events(&self) -> bool {
        !self.news.is_empty()
    }
}
