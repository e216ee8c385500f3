//! Settings, inputs and outputs of a host's end of a connection.

use core::fmt;

use engine::Nanos;
use nvme::wire::CommandId;
use nvme_fabrics::transport::HostOutput;

use crate::connection::{Parameters, check_alignment};
use crate::wire::{Crc32c, Fault, crc32c};
use crate::{ADMIN_CAPSULE_DATA_MAX, QUEUE_SIZE_MAX, R2TS_PER_COMMAND_MAX, SharedPool};

/// Whether a kind of digest is used on a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DigestUse {
    /// The host does not request the digest.
    Off,
    /// The host requests the digest. The connection continues without it if the controller does not
    /// enable it.
    #[default]
    Preferred,
    /// The host requests the digest. The connection ends if the controller does not enable it.
    Required,
}

impl DigestUse {
    /// [`Self::Preferred`] if `wanted` is true, else [`Self::Off`].
    pub const fn preferred_if(wanted: bool) -> Self {
        if wanted { Self::Preferred } else { Self::Off }
    }

    /// Whether the ICReq requests the digest.
    pub const fn is_asked(self) -> bool {
        !matches!(self, Self::Off)
    }

    /// Whether the connection may continue after the controller has or has not `enabled` the
    /// digest.
    const fn allows(self, enabled: bool) -> bool {
        enabled || !matches!(self, Self::Required)
    }
}

/// The settings of a host's end of a connection.
#[derive(Clone, Debug)]
pub struct Config {
    /// The pool for data that are not in one received block.
    pub pool: SharedPool,
    /// The function that computes digests (CRC32C).
    pub crc32c: Crc32c,
    /// Whether header digests are used.
    pub header_digest: DigestUse,
    /// Whether data digests are used.
    pub data_digest: DigestUse,
    /// For an I/O queue: whether header and data digests are used on the Admin Queue. A connection
    /// with other digests ends, because a bit of its ICReq or ICResp may have flipped.
    pub agreed_digests: Option<(bool, bool)>,
    /// Alignment in bytes of data towards the host (HPDA): 4..=128, a multiple of 4.
    pub alignment: u8,
    /// Maximum number of R2Ts of one command that the host accepts at a time (MAXR2T):
    /// 1..=[`R2TS_PER_COMMAND_MAX`].
    pub ready_to_transfer_max: u8,
    /// Maximum number of commands outstanding at a time: 1..=[`QUEUE_SIZE_MAX`].
    pub queue_size: u16,
    /// Maximum length of the data in a capsule, in bytes: IOCCSZ less the entry on an I/O queue,
    /// 8192 on the Admin Queue.
    pub capsule_data_max: u32,
    /// How long the controller may take to answer the ICReq.
    pub initialise_timeout: Nanos,
}

impl Config {
    /// The reason why a connection with these digests must end; `None` if it may continue.
    pub(super) fn refuses(&self, header: bool, data: bool) -> Option<Closed> {
        if self.agreed_digests.is_some_and(|agreed| agreed != (header, data)) {
            return Some(Closed::DigestsDiffer);
        }
        let allowed = self.header_digest.allows(header) && self.data_digest.allows(data);
        (!allowed).then_some(Closed::DigestRefused)
    }

    /// Settings with the usual limits, for an Admin Queue of 32 entries.
    pub fn new(pool: SharedPool) -> Self {
        Self {
            pool,
            crc32c,
            header_digest: DigestUse::Off,
            data_digest: DigestUse::Off,
            agreed_digests: None,
            alignment: 4,
            ready_to_transfer_max: 1,
            queue_size: 32,
            capsule_data_max: ADMIN_CAPSULE_DATA_MAX,
            initialise_timeout: Nanos::from_secs(10),
        }
    }

    /// These settings for a queue of `queue_size` entries and capsules of up to `capsule_data_max`
    /// bytes of data. On an I/O queue, `agreed` has the settings negotiated on the Admin Queue.
    #[must_use]
    pub fn for_queue(&self, queue_size: u16, capsule_data_max: u32, agreed: Option<Parameters>) -> Self {
        let agreed_digests = agreed.map(|agreed| (agreed.header_digest, agreed.data_digest));
        Self { queue_size, capsule_data_max, agreed_digests, ..self.clone() }
    }

    /// Names the requested digests that the controller has not enabled. `None` if none is missing.
    pub const fn missing_digests(&self, agreed: &Parameters) -> Option<&'static str> {
        let header = self.header_digest.is_asked() && !agreed.header_digest;
        let data = self.data_digest.is_asked() && !agreed.data_digest;
        match (header, data) {
            (false, false) => None,
            (true, false) => Some("header digests"),
            (false, true) => Some("data digests"),
            (true, true) => Some("header and data digests"),
        }
    }

    pub(super) fn check(&self) {
        check_alignment(self.alignment);
        let r2ts = usize::from(self.ready_to_transfer_max);
        assert!((1..=R2TS_PER_COMMAND_MAX).contains(&r2ts), "1..={R2TS_PER_COMMAND_MAX} R2Ts of a command");
        assert!((1..=QUEUE_SIZE_MAX).contains(&self.queue_size), "1..={QUEUE_SIZE_MAX} commands");
    }
}

/// An output of the connection for its owner. If a data digest did not match, the success of a
/// completed command becomes Transient Transport Error.
pub type Output = HostOutput<Parameters, Closed>;

/// Why a connection is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// The controller violated the protocol, and an H2CTermReq reports it to the controller.
    ControllerFault(Fault),
    /// The first bytes received are not a controller's PDU, so the peer is something else. An
    /// H2CTermReq is sent nevertheless.
    Stranger(Fault),
    /// The controller reports that the host broke the protocol (C2HTermReq).
    Terminated(Fault),
    /// The controller sent no ICResp in time.
    InitialiseTimeout,
    /// The controller does not enable a digest that is required.
    DigestRefused,
    /// The controller enables other digests than on the Admin Queue.
    DigestsDiffer,
}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ControllerFault(fault) => write!(f, "the controller broke the protocol: {fault}"),
            Self::Stranger(fault) => {
                write!(f, "the peer does not speak NVMe/TCP as a controller: {fault}")
            }
            Self::Terminated(fault) => write!(f, "the controller ended it: {fault}"),
            Self::InitialiseTimeout => f.write_str("the controller sent no ICResp in time"),
            Self::DigestRefused => {
                f.write_str("the controller does not enable the digests that are required")
            }
            Self::DigestsDiffer => {
                f.write_str("the controller enables other digests on an I/O queue than on the Admin Queue")
            }
        }
    }
}

impl core::error::Error for Closed {}

/// Counters since the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Commands sent.
    pub submitted: u64,
    /// Commands that ended.
    pub completed: u64,
    /// Data digests that did not match.
    pub data_digest_errors: u64,
    /// Identifier of the last command that was completed.
    pub last_completed: Option<CommandId>,
}
