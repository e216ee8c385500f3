//! RDMA over UDP datagrams (RoCEv2): a device and its socket.
//!
//! The socket takes no right. Its datagrams have the identification 0 in their IPv4 headers, which
//! the CRC of RoCEv2 covers: so Linux does when a socket is not connected and never fragments. The
//! socket does not return a peer's identification; the device then checks half of the CRC's
//! strength (`pure/roce/README.md`).

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use engine::{BufferMut, Engine, Instant, Nanos};
use rdma::{SharedDomain, SharedPool};

use crate::reactor::{Context, Driver, Pump, Sources, Turn};
use crate::sys::digest::crc32;
use crate::sys::entropy::system;
use crate::sys::marked::{self, Marked};
use crate::sys::precedence::Precedence;

use line::Line;
pub(crate) use route::Route;

pub use roce::{Config, Counters, Device, PORT, PathMtu, RoceEndpoint, SharedDevice};

/// Receiving calls before the answers are sent.
const RECEIVES_MAX: usize = 4;
/// Bytes of a packet beside its payload, at most.
const OVERHEAD: usize = 64;
/// How long to wait before a socket that has failed is opened again.
const OPEN_AGAIN: Nanos = Nanos::from_secs(1);

/// A change of a device's socket.
#[derive(Debug)]
pub enum Change {
    /// It has failed: every connection of the device is over.
    Failed(io::Error),
    /// It works again.
    Restored,
}

/// The device as this driver's engine. Users of its connections change it between two turns.
#[derive(Debug)]
struct Driven {
    device: SharedDevice,
    /// A datagram has come, or a deadline was due, since the last query.
    has_news: bool,
}

impl Engine for Driven {
    type Input<'a> = roce::Input;
    type Output = roce::Output;

    fn handle_input(&mut self, now: Instant, input: roce::Input) {
        self.has_news = true;
        self.device.borrow_mut().handle_input(now, input);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.has_news = true;
        self.device.borrow_mut().handle_timeout(now);
    }

    fn poll_output(&mut self) -> Option<roce::Output> {
        self.device.borrow_mut().poll_output()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.device.borrow().poll_timeout()
    }
}

/// A device with its socket. Users of its connections work between two turns.
#[derive(Debug)]
pub struct Roce {
    device: Pump<Driven>,
    line: Line,
    address: SocketAddr,
    precedence: Precedence,
    pool: SharedPool,
    /// The longest datagram that is taken.
    length_max: usize,
    /// Room for the next datagrams, and the datagrams that the last call received.
    places: Vec<BufferMut>,
    arrived: Vec<Marked>,
    /// How many datagrams the next call asks for: after a call that found none, one. Asking for
    /// many takes longer, and most calls of a polling loop find none.
    wanted: usize,
    change: Option<Change>,
    is_over: bool,
}

impl Roce {
    /// A device at `config.address`, which is an address of this machine in `zone` (0 for an
    /// address that needs none), whose datagrams are carried with `precedence`. Port,
    /// identification and CRC function of the settings are the socket's.
    ///
    /// # Errors
    /// When the address is unspecified: the CRC covers it, so a device has one. When the system
    /// refuses the address or the port: no other program may have UDP port [`PORT`] there,
    /// `rdma_rxe` included.
    pub fn open(
        config: Config,
        zone: u32,
        precedence: Precedence,
        domain: SharedDomain,
        pool: SharedPool,
    ) -> io::Result<Self> {
        let config = Config { port: PORT, identification: 0, crc32, ..config };
        let mut address = SocketAddr::new(config.address, PORT);
        if let SocketAddr::V6(address) = &mut address {
            address.set_scope_id(zone);
        }
        if config.address.is_unspecified() {
            let why = format!("RoCE is at one address of this machine: name it instead of {}", address.ip());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let socket = socket::open(address, precedence)?;
        let length_max = config.mtu.bytes() + OVERHEAD;
        let device = Rc::new(RefCell::new(Device::new(config, domain, Rc::clone(&pool), system())));
        Ok(Self {
            device: Pump::new(Driven { device, has_news: false }),
            line: Line::new(socket),
            address,
            precedence,
            pool,
            length_max,
            places: Vec::with_capacity(marked::BATCH_MAX),
            arrived: Vec::with_capacity(marked::BATCH_MAX),
            wanted: 1,
            change: None,
            is_over: false,
        })
    }

    /// The device, for users that make connections.
    pub const fn device(&self) -> &SharedDevice {
        &self.device.engine().device
    }

    /// Adds the socket to the sources that end a loop's sleep, unless it is added already. A socket
    /// that was opened again is to be added again.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn register(&mut self, sources: &Sources) -> io::Result<()> {
        self.line.register(sources)
    }

