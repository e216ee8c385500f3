//! The node of a box with an SSD.

use std::collections::BTreeMap;

use engine::{Engine, Instant, Rng};
use machine::far::{self, Far};
use nvme_pcie::function;
use sim::Context;
use sim::stream::{ConnectionId, StreamEvent};
use tunnel::downstream;
use tunnel::session::Config as SessionConfig;

use super::instance;
use crate::outbox::Outbox;

/// An accepted connection.
#[derive(Debug)]
struct Line {
    connection: ConnectionId,
    outbox: Outbox,
    /// The box has ended it; it is closed when all is sent.
    ended: bool,
}

/// See the module.
#[derive(Debug)]
pub(super) struct DeviceNode {
    session: SessionConfig,
    function: function::Config,
    far: Far,
    lines: BTreeMap<u32, Line>,
    accepted: u32,
}

impl DeviceNode {
    pub(super) fn new(session: SessionConfig, function: function::Config, rng: &Rng) -> Self {
        let far = Far::new(Instant::ZERO, session.clone(), function.clone(), rng.fork("far"));
        Self { session, function, far, lines: BTreeMap::new(), accepted: 0 }
    }

    pub(super) fn handle(&mut self, now: Instant, connection: ConnectionId, event: StreamEvent) {
        if let StreamEvent::Accepted { .. } = event {
            self.accepted += 1;
            let line = Line { connection, outbox: Outbox::default(), ended: false };
            self.lines.insert(self.accepted, line);
            let name = downstream::ConnectionId(self.accepted);
            return self.network(now, downstream::Input::Accepted(name));
        }
        let Some((&number, line)) = self.lines.iter().find(|(_, line)| line.connection == connection) else {
            return;
        };
        let (name, ended) = (downstream::ConnectionId(number), line.ended);
        match event {
            StreamEvent::Data(bytes) if !ended => {
                self.network(now, downstream::Input::Received(name, bytes));
            }
            StreamEvent::Closed(_) => {
                self.lines.remove(&number);
                if !ended {
                    self.network(now, downstream::Input::Disconnected(name));
                }
            }
            _ => {}
        }
    }

    fn network(&mut self, now: Instant, input: downstream::Input) {
        self.far.handle_input(now, far::Input::Network(input));
    }

    pub(super) fn media(&mut self, now: Instant, completion: nvme::media::Completion) {
        self.far.handle_input(now, far::Input::Device(completion));
    }

    pub(super) fn settle<P>(&mut self, context: &mut Context<'_, P>) -> Option<Instant> {
        let now = context.now();
        if self.far.poll_timeout().is_some_and(|at| at <= now) {
            self.far.handle_timeout(now);
        }
        while let Some(output) = self.far.poll_output() {
            match output {
                far::Output::Transmit(name, bytes) => {
                    if let Some(line) = self.lines.get_mut(&name.0) {
                        line.outbox.push(bytes);
                    }
                }
                far::Output::Close(name) => {
                    if let Some(line) = self.lines.get_mut(&name.0) {
                        line.ended = true;
                        line.outbox.close();
                    }
                }
                far::Output::Device(far::Storage::Media(request)) => context.media(request),
                far::Output::Event(..) | far::Output::Device(far::Storage::Notify(_)) => {}
            }
        }
        self.lines.retain(|_, line| !line.outbox.flush(context, line.connection));
        self.far.poll_timeout()
    }

    pub(super) fn restart(&mut self, now: Instant, rng: &Rng) {
        self.session.identity.instance = instance(&mut rng.fork("instance"));
        self.far = Far::new(now, self.session.clone(), self.function.clone(), rng.fork("far"));
        self.lines.clear();
    }

    pub(super) fn describe(&self) -> String {
        format!("{:?}, {} connections", self.far.downstream().session(), self.lines.len())
    }
}
