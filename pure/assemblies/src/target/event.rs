//! What passes between a target and its world.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::net::SocketAddr;

use engine::{Buffer, Nanos};
use nvme::media;
use nvme::subsystem::{ControllerKey, Notification};
use nvme_fabrics::authentication::{Authenticated, Failure, Product, Work};
use nvme_fabrics::target::{SubsystemKey, Why, WorkId};
use nvme_fabrics::tls::Identity;
use nvme_fabrics::wire::{ControllerId, Nqn, PortId, QueueId};

use super::lanes::{ReactorId, Ticket, ToHome, ToLane};
use crate::fabric::controller::{Closed, Parameters};
use crate::fabric::{Fabric, Pair};

/// Names a connection while it exists: a small index, chosen by the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u32);

/// The events that the world reports to the target.
#[derive(Debug)]
pub enum Input {
    /// A host has connected.
    Accepted(Accepted),
    /// A host has proved by TLS who it is, before anything else that it says.
    Proved {
        /// The connection of the host.
        connection: ConnectionId,
        /// What the host has proved.
        identity: Identity,
    },
    /// Bytes from a host, in order.
    Received {
        /// The connection that received the bytes.
        connection: ConnectionId,
        /// The received bytes, cut anywhere.
        bytes: Buffer,
    },
    /// There may be news of a queue pair that has no byte stream.
    Stirred(ConnectionId),
    /// A connection was closed, by either end. Its name is free.
    Closed(ConnectionId),
    /// A piece of work of [`Output::Work`] is done.
    Worked {
        /// The piece of work.
        id: WorkId,
        /// What has come of it.
        product: Product,
        /// How much of a processor's time it took.
        spent: Nanos,
    },
    /// A message of a subsystem's home for the lane that is here.
    FromHome {
        /// The subsystem.
        subsystem: SubsystemKey,
        /// The message.
        message: ToLane,
    },
    /// A message of a lane to the subsystem, whose home is here.
    FromLane {
        /// The subsystem.
        subsystem: SubsystemKey,
        /// The reactor that has the lane.
        reactor: ReactorId,
        /// The message.
        message: ToHome,
    },
    /// A medium's answer.
    Media {
        /// The subsystem that asked.
        subsystem: SubsystemKey,
        /// The answer of the medium.
        completion: media::Completion,
    },
}

/// A connection that was accepted.
#[derive(Debug)]
pub struct Accepted {
    /// Name of the connection, unique among the existing ones.
    pub connection: ConnectionId,
    /// The port through which the host came.
    pub port: PortId,
    /// What carries the connection.
    pub fabric: Fabric,
    /// Address of the host.
    pub peer: SocketAddr,
    /// Address that the host connected to.
    pub local: SocketAddr,
    /// What the host has proved by TLS already.
    pub proved: Option<Identity>,
    /// What host and target have exchanged already, if another reactor had the connection before.
    pub resume: Option<Handover>,
    /// The queue pair that the host has asked for, of a fabric without byte streams. No other
    /// reactor can take such a connection.
    pub pair: Option<Box<dyn Pair>>,
}

/// A connection on its way to another reactor: what its host said, and how much of the answer the
/// host has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handover {
    /// All bytes received from the host so far. Something was sent between two pieces.
    pub received: Vec<Vec<u8>>,
    /// Number of bytes sent to the host so far.
    pub sent: usize,
    /// The queue that the connection becomes in a lane; `None` if the other reactor is the
    /// subsystem's home, which decides on the Connect.
    pub ticket: Option<Ticket>,
}

