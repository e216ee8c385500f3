//! A link to a far end, as a tunnel session wants it: dialled when asked for, closed when everything is sent.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;

use engine::{Buffer, Instant, Pool};

use super::{Connection, Dialer, Dialled, Received};
use crate::reactor::{Attention, Sources};
use crate::route::Route;

enum Transport {
    /// The engine has not asked for a connection.
    Idle,
    Dialling(Dialer),
    Connected(Connection),
}

/// What became of dialling.
pub(crate) enum Dial {
    Connected,
    Failed(SocketAddr, io::Error),
}

/// See the module.
pub(crate) struct Link {
    route: Route,
    transport: Transport,
    /// To be closed when everything is sent.
    closing: bool,
}

impl Link {
    pub(crate) const fn new(route: Route) -> Self {
        Self { route, transport: Transport::Idle, closing: false }
    }

    pub(crate) const fn is_connected(&self) -> bool {
        matches!(self.transport, Transport::Connected(_))
    }

    pub(crate) fn connect(&mut self, now: Instant) {
        let dialer = Dialer::new(self.route.addresses.clone(), now);
        self.transport = Transport::Dialling(dialer.with(self.route.tcp.clone()));
        self.closing = false;
    }

    pub(crate) const fn close(&mut self) {
        self.closing = true;
    }

    pub(crate) fn send(&mut self, bytes: Buffer) {
        if let Transport::Connected(connection) = &mut self.transport
            && connection.send(bytes).is_err()
        {
            // It takes nothing any more; its end is seen with the next receive.
            connection.abort();
        }
    }

    pub(crate) fn dial(&mut self, now: Instant, sources: &Sources) -> io::Result<Option<Dial>> {
        let Transport::Dialling(dialer) = &mut self.transport else { return Ok(None) };
        Ok(match dialer.poll(now) {
            Dialled::Waiting => None,
            Dialled::Began(descriptor) => {
                sources.add(descriptor, Attention::EachTurn)?;
                None
            }
            Dialled::Failed(address, error) => {
                self.transport = Transport::Idle;
                Some(Dial::Failed(address, error))
            }
            Dialled::Connected(connection) => {
                self.transport = Transport::Connected(connection);
                Some(Dial::Connected)
            }
        })
    }

    /// What has come: bytes, or nothing but the end.
    pub(crate) fn receive(&mut self, pool: &mut Pool, sources: &Sources) -> Option<Result<Buffer, ()>> {
        let Transport::Connected(connection) = &mut self.transport else { return None };
        match connection.receive(pool) {
            Ok(Received::Nothing) => None,
            // A peer that goes on sending does not keep us from closing.
            Ok(Received::Data(_)) if self.closing => None,
            Ok(Received::Data(bytes)) => Some(Ok(bytes)),
            Ok(Received::Closed) | Err(_) => {
                sources.remove(connection.as_raw_fd());
                self.transport = Transport::Idle;
                if core::mem::take(&mut self.closing) { None } else { Some(Err(())) }
            }
        }
    }

    /// Sends what waits; ends what is to end.
    pub(crate) fn flush(&mut self, sources: &Sources) -> bool {
        let Transport::Connected(connection) = &mut self.transport else { return false };
        let sent = connection.flush();
        let busy = sent.as_ref().is_ok_and(|sent| *sent > 0);
        if self.closing && (sent.is_err() || connection.unsent() == 0) {
            sources.remove(connection.as_raw_fd());
            connection.close();
            self.transport = Transport::Idle;
            self.closing = false;
            return true;
        }
        busy
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        match &self.transport {
            Transport::Dialling(dialer) => dialer.poll_timeout(),
            _ => None,
        }
    }
}
