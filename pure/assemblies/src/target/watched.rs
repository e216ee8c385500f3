//! The work of a target that only watchers need.

use engine::Watch;
use nvme::wire::SubmissionQueueEntry;

use super::{ConnectionId, Target};
use crate::fabric::first_bytes;
use crate::watch::{Connection, Direction, Ends, Port, Seen};

impl Target {
    /// The watchers of the connections' bytes and of the commands that arrive by them.
    pub const fn watch(&mut self) -> &mut Watch<Port> {
        &mut self.watch
    }

    /// Shows a piece of a connection's byte stream.
    #[cold]
    pub(super) fn show_bytes(&mut self, direction: Direction, id: ConnectionId, bytes: &[u8]) {
        let connection = Connection::Target(id);
        let peer = self.peers.get(id.0 as usize).and_then(Option::as_ref);
        let ends = peer.map(|peer| Ends {
            host: peer.address,
            controller: peer.reached,
            queue: peer.queue().map(|queue| queue.queue),
        });
        self.watch.show(self.now, || Seen::Bytes { direction, connection, ends, bytes });
    }

    /// Shows the first `count` bytes of a connection's outbox, which were sent.
    #[cold]
    pub(super) fn show_sent(&mut self, id: ConnectionId, count: usize) {
        let Some(outbox) = self.outbox(id) else { return };
        let bytes = first_bytes(outbox, count);
        self.show_bytes(Direction::Up, id, &bytes);
    }

    /// Shows the first `count` bytes of [`Target::landing`], which have arrived there.
    #[cold]
    pub(super) fn show_landed(&mut self, id: ConnectionId, count: usize) {
        let Some(bytes) = self.landing(id).and_then(|place| Some(place.get(..count)?.to_vec())) else {
            return;
        };
        self.show_bytes(Direction::Down, id, &bytes);
    }

    /// Shows a command that has arrived.
    #[cold]
    pub(super) fn show_command(&mut self, id: ConnectionId, entry: &SubmissionQueueEntry) {
        self.watch.show(self.now, || Seen::Command { connection: Connection::Target(id), entry });
    }
}