/// What the target asks of the world.
#[derive(Debug)]
pub enum Output {
    /// There is something to send: see [`super::Target::outbox`]. Output once, and again only after
    /// the outbox was sent empty.
    Send(ConnectionId),
    /// Bytes from the host are wanted again. Bytes that already wait in the socket raise no
    /// further event.
    Listen(ConnectionId),
    /// The connection is over. Send what its outbox holds, then close the connection and
    /// report [`Input::Closed`].
    Close(ConnectionId),
    /// The connection is over, and others need its place. Close it at once, without sending
    /// anything, and report [`Input::Closed`].
    Drop(ConnectionId),
    /// The host of a connection has proved who it is, or need not. Until then the connection is a
    /// stranger's, which must not take the time of hosts.
    Admitted(ConnectionId),
    /// Do this work, which takes up to tens of milliseconds of a processor's time, beside
    /// everything else, and report [`Input::Worked`]. There is one piece at a time, and only after
    /// [`super::Target::work_outside`].
    Work {
        /// The piece of work.
        id: WorkId,
        /// The work.
        work: Work,
    },
    /// The subsystem that the host wants belongs to another reactor, or a lane on another reactor
    /// has the queue from now on. This target has forgotten the connection.
    HandOver {
        /// The connection to hand over; its name is free.
        connection: ConnectionId,
        /// The subsystem that the connection is for.
        subsystem: SubsystemKey,
        /// The reactor whose lane takes the connection; `None` for the subsystem's home.
        lane: Option<ReactorId>,
        /// What the other reactor needs for [`Accepted::resume`].
        handover: Handover,
    },
    /// Send a message to a reactor that has a lane of a subsystem, after everything that was output
    /// for that reactor before.
    ToLane {
        /// The subsystem, whose home is here.
        subsystem: SubsystemKey,
        /// The reactor of the lane.
        reactor: ReactorId,
        /// The message.
        message: ToLane,
    },
    /// Send a message to the home of a subsystem, after everything that was output for it before.
    ToHome {
        /// The subsystem.
        subsystem: SubsystemKey,
        /// The message.
        message: ToHome,
    },
    /// A request to a medium, of a command that has ended, belongs to no controller any more.
    Disowned {
        /// The subsystem that asked.
        subsystem: SubsystemKey,
        /// The name of the request.
        request: media::IoId,
    },
    /// Ask a medium.
    Media {
        /// The subsystem that asks. Each subsystem names its media for itself.
        subsystem: SubsystemKey,
        /// The controller whose command asks, if the order between controllers is left to the
        /// media ([`super::Target::allow_lanes`]).
        owner: Option<ControllerKey>,
        /// The request to the medium.
        request: media::Request,
    },
    /// Something that may be worth remembering has changed.
    Notify {
        /// The subsystem in which the change happened.
        subsystem: SubsystemKey,
        /// What has changed.
        notification: Notification,
    },
    /// An event for a person to read.
    Event(Event),
}

/// A queue, as it was connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueDescription {
    /// Address of the host.
    pub peer: SocketAddr,
    /// Host NQN.
    pub host: Nqn,
    /// NQN of the subsystem; `None` for the discovery subsystem.
    pub subsystem: Option<Nqn>,
    /// Identifier of the controller.
    pub controller: ControllerId,
    /// Identifier of the queue.
    pub queue: QueueId,
    /// Size of the queue in entries.
    pub entries: u16,
    /// The agreed parameters of the connection, such as digests.
    pub parameters: Option<Parameters>,
    /// Whether submission queue flow control is disabled.
    pub without_flow_control: bool,
    /// Keep Alive Timeout of the association; `None` if it has none.
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
        if let Some(parameters) = &self.parameters {
            write!(f, ", {parameters}")?;
        }
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
    /// The host has lost the controller, and ended it through another controller.
    CrossControllerReset,
    /// The controller was reset or disabled, so its I/O queues are gone.
    Reset,
    /// The Keep Alive Timer has expired.
    KeepAlive,
    /// For too long, the host took nothing of what waited for it, or sent nothing of the data it
    /// was asked for.
    Unread,
    /// The host took or sent nothing for a short time, while others waited for the memory that
    /// it held.
    Memory,
    /// The host did not authenticate.
    Unauthenticated(Failure),
    /// No host used or enabled the controller.
    Idle,
    /// The Admin Queue is gone, and the other queues with it.
    Association,
    /// The subsystem is no longer offered to the host.
    NotOffered,
    /// Another connection of the host has proved that the queue is its own.
    Replaced,
    /// Too many connections wait whose hosts have not proved who they are.
    Crowded,
    /// The target shuts down.
    ShuttingDown,
    /// The host closed the connection, or the connection has failed.
    Lost,
    /// The host said more before its Connect than can be handed over to another reactor.
    Unmovable,
    /// The reactor of the queue has failed.
    LaneFailed,
    /// The thread of the queue serves the subsystem no longer.
    LaneEnded,
    /// The host now has a limit on its rate, so the home of the subsystem takes the queue.
    Limited,
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
            Self::Unauthenticated(Failure::TimedOut) => f.write_str("the host did not authenticate in time"),
            Self::Unauthenticated(_) => f.write_str("the authentication failed"),
            Self::Idle => f.write_str("no host uses the controller"),
            Self::Association => f.write_str("the Admin Queue is gone"),
            Self::Replaced => f.write_str("the host has connected it again"),
            Self::Crowded => f.write_str("too many connections wait for a proof of who they are"),
            Self::NotOffered => f.write_str("it is no longer offered"),
            Self::ShuttingDown => f.write_str("the target is shutting down"),
            Self::Lost => f.write_str("the host has gone"),
            Self::Unmovable => f.write_str(
                "the host said too much before its Connect was answered, or came by RoCE to a subsystem of \
                 another core: start the target again",
            ),
            Self::LaneFailed => f.write_str("the thread of the queue has failed"),
            Self::LaneEnded => {
                f.write_str("another thread is to serve the queue: the host connects it again")
            }
            Self::Limited => f.write_str("the host has a limit on its rate now, and connects it again"),
        }
    }
}

