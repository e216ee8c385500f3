//! The surroundings of a device: its socket, and the datagrams that wait for it.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsRawFd;

use engine::{Engine, Instant};
use socket2::Socket;

use super::{Driven, socket};
use crate::reactor::{Attention, Shell, Sources};
use crate::sys::marked::BATCH_MAX;

#[derive(Debug)]
enum State {
    Open {
        socket: Socket,
        is_registered: bool,
    },
    /// The socket has failed, and is opened again at this time.
    Closed {
        again: Instant,
        why: String,
    },
}

/// The way of datagrams to the network.
#[derive(Debug)]
pub(super) struct Line {
    state: State,
    /// Datagrams that the kernel has not taken yet.
    waiting: VecDeque<roce::Datagram>,
    /// The kernel took no datagram at the last attempt.
    is_full: bool,
    /// The error with which the socket has just failed.
    error: Option<io::Error>,
}

impl Line {
    pub(super) fn new(socket: Socket) -> Self {
        let state = State::Open { socket, is_registered: false };
        Self { state, waiting: VecDeque::with_capacity(BATCH_MAX), is_full: false, error: None }
    }

    /// The socket, while it works.
    pub(super) const fn socket(&self) -> Option<&Socket> {
        match &self.state {
            State::Open { socket, .. } => Some(socket),
            State::Closed { .. } => None,
        }
    }

    /// Adds the socket to `sources`, unless it is added already.
    pub(super) fn register(&mut self, sources: &Sources) -> io::Result<()> {
        if let State::Open { socket, is_registered: is_registered @ false } = &mut self.state {
            sources.add(socket.as_raw_fd(), Attention::EachTurn)?;
            *is_registered = true;
        }
        Ok(())
    }

    /// Whether there is nothing to register.
    pub(super) const fn is_registered(&self) -> bool {
        !matches!(self.state, State::Open { is_registered: false, .. })
    }

    /// Why the socket does not work now, if it does not.
    pub(super) fn failure(&self) -> Option<&str> {
        match &self.state {
            State::Open { .. } => None,
            State::Closed { why, .. } => Some(why),
        }
    }

    /// When a socket that has failed is opened again.
    pub(super) const fn again(&self) -> Option<Instant> {
        match &self.state {
            State::Open { .. } => None,
            State::Closed { again, .. } => Some(*again),
        }
    }

    /// The error with which the socket has failed, returned once.
    pub(super) const fn take_error(&mut self) -> Option<io::Error> {
        self.error.take()
    }

    /// Closes the socket because of `error`, until it is opened again at the time `again`.
    pub(super) fn close(&mut self, again: Instant, error: &io::Error) {
        self.state = State::Closed { again, why: error.to_string() };
        self.waiting.clear();
        (self.is_full, self.error) = (false, None);
    }
}

impl Shell<Driven> for Line {
    fn poll(&mut self, device: &mut Driven) -> Option<roce::Output> {
        // The rest stays in the device, whose rate control counts from when a packet is made.
        let has_room = !self.is_blocked() && self.waiting.len() < BATCH_MAX;
        if has_room { device.poll_output() } else { None }
    }

    fn pass(&mut self, _: Instant, output: roce::Output, _: &mut Driven) {
        let roce::Output::Datagram(datagram) = output;
        // Without a socket the datagram is lost.
        if let State::Open { .. } = self.state {
            self.waiting.push_back(datagram);
        }
    }

    fn answer(&mut self, _: Instant, _: &mut Driven) -> bool {
        let State::Open { socket, .. } = &self.state else { return false };
        if self.waiting.is_empty() || self.error.is_some() {
            return false;
        }
        match socket::send(socket, &mut self.waiting) {
            Ok(has_sent) => self.is_full = !has_sent,
            Err(error) => self.error = Some(error),
        }
        !self.is_blocked()
    }

    fn is_blocked(&self) -> bool {
        self.is_full || self.error.is_some()
    }
}
