//! The commands of a connection.

use engine::Buffer;
use nvme_fabrics::transport::HostCommands;

use crate::R2TS_PER_COMMAND_MAX;
use crate::assembly::Assembly;

/// Commands by identifier.
pub(crate) type Slots = HostCommands<Command>;

/// The data that a command moves, and the progress of the transfer.
#[derive(Debug)]
pub(super) enum Moving {
    Nothing,
    /// Data that the controller requests by R2T.
    Out {
        data: Buffer,
        /// Number of bytes that the controller has requested.
        asked: u32,
        /// Where in the outbox's stream the data of the latest R2Ts end. An R2T is outstanding
        /// until that point was sent.
        ends: [u64; R2TS_PER_COMMAND_MAX],
    },
    /// Data that the controller sends.
    In(Incoming),
}

/// Data that the controller sends.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) data: Assembly,
    /// The data have ended (LAST_PDU).
    pub(super) ended: bool,
}

#[derive(Debug)]
pub(crate) struct Command {
    pub(super) cookie: u64,
    pub(super) moving: Moving,
}
