//! A modelled network, asked in this machine's time: whatever happens in it happens at its own time, however late this
//! thread is, and what comes out is told with the time at which it should have.

use std::collections::VecDeque;

use engine::{Engine, Instant, Nanos, drain};
use link::network::{ConnectionId, Network, Side};

/// The network, and when its time began.
#[derive(Debug)]
pub(super) struct Model<E: Engine> {
    network: E,
    origin: Instant,
    /// The network's time when something last happened in it.
    latest: Instant,
    /// What has come out of it, and when it should have, in this machine's time.
    outputs: VecDeque<(Instant, E::Output)>,
}

impl Model<Network> {
    /// Dials from `side`, at `at`.
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

    /// Gives the network what came at `at`.
    pub(super) fn input(&mut self, at: Instant, input: E::Input<'_>) {
        let at = self.advance(at);
        self.network.handle_input(at, input);
        self.collect(at);
    }

    /// Lets happen what is due by `now`; what came of it is then there for [`Model::poll_output`].
    pub(super) fn settle(&mut self, now: Instant) {
        self.advance(now);
    }

    /// What has come out of the network, and when it should have.
    pub(super) fn poll_output(&mut self) -> Option<(Instant, E::Output)> {
        self.outputs.pop_front()
    }

    /// When something is due next.
    pub(super) fn due(&self) -> Option<Instant> {
        self.network.poll_timeout().map(|at| self.real(at))
    }

    /// Lets happen what is due by `at`, one thing after the other. The network's time of `at`, which may have passed already:
    /// nothing happens before what has happened.
    fn advance(&mut self, at: Instant) -> Instant {
        let until = Instant::ZERO + (at - self.origin);
        while let Some(due) = self.network.poll_timeout().filter(|due| *due <= until) {
            self.latest = self.latest.max(due);
            self.network.handle_timeout(self.latest);
            self.collect(due);
        }
        self.latest.max(until)
    }

    /// Takes what came of something that happened at `at`.
    fn collect(&mut self, at: Instant) {
        self.latest = self.latest.max(at);
        let at = self.real(at);
        drain(&mut self.network, |output| self.outputs.push_back((at, output)));
    }

    fn real(&self, at: Instant) -> Instant {
        self.origin + Nanos::new(at.as_nanos())
    }
}
