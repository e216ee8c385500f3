//! The node of a network: what its model does, between the two ends of the switch.

use std::collections::VecDeque;

use engine::{Buffer, Engine, Instant};
use link::network::{ConnectionId, Input, Network, Output, Side};
use link::trail::{self, Part, Trail};
use sim::Context;
use sim::direct::PortId;

use super::Cargo;
use super::chain::Place;
use super::journal::{Cause, Journal, Step};

/// What passes between an end of the switch and its network.
#[derive(Clone, Debug)]
pub(super) enum Line {
    /// To the network: dial the other end.
    Dial,
    /// From it: the dial has succeeded.
    Opened,
    /// From it: the other end has dialled, and was taken.
    Accepted,
    /// Either way: bytes.
    Data(Buffer),
    /// Either way: the connection is over.
    Closed,
}

/// See the module. Port 0 is the near side's, port 1 the far side's.
#[derive(Debug)]
pub(super) struct NetworkNode {
    network: Network,
    connection: Option<ConnectionId>,
    /// What each side has sent and its stack has no room for yet.
    waiting: [VecDeque<Buffer>; 2],
    /// A side is told nothing more.
    gone: [bool; 2],
    journal: Journal,
}

impl NetworkNode {
    pub(super) fn new(network: Network, journal: Journal) -> Self {
        Self { network, connection: None, waiting: Default::default(), gone: [true; 2], journal }
    }

    pub(super) const fn network(&self) -> &Network {
        &self.network
    }

    pub(super) fn receive(&mut self, now: Instant, port: PortId, line: Line) {
        self.network.watch(self.journal.is_on());
        let side = if port == PortId(0) { Side::Near } else { Side::Far };
        match line {
            Line::Dial => {
                self.waiting = Default::default();
                self.connection = self.network.open(now, side);
                self.gone = [false; 2];
            }
            Line::Data(bytes) => {
                self.waiting[side.index()].push_back(bytes);
                self.flush(now, side);
            }
            Line::Closed => {
                if let Some(connection) = self.connection {
                    self.gone[side.index()] = true;
                    self.network.handle_input(now, Input::Reset { connection, side });
                }
            }
            Line::Opened | Line::Accepted => unreachable!("an end of the switch does not say {line:?}"),
        }
    }

    /// Gives the stack of `side` what it has room for.
    fn flush(&mut self, now: Instant, side: Side) {
        let Some(connection) = self.connection else { return };
        while let Some(first) = self.waiting[side.index()].pop_front() {
            let room = self.network.room(connection, side, first.len());
            let part = first.len().min(room);
            if part > 0 {
                let data = first.slice(0..part);
                self.network.handle_input(now, Input::Send { connection, side, data });
            }
            if part < first.len() {
                self.waiting[side.index()].push_front(first.slice(part..first.len()));
                return;
            }
        }
    }

    pub(super) fn settle(&mut self, context: &mut Context<'_, Cargo>) -> Option<Instant> {
        let now = context.now();
        if self.network.poll_timeout().is_some_and(|at| at <= now) {
            self.network.handle_timeout(now);
        }
        while let Some(output) = self.network.poll_output() {
            self.on_output(context, output);
        }
        self.network.poll_timeout()
    }

    fn on_output(&mut self, context: &mut Context<'_, Cargo>, output: Output) {
        let now = context.now();
        match output {
            Output::Incoming { connection, side } => {
                self.network.handle_input(now, Input::Accept(connection));
                self.tell(context, side, Line::Accepted, None);
            }
            Output::Opened { connection, side } if self.connection == Some(connection) => {
                // Who was dialled has been told already.
                if side == Side::Near {
                    self.tell(context, side, Line::Opened, None);
                }
            }
            Output::Data { connection, side, data } => {
                let cause = self.network.trail().and_then(|trail| self.note(&trail, side.other()));
                let bytes = data.len();
                self.network.handle_input(now, Input::Consume { connection, side, bytes });
                self.tell(context, side, Line::Data(data), cause);
            }
            Output::Writable { side, .. } => self.flush(now, side),
            Output::Finished { side, .. } | Output::Closed { side, .. } => {
                if !std::mem::replace(&mut self.gone[side.index()], true) {
                    let port = PortId(u32::try_from(side.index()).expect("0 or 1"));
                    context.send_packet(port, Cargo::Line(Line::Closed, None));
                }
            }
            Output::Opened { .. } => {}
        }
    }

    fn tell(&self, context: &mut Context<'_, Cargo>, side: Side, line: Line, cause: Cause) {
        if !self.gone[side.index()] {
            let port = PortId(u32::try_from(side.index()).expect("0 or 1"));
            context.send_packet(port, Cargo::Line(line, cause));
        }
    }

    /// The marks of a frame's way from `side`; the last is its arrival.
    fn note(&self, trail: &Trail, side: Side) -> Cause {
        let mark = |after, at, place, part, what| self.journal.mark(after, at, Step { place, part, what });
        let tunnel = "window, line, what is before it";
        let mut cause = mark(None, trail.made, Place::Tunnel(side), Part::Waiting, tunnel);
        cause = mark(cause, trail.sent, Place::Stack(side), Part::Processing, "sending");
        for (hop, part, at) in trail::steps(trail, self.network.path(side).hops()) {
            cause = mark(cause, at, Place::Hop(side, hop), part, "");
        }
        mark(cause, trail.arrived, Place::Stack(side.other()), Part::Processing, "receiving")
    }
}
