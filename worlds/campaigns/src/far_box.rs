//! A box with a device, and the connections to the box.

use assemblies::far::{self, Device, Far, Storage};
use engine::{Engine, Instant};
use nvme::media::Completion;
use sim::Context;
use sim::stream::{ConnectionId, StreamEvent};

use sim::accepted::AcceptedConnections;
use tunnel::downstream;
use tunnel::session::SEGMENT_LIMIT;

/// A far end with its device, and the connections to it.
#[derive(Debug)]
pub(crate) struct FarBox<F: Device<Input = Completion, Output = Storage>> {
    far: Far<F>,
    connections: AcceptedConnections,
}

impl<F: Device<Input = Completion, Output = Storage>> FarBox<F> {
    pub(crate) fn new(far: Far<F>) -> Self {
        Self { far, connections: AcceptedConnections::default() }
    }

    pub(crate) const fn far(&self) -> &Far<F> {
        &self.far
    }

    pub(crate) fn handle(&mut self, now: Instant, connection: ConnectionId, event: StreamEvent) {
        if let Some(input) = self.connections.on_event(connection, event) {
            let long = match &input {
                // Every other connection takes long segments.
                downstream::Input::Accepted(name, _) if name.0 % 2 == 0 => Some(*name),
                _ => None,
            };
            self.far.handle_input(now, far::Input::Network(input));
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
