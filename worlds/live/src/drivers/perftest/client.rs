//! The measuring end.

use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::time::Duration;

use engine::{Instant, Nanos};
use rdma::measure::{Client, Output, Peer, Test};

use super::stream::{OverIwarp, Stream, Streams};
use super::{Memory, Provider};
use crate::drivers::fabrics::Socket;
use crate::drivers::roce::{Change, Roce, RoceEndpoint, Route};
use crate::drivers::verbs::{self, Verbs, VerbsEndpoint};
use crate::reactor::blocking::{Application, Blocking};
use crate::reactor::{Attention, Context, Driver, Pump, Reactor, Sources, Turn};
use crate::sys::address::Host;
use crate::sys::clock::Clock;

#[derive(Debug)]
enum Carried {
    /// The connections of the client, in their order.
    Iwarp(Vec<Stream>, Box<Pump<OverIwarp<Client<iwarp::Connection>>>>),
    Roce(Box<Roce>, Box<Client<RoceEndpoint>>),
    Verbs(Box<Verbs>, Box<Client<VerbsEndpoint>>),
}

/// Where the server is, and how it is reached.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    /// The carrier of the connection.
    pub provider: Provider,
    /// The address of the server.
    pub server: SocketAddr,
    /// The address of this machine that RoCE and devices use [the one from which packets to the
    /// server go].
    pub local: Option<Host>,
    /// How long a TCP connection may take.
    pub timeout: Duration,
}

/// A measurement of a connection to a server.
#[derive(Debug)]
pub struct Measurement {
    way: Way,
    carried: Carried,
    memory: Memory,
    news: VecDeque<Output>,
    is_stopping: bool,
}

impl Measurement {
    /// Connects to the server, which is a `peer`, and asks for `test`. The loop polls for `spin`
    /// before it sleeps.
    ///
    /// # Errors
    /// When the server cannot be reached in time, or the system refuses a socket.
    pub fn begin(way: Way, peer: Peer, test: Test, spin: Nanos) -> io::Result<Blocking<Self>> {
        let memory = Memory::new();
        let clock = Clock::start();
        let reactor = Reactor::new(clock, spin)?;
        let private_data = &peer.private_data(&test)[..];
        let Way { provider, server, local, .. } = way;
        let carried = match provider {
            Provider::Iwarp => {
                let (stream, end) = connect(&way, &memory, clock.now(), private_data)?;
                let client = Client::new(end, test, peer, &memory.pool);
                Carried::Iwarp(vec![stream], Box::new(Pump::new(OverIwarp(client))))
            }
            Provider::Roce => {
                let route = Route::to(server, local)?;
                let world = memory.roce(route.local, route.mtu)?;
                let end = RoceEndpoint::connect(world.device(), server.ip(), server.port(), private_data);
                let end = end.map_err(io::Error::other)?;
                Carried::Roce(Box::new(world), Box::new(Client::new(end, test, peer, &memory.pool)))
            }
            Provider::Verbs => {
                let mut world = memory.verbs()?;
                let end = world.connect(server, local, private_data)?;
                Carried::Verbs(Box::new(world), Box::new(Client::new(end, test, peer, &memory.pool)))
            }
        };
        let driver = Self { way, carried, memory, news: VecDeque::new(), is_stopping: false };
        Ok(Blocking::new(reactor, driver))
    }

    /// Gets the client the second connection that it requests.
    fn join(&mut self, context: &Context<'_>) -> io::Result<()> {
        let Way { server, local, .. } = self.way;
        match &mut self.carried {
            Carried::Iwarp(streams, client) => match connect(&self.way, &self.memory, context.now, &[]) {
                Ok((stream, end)) => {
                    context.sources().add(stream.socket.as_raw_fd(), Attention::EachTurn)?;
                    streams.truncate(1);
                    streams.push(stream);
                    client.engine_mut().0.join(end);
                }
                // The server may listen again soon.
                Err(_) => client.engine_mut().0.refused(context.now),
            },
            Carried::Roce(world, client) => {
                let end = RoceEndpoint::connect(world.device(), server.ip(), server.port(), &[]);
                client.join(end.map_err(io::Error::other)?);
            }
            Carried::Verbs(world, client) => client.join(world.connect(server, local, &[])?),
        }
        Ok(())
    }

