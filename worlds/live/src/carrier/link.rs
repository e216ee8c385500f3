//! A link to a far end, as a tunnel session needs it: dialled on request, and closed once
//! everything is sent.

use std::io;
use std::net::SocketAddr;
use std::os::fd::RawFd;

use engine::{Buffer, Instant, Pool};

use super::multipath::JoinedPaths;
use super::route::{Route, Trust};
use super::stream::{Stream, THIS_MACHINE};
use super::tcp::{Dialer, Dialled};
use super::{Received, datagrams, quic, shm};
use crate::reactor::{Attention, Sources};
use crate::sys::tcp_info::TcpInfo;

/// Number of received pieces that are discarded in one turn when the link is to be closed.
const LAST_PIECES: usize = 64;

enum Transport {
    /// The engine has not asked for a connection.
    Idle,
    Dialling(Dialer),
    /// Dialling over QUIC.
    Greeting(Box<quic::Dialer>),
    /// Dialling by datagrams.
    Asking(Box<datagrams::Dialer>),
    Joining(Box<JoinedPaths>),
    /// About to meet a far end of this machine.
    Meeting,
    Connected(Stream),
}

/// The state of dialling.
pub(crate) enum Dial {
    Connected,
    Failed(SocketAddr, io::Error),
    /// One path of a link of several paths was lost or has come back; the link goes on.
    Path {
        path: u8,
        is_away: bool,
    },
}

/// A link to a far end over TCP, QUIC, datagrams, several joined paths or shared memory.
pub(crate) struct Link {
    route: Route,
    transport: Transport,
    /// The link is to be closed when everything is sent.
    closing: bool,
}

impl Link {
    pub(crate) const fn new(route: Route) -> Self {
        Self { route, transport: Transport::Idle, closing: false }
    }

    pub(crate) const fn is_connected(&self) -> bool {
        matches!(self.transport, Transport::Connected(_))
    }

    /// Whether the link is connected, and received bytes show in memory.
    #[inline]
    pub(crate) fn is_polled(&self) -> bool {
        matches!(&self.transport, Transport::Connected(stream) if stream.is_polled())
    }

    /// The longest segment that suits the present connection; see
    /// [`ByteStream::segment_max`](super::stream::ByteStream::segment_max).
    pub(crate) fn segment_max(&self) -> Option<usize> {
        match &self.transport {
            Transport::Connected(stream) => Some(stream.segment_max()),
            _ => None,
        }
    }

    /// The kernel's information on each TCP connection of the link.
    pub(crate) fn tcp_info(&self) -> Vec<TcpInfo> {
        match &self.transport {
            Transport::Connected(stream) => stream.tcp_info(),
            _ => Vec::new(),
        }
    }

    /// Counts of the link's datagrams, if these carry it.
    pub(crate) fn datagrams(&self) -> Option<datagrams::Info> {
        match &self.transport {
            Transport::Connected(stream) => stream.datagrams(),
            _ => None,
        }
    }

    pub(crate) fn connect(&mut self, now: Instant) {
        self.closing = false;
        if let (Some(options), Some(Trust { identity, pin })) = (self.route.quic, self.route.trust.clone()) {
            let dialer = quic::Dialer::new(self.route.addresses.clone(), identity, pin, options, now);
            self.transport = Transport::Greeting(Box::new(dialer));
            return;
        }
        if let Some(datagrams) = self.route.datagrams.clone() {
            let (trust, addresses) = (self.route.trust.clone(), self.route.addresses.clone());
            let dialer = datagrams::Dialer::new(datagrams, addresses, trust, now);
            self.transport = Transport::Asking(Box::new(dialer));
            return;
        }
        if self.route.shm.is_some() {
            self.transport = Transport::Meeting;
            return;
        }
        if !self.route.others.is_empty() {
            self.transport = Transport::Joining(Box::new(JoinedPaths::dialling(&self.route, now)));
            return;
        }
        let dialer = Dialer::along(&self.route, &self.route.addresses, now);
        self.transport = Transport::Dialling(dialer);
    }

    pub(crate) const fn close(&mut self) {
        self.closing = true;
    }

    pub(crate) fn send(&mut self, bytes: Buffer) {
        if let Transport::Connected(stream) = &mut self.transport {
            stream.send(bytes);
        }
    }

    pub(crate) fn dial(&mut self, now: Instant, sources: &Sources) -> Option<Dial> {
        let dialer = match &mut self.transport {
            Transport::Idle => return None,
            Transport::Connected(stream) => {
                stream.turn(now, sources);
                return stream.news().map(|(path, is_away)| Dial::Path { path, is_away });
            }
            Transport::Greeting(_) => return self.greet(now, sources),
            Transport::Asking(_) => return self.ask(now, sources),
            Transport::Meeting => return self.meet(sources),
            Transport::Joining(joined) => {
                joined.turn(now, sources);
                return self.joined();
            }
            Transport::Dialling(dialer) => dialer,
        };
        match dialer.poll(now) {
            Dialled::Waiting => None,
            Dialled::Began(descriptor) => self.watch(descriptor, sources),
            Dialled::Failed(address, error) => Some(self.fail(address, error)),
            Dialled::Connected(connection) => {
                self.transport = Transport::Connected(Stream::Tcp(connection));
                Some(Dial::Connected)
            }
        }
    }

