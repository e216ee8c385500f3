//! A session's connection over several links at once: `tunnel::paths` in the virtual world.

use std::collections::VecDeque;

use engine::{Buffer, Engine, Instant, Nanos, Rng};
use sim::stream::{ConnectionId, Lane, StreamEvent};
use sim::{Context, NodeId};
use tunnel::paths::{self, GroupId, Opening, Output, PREAMBLE_LENGTH, PathIndex, Paths, Token, opening};
use tunnel::session::Input;

use sim::stream::Outbox;

/// Number of links between the two ends.
pub(crate) const LANES: u8 = 2;
/// How long after its loss a path is dialled again.
const REDIAL: Nanos = Nanos::from_millis(5);

#[derive(Debug, Default)]
struct PathState {
    dialled: Option<ConnectionId>,
    connection: Option<ConnectionId>,
    outbox: Outbox,
    redial_at: Option<Instant>,
}

/// One end of a session's connection over several links, with the paths' connections.
#[derive(Debug)]
pub(crate) struct JoinedPaths {
    /// The node to dial; `None` at the end that waits.
    peer: Option<NodeId>,
    rng: Rng,
    paths: Option<Paths>,
    states: Vec<PathState>,
    /// Accepted connections whose first bytes do not yet identify their path.
    opening: Vec<(ConnectionId, Vec<u8>)>,
    /// Inputs for the session.
    inputs: VecDeque<Input>,
    is_connected: bool,
}

impl JoinedPaths {
    pub(crate) fn new(peer: Option<NodeId>, rng: Rng) -> Self {
        let states = (0..LANES).map(|_| PathState::default()).collect();
        let (opening, inputs) = (Vec::new(), VecDeque::new());
        Self { peer, rng, paths: None, states, opening, inputs, is_connected: false }
    }

    pub(crate) fn poll_input(&mut self) -> Option<Input> {
        self.inputs.pop_front()
    }

    pub(crate) fn connect(&mut self, context: &mut Context<'_, Vec<u8>>) {
        self.leave(context);
        let mut group = GroupId([0; 16]);
        self.rng.fill(&mut group.0);
        self.paths = Some(Paths::dialling(group));
        for lane in 0..LANES {
            self.dial(context, lane);
        }
    }

    fn dial(&mut self, context: &mut Context<'_, Vec<u8>>, lane: u8) {
        let peer = self.peer.expect("only the upstream end dials");
        let state = &mut self.states[usize::from(lane)];
        (state.dialled, state.redial_at) = (Some(context.dial_lane(peer, Lane(lane))), None);
    }

    pub(crate) fn send(&mut self, now: Instant, bytes: Buffer) {
        if let Some(paths) = &mut self.paths {
            paths.send(now, bytes);
        }
    }

    /// Closes all paths after sending the bytes that they take at once; the rest is lost.
    pub(crate) fn close(&mut self, context: &mut Context<'_, Vec<u8>>) {
        if let Some(paths) = &mut self.paths {
            paths.conclude(context.now());
        }
        self.exchange(context);
        self.leave(context);
    }

    fn leave(&mut self, context: &mut Context<'_, Vec<u8>>) {
        for state in &mut self.states {
            for connection in state.connection.take().into_iter().chain(state.dialled.take()) {
                context.close(connection);
            }
            *state = PathState::default();
        }
        (self.paths, self.is_connected) = (None, false);
        self.inputs.clear();
    }

    pub(crate) fn handle(
        &mut self,
        context: &mut Context<'_, Vec<u8>>,
        id: ConnectionId,
        event: StreamEvent,
    ) {
        let now = context.now();
        match event {
            StreamEvent::Accepted { .. } => self.opening.push((id, Vec::new())),
            StreamEvent::Opened => {
                if let Some(index) = self.states.iter().position(|state| state.dialled == Some(id)) {
                    self.states[index].dialled = None;
                    self.join(context, index, id);
                }
            }
            StreamEvent::Data(bytes) => {
                if let Some(index) = self.states.iter().position(|state| state.connection == Some(id)) {
                    self.input(now, paths::Input::Received(path_index(index), bytes));
                } else if let Some(index) = self.opening.iter().position(|(other, _)| *other == id) {
                    self.open(context, index, &bytes);
                }
            }
            StreamEvent::Closed(_) => {
                self.opening.retain(|(other, _)| *other != id);
                let is_its = |state: &PathState| state.connection == Some(id) || state.dialled == Some(id);
                if let Some(index) = self.states.iter().position(is_its) {
                    self.lose(now, index);
                    self.input(now, paths::Input::Lost(path_index(index)));
                }
            }
            StreamEvent::Writable => {}
        }
        self.exchange(context);
    }

