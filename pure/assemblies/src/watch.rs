//! The events of a machine that can be watched: packets, commands, and the bytes of connections.
//!
//! [`Near`](crate::near::Near), [`Guest`](crate::guest::Guest), [`Far`](crate::far::Far),
//! [`User`](crate::vfio_user_client::User), [`Initiator`](crate::initiator::Initiator) and
//! [`Target`](crate::target::Target) show events by the same type. So one watcher fits each of
//! them, live and simulated.

use core::net::SocketAddr;

use engine::Watched;
use nvme::wire::{CommandId, CompletionQueueEntry, QueueId, SubmissionQueueEntry};
use nvme_pcie::host::{Completed, Submission};
use pcie::wire::Packet;
use tunnel::downstream::ConnectionId;
use tunnel::session::Arrival;
use tunnel::upstream::ConnectionIndex;

use crate::near::ControllerIndex;
use crate::{initiator, target};

/// The port of a machine: a host's root port, the link of a far device, or the connections of a
/// fabric or of vfio-user.
#[derive(Debug)]
pub enum Port {}

impl Watched for Port {
    type Seen<'a> = Seen<'a>;
}

/// Which way something passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// From the host to the device.
    Down,
    /// From the device to the host.
    Up,
}

/// A connection of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Connection {
    /// A connection of the host's end.
    Near(ConnectionIndex),
    /// A connection of the device's end.
    Far(ConnectionId),
    /// A connection of a host to a fabric.
    Initiator(initiator::ConnectionId),
    /// A connection of a fabric's target.
    Target(target::ConnectionId),
    /// The connection of a vfio-user client to its server.
    VfioUser,
}

/// The ends of a connection of a fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// Address of the host.
    pub host: SocketAddr,
    /// Address that the host connected to.
    pub controller: SocketAddr,
    /// The queue that the connection is, once its Connect has come.
    pub queue: Option<QueueId>,
}

/// Something that passes the port of a machine.
#[derive(Clone, Copy, Debug)]
pub enum Seen<'a> {
    /// A packet passes between the machine and the link of its port.
    ///
    /// A switch or a tunnel may stand below the port. It answers some packets itself, so the ports
    /// of both ends need not see the same packets.
    Packet {
        /// Which way the packet passes.
        direction: Direction,
        /// The whole packet.
        packet: &'a Packet,
        /// For a packet that came through a tunnel: when it arrived, and the time stamps of
        /// its frame.
        arrival: Option<&'a Arrival>,
    },
    /// A piece of a connection's byte stream is sent or has arrived. A piece may end within a frame
    /// of the tunnel, or within a PDU of the fabric.
    Bytes {
        /// Which way the bytes pass.
        direction: Direction,
        /// The connection that carries the bytes.
        connection: Connection,
        /// The addresses of its ends, if the machine knows them.
        ends: Option<Ends>,
        /// The bytes of this piece.
        bytes: &'a [u8],
    },
    /// The driver of a controller has taken a command of the application.
    Submitted {
        /// The controller that the command is for.
        controller: ControllerIndex,
        /// The identifier that the driver gave the command.
        command: CommandId,
        /// The command, as the application submitted it.
        submission: &'a Submission,
    },
    /// A command is reported to the application as completed.
    Completed {
        /// The controller that the command was for.
        controller: ControllerIndex,
        /// Which command ended, and how.
        completed: &'a Completed,
    },
    /// A command goes to the controller on a fabric's connection, or has arrived there.
    Command {
        /// The connection that carries the command.
        connection: Connection,
        /// The command with its identifier. The host's end may not show where its data are.
        entry: &'a SubmissionQueueEntry,
    },
    /// The response to a command has arrived on a fabric's connection.
    Response {
        /// The connection that carries the response.
        connection: Connection,
        /// The caller's name for the command.
        cookie: u64,
        /// How the command ended.
        entry: &'a CompletionQueueEntry,
    },
}
