//! The interface between an initiator and its world.

use alloc::boxed::Box;

use engine::Buffer;
use nvme_fabrics::host::multipath::{self, Completed, PathIndex};
use nvme_fabrics::host::{Failure, Loss};
use nvme_fabrics::wire::QueueId;

use crate::fabric::{Pair, host};

/// The settings of an initiator, apart from its associations.
#[derive(Clone, Debug)]
pub struct Config {
    /// Settings of the paths.
    pub multipath: multipath::Config,
    /// Settings of each connection, if its path has none of its own
    /// ([`super::Initiator::set_connection`]). The initiator fills in queue size, capsule size and
    /// agreed digests.
    pub connection: host::Config,
}

/// Names a connection: its path, its queue, and its generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId {
    /// The path that the connection belongs to.
    pub path: PathIndex,
    /// The queue that the connection carries.
    pub queue: QueueId,
    /// Distinguishes the connection from earlier ones of the same path and queue.
    pub generation: u32,
}

/// Inputs of an initiator.
#[derive(Debug)]
pub enum Input {
    /// The connection that [`Output::Dial`] asked for is open.
    Connected(ConnectionId),
    /// A queue pair asks the controller for the connection that [`Output::Dial`] asked for, with
    /// [`super::Initiator::private_data`].
    Reached {
        /// The connection to make.
        connection: ConnectionId,
        /// Its queue pair.
        pair: Box<dyn Pair>,
    },
    /// There may be news of a queue pair that has no byte stream.
    Stirred(ConnectionId),
    /// Bytes from the controller, in order. The block is held as long as data in it are in use.
    Received {
        /// The connection that received the bytes.
        connection: ConnectionId,
        /// The received bytes, cut anywhere.
        bytes: Buffer,
    },
    /// Bytes from the controller were received into [`super::Initiator::landing`].
    Landed {
        /// The connection that received the bytes.
        connection: ConnectionId,
        /// Number of received bytes.
        count: usize,
    },
    /// The connection could not be made, or has ended.
    Closed(ConnectionId),
}

/// Outputs of an initiator: requests to the world, and events.
#[derive(Debug)]
pub enum Output {
    /// Connect to the address of the path.
    Dial(ConnectionId),
    /// Close a connection, or give up dialling it.
    Close {
        /// The connection to close.
        connection: ConnectionId,
        /// Whether unsent bytes must be dropped, by this process and by the system: a command in
        /// them may already have gone another way.
        abort: bool,
        /// The last bytes to send, if they can be sent at once.
        last: Buffer,
    },
    /// A connection is initialised, with these agreed parameters.
    Initialized(ConnectionId, host::Parameters),
    /// One end of a connection broke the protocol.
    ProtocolError(ConnectionId, host::Closed),
    /// A path can be used, for the first time or again.
    PathUp(PathIndex),
    /// A path is lost; the initiator tries to connect it again.
    PathLost(PathIndex, Loss),
    /// A path has ended for good: given up with this failure, or shut down (`None`).
    PathEnded(PathIndex, Option<Failure>),
    /// An I/O command has ended.
    Completed(Completed),
    /// An admin command has ended.
    AdminCompleted(nvme::host::Completed),
    /// A controller reports an event (DW0 of the Asynchronous Event Request).
    Event(PathIndex, u32),
    /// A controller of this path describes itself differently from before.
    IdentityChanged(PathIndex),
}
