//! What passes between an initiator and its world.

use engine::Buffer;
use nvme::wire::CompletionQueueEntry;
use nvme_fabrics::host::multipath::{self, Completed, PathIndex};
use nvme_fabrics::host::{Failure, Loss};
use nvme_fabrics::wire::QueueId;
use nvme_tcp::host as tcp;

/// What an initiator is, apart from its associations.
#[derive(Clone, Debug)]
pub struct Config {
    /// Its paths.
    pub multipath: multipath::Config,
    /// Each of its connections; queue size and capsule are filled in.
    pub connection: tcp::Config,
}

/// Names a connection: the path, the queue, and which time it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId {
    /// The path that it is of.
    pub path: PathIndex,
    /// The queue that it is.
    pub queue: QueueId,
    /// Tells it from those that were there before.
    pub generation: u32,
}

/// What the world tells an initiator.
#[derive(Debug)]
pub enum Input {
    /// What [`Output::Dial`] asked for.
    Connected(ConnectionId),
    /// Bytes from the controller, in order. The block is held as long as data in it are.
    Received {
        /// The connection.
        connection: ConnectionId,
        /// The bytes.
        bytes: Buffer,
    },
    /// Bytes from the controller were received into [`super::Initiator::landing`].
    Landed {
        /// The connection.
        connection: ConnectionId,
        /// How many.
        count: usize,
    },
    /// The connection could not be made, or has ended.
    Closed(ConnectionId),
}

/// What an initiator asks of its world, and tells it.
#[derive(Debug)]
pub enum Output {
    /// Connect to the address of the path.
    Dial(ConnectionId),
    /// Close a connection, or give up dialling it.
    Close {
        /// Which.
        connection: ConnectionId,
        /// What was not sent must not be sent any more, neither by us nor by the system: a command in it may already
        /// have gone another way.
        abort: bool,
        /// The last bytes to be sent, if that is possible at once.
        last: Buffer,
    },
    /// A connection is initialised.
    Initialized(ConnectionId, tcp::Parameters),
    /// One end of a connection broke the protocol.
    ProtocolError(ConnectionId, tcp::Closed),
    /// A path can be used, for the first time or again.
    PathUp(PathIndex),
    /// A path is lost, and tried again.
    PathLost(PathIndex, Loss),
    /// A path is over: given up, or shut down where there is no failure.
    PathEnded(PathIndex, Option<Failure>),
    /// An I/O command has ended.
    Completed(Completed),
    /// An admin command has ended.
    AdminCompleted {
        /// The caller's name for it.
        cookie: u64,
        /// The completion.
        entry: CompletionQueueEntry,
        /// What was read.
        data: Buffer,
    },
    /// A controller reports an event (DW0 of the Asynchronous Event Request).
    Event(PathIndex, u32),
    /// What a controller told about itself has changed.
    IdentityChanged(PathIndex),
}
