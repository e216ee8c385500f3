//! What can be watched in a machine: packets, commands, and the bytes of connections.
//!
//! [`Near`](crate::near::Near), [`Guest`](crate::guest::Guest) and [`Far`](crate::far::Far) show
//! the same things by the same type. So one watcher fits each of them, live and simulated.

use engine::{Buffer, Watched};
use nvme::wire::CommandId;
use nvme_pcie::host::{Completed, Submission};
use pcie::wire::Packet;
use tunnel::downstream::ConnectionId;
use tunnel::session::Arrival;
use tunnel::upstream::ConnectionIndex;

use crate::near::ControllerIndex;

/// The port of a machine: a host's root port, or the link of a far device.
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

/// A connection of a machine's tunnels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Connection {
    /// A connection of the host's end.
    Near(ConnectionIndex),
    /// A connection of the device's end.
    Far(ConnectionId),
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
        /// For a packet that came through a tunnel: when it arrived, and the time stamps of its
        /// frame.
        arrival: Option<&'a Arrival>,
    },
    /// A piece of a connection's byte stream is sent or has arrived. The stream is made of the
    /// tunnel's frames; a piece may end within a frame.
    Bytes {
        /// Which way the bytes pass.
        direction: Direction,
        /// The connection that carries the bytes.
        connection: Connection,
        /// The bytes of this piece.
        bytes: &'a Buffer,
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
}
