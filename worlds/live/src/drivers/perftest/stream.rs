//! The TCP connection of an end of iWARP.

use engine::{Engine, Instant};
use rdma::SharedPool;

use crate::drivers::fabrics::{Received, Socket};

/// How often the socket is read before the received bytes are looked at.
const RECEIVES_MAX: usize = 16;

/// A socket, and whether nothing passes any more.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) socket: Socket,
    /// The end knows that the stream is over.
    is_closed: bool,
    /// The end has nothing more to send than the contents of the outbox.
    is_ending: bool,
}

impl Stream {
    pub(super) const fn new(socket: Socket) -> Self {
        Self { socket, is_closed: false, is_ending: false }
    }

    /// Gives `end` received bytes. Returns whether there were any.
    pub(super) fn receive(&mut self, end: &mut iwarp::Connection, pool: &SharedPool, now: Instant) -> bool {
        let mut busy = false;
        for _ in 0..RECEIVES_MAX {
            if self.is_closed {
                break;
            }
            let received = self.socket.receive(&mut pool.borrow_mut(), end.landing());
            match received {
                Ok(Received::Data { landed, bytes, is_all }) => {
                    if landed > 0 {
                        end.landed(landed);
                    }
                    if !bytes.is_empty() {
                        end.handle_input(now, iwarp::Input::Received(bytes));
                    }
                    busy = true;
                    if is_all {
                        break;
                    }
                }
                Ok(Received::Nothing) => break,
                Ok(Received::Closed) | Err(_) => self.close(end, now),
            }
        }
        busy
    }

    /// Sends the bytes of `end`. Returns whether anything was sent.
    pub(super) fn send(&mut self, end: &mut iwarp::Connection, now: Instant) -> bool {
        let mut busy = false;
        while !self.is_closed && !end.outbox().is_empty() {
            match self.socket.send(end.outbox()) {
                Ok(0) => break,
                Ok(count) => {
                    end.sent(count);
                    busy = true;
                }
                Err(_) => self.close(end, now),
            }
        }
        while let Some(iwarp::Output::Close) = end.poll_output() {
            self.is_ending = true;
        }
        busy
    }

    /// Whether the connection is over, and everything was sent.
    pub(super) fn is_over(&self, end: &iwarp::Connection) -> bool {
        self.is_closed || self.is_ending && end.outbox().is_empty()
    }

    fn close(&mut self, end: &mut iwarp::Connection, now: Instant) {
        self.is_closed = true;
        end.handle_input(now, iwarp::Input::Closed);
    }
}
