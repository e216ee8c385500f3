//! The node of a box with an SSD.

use assemblies::far::Far;
use engine::{Instant, Rng};
use nvme_pcie::function::{self, Function};
use sim::stream::{ConnectionId, StreamEvent};
use sim::{Context, NodeId};
use tunnel::session::Config as SessionConfig;

use crate::far_box::FarBox;
use crate::session::instance;
use crate::succession::Succession;

/// The node of a box with an SSD; a restart gives it a new instance.
#[derive(Debug)]
pub(super) struct DeviceNode {
    session: SessionConfig,
    function: function::Config,
    far: FarBox<Function>,
    succession: Succession,
}

impl DeviceNode {
    pub(super) fn new(session: SessionConfig, function: function::Config, rng: &Rng) -> Self {
        let far = FarBox::new(Far::new(Instant::ZERO, session.clone(), function.clone(), rng.fork("far")));
        Self { session, function, far, succession: Succession::default() }
    }

    /// Says whether successors take over from the far end.
    pub(super) fn succeed(&mut self, succession: Succession) {
        self.succession = succession;
    }

    /// Admits the host at `near` and no other, and has `places` connections wait at most.
    pub(super) fn guard(&mut self, near: NodeId, places: usize) {
        self.far.guard(near, places);
    }

    pub(super) fn handle(&mut self, now: Instant, connection: ConnectionId, event: StreamEvent) {
        self.far.handle(now, connection, event);
    }

    pub(super) fn media(&mut self, now: Instant, completion: nvme::media::Completion) {
        self.far.media(now, self.succession.received(completion));
    }

    pub(super) fn settle<P>(&mut self, context: &mut Context<'_, P>) -> Option<Instant> {
        self.succession.turn(self.far.far_mut());
        self.far.settle(context)
    }

    pub(super) fn restart(&mut self, now: Instant, rng: &Rng) {
        self.session.identity.instance = instance(&mut rng.fork("instance"));
        self.far.restart(Far::new(now, self.session.clone(), self.function.clone(), rng.fork("far")));
    }

    pub(super) fn describe(&self) -> String {
        self.far.describe()
    }
}