/// An event for a person to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A queue was connected.
    Connected(QueueDescription),
    /// A Connect was refused.
    Refused {
        /// Address of the host.
        peer: SocketAddr,
        /// Why the Connect was refused.
        why: Why,
    },
    /// The host of a queue has authenticated.
    Authenticated {
        /// Address of the host.
        peer: SocketAddr,
        /// Host NQN.
        host: Nqn,
        /// Identifier of the controller.
        controller: ControllerId,
        /// The queue that was authenticated.
        queue: QueueId,
        /// What both ends have agreed on.
        agreed: Authenticated,
    },
    /// An authentication has failed.
    NotAuthenticated {
        /// Address of the host.
        peer: SocketAddr,
        /// Host NQN, as the host has given it.
        host: Nqn,
        /// The queue that was to be authenticated.
        queue: QueueId,
        /// Why the authentication has failed.
        why: Failure,
        /// Where the target has the host's secret from.
        origin: String,
    },
    /// A connection without a queue is over.
    Turned {
        /// Address of the host.
        peer: SocketAddr,
        /// Why the connection is over.
        why: Close,
    },
    /// All places of connections are taken whose hosts have not authenticated: the oldest are
    /// closed for others. Reported once until that has ceased for a minute.
    Crowded {
        /// Address of the connection that was closed first.
        peer: SocketAddr,
    },
    /// An association has ended.
    Ended {
        /// Host NQN.
        host: Nqn,
        /// Address from which the Admin Queue came, if known.
        peer: Option<SocketAddr>,
        /// NQN of the subsystem; `None` for the discovery subsystem.
        subsystem: Option<Nqn>,
        /// Identifier of the controller.
        controller: ControllerId,
        /// Why the association has ended.
        why: Close,
    },
    /// An I/O queue has gone; its association lasts.
    QueueGone {
        /// Identifier of the controller.
        controller: ControllerId,
        /// Identifier of the queue.
        queue: QueueId,
        /// Why the queue has gone.
        why: Close,
    },
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connected(queue) => queue.fmt(f),
            Self::Refused { peer, why } => write!(f, "{peer} was refused: {why}"),
            Self::Authenticated { peer, host, controller, queue, agreed } => {
                write!(f, "{host} ({peer}), controller {controller}, queue {queue}: {agreed}")
            }
            Self::NotAuthenticated { peer, host, queue, why, origin } => {
                write!(f, "{host} ({peer}) was not let in, queue {queue}: {why}")?;
                if origin.is_empty() { Ok(()) } else { write!(f, " (its secret here: {origin})") }
            }
            Self::Crowded { peer } => write!(
                f,
                "too many connections have not authenticated: the oldest are closed for others, first \
                 that of {peer} (farlane target status counts them)"
            ),
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
