//! A box with a device, and the connections to the box.

use std::net::IpAddr;

use assemblies::far::{self, Admitted, Device, Far, Storage};
use engine::{Engine, Instant};
use nvme::media::Completion;
use nvme::subsystem::Permit;
use sim::stream::{ConnectionId, StreamEvent};
use sim::{Context, NodeId};

use sim::accepted::AcceptedConnections;
use tunnel::session::SEGMENT_LIMIT;
use tunnel::{Fingerprint, downstream};

/// A far end with its device, and the connections to it.
#[derive(Debug)]
pub(crate) struct FarBox<F: Device<Input = Completion, Output = Storage>> {
    far: Far<F>,
    connections: AcceptedConnections,
    /// Where the only host is that proves the admitted key, if there is a list.
    host: Option<IpAddr>,
}

/// The key of the only host that a guarded far end admits.
const KEY: Fingerprint = Fingerprint([7; 32]);

impl<F: Device<Input = Completion, Output = Storage>> FarBox<F> {
    pub(crate) fn new(far: Far<F>) -> Self {
        Self { far, connections: AcceptedConnections::default(), host: None }
    }

    /// Admits the host at `near` and no other, and has `places` connections wait at most.
    pub(crate) fn guard(&mut self, near: NodeId, places: usize) {
        self.host = Some(AcceptedConnections::address(near));
        self.far.admit(Instant::ZERO, Some(vec![Admitted { key: KEY, permit: Permit::default() }]));
        self.far.set_waiting_max(places);
    }

    pub(crate) const fn far(&self) -> &Far<F> {
        &self.far
    }

    pub(crate) const fn far_mut(&mut self) -> &mut Far<F> {
        &mut self.far
    }

    pub(crate) fn handle(&mut self, now: Instant, connection: ConnectionId, event: StreamEvent) {
        if let Some(input) = self.connections.on_event(connection, event) {
            let long = match &input {
                // Every other connection takes long segments.
                downstream::Input::Accepted(name, _) if name.0 % 2 == 0 => Some(*name),
                _ => None,
            };
            let proof = match &input {
                downstream::Input::Accepted(name, address) if self.host == Some(*address) => {
                    Some(downstream::Input::Identified(*name, KEY))
                }
                _ => None,
            };
            self.far.handle_input(now, far::Input::Network(input));
            if let Some(proof) = proof {
                self.far.handle_input(now, far::Input::Network(proof));
            }
            if let Some(name) = long {
                self.far.set_segment_max(name, SEGMENT_LIMIT);
            }
        }
    }

    pub(crate) fn media(&mut self, now: Instant, completion: Completion) {
        self.far.handle_input(now, far::Input::Device(completion));
    }

    pub(crate) fn settle<P>(&mut self, context: &mut Context<'_, P>) -> Option<Instant> {
        let now = context.now();
        if self.far.poll_timeout().is_some_and(|at| at <= now) {
            self.far.handle_timeout(now);
        }
        while let Some(output) = self.far.poll_output() {
            match output {
                far::Output::Transmit(name, bytes) => self.connections.push(name, bytes),
                far::Output::Close(name) => self.connections.close(name),
                far::Output::Device(Storage::Media(request)) => context.media(request),
                far::Output::Event(..) | far::Output::Device(Storage::Notify(_)) => {}
            }
        }
        self.connections.flush(context);
        self.far.poll_timeout()
    }

    /// Replaces the box by `far`, a new process that knows nothing of the old one.
    pub(crate) fn restart(&mut self, far: Far<F>) {
        self.far = far;
        self.connections.clear();
    }

    pub(crate) fn describe(&self) -> String {
        format!("{:?}, {} connections", self.far.downstream().session(), self.connections.count())
    }
}
