//! A connection's stream as its datagrams carry it.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::RawFd;

use datagrams::{Ended, Id};
use engine::{Buffer, Instant};

use super::info::Info;
use super::port::Shared;
use crate::carrier::outbox::OUTBOX_BYTES_MAX;
use crate::carrier::{OutboxFull, Received};

/// This many waiting bytes are sent without waiting for a flush.
const FLUSH_BYTES: u64 = 32 << 10;
/// The most looks at the socket in one receive, so that a flood of useless datagrams can't keep
/// the loop.
const LOOKS_MAX: usize = 16;

/// The stream of one connection, in the clear. Dropping it ends the connection.
pub(super) struct Plain {
    port: Shared,
    id: Id,
    peer: SocketAddr,
    /// The near end's own socket; `None` at a far end.
    descriptor: Option<RawFd>,
}

impl Plain {
    pub(super) const fn new(port: Shared, id: Id, peer: SocketAddr, descriptor: Option<RawFd>) -> Self {
        Self { port, id, peer, descriptor }
    }

    /// Bytes that were never sent.
    pub(super) fn waiting(&self) -> u64 {
        self.port.borrow_mut().connection(self.id).unsent()
    }

    /// Calls for another look, since more has come than was taken.
    pub(super) fn look_again(&self) {
        self.port.borrow_mut().look_again();
    }

    /// The address of the other end.
    pub(super) const fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Counts of its datagrams.
    pub(super) fn info(&self) -> Info {
        self.port.borrow_mut().info(self.id, self.peer)
    }

    /// The descriptor that ends a sleep. `None` at a far end, where all connections share the
    /// listener's descriptor.
    pub(super) const fn descriptor(&self) -> Option<RawFd> {
        self.descriptor
    }

    /// The time of the next look at the stream if nothing comes before.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.port.borrow().poll_timeout()
    }

    /// The number of bytes that the other end has not acknowledged.
    pub(super) fn unsent(&self) -> usize {
        let mut port = self.port.borrow_mut();
        let connection = port.connection(self.id);
        match connection.ended() {
            Some(_) => 0,
            None => usize::try_from(connection.unacknowledged()).unwrap_or(usize::MAX),
        }
    }

    /// Appends `data` to the bytes that wait to be sent. They are sent by [`Plain::flush`], or at
    /// once when many wait.
    ///
    /// # Errors
    /// When too much waits; the connection must then be given up.
    pub(super) fn send(&self, data: Buffer) -> Result<(), OutboxFull> {
        let mut port = self.port.borrow_mut();
        let connection = port.connection(self.id);
        if connection.unacknowledged() + data.len() as u64 > OUTBOX_BYTES_MAX as u64 {
            return Err(OutboxFull);
        }
        connection.send(data);
        let is_much = connection.unsent() >= FLUSH_BYTES;
        port.touch();
        if is_much {
            port.transmit();
        }
        Ok(())
    }

    /// Sends as much as the other end and the network take, with acknowledgements and everything
    /// else that is due. Returns how many bytes of the stream were sent for the first time.
    ///
    /// # Errors
    /// When the connection has failed.
    pub(super) fn flush(&self) -> io::Result<usize> {
        let mut port = self.port.borrow_mut();
        port.fail_if_lost()?;
        let before = port.connection(self.id).unsent();
        port.transmit();
        let connection = port.connection(self.id);
        match connection.ended() {
            None | Some(Ended::Here | Ended::There) => {
                Ok(usize::try_from(before - connection.unsent()).unwrap_or(usize::MAX))
            }
            Some(ended) => Err(failure(ended)),
        }
    }

    /// Takes arrived bytes, without waiting.
    ///
    /// # Errors
    /// When the connection has failed.
    pub(super) fn receive(&self) -> io::Result<Received> {
        let mut port = self.port.borrow_mut();
        for _ in 0..LOOKS_MAX {
            let connection = port.connection(self.id);
            if let Some(bytes) = connection.receive() {
                port.touch();
                return Ok(Received::Data(bytes));
            }
            match connection.ended() {
                None => {}
                Some(Ended::Here | Ended::There) => return Ok(Received::Closed),
                Some(ended) => return Err(failure(ended)),
            }
            if !port.pump()? {
                return Ok(Received::Nothing);
            }
        }
        port.look_again();
        Ok(Received::Nothing)
    }

    /// Does the work that can't wait until the next receive: sends acknowledgements and lost
    /// datagrams.
    pub(super) fn keep_up(&self) {
        // A failure shows with the next receive.
        let _ = self.port.borrow_mut().pump();
    }

    /// Ends the connection, and informs the other end. Bytes without an acknowledgement may be
    /// lost.
    pub(super) fn close(&self) {
        let mut port = self.port.borrow_mut();
        port.connection(self.id).end();
        port.touch();
        port.transmit();
    }
}

/// Why a connection has failed, as an error of the world.
pub(super) fn failure(ended: Ended) -> io::Error {
    let kind = match ended {
        Ended::Refused => io::ErrorKind::ConnectionRefused,
        Ended::Silence => io::ErrorKind::TimedOut,
        Ended::Nonsense => io::ErrorKind::InvalidData,
        Ended::Here | Ended::There | Ended::Forgotten => io::ErrorKind::ConnectionReset,
    };
    io::Error::new(kind, ended)
}

impl Drop for Plain {
    fn drop(&mut self) {
        self.close();
        self.port.borrow_mut().remove(self.id);
    }
}

impl fmt::Debug for Plain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Plain({}, {} B unsent)", self.peer, self.unsent())
    }
}
