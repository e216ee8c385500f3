//! The connection to the far end.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;

use engine::{Buffer, Instant, Pool};

use crate::reactor::{Attention, Sources};
use crate::tcp::{Connection, Dialer, Dialled, Received};

enum Transport {
    /// The engine has not asked for a connection.
    Idle,
    Dialling(Dialer),
    Connected(Connection),
}

/// What became of dialling.
pub(super) enum Dial {
    Connected,
    Failed(SocketAddr, io::Error),
}

/// See the module.
pub(super) struct Far {
    addresses: Vec<SocketAddr>,
    transport: Transport,
    /// To be closed when everything is sent.
    closing: bool,
}

impl Far {
    pub(super) const fn new(addresses: Vec<SocketAddr>) -> Self {
        Self { addresses, transport: Transport::Idle, closing: false }
    }

    pub(super) const fn is_connected(&self) -> bool {
        matches!(self.transport, Transport::Connected(_))
    }

    pub(super) fn connect(&mut self, now: Instant) {
        self.transport = Transport::Dialling(Dialer::new(self.addresses.clone(), now));
        self.closing = false;
    }

    pub(super) const fn close(&mut self) {
        self.closing = true;
    }

    pub(super) fn send(&mut self, bytes: Buffer) {
        if let Transport::Connected(connection) = &mut self.transport
            && connection.send(bytes).is_err()
        {
            // It takes nothing any more; its end is seen with the next receive.
            connection.abort();
        }
    }

    pub(super) fn dial(&mut self, now: Instant, sources: &Sources) -> io::Result<Option<Dial>> {
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
    pub(super) fn receive(&mut self, pool: &mut Pool, sources: &Sources) -> Option<Result<Buffer, ()>> {
        loop {
            let Transport::Connected(connection) = &mut self.transport else { return None };
            match connection.receive(pool) {
                Ok(Received::Nothing) => return None,
                Ok(Received::Data(_)) if self.closing => {}
                Ok(Received::Data(bytes)) => return Some(Ok(bytes)),
                Ok(Received::Closed) | Err(_) => {
                    sources.remove(connection.as_raw_fd());
                    self.transport = Transport::Idle;
                    return if core::mem::take(&mut self.closing) { None } else { Some(Err(())) };
                }
            }
        }
    }

    /// Sends what waits; ends what is to end.
    pub(super) fn flush(&mut self, sources: &Sources) -> bool {
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

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        match &self.transport {
            Transport::Dialling(dialer) => dialer.poll_timeout(),
            _ => None,
        }
    }
}