    /// Handles the first bytes on an accepted connection.
    fn open(&mut self, context: &mut Context<'_, Vec<u8>>, index: usize, bytes: &Buffer) {
        let (id, collected) = &mut self.opening[index];
        let (id, had) = (*id, collected.len());
        collected.extend_from_slice(&bytes[..bytes.len().min(PREAMBLE_LENGTH - had)]);
        let preamble = match opening(collected) {
            Opening::More => return,
            Opening::Session => panic!("a path begins with {collected:?}"),
            Opening::Path(preamble) => preamble,
        };
        self.opening.remove(index);
        if !self.paths.as_ref().is_some_and(|paths| paths.is_ours(&preamble)) {
            if preamble.token.is_some() {
                return context.close(id);
            }
            // A new stream takes the place of the old one.
            let was_connected = self.is_connected;
            self.leave(context);
            if was_connected {
                self.inputs.push_back(Input::Disconnected);
            }
            self.paths = Some(Paths::accepting(preamble.group, Token(self.rng.next_u64().max(1))));
        }
        let rest = bytes.slice(PREAMBLE_LENGTH - had..bytes.len());
        self.join(context, usize::from(preamble.path.0), id);
        self.input(context.now(), paths::Input::Received(preamble.path, rest));
    }

    fn join(&mut self, context: &mut Context<'_, Vec<u8>>, index: usize, id: ConnectionId) {
        let state = PathState { connection: Some(id), ..PathState::default() };
        let before = std::mem::replace(&mut self.states[index], state);
        if let Some(before) = before.connection {
            context.close(before);
        }
        if !std::mem::replace(&mut self.is_connected, true) {
            self.inputs.push_back(Input::Connected);
        }
        self.input(context.now(), paths::Input::Joined(path_index(index)));
    }

    fn lose(&mut self, now: Instant, index: usize) {
        let redial_at = self.peer.map(|_| now + REDIAL);
        self.states[index] = PathState { redial_at, ..PathState::default() };
        // While no path has ever been connected, the session dials again when all attempts
        // have failed.
        let is_hopeless =
            self.states.iter().all(|state| state.dialled.is_none() && state.connection.is_none());
        if !self.is_connected && is_hopeless && self.paths.take().is_some() {
            self.inputs.push_back(Input::Disconnected);
        }
    }

    fn input(&mut self, now: Instant, input: paths::Input) {
        if let Some(paths) = &mut self.paths {
            paths.handle_input(now, input);
        }
    }

    fn exchange(&mut self, context: &mut Context<'_, Vec<u8>>) {
        let now = context.now();
        loop {
            while let Some(output) = self.paths.as_mut().and_then(Engine::poll_output) {
                match output {
                    Output::Transmit(path, bytes) => self.states[usize::from(path.0)].outbox.push(bytes),
                    Output::Deliver(bytes) => self.inputs.push_back(Input::Received(bytes)),
                    Output::Drop(path, _) => {
                        if let Some(connection) = self.states[usize::from(path.0)].connection {
                            context.close(connection);
                        }
                        self.lose(now, usize::from(path.0));
                    }
                    Output::End(_) => {
                        let inputs = std::mem::take(&mut self.inputs);
                        self.leave(context);
                        self.inputs = inputs;
                        self.inputs.push_back(Input::Disconnected);
                    }
                }
            }
            let mut again = false;
            for index in 0..self.states.len() {
                let (state, path) = (&mut self.states[index], path_index(index));
                let Some(connection) = state.connection else { continue };
                state.outbox.flush(context, connection);
                if state.outbox.is_empty() && self.paths.as_ref().is_some_and(|paths| paths.is_filled(path)) {
                    self.input(now, paths::Input::Drained(path));
                    again = true;
                }
            }
            if !again {
                return;
            }
        }
    }

    /// Does due work, and returns the next deadline.
    pub(crate) fn settle(&mut self, context: &mut Context<'_, Vec<u8>>) -> Option<Instant> {
        let now = context.now();
        if let Some(paths) = &mut self.paths
            && paths.poll_timeout().is_some_and(|at| at <= now)
        {
            paths.handle_timeout(now);
        }
        for lane in 0..LANES {
            let is_due = self.states[usize::from(lane)].redial_at.is_some_and(|at| at <= now);
            if is_due && self.paths.is_some() {
                self.dial(context, lane);
            }
        }
        self.exchange(context);
        let paths = self.paths.as_ref()?;
        let redials = self.states.iter().filter_map(|state| state.redial_at);
        redials.chain(paths.poll_timeout()).min()
    }
}

fn path_index(index: usize) -> PathIndex {
    PathIndex(u8::try_from(index).expect("few links"))
}