    fn greet(&mut self, now: Instant, sources: &Sources) -> Option<Dial> {
        let Transport::Greeting(dialer) = &mut self.transport else { return None };
        match dialer.poll(now) {
            quic::Dialled::Waiting => None,
            quic::Dialled::Began(descriptor) => self.watch(descriptor, sources),
            quic::Dialled::Failed(address, error) => Some(self.fail(address, error)),
            quic::Dialled::Connected(stream) => {
                self.transport = Transport::Connected(Stream::Quic(Box::new(stream)));
                Some(Dial::Connected)
            }
        }
    }

    fn ask(&mut self, now: Instant, sources: &Sources) -> Option<Dial> {
        let Transport::Asking(dialer) = &mut self.transport else { return None };
        match dialer.poll(now) {
            datagrams::Dialled::Waiting => None,
            datagrams::Dialled::Began(descriptor) => self.watch(descriptor, sources),
            datagrams::Dialled::Failed(address, error) => Some(self.fail(address, error)),
            datagrams::Dialled::Connected(stream) => {
                self.transport = Transport::Connected(Stream::Datagrams(Box::new(stream)));
                Some(Dial::Connected)
            }
        }
    }

    /// Meets a far end of this machine, which takes no time.
    fn meet(&mut self, sources: &Sources) -> Option<Dial> {
        let path = self.route.shm.as_ref()?;
        let met = shm::Connection::connect(path).and_then(|connection| {
            let stream = Stream::Shared(Box::new(connection));
            stream.register(sources).map(|()| stream)
        });
        Some(match met {
            Ok(stream) => {
                self.transport = Transport::Connected(stream);
                Dial::Connected
            }
            Err(error) => {
                let error = io::Error::new(error.kind(), format!("shm:{}: {error}", path.display()));
                self.fail(THIS_MACHINE, error)
            }
        })
    }

    /// Registers the descriptor of an attempt, so that its events end sleeps. An attempt that
    /// cannot be registered has failed.
    fn watch(&mut self, descriptor: RawFd, sources: &Sources) -> Option<Dial> {
        let error = sources.add(descriptor, Attention::EachTurn).err()?;
        let address = *self.route.addresses.first()?;
        Some(self.fail(address, error))
    }

    /// Gives up the attempt and moves `address` to the end of the list, so that the next attempt
    /// begins with the next address.
    fn fail(&mut self, address: SocketAddr, error: io::Error) -> Dial {
        self.transport = Transport::Idle;
        if !self.route.addresses.is_empty() {
            self.route.addresses.rotate_left(1);
        }
        Dial::Failed(address, error)
    }

    /// Whether one of the joined paths is connected by now.
    fn joined(&mut self) -> Option<Dial> {
        let Transport::Joining(joined) = &mut self.transport else { return None };
        let dialled = joined.dialled()?;
        let joining = core::mem::replace(&mut self.transport, Transport::Idle);
        if let Err((address, error)) = dialled {
            return Some(self.fail(address, error));
        }
        if let Transport::Joining(joined) = joining {
            self.transport = Transport::Connected(Stream::Paths(joined));
        }
        Some(Dial::Connected)
    }

    /// The received bytes, or `Err` when the link has ended.
    pub(crate) fn receive(&mut self, pool: &mut Pool, sources: &Sources) -> Option<Result<Buffer, ()>> {
        let Transport::Connected(stream) = &mut self.transport else { return None };
        let mut received = stream.receive(pool);
        if self.closing {
            // The peer's bytes are no longer wanted, but its acknowledgement of ours may be behind
            // them. The limit keeps a peer that goes on sending from delaying the close.
            for _ in 0..LAST_PIECES {
                let Ok(Received::Data(_)) = received else { break };
                received = stream.receive(pool);
            }
        }
        match received {
            Ok(Received::Nothing) => None,
            Ok(Received::Data(_)) if self.closing => None,
            Ok(Received::Data(bytes)) => Some(Ok(bytes)),
            Ok(Received::Closed) | Err(_) => {
                stream.unregister(sources);
                self.transport = Transport::Idle;
                if core::mem::take(&mut self.closing) { None } else { Some(Err(())) }
            }
        }
    }

    /// Serves the connection while its bytes are left unread.
    pub(crate) fn keep_up(&mut self, pool: &mut Pool) {
        if let Transport::Connected(stream) = &mut self.transport {
            stream.keep_up(pool);
        }
    }

    /// Sends waiting bytes, and completes a requested close. Returns whether anything was done.
    pub(crate) fn flush(&mut self, sources: &Sources) -> bool {
        let Transport::Connected(stream) = &mut self.transport else { return false };
        let sent = stream.flush();
        let busy = sent.as_ref().is_ok_and(|sent| *sent > 0);
        if self.closing && (sent.is_err() || stream.unsent() == 0) {
            if !stream.close() {
                return busy;
            }
            stream.unregister(sources);
            self.transport = Transport::Idle;
            self.closing = false;
            return true;
        }
        busy
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        match &self.transport {
            Transport::Idle => None,
            Transport::Meeting => Some(Instant::ZERO),
            Transport::Dialling(dialer) => dialer.poll_timeout(),
            Transport::Greeting(dialer) => dialer.poll_timeout(),
            Transport::Asking(dialer) => dialer.poll_timeout(),
            Transport::Joining(joined) => joined.poll_timeout(),
            Transport::Connected(stream) => stream.poll_timeout(),
        }
    }
}
