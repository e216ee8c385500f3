//! The device's node: a box with a whimsical SSD.

use assemblies::far::Far;
use engine::{Instant, Rng};
use nvme_pcie::function;
use sim::Context;
use sim::stream::{ConnectionId, StreamEvent};
use tunnel::session::Config as SessionConfig;

use super::device::Whimsical;
use super::memory::Shared;
use crate::campaign::Outcome;
use crate::far_box::FarBox;
use crate::session::instance;

/// The device's node: a box with the whimsical SSD, whose store of memory sent ahead is checked.
#[derive(Debug)]
pub(super) struct FarNode {
    session: SessionConfig,
    function: function::Config,
    memory: Shared,
    judges: bool,
    /// The largest number of bytes that the box may keep of memory sent ahead.
    window: usize,
    far: FarBox<Whimsical>,
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
        let far = FarBox::new(build(Instant::ZERO, &session, &function, (&memory, judges), &rng));
        let window = usize::try_from(window).expect("a few MiB");
        Self { session, function, memory, judges, window, far, failures: Vec::new() }
    }

    pub(super) fn handle(&mut self, now: Instant, connection: ConnectionId, event: StreamEvent) {
        self.far.handle(now, connection, event);
    }

    pub(super) fn media(&mut self, now: Instant, completion: nvme::media::Completion) {
        self.far.media(now, completion);
    }

    pub(super) fn settle<P>(&mut self, context: &mut Context<'_, P>) -> Option<Instant> {
        let next = self.far.settle(context);
        let kept = self.far.far().downstream().store().bytes();
        if kept > self.window && self.failures.is_empty() {
            self.failures.push(format!("{kept} B are kept, where {} may be", self.window));
        }
        next
    }

    pub(super) fn restart(&mut self, now: Instant, rng: &Rng) {
        self.failures.extend_from_slice(self.far.far().function().failures());
        self.session.identity.instance = instance(&mut rng.fork("instance"));
        self.far.restart(build(now, &self.session, &self.function, (&self.memory, self.judges), rng));
    }

    pub(super) fn report(&mut self, outcome: &mut Outcome) {
        outcome.failures.append(&mut self.failures);
        outcome.failures.extend_from_slice(self.far.far().function().failures());
        outcome.ahead.1 += self.far.far().downstream().store().tally().hits;
    }

    pub(super) fn describe(&self) -> String {
        self.far.describe()
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
