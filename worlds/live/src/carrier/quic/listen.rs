//! A far end's socket, where QUIC connections arrive.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::rc::Rc;

use engine::Instant;

use super::config::{self, Options};
use super::endpoint::{Endpoint, Shared};
use super::stream::Stream;
use crate::carrier::identity::{Fingerprint, Identity};

/// The most looks at the socket in one call.
const LOOKS_MAX: usize = 64;

/// A socket where QUIC connections arrive. As long as the listener is called, it finishes the work
/// that its streams had left when they were dropped.
#[derive(Debug)]
pub struct Listener {
    endpoint: Shared,
    address: SocketAddr,
    descriptor: RawFd,
    fingerprint: Fingerprint,
}

impl Listener {
    /// Listens on `address` as `identity`. With port 0 the system chooses a port;
    /// see [`Listener::address`].
    ///
    /// # Errors
    /// When the address is not ours or is taken, or the library does not take the key.
    pub fn bind(
        address: SocketAddr,
        identity: &Identity,
        options: Options,
        now: Instant,
    ) -> io::Result<Self> {
        let config = config::server(identity, options)?;
        let endpoint = Endpoint::server(address, config, options.precedence, now)?;
        let (address, descriptor) = (endpoint.address()?, endpoint.as_raw_fd());
        let endpoint = Rc::new(RefCell::new(endpoint));
        Ok(Self { endpoint, address, descriptor, fingerprint: identity.fingerprint() })
    }

    /// The address where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The fingerprint of its key, by which near ends recognize it.
    pub const fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// The next connection whose peer has opened its stream, if there is one.
    ///
    /// # Errors
    /// When the socket fails.
    pub fn accept(&self) -> io::Result<Option<Stream>> {
        let mut endpoint = self.endpoint.borrow_mut();
        let mut looks = 0;
        while !endpoint.has_arrivals() && endpoint.pump()? {
            looks += 1;
            if looks == LOOKS_MAX {
                endpoint.look_again();
                break;
            }
        }
        let slot = endpoint.accept();
        drop(endpoint);
        Ok(slot.map(|slot| Stream::new(Rc::clone(&self.endpoint), slot, None)))
    }

    /// Whether [`Listener::accept`] has a connection already, without a look at the socket.
    pub fn has_arrivals(&self) -> bool {
        self.endpoint.borrow().has_arrivals()
    }

    /// The time of the next call to [`Listener::accept`] if nothing comes before.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.endpoint.borrow().poll_timeout()
    }
}

impl AsRawFd for Listener {
    fn as_raw_fd(&self) -> RawFd {
        self.descriptor
    }
}
