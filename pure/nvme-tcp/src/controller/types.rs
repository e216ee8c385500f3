//! What passes between a controller's end of a connection and its world.

use core::fmt;

use engine::{Buffer, Nanos};
use nvme::wire::{CommandId, Status, SubmissionQueueEntry};

use crate::SharedPool;
use crate::wire::{ALIGNMENT_MAX, Crc32c, Fault, MAXH2CDATA_MIN, crc32c};

/// Names a command of a connection from its arrival to its completion: 0..queue size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u16);

/// What a controller's end of a connection is.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where blocks for data that do not stand in one received block are taken from.
    pub pool: SharedPool,
    /// Computes digests.
    pub crc32c: Crc32c,
    /// Header digests are granted to a host that asks for them.
    pub header_digest: bool,
    /// Data digests are granted to a host that asks for them.
    pub data_digest: bool,
    /// Data towards the controller are to start at a multiple of so many bytes (CPDA): 4..=128, a multiple of 4.
    pub alignment: u8,
    /// The most data in one H2CData PDU (MAXH2CDATA), bytes: at least 4096, a multiple of 4.
    pub host_data_max: u32,
    /// The most bytes that one R2T asks for; a longer transfer takes several.
    pub ready_to_transfer_bytes_max: u32,
    /// Bytes asked for by R2Ts at one time, over all commands; further transfers wait. One transfer is always let
    /// through.
    pub pull_bytes_max: u32,
    /// Bytes that may wait for the host to read them, those that commands in flight will bring included; beyond them,
    /// no further command is taken.
    pub backlog_bytes_max: u64,
    /// How long the host may take to send its ICReq.
    pub initialise_timeout: Nanos,
}

impl Config {
    /// The usual limits.
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
        let aligned = self.alignment.is_multiple_of(4) && (4..=ALIGNMENT_MAX).contains(&self.alignment);
        assert!(aligned, "an alignment of 4 to 128 bytes, in double words");
        let host_data = self.host_data_max;
        assert!(host_data >= MAXH2CDATA_MIN && host_data.is_multiple_of(4), "MAXH2CDATA of at least 4096 B");
        let r2t = self.ready_to_transfer_bytes_max;
        assert!(r2t >= 4 && r2t.is_multiple_of(4), "R2Ts of at least 4 B");
    }
}

/// What the Connect command settles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Commands outstanding at once: 1..=1024 ([`crate::QUEUE_SIZE_MAX`]). A host that sends more loses the
    /// connection.
    pub size: u16,
    /// The most data in a capsule, bytes: IOCCSZ less the entry on an I/O queue, 8192 on the Admin Queue.
    pub capsule_data_max: u32,
    /// Whether a read that succeeded needs no response capsule (the SUCCESS flag): only where the host has switched SQ
    /// flow control off.
    pub success_flag: bool,
}

/// What a connection holds for its host, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// What the host is to read, what commands in flight will bring included, and what it has said that was not understood.
    pub to_host: u64,
    /// What the host was asked for, and has sent, for commands that were not completed.
    pub from_host: u64,
}

impl Held {
    /// All of it.
    pub const fn all(self) -> u64 {
        self.to_host + self.from_host
    }
}

/// What a connection may do that takes memory, beside its own limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permission {
    /// Take commands.
    pub commands: bool,
    /// Ask for data of commands that it has; those that it has asked for come all the same.
    pub data: bool,
}

impl Permission {
    /// Everything.
    pub const ALL: Self = Self { commands: true, data: true };
}

/// What the world tells the connection.
#[derive(Debug)]
pub enum Input {
    /// Bytes from the host, in order. The block is held as long as data in it are.
    Received(Buffer),
}

/// What the connection tells its owner.
#[derive(Debug)]
pub enum Output {
    /// The connection is initialised.
    Initialized(Parameters),
    /// A command, with its data if they were in the capsule: [`super::Connection::pull`] gives them out.
    Command {
        /// Its name until it is completed.
        slot: Slot,
        /// The command.
        entry: SubmissionQueueEntry,
    },
    /// The data that [`super::Connection::pull`] asked the host for.
    HostData {
        /// The command.
        slot: Slot,
        /// As many bytes as were asked for.
        data: Buffer,
    },
    /// The data that were pulled came broken; the command is to be completed with `status`.
    HostDataFailed {
        /// The command.
        slot: Slot,
        /// Transient Transport Error.
        status: Status,
    },
    /// The connection is over: send what the outbox holds, then close. Nothing follows.
    Closed(Closed),
}

/// What was agreed upon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// Headers are followed by digests.
    pub header_digest: bool,
    /// Data are followed by digests.
    pub data_digest: bool,
    /// Alignment of data towards the host (HPDA), bytes.
    pub host_alignment: u8,
    /// Alignment of data towards the controller (CPDA), bytes.
    pub controller_alignment: u8,
    /// R2Ts of one command that the host takes at once (MAXR2T).
    pub ready_to_transfer_max: u64,
}

/// Why a connection is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// The host broke the protocol and is told so by a C2HTermReq.
    HostFault(Fault),
    /// The host says that we broke the protocol (H2CTermReq).
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

/// A command whose identifier another outstanding one has; it was answered with Command ID Conflict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Commands that came.
    pub commands: u64,
    /// Commands that were answered here: duplicate identifiers and broken data digests.
    pub refused: u64,
    /// Data digests that did not match.
    pub data_digest_errors: u64,
    /// The last identifier that was used twice.
    pub last_conflict: Option<CommandId>,
}
