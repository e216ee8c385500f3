//! What passes between a target and its world.

use alloc::vec::Vec;
use core::fmt;
use core::net::SocketAddr;

use engine::{Buffer, Nanos};
use nvme::media;
use nvme::subsystem::Notification;
use nvme_fabrics::target::{SubsystemKey, Why};
use nvme_fabrics::wire::{ControllerId, Nqn, PortId, QueueId};
use nvme_tcp::controller::{Closed, Parameters};

/// Names a connection while it exists: a small index, chosen by the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u32);

/// What the world tells.
#[derive(Debug)]
pub enum Input {
    /// A host has connected.
    Accepted(Accepted),
    /// Bytes from a host, in order.
    Received {
        /// The connection.
        connection: ConnectionId,
        /// The bytes.
        bytes: Buffer,
    },
    /// A connection is closed, by whomever. Its name is free.
    Closed(ConnectionId),
    /// A medium's answer.
    Media {
        /// The subsystem that asked.
        subsystem: SubsystemKey,
        /// The answer.
        completion: media::Completion,
    },
}

/// A connection that was accepted.
#[derive(Debug)]
pub struct Accepted {
    /// Its name, which no other has.
    pub connection: ConnectionId,
    /// The port through which the host came.
    pub port: PortId,
    /// Where the host is.
    pub peer: SocketAddr,
    /// Where it came to.
    pub local: SocketAddr,
    /// What was said already, to another reactor.
    pub resume: Option<Handover>,
}

/// A connection on its way to another reactor: what its host said, and how much of the answer it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handover {
    /// Everything that was received.
    pub received: Vec<u8>,
    /// Bytes that were sent.
    pub sent: usize,
}

/// What the target asks of the world.
#[derive(Debug)]
pub enum Output {
    /// There is something to send: [`super::Target::outbox`]. Said once, until all of it is sent.
    Send(ConnectionId),
    /// Bytes from the host are wanted again: what waits in the socket is not told of a second time.
    Listen(ConnectionId),
    /// The connection is over: what its outbox holds is to be sent, then it is to be closed, and told by
    /// [`Input::Closed`].
    Close(ConnectionId),
    /// The subsystem that the host wants is another reactor's. The connection is forgotten here.
    HandOver {
        /// The connection; its name is free.
        connection: ConnectionId,
        /// Whose reactor it is to go to.
        subsystem: SubsystemKey,
        /// For [`Accepted::resume`] there.
        handover: Handover,
    },
    /// Ask a medium.
    Media {
        /// The subsystem that asks; media are named by each.
        subsystem: SubsystemKey,
        /// The request.
        request: media::Request,
    },
    /// Something that may be worth remembering has changed.
    Notify {
        /// The subsystem.
        subsystem: SubsystemKey,
        /// What.
        notification: Notification,
    },
    /// Something to tell a person.
    Event(Event),
}

/// A queue, as it was connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueDescription {
    /// Where the host is.
    pub peer: SocketAddr,
    /// Host NQN.
    pub host: Nqn,
    /// The subsystem; none for the discovery subsystem.
    pub subsystem: Option<Nqn>,
    /// The controller.
    pub controller: ControllerId,
    /// The queue.
    pub queue: QueueId,
    /// Its entries.
    pub entries: u16,
    /// Digests and the like.
    pub parameters: Option<Parameters>,
    /// Whether it is without flow control.
    pub without_flow_control: bool,
    /// Keep Alive Timeout.
    pub keep_alive: Option<Nanos>,
}

impl fmt::Display for QueueDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let subsystem = self.subsystem.as_ref().map_or("the discovery service", Nqn::as_str);
        match self.queue.is_admin() {
            true => {
                write!(f, "{} ({}) uses {subsystem}, controller {}", self.host, self.peer, self.controller)?
            }
            false => write!(f, "controller {} of {subsystem} has queue {}", self.controller, self.queue)?,
        }
        write!(f, ", depth {}", self.entries)?;
        let digests =
            self.parameters.map_or((false, false), |agreed| (agreed.header_digest, agreed.data_digest));
        f.write_str(match digests {
            (false, false) => ", no digests",
            (true, false) => ", header digests",
            (false, true) => ", data digests",
            (true, true) => ", header and data digests",
        })?;
        match (self.queue.is_admin(), self.keep_alive) {
            (true, Some(timeout)) => write!(f, ", keep alive {timeout}"),
            (true, None) => f.write_str(", no keep alive"),
            (false, _) => Ok(()),
        }
    }
}

