//! Work of an initiator that only a watcher needs.

use core::net::SocketAddr;

use engine::{Instant, Watch};
use nvme::wire::{CompletionQueueEntry, SubmissionQueueEntry};
use nvme_fabrics::host::multipath::PathIndex;
use nvme_fabrics::wire::QueueId;

use super::{ConnectionId, Initiator};
use crate::fabric::first_bytes;
use crate::watch::{Connection, Direction, Ends, Port, Seen};

impl Initiator {
    /// The watchers of the bytes of the connections, the commands that they carry, and the
    /// responses.
    pub const fn watch(&mut self) -> &mut Watch<Port> {
        &mut self.watch
    }

    /// Shows the watchers the ends of a connection that is about to be open: the host at its own
    /// address, and the controller.
    pub fn set_ends(&mut self, id: ConnectionId, host: SocketAddr, controller: SocketAddr) {
        let ends = Ends { host, controller, queue: Some(id.queue) };
        if let Some(one) = self.connection_of(id) {
            one.ends = Some(ends);
        }
    }

    /// Shows a piece of a connection's byte stream.
    #[cold]
    pub(super) fn show_bytes(&mut self, now: Instant, direction: Direction, id: ConnectionId, bytes: &[u8]) {
        let connection = Connection::Initiator(id);
        let ends = self.connection_of(id).and_then(|one| one.ends);
        self.watch.show(now, || Seen::Bytes { direction, connection, ends, bytes });
    }

    /// Shows the first `count` bytes of a connection's outbox, which were sent.
    #[cold]
    pub(super) fn show_sent(&mut self, id: ConnectionId, count: usize) {
        let Some(outbox) = self.outbox(id) else { return };
        let bytes = first_bytes(outbox, count);
        self.show_bytes(self.now, Direction::Down, id, &bytes);
    }

    /// Shows the first `count` bytes of [`Initiator::landing`], which have arrived there.
    #[cold]
    pub(super) fn show_landed(&mut self, now: Instant, id: ConnectionId, count: usize) {
        let Some(bytes) = self.landing(id).and_then(|place| Some(place.get(..count)?.to_vec())) else {
            return;
        };
        self.show_bytes(now, Direction::Up, id, &bytes);
    }

    /// Shows a command that a connection has taken.
    #[cold]
    pub(super) fn show_command(
        &mut self,
        now: Instant,
        path: PathIndex,
        queue: QueueId,
        entry: &SubmissionQueueEntry,
    ) {
        let connections = self.connections.get(usize::from(path.0));
        let connection = connections.and_then(|all| all.get(usize::from(queue.0))?.as_ref());
        let Some(id) = connection.map(|one| one.id) else { return };
        self.watch.show(now, || Seen::Command { connection: Connection::Initiator(id), entry });
    }

    /// Shows a response that has arrived.
    #[cold]
    pub(super) fn show_response(
        &mut self,
        now: Instant,
        id: ConnectionId,
        cookie: u64,
        entry: &CompletionQueueEntry,
    ) {
        self.watch.show(now, || Seen::Response { connection: Connection::Initiator(id), cookie, entry });
    }
}
