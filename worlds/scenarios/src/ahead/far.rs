//! The device's node.

use engine::{Engine, Instant, Rng};
use machine::far::{self, Far};
use nvme_pcie::function;
use sim::Context;
use sim::stream::{ConnectionId, StreamEvent};
use tunnel::session::Config as SessionConfig;

use super::device::Whimsical;
use super::memory::Shared;
use crate::campaign::Outcome;
use crate::disk::instance;
use crate::lines::Lines;

/// See the module.
#[derive(Debug)]
pub(super) struct FarNode {
    session: SessionConfig,
    function: function::Config,
    memory: Shared,
    judges: bool,
    /// What it keeps at most, bytes.
    window: usize,
    far: Far<Whimsical>,
    lines: Lines,
    failures: Vec<String>,
}

impl FarNode {
    pub(super) fn new(
        session: SessionConfig,
        function: function::Config,
        memory: Shared,
        judges: bool,
        window: u32,
        rng: Rng,
    ) -> Self {
        let far = build(Instant::ZERO, &session, &function, (&memory, judges), &rng);
        let window = usize::try_from(window).expect("a few MiB");
        Self { session, function, memory, judges, window, far, lines: Lines::default(), failures: Vec::new() }
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
        let kept = self.far.downstream().store().bytes();
        if kept > self.window && self.failures.is_empty() {
            self.failures.push(format!("{kept} B are kept, where {} may be", self.window));
        }
        self.far.poll_timeout()
    }

    pub(super) fn restart(&mut self, now: Instant, rng: &Rng) {
        self.failures.extend_from_slice(self.far.function().failures());
        self.session.identity.instance = instance(&mut rng.fork("instance"));
        self.far = build(now, &self.session, &self.function, (&self.memory, self.judges), rng);
        self.lines.clear();
    }

    pub(super) fn report(&mut self, outcome: &mut Outcome) {
        outcome.failures.append(&mut self.failures);
        outcome.failures.extend_from_slice(self.far.function().failures());
        outcome.ahead.1 += self.far.downstream().store().tally().hits;
    }

    pub(super) fn describe(&self) -> String {
        format!("{:?}, {} connections", self.far.downstream().session(), self.lines.len())
    }
}

fn build(
    now: Instant,
    session: &SessionConfig,
    function: &function::Config,
    (memory, judges): (&Shared, bool),
    rng: &Rng,
) -> Far<Whimsical> {
    let device = Whimsical::new(now, function.clone(), memory.clone(), judges, rng.fork("device"));
    Far::around(now, session.clone(), device, rng.fork("far"))
}
