//! Settings, inputs and outputs of a controller's end of a connection.

use core::fmt;

use engine::Nanos;
use nvme::wire::CommandId;
use nvme_fabrics::transport::ControllerOutput;

use crate::SharedPool;
use crate::connection::{Parameters, check_alignment};
use crate::wire::{Crc32c, Fault, MAXH2CDATA_MIN, crc32c};

/// The settings of a controller's end of a connection.
#[derive(Clone, Debug)]
pub struct Config {
    /// The pool for data that are not in one received block.
    pub pool: SharedPool,
    /// The function that computes digests (CRC32C).
    pub crc32c: Crc32c,
    /// Whether a host that requests header digests gets them.
    pub header_digest: bool,
    /// Whether a host that requests data digests gets them.
    pub data_digest: bool,
    /// Alignment in bytes of data towards the controller (CPDA): 4..=128, a multiple of 4.
    pub alignment: u8,
    /// Maximum length of the data in one H2CData PDU (MAXH2CDATA), in bytes: at least 4096, a
    /// multiple of 4.
    pub host_data_max: u32,
    /// Maximum number of bytes that one R2T requests; a longer transfer takes several. At least 4,
    /// a multiple of 4.
    pub ready_to_transfer_bytes_max: u32,
    /// Limit on the bytes requested by outstanding R2Ts, over all commands; further transfers wait.
    /// One transfer is always permitted.
    pub pull_bytes_max: u32,
    /// Limit on the bytes that wait for the host to read them, including those that commands in
    /// flight will produce. Beyond the limit, the connection accepts no further command.
    pub backlog_bytes_max: u64,
    /// How long the host may take to send its ICReq.
    pub initialise_timeout: Nanos,
}

impl Config {
    /// Settings with the usual limits.
    pub fn new(pool: SharedPool) -> Self {
        Self {
            pool,
            crc32c,
            header_digest: true,
            data_digest: true,
            alignment: 4,
            host_data_max: 1 << 20,
            ready_to_transfer_bytes_max: 1 << 20,
            pull_bytes_max: 8 << 20,
            backlog_bytes_max: 8 << 20,
            initialise_timeout: Nanos::from_secs(10),
        }
    }

    pub(super) fn check(&self) {
        check_alignment(self.alignment);
        let host_data = self.host_data_max;
        assert!(host_data >= MAXH2CDATA_MIN && host_data.is_multiple_of(4), "MAXH2CDATA of at least 4096 B");
        let r2t = self.ready_to_transfer_bytes_max;
        assert!(r2t >= 4 && r2t.is_multiple_of(4), "R2Ts of at least 4 B");
    }
}

/// An output of the connection for its owner. If a data digest of pulled data did not match, it is
/// [`HostDataFailed`](ControllerOutput::HostDataFailed).
pub type Output = ControllerOutput<Parameters, Closed>;

/// Why a connection is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// The host violated the protocol, and a C2HTermReq reports it to the host.
    HostFault(Fault),
    /// The host reports that the controller broke the protocol (H2CTermReq).
    Terminated(Fault),
    /// The host sent no ICReq in time.
    InitialiseTimeout,
}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HostFault(fault) => write!(f, "the host broke the protocol: {fault}"),
            Self::Terminated(fault) => write!(f, "the host ended it: {fault}"),
            Self::InitialiseTimeout => f.write_str("the host sent no ICReq in time"),
        }
    }
}

impl core::error::Error for Closed {}

/// Counters since the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Number of received commands.
    pub commands: u64,
    /// Commands that the connection itself answered, because of duplicate identifiers or broken
    /// data digests.
    pub refused: u64,
    /// Data digests that did not match.
    pub data_digest_errors: u64,
    /// The last identifier that an outstanding command had already; the new command was answered
    /// with Command ID Conflict.
    pub last_conflict: Option<CommandId>,
}
