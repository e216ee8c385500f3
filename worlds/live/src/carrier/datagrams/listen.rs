//! A far end's socket or interface, where connections by datagrams arrive.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::rc::Rc;

use engine::{Instant, Nanos};

use super::ethernet::Ethernet;
use super::options::Options;
use super::plain::Plain;
use super::port::{Port, Shared};
use super::stream::Stream;
use super::wire::Wire;
use crate::carrier::tls::{Acceptor, Tls};
use crate::reactor::{Attention, Sources};

/// The most looks at the socket in one call.
const LOOKS_MAX: usize = 64;
/// The pause between two tries to listen at an interface that was deleted.
const AGAIN_EVERY: Nanos = Nanos::from_secs(1);

/// Where connections by datagrams arrive. As long as the listener is called, it finishes the work
/// that its streams had left when they were dropped.
#[derive(Debug)]
pub struct Listener {
    port: Shared,
    descriptor: RawFd,
    address: SocketAddr,
    name: String,
    /// The acceptor for connections with TLS, if there are any.
    acceptor: Option<Acceptor>,
    /// How to listen anew where an interface was deleted, if interfaces are the way.
    again: Option<Again>,
}

/// How to listen anew at interfaces that were deleted and come back.
#[derive(Clone, Debug)]
struct Again {
    place: Ethernet,
    options: Options,
    /// The time of the next attempt, and the last logged reason why it is not possible.
    at: Instant,
    logged: String,
}

impl Listener {
    /// Listens on a UDP port. With port 0 the system chooses one; see [`Listener::name`].
    ///
    /// # Errors
    /// When the address is not ours or is taken.
    pub fn bind(address: SocketAddr, options: &Options, now: Instant) -> io::Result<Self> {
        Self::over(Wire::udp(address, false, options)?, None, now)
    }

    /// Listens at an interface, or at several.
    ///
    /// # Errors
    /// When there is no such interface, this process may not send bare frames, or another far end
    /// of this network has the port there.
    pub fn at(place: Ethernet, options: &Options, now: Instant) -> io::Result<Self> {
        let wire = Wire::at(place.clone(), options)?;
        let again = Again { place, options: *options, at: Instant::ZERO, logged: String::new() };
        Self::over(wire, Some(again), now)
    }

    fn over(mut wire: Wire, again: Option<Again>, now: Instant) -> io::Result<Self> {
        wire.claim(None)?;
        wire.open_lane(None);
        let (descriptor, address, name) = (wire.as_raw_fd(), wire.address()?, wire.name()?);
        let port = Rc::new(RefCell::new(Port::new(wire, true, now)));
        Ok(Self { port, descriptor, address, name, acceptor: None, again })
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

    /// The carrier of the datagrams, in words: UDP, AF_PACKET, or AF_XDP with or without copies.
    pub fn carried_by(&self) -> String {
        self.port.borrow().wire().carried_by()
    }

    /// Listens anew where interfaces were deleted, once they are back and up. Streams over the
    /// former ones have failed.
    pub(crate) fn turn(&mut self, now: Instant, sources: &Sources) {
        let Some(again) = &mut self.again else { return };
        if let Some(why) = self.port.borrow().lost()
            && again.logged.is_empty()
        {
            tracing::warn!("{why}; no host reaches this far end there until the interface is back");
            (again.at, again.logged) = (now + AGAIN_EVERY, why.to_owned());
        }
        if again.logged.is_empty() || now < again.at {
            return;
        }
        again.at = now + AGAIN_EVERY;
        match again.listen(now, sources) {
            Ok(None) => {}
            Ok(Some(anew)) => {
                let (names, name) = (again.place.names(), &anew.name);
                tracing::info!("{names}: the interface is back, and hosts reach this far end at eth:{name}");
                *self = Self { acceptor: self.acceptor.take(), ..anew };
            }
            Err(error) => {
                let why = error.to_string();
                if why != again.logged {
                    tracing::warn!("{why}; trying again every second");
                    again.logged = why;
                }
            }
        }
    }

    /// The next connection, if there is one.
    ///
    /// # Errors
    /// When the socket fails.
    pub(crate) fn accept(&self) -> io::Result<Option<Stream>> {
        let mut port = self.port.borrow_mut();
        let mut looks = 0;
        while !port.endpoint.has_arrivals() {
            match port.pump() {
                Ok(true) => {}
                Ok(false) => break,
                // Interfaces that were deleted are waited for.
                Err(_) if port.lost().is_some() => break,
                Err(error) => return Err(error),
            }
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

    /// The next connection that one of `listeners` has. Where one fails, the others are looked at
    /// all the same: the kernel reports arrivals at them only once.
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

    /// The time of the next call to [`Listener::accept`] and [`Listener::turn`] if nothing comes
    /// before.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let port = self.port.borrow();
        match &self.again {
            Some(again) if port.lost().is_some() => Some(again.at),
            _ => port.poll_timeout(),
        }
    }
}

impl Again {
    /// Listens at the interfaces if they are there and up: an interface has its address before it
    /// is up.
    fn listen(&self, now: Instant, sources: &Sources) -> io::Result<Option<Listener>> {
        let wire = Wire::at(self.place.clone(), &self.options)?;
        if wire.is_down() {
            return Ok(None);
        }
        let again = Self { logged: String::new(), ..self.clone() };
        let listener = Listener::over(wire, Some(again), now)?;
        sources.add(listener.as_raw_fd(), Attention::OnNews)?;
        Ok(Some(listener))
    }
}

impl AsRawFd for Listener {
    fn as_raw_fd(&self) -> RawFd {
        self.descriptor
    }
}