/// Why a connection is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Close {
    /// One end broke the protocol, or was slow.
    Protocol(Closed),
    /// The host sent no Connect command in time.
    NoConnect,
    /// The host sent a Disconnect command.
    Disconnect,
    /// The host has lost the controller, and had it ended through another one.
    CrossControllerReset,
    /// The controller was reset or disabled: its I/O queues are gone.
    Reset,
    /// The Keep Alive Timer has expired.
    KeepAlive,
    /// The host took nothing of what waited for it, or sent nothing of what it was asked for, for too long.
    Unread,
    /// The same, while others waited for the memory.
    Memory,
    /// Nobody used or enabled the controller.
    Idle,
    /// The Admin Queue is gone, and with it the others.
    Association,
    /// The subsystem is no longer offered to the host.
    NotOffered,
    /// The target ends.
    ShuttingDown,
    /// The connection was closed by the host, or has failed.
    Lost,
    /// What the host said is too long for another reactor to begin again with.
    Unmovable,
}

impl fmt::Display for Close {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Protocol(why) => why.fmt(f),
            Self::NoConnect => f.write_str("the host sent no Connect in time"),
            Self::Disconnect => f.write_str("the host has disconnected it"),
            Self::CrossControllerReset => f.write_str("the host has ended it through another controller"),
            Self::Reset => f.write_str("the host has reset the controller"),
            Self::KeepAlive => f.write_str("the host fell silent: its Keep Alive Timeout has passed"),
            Self::Unread => f.write_str("the host reads nothing, or owes data, for 30 s"),
            Self::Memory => {
                f.write_str("the host reads nothing, and others wait for the memory that this takes")
            }
            Self::Idle => f.write_str("nobody uses the controller"),
            Self::Association => f.write_str("the Admin Queue is gone"),
            Self::NotOffered => f.write_str("it is no longer offered"),
            Self::ShuttingDown => f.write_str("the target is shutting down"),
            Self::Lost => f.write_str("the host has gone"),
            Self::Unmovable => f.write_str("the host said too much before its Connect was answered"),
        }
    }
}

/// Something to tell a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A queue was connected.
    Connected(QueueDescription),
    /// A Connect was refused.
    Refused {
        /// Where the host is.
        peer: SocketAddr,
        /// Why.
        why: Why,
    },
    /// A connection without a queue is over.
    Turned {
        /// Where the host is.
        peer: SocketAddr,
        /// Why.
        why: Close,
    },
    /// An association has ended.
    Ended {
        /// Host NQN.
        host: Nqn,
        /// Where its Admin Queue came from.
        peer: Option<SocketAddr>,
        /// The subsystem; none for the discovery subsystem.
        subsystem: Option<Nqn>,
        /// The controller.
        controller: ControllerId,
        /// Why.
        why: Close,
    },
    /// An I/O queue has gone, and the association lasts.
    QueueGone {
        /// The controller.
        controller: ControllerId,
        /// The queue.
        queue: QueueId,
        /// Why.
        why: Close,
    },
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connected(queue) => queue.fmt(f),
            Self::Refused { peer, why } => write!(f, "{peer} was refused: {why}"),
            Self::Turned { peer, why } => write!(f, "{peer}: {why}"),
            Self::Ended { host, peer, subsystem, controller, why } => {
                let subsystem = subsystem.as_ref().map_or("the discovery service", Nqn::as_str);
                write!(f, "{host}")?;
                if let Some(peer) = peer {
                    write!(f, " ({peer})")?;
                }
                write!(f, " has left {subsystem}, controller {controller}: {why}")
            }
            Self::QueueGone { controller, queue, why } => {
                write!(f, "queue {queue} of controller {controller} is gone: {why}")
            }
        }
    }
}