    /// Whether there is nothing to register.
    pub(crate) const fn is_registered(&self) -> bool {
        self.line.is_registered()
    }

    /// The address of the device, with the port of RoCE.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether there may be news of connections since the last call.
    pub const fn take_news(&mut self) -> bool {
        core::mem::replace(&mut self.device.engine_to_poll().has_news, false)
    }

    /// The last change of the socket, returned once.
    pub const fn take_change(&mut self) -> Option<Change> {
        self.change.take()
    }

    /// Why the socket does not work now, if it does not.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.line.failure()
    }

    /// Receives, fires due deadlines, and sends. Returns whether there was anything to do.
    pub fn work(&mut self, now: Instant) -> bool {
        let received = self.receive(now);
        self.flush(now) || received
    }

    /// Fires due deadlines, and sends. Returns whether there was anything to do. A caller that has
    /// let users of connections work calls this after them.
    pub fn flush(&mut self, now: Instant) -> bool {
        self.open_again(now);
        // Users of connections may have changed the device.
        self.device.engine_mut();
        let busy = self.device.settle(now, &mut self.line);
        match self.line.take_error() {
            None => busy,
            Some(error) => {
                self.fail(now, error);
                true
            }
        }
    }

    /// Takes the datagrams that have come. Returns whether there were any.
    pub fn receive(&mut self, now: Instant) -> bool {
        let mut busy = false;
        for _ in 0..RECEIVES_MAX {
            let Some(socket) = self.line.socket() else { break };
            let mut pool = self.pool.borrow_mut();
            self.places.resize_with(marked::BATCH_MAX, || pool.take(self.length_max));
            drop(pool);
            let wanted = self.wanted;
            match marked::receive(socket, &mut self.places[..wanted], &mut self.arrived) {
                Ok(()) => self.wanted = marked::BATCH_MAX,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.wanted = 1;
                    break;
                }
                Err(error) if socket::is_loss(&error) => continue,
                Err(error) => {
                    self.fail(now, error);
                    return true;
                }
            }
            busy = true;
            for (mut place, arrived) in self.places.drain(..self.arrived.len()).zip(&self.arrived) {
                place.truncate(arrived.length);
                let bytes = self.pool.borrow_mut().seal(place);
                let Marked { from, is_marked, .. } = *arrived;
                let received =
                    roce::Received { from, to: self.address, identification: None, is_marked, bytes };
                self.device.engine_mut().handle_input(now, roce::Input::Datagram(received));
            }
            if wanted == 1 || self.arrived.len() < wanted {
                break;
            }
        }
        busy
    }

    /// The socket has failed: connections are over, and it is opened again later.
    fn fail(&mut self, now: Instant, error: io::Error) {
        self.line.close(now + OPEN_AGAIN, &error);
        let driven = self.device.engine_mut();
        driven.has_news = true;
        driven.device.borrow_mut().cut();
        self.device.settle(now, &mut self.line);
        self.change = Some(Change::Failed(error));
    }

    /// Opens a socket that has failed, when it is time.
    fn open_again(&mut self, now: Instant) {
        if self.line.again().is_none_or(|again| again > now) {
            return;
        }
        match socket::open(self.address, self.precedence) {
            Ok(socket) => {
                self.change = Some(Change::Restored);
                self.line = Line::new(socket);
            }
            Err(error) => self.line.close(now + OPEN_AGAIN, &error),
        }
    }
}

impl Driver for Roce {
    fn start(&mut self, sources: &Sources) -> io::Result<()> {
        self.register(sources)
    }

    fn turn(&mut self, context: &Context<'_>) -> io::Result<Turn> {
        self.register(context.sources())?;
        let busy = self.work(context.now);
        Ok(match (self.is_over, busy) {
            (_, true) => Turn::Busy,
            (true, false) => Turn::Done,
            (false, false) => Turn::Idle,
        })
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Instant::earlier(self.device.poll_timeout(), self.line.again())
    }

    fn on_stop(&mut self, _now: Instant) {
        self.is_over = true;
    }
}

mod line;
mod route;
mod socket;
#[cfg(test)]
mod tests;
