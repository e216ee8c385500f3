//! A far end's socket or interface, where connections by datagrams arrive.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::rc::Rc;

use engine::Instant;

use super::ethernet::Ethernet;
use super::options::Options;
use super::plain::Plain;
use super::port::{Port, Shared};
use super::stream::Stream;
use super::wire::Wire;
use crate::carrier::tls::{Acceptor, Tls};

/// The most looks at the socket in one call.
const LOOKS_MAX: usize = 64;

/// Where connections by datagrams arrive. As long as the listener is called, it finishes the work
/// that its streams had left when they were dropped.
#[derive(Debug)]
pub struct Listener {
    port: Shared,
    descriptor: RawFd,
    address: SocketAddr,
    name: String,
    /// What is needed for connections with TLS, if there are any.
    acceptor: Option<Acceptor>,
}

impl Listener {
    /// Listens on a UDP port. With port 0 the system chooses one; see [`Listener::name`].
    ///
    /// # Errors
    /// When the address is not ours or is taken.
    pub fn bind(address: SocketAddr, options: &Options, now: Instant) -> io::Result<Self> {
        Self::over(Wire::udp(address, false, options)?, now)
    }

    /// Listens at an interface, or at several.
    ///
    /// # Errors
    /// When there is no such interface, this process may not send bare frames, or another far end
    /// of this network has the port there.
    pub fn at(place: Ethernet, options: &Options, now: Instant) -> io::Result<Self> {
        Self::over(Wire::at(place, options)?, now)
    }

    fn over(mut wire: Wire, now: Instant) -> io::Result<Self> {
        wire.claim(None)?;
        wire.open_lane(None);
        let (descriptor, address, name) = (wire.as_raw_fd(), wire.address()?, wire.name()?);
        let port = Rc::new(RefCell::new(Port::new(wire, true, now)));
        Ok(Self { port, descriptor, address, name, acceptor: None })
    }

    /// Has all connections accepted from now on speak TLS as `acceptor` says, if they begin with
    /// it. A connection that begins otherwise goes on without TLS, and its peer proves no key.
    #[must_use]
    pub fn with_tls(mut self, acceptor: Acceptor) -> Self {
        self.acceptor = Some(acceptor);
        self
    }

    /// The address where it listens; at an interface, the station's own of IPv6.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where it listens: `HOST:PORT`, or `IFACE[+IFACE][,vlan=N][,pcp=N][,port=N]/MAC`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What carries the datagrams, in words: UDP, AF_PACKET, or AF_XDP with or without copies.
    pub fn carried_by(&self) -> String {
        self.port.borrow().wire().carried_by()
    }

    /// The next connection, if there is one.
    ///
    /// # Errors
    /// When the socket fails.
    pub(crate) fn accept(&self) -> io::Result<Option<Stream>> {
        let mut port = self.port.borrow_mut();
        let mut looks = 0;
        while !port.endpoint.has_arrivals() && port.pump()? {
            looks += 1;
            if looks == LOOKS_MAX {
                port.look_again();
                break;
            }
        }
        port.transmit();
        let accepted = port.endpoint.accept();
        drop(port);
        let Some((id, peer)) = accepted else { return Ok(None) };
        let stream = Stream::new(Plain::new(Rc::clone(&self.port), id, peer, None));
        Ok(Some(match &self.acceptor {
            Some(acceptor) => stream.with_tls(Tls::server(acceptor)?),
            None => stream,
        }))
    }

    /// The next connection that one of `listeners` has. Where one fails, the others are still looked
    /// at: the kernel tells only once that something has come to them.
    ///
    /// # Errors
    /// When the socket of one fails, and no other one has a connection.
    pub(crate) fn accept_any(listeners: &[Self]) -> io::Result<Option<Stream>> {
        let mut failed = None;
        for listener in listeners {
            match listener.accept() {
                Ok(None) => {}
                Ok(Some(stream)) => return Ok(Some(stream)),
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(None), Err)
    }

    /// Whether [`Listener::accept`] has a connection already, without a look at the socket.
    pub(crate) fn has_arrivals(&self) -> bool {
        self.port.borrow().endpoint.has_arrivals()
    }

    /// When [`Listener::accept`] wants to be called even though nothing has come.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.port.borrow().poll_timeout()
    }
}

impl AsRawFd for Listener {
    fn as_raw_fd(&self) -> RawFd {
        self.descriptor
    }
}
