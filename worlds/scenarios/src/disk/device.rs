//! The node of a box with an SSD.

use engine::{Engine, Instant, Rng};
use machine::far::{self, Far};
use nvme_pcie::function;
use sim::Context;
use sim::stream::{ConnectionId, StreamEvent};
use tunnel::session::Config as SessionConfig;

use super::instance;
use crate::lines::Lines;

/// See the module.
#[derive(Debug)]
pub(super) struct DeviceNode {
    session: SessionConfig,
    function: function::Config,
    far: Far,
    lines: Lines,
}

impl DeviceNode {
    pub(super) fn new(session: SessionConfig, function: function::Config, rng: &Rng) -> Self {
        let far = Far::new(Instant::ZERO, session.clone(), function.clone(), rng.fork("far"));
        Self { session, function, far, lines: Lines::default() }
    }

    pub(super) fn handle(&mut self, now: Instant, connection: ConnectionId, event: StreamEvent) {
        if let Some(input) = self.lines.heed(connection, event) {
            self.far.handle_input(now, far::Input::Network(input));
        }
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
                far::Output::Transmit(name, bytes) => self.lines.push(name, bytes),
                far::Output::Close(name) => self.lines.close(name),
                far::Output::Device(far::Storage::Media(request)) => context.media(request),
                far::Output::Event(..) | far::Output::Device(far::Storage::Notify(_)) => {}
            }
        }
        self.lines.flush(context);
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
