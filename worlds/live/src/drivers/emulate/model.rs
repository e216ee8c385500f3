//! A modelled network in this machine's time. Every event in it happens at its own time, however
//! late this thread is, and each output has the time at which it should have come out.

use std::collections::VecDeque;

use engine::{Engine, Instant, Nanos, drain};
use network_models::network::{ConnectionId, Network, Side};

/// The network, and when its time began.
#[derive(Debug)]
pub(super) struct Model<E: Engine> {
    network: E,
    origin: Instant,
    /// The network's time of the latest event in it.
    latest: Instant,
    /// The outputs, each with the time at which it should have come out, in this machine's time.
    outputs: VecDeque<(Instant, E::Output)>,
}

impl Model<Network> {
    /// Opens a connection from `side` at the time `at`.
    pub(super) fn open(&mut self, at: Instant, side: Side) -> Option<ConnectionId> {
        let at = self.advance(at);
        let id = self.network.open(at, side);
        self.collect(at);
        id
    }

    pub(super) fn room(&mut self, connection: ConnectionId, side: Side, wanted: usize) -> usize {
        self.network.room(connection, side, wanted)
    }
}

impl<E: Engine> Model<E> {
    pub(super) const fn new(network: E, origin: Instant) -> Self {
        Self { network, origin, latest: Instant::ZERO, outputs: VecDeque::new() }
    }

    pub(super) const fn network(&self) -> &E {
        &self.network
    }

    /// Gives the network an input that came at `at`.
    pub(super) fn input(&mut self, at: Instant, input: E::Input<'_>) {
        let at = self.advance(at);
        self.network.handle_input(at, input);
        self.collect(at);
    }

    /// Lets the events due by `now` happen; [`Model::poll_output`] then has their outputs.
    pub(super) fn settle(&mut self, now: Instant) {
        self.advance(now);
    }

    /// The next output of the network, and when it should have come out.
    pub(super) fn poll_output(&mut self) -> Option<(Instant, E::Output)> {
        self.outputs.pop_front()
    }

    /// When something is due next.
    pub(super) fn due(&self) -> Option<Instant> {
        self.network.poll_timeout().map(|at| self.real(at))
    }

    /// Lets the events due by `at` happen one after the other. Returns `at` in the network's time,
    /// or a later time if the network is already past it: no event happens before an earlier one.
    fn advance(&mut self, at: Instant) -> Instant {
        let until = Instant::ZERO + (at - self.origin);
        while let Some(due) = self.network.poll_timeout().filter(|due| *due <= until) {
            self.latest = self.latest.max(due);
            self.network.handle_timeout(self.latest);
            self.collect(due);
        }
        self.latest.max(until)
    }

    /// Takes the outputs of an event that happened at `at`.
    fn collect(&mut self, at: Instant) {
        self.latest = self.latest.max(at);
        let at = self.real(at);
        drain(&mut self.network, |output| self.outputs.push_back((at, output)));
    }

    fn real(&self, at: Instant) -> Instant {
        self.origin + Nanos::new(at.as_nanos())
    }
}