    /// Takes the client's events until `now`. Returns whether there were any.
    fn take_news(&mut self, context: &Context<'_>, now: Instant) -> io::Result<bool> {
        let mut has_news = false;
        loop {
            let output = match &mut self.carried {
                Carried::Iwarp(_, client) => client.engine_mut().0.poll(now),
                Carried::Roce(_, client) => client.poll(now),
                Carried::Verbs(_, client) => client.poll(now),
            };
            match output {
                None => return Ok(has_news),
                Some(Output::Connect) => self.join(context)?,
                Some(output) => self.news.push_back(output),
            }
            has_news = true;
        }
    }
}

/// A TCP connection to the server, and an end that asks for a connection over it.
fn connect(
    way: &Way,
    memory: &Memory,
    now: Instant,
    private_data: &[u8],
) -> io::Result<(Stream, iwarp::Connection)> {
    let socket = Socket::new(TcpStream::connect_timeout(&way.server, way.timeout)?)?;
    Ok((Stream::new(socket), iwarp::Connection::connect(now, memory.iwarp(), private_data)))
}

impl Driver for Measurement {
    fn start(&mut self, sources: &Sources) -> io::Result<()> {
        match &mut self.carried {
            Carried::Iwarp(streams, _) => streams
                .iter()
                .try_for_each(|stream| sources.add(stream.socket.as_raw_fd(), Attention::EachTurn)),
            Carried::Roce(world, _) => world.register(sources),
            Carried::Verbs(world, _) => world.register(sources),
        }
    }

    fn turn(&mut self, context: &Context<'_>) -> io::Result<Turn> {
        let now = context.now;
        let mut busy = match &mut self.carried {
            Carried::Iwarp(streams, client) => {
                let mut busy = false;
                for (which, stream) in streams.iter_mut().enumerate() {
                    busy |= stream.receive(client.engine_mut(), which, &self.memory.pool, now);
                }
                busy
            }
            Carried::Roce(world, _) => world.receive(now),
            Carried::Verbs(world, _) => {
                world.register(context.sources())?;
                world.receive(now, context.news)
            }
        };
        // Received messages have the time of their receipt.
        let heard = if busy { context.clock.now() } else { now };
        busy |= self.take_news(context, heard)?;
        match &mut self.carried {
            Carried::Iwarp(streams, client) => {
                busy |= client.settle(now, &mut Streams(streams));
                let mut ends = streams.iter().zip(client.engine().0.endpoints());
                if self.is_stopping && ends.all(|(stream, end)| stream.is_over(end)) {
                    return Ok(Turn::Done);
                }
            }
            Carried::Roce(world, _) => {
                busy |= world.flush(heard);
                if let Some(Change::Failed(error)) = world.take_change() {
                    return Err(error);
                }
            }
            Carried::Verbs(world, client) => {
                busy |= world.flush(context.clock.now());
                if let Some(verbs::Change::Failed(error)) = world.take_change() {
                    return Err(error);
                }
                // A device does not report a peer's writes.
                busy |= client.is_watching();
            }
        }
        Ok(match (self.is_stopping, busy) {
            (_, true) => Turn::Busy,
            (true, false) if !matches!(self.carried, Carried::Iwarp(..)) => Turn::Done,
            _ => Turn::Idle,
        })
    }

    fn poll_timeout(&self) -> Option<Instant> {
        match &self.carried {
            Carried::Iwarp(_, client) => {
                Instant::earlier(client.poll_timeout(), client.engine().0.deadline())
            }
            Carried::Roce(world, client) => world.poll_timeout().into_iter().chain(client.deadline()).min(),
            Carried::Verbs(world, client) => world.poll_timeout().into_iter().chain(client.deadline()).min(),
        }
    }

    fn on_stop(&mut self, _now: Instant) {
        self.is_stopping = true;
        match &mut self.carried {
            Carried::Iwarp(_, client) => client.engine_mut().0.stop(),
            Carried::Roce(_, client) => client.stop(),
            Carried::Verbs(_, client) => client.stop(),
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
