//! A session's connection over datagrams that get lost, doubled and late: `datagrams` in the
//! virtual world.

use std::collections::VecDeque;

use datagrams::{Endpoint, Id};
use engine::{Buffer, Entropy, Instant, Rng};
use sim::Context;
use sim::direct::PortId;
use tunnel::session::Input;

use crate::weather::Weather;

/// The longest datagram that the network passes, and the longest that is tried.
const MTU: usize = 1472;
const TRIED: usize = 9000;
/// One end of a session's connection over a lossy network.
#[derive(Debug)]
pub(crate) struct Lossy {
    /// The port towards the other end.
    port: PortId,
    is_dialling: bool,
    endpoint: Endpoint<()>,
    id: Option<Id>,
    is_connected: bool,
    weather: Weather,
    /// Inputs for the session.
    inputs: VecDeque<Input>,
    room: Vec<u8>,
}

impl Lossy {
    pub(crate) fn new(port: PortId, is_dialling: bool, rng: Rng) -> Self {
        Self {
            port,
            is_dialling,
            endpoint: Endpoint::new(Entropy::from(rng.fork("names")), TRIED, (!is_dialling).then_some(0)),
            id: None,
            is_connected: false,
            weather: Weather::new(rng, false),
            inputs: VecDeque::new(),
            room: Vec::new(),
        }
    }

    /// The port towards the other end.
    pub(crate) const fn port(&self) -> PortId {
        self.port
    }

    /// From now on little goes wrong.
    pub(crate) const fn clear_up(&mut self) {
        self.weather.clear_up();
    }

    pub(crate) fn poll_input(&mut self) -> Option<Input> {
        self.inputs.pop_front()
    }

    pub(crate) fn connect(&mut self, now: Instant) {
        self.leave();
        assert!(self.is_dialling, "only the upstream end dials");
        self.id = Some(self.endpoint.connect(now, (), 0));
    }

    pub(crate) fn send(&mut self, bytes: Buffer) {
        if let Some(connection) = self.id.and_then(|id| self.endpoint.get(id)) {
            connection.send(bytes);
        }
    }

    /// Ends the connection after sending the bytes that the network takes at once; the rest is
    /// lost.
    pub(crate) fn close(&mut self, context: &mut Context<'_, Vec<u8>>) {
        self.transmit(context);
        if let Some(connection) = self.id.and_then(|id| self.endpoint.get(id)) {
            connection.end();
        }
        self.transmit(context);
        self.leave();
    }

    fn leave(&mut self) {
        if let Some(id) = self.id.take() {
            self.endpoint.remove(id);
        }
        self.is_connected = false;
        self.inputs.clear();
    }

    pub(crate) fn handle(&mut self, now: Instant, datagram: &[u8]) {
        self.endpoint.handle_datagram(now, (), datagram);
    }

    /// Does due work, and returns the next deadline.
    pub(crate) fn settle(&mut self, context: &mut Context<'_, Vec<u8>>) -> Option<Instant> {
        let now = context.now();
        if self.endpoint.poll_timeout().is_some_and(|at| at <= now) {
            self.endpoint.handle_timeout(now);
        }
        while let Some((id, ())) = self.endpoint.accept() {
            // A new connection takes the place of the old one.
            let was_connected = self.is_connected;
            self.leave();
            if was_connected {
                self.inputs.push_back(Input::Disconnected);
            }
            self.id = Some(id);
        }
        self.look();
        self.transmit(context);
        self.endpoint.poll_timeout()
    }

    /// Passes changes of the connection to the session.
    fn look(&mut self) {
        let Some(id) = self.id else { return };
        let Some(connection) = self.endpoint.get(id) else { return };
        if connection.is_established() && !std::mem::replace(&mut self.is_connected, true) {
            self.inputs.push_back(Input::Connected);
        }
        while let Some(bytes) = connection.receive() {
            self.inputs.push_back(Input::Received(bytes));
        }
        if connection.ended().is_some() {
            self.endpoint.remove(id);
            (self.id, self.is_connected) = (None, false);
            self.inputs.push_back(Input::Disconnected);
        }
    }

    fn transmit(&mut self, context: &mut Context<'_, Vec<u8>>) {
        let now = context.now();
        let mut room = std::mem::take(&mut self.room);
        while self.endpoint.poll_transmit(now, &mut room).is_some() {
            self.pass(context, &room);
            room.clear();
        }
        self.room = room;
    }

    /// Passes a datagram through the weather.
    fn pass(&mut self, context: &mut Context<'_, Vec<u8>>, bytes: &[u8]) {
        let (now, port) = (context.now(), self.port);
        if bytes.len() <= MTU {
            self.weather.pass(now, bytes, |delay, copy| context.send_packet_at(port, copy, now + delay));
        }
    }
}
