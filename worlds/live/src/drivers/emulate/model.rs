//! A modelled network in this machine's time. Every event in it happens at its own time, however
//! late this thread is, and each output has the time at which it should have come out.

use std::collections::VecDeque;

use engine::{Engine, Instant, Nanos};
use network_models::network::{ConnectionId, Network, Side};

use crate::reactor::{Pump, Shell};

/// The network, and when its time began.
#[derive(Debug)]
pub(super) struct Model<E: Engine> {
    network: Pump<E>,
    origin: Instant,
    /// The network's time of the latest event in it.
    latest: Instant,
    outputs: Outputs<E::Output>,
}

/// The outputs of a network, each with the time at which it should have come out, in this machine's
/// time.
#[derive(Debug)]
struct Outputs<O> {
    /// That time for the outputs of the event that happens now.
    at: Instant,
    waiting: VecDeque<(Instant, O)>,
}

impl<E: Engine> Shell<E> for Outputs<E::Output> {
    fn pass(&mut self, _: Instant, output: E::Output, _: &mut E) {
        self.waiting.push_back((self.at, output));
    }
}

impl Model<Network> {
    /// Opens a connection from `side` at the time `at`.
    pub(super) fn open(&mut self, at: Instant, side: Side) -> Option<ConnectionId> {
        let at = self.advance(at);
        let id = self.network.engine_mut().open(at, side);
        self.settle(at);
        id
    }

    pub(super) fn room(&mut self, connection: ConnectionId, side: Side, wanted: usize) -> usize {
        self.network.engine_to_poll().room(connection, side, wanted)
    }
}

impl<E: Engine> Model<E> {
    pub(super) fn new(network: E, origin: Instant) -> Self {
        let outputs = Outputs { at: origin, waiting: VecDeque::new() };
        let mut model = Self { network: Pump::new(network), origin, latest: Instant::ZERO, outputs };
        model.settle(Instant::ZERO);
        model
    }

    pub(super) const fn network(&self) -> &E {
        self.network.engine()
    }

    /// Gives the network an input that came at `at`.
    pub(super) fn input(&mut self, at: Instant, input: E::Input<'_>) {
        let at = self.advance(at);
        self.network.engine_mut().handle_input(at, input);
        self.settle(at);
    }

    /// Lets the events due by `now` happen; [`Model::next_output`] then has their outputs.
    pub(super) fn run_until(&mut self, now: Instant) {
        self.advance(now);
    }

    /// The next output of the network, and when it should have come out.
    pub(super) fn next_output(&mut self) -> Option<(Instant, E::Output)> {
        self.outputs.waiting.pop_front()
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
            self.settle(due);
        }
        self.latest.max(until)
    }

    /// Settles the network at the time of its event that happens at `at`.
    fn settle(&mut self, at: Instant) {
        self.latest = self.latest.max(at);
        self.outputs.at = self.real(at);
        self.network.settle(self.latest, &mut self.outputs);
    }

    fn real(&self, at: Instant) -> Instant {
        self.origin + Nanos::new(at.as_nanos())
    }
}
