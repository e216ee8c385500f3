//! The host's end of a connection of any fabric.

use alloc::boxed::Box;

use engine::{Buffer, Engine, Instant, Outbox};
use nvme::host::{Data, SubmitError};
use nvme::wire::{CommandId, SubmissionQueueEntry};
use nvme_fabrics::transport::{HostEnd, HostOutput};
use nvme_fabrics::wire::QueueId;
use nvme_rdma::host as rdma;
use nvme_tcp::host as tcp;

pub use super::{Pair, Parameters, QueuePairs};

/// The settings of every connection of an initiator.
#[derive(Clone, Debug)]
pub enum Config {
    /// Connections of NVMe/TCP.
    Tcp(tcp::Config),
    /// Connections of NVMe/RDMA by iWARP.
    Iwarp(Iwarp),
    /// Connections of NVMe/RDMA by queue pairs that the world moves.
    Pair(rdma::Config),
}

/// Settings of connections of NVMe/RDMA by iWARP.
#[derive(Clone, Debug)]
pub struct Iwarp {
    /// Settings of NVMe/RDMA.
    pub rdma: rdma::Config,
    /// Settings of the queue pairs.
    pub pairs: QueuePairs,
}

/// A queue that an initiator connects.
#[derive(Clone, Copy, Debug)]
pub struct Queue {
    /// The identifier of the queue.
    pub id: QueueId,
    /// The controller that the queue is of; 0 for an Admin Queue.
    pub controller: u16,
    /// Commands that the queue holds.
    pub size: u16,
    /// Maximum length of the data in a capsule, in bytes.
    pub capsule_data_max: u32,
    /// On an I/O queue, the parameters that were agreed on the Admin Queue.
    pub agreed: Option<Parameters>,
}

impl From<tcp::Config> for Config {
    fn from(tcp: tcp::Config) -> Self {
        Self::Tcp(tcp)
    }
}

impl Config {
    /// These settings for one queue.
    #[must_use]
    pub fn for_queue(&self, queue: Queue) -> Self {
        let Queue { id, controller, size, capsule_data_max, agreed } = queue;
        match self {
            Self::Tcp(tcp) => {
                let agreed = agreed.and_then(Parameters::tcp);
                Self::Tcp(tcp.for_queue(size, capsule_data_max, agreed))
            }
            Self::Iwarp(iwarp) => Self::Iwarp(Iwarp {
                rdma: iwarp.rdma.for_queue(id, controller, size, capsule_data_max),
                ..iwarp.clone()
            }),
            Self::Pair(rdma) => Self::Pair(rdma.for_queue(id, controller, size, capsule_data_max)),
        }
    }

    /// Names the digests that were asked for but that the controller has not agreed to. `None` if
    /// none is missing.
    pub const fn missing_digests(&self, agreed: &Parameters) -> Option<&'static str> {
        match (self, agreed) {
            (Self::Tcp(tcp), Parameters::Tcp(agreed)) => tcp.missing_digests(agreed),
            _ => None,
        }
    }
}

/// Outputs of the connection, for its owner.
pub type Output = HostOutput<Parameters, Closed>;

/// Why a connection is over.
pub type Closed = super::Closed<tcp::Closed>;

/// A host's end of a connection, which carries one queue.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "an owner of many connections keeps each in a box")]
pub enum Connection {
    /// NVMe/TCP.
    Tcp(tcp::Connection),
    /// NVMe/RDMA by iWARP.
    Iwarp(rdma::Connection<iwarp::Connection>),
    /// NVMe/RDMA by a queue pair that the world moves.
    Pair(rdma::Connection<Box<dyn Pair>>),
}

impl Connection {
    methods_of_both_ends!();

    /// Number of commands that have not ended.
    pub fn outstanding(&self) -> u16 {
        each!(self, end => end.outstanding())
    }

    /// A connection that was just made; its first bytes are in the outbox.
    ///
    /// # Panics
    /// When `config` exceeds a limit that its fields name, or is of a queue pair:
    /// see [`Connection::over`].
    pub fn new(now: Instant, config: Config) -> Self {
        match config {
            Config::Tcp(config) => Self::Tcp(tcp::Connection::new(now, config)),
            Config::Iwarp(Iwarp { rdma, pairs }) => {
                let end = pairs.end(rdma.queue_size.saturating_mul(2));
                let end = iwarp::Connection::connect(now, end, &rdma.private_data());
                Self::Iwarp(rdma::Connection::new(now, rdma, end))
            }
            Config::Pair(_) => panic!("the world has the queue pair of such a connection"),
        }
    }

    /// A connection over `pair`, which asks a controller for it with the private data of `config`.
    ///
    /// # Panics
    /// When `config` exceeds a limit that its fields name, or its queue has more commands than the
    /// queue pair takes requests.
    pub fn over(now: Instant, config: rdma::Config, pair: Box<dyn Pair>) -> Self {
        Self::Pair(rdma::Connection::new(now, config, pair))
    }

    /// Sends a command, with identifier and data pointer filled in. [`Output::Completed`] follows.
    ///
    /// # Errors
    /// When the command cannot be taken; it then was not sent.
    ///
    /// # Panics
    /// When the command moves more bytes than the fabric.
    #[inline]
    pub fn submit(
        &mut self,
        cookie: u64,
        entry: SubmissionQueueEntry,
        data: Data,
    ) -> Result<CommandId, SubmitError> {
        each!(self, end => end.submit(cookie, entry, data))
    }

    /// The bytes to send; `None` of a connection that has none.
    #[inline]
    pub fn outbox(&self) -> Option<&Outbox> {
        match self {
            Self::Tcp(end) => Some(end.outbox()),
            Self::Iwarp(end) => Some(end.endpoint().outbox()),
            Self::Pair(_) => None,
        }
    }

    /// Handles everything that has become due.
    pub fn handle_timeout(&mut self, now: Instant) {
        match self {
            Self::Tcp(end) => end.handle_timeout(now),
            Self::Iwarp(end) => end.handle_timeout(now),
            Self::Pair(end) => end.on_time(now),
        }
    }

    /// When [`Connection::handle_timeout`] is due, if ever.
    pub fn poll_timeout(&self) -> Option<Instant> {
        match self {
            Self::Tcp(end) => end.poll_timeout(),
            Self::Iwarp(end) => end.poll_timeout(),
            Self::Pair(end) => end.deadline(),
        }
    }

    /// The next output.
    #[inline]
    pub fn poll_output(&mut self) -> Option<Output> {
        match self {
            Self::Tcp(end) => end.poll_output().map(|output| output.map(Parameters::Tcp, Closed::Tcp)),
            Self::Iwarp(end) => end.poll_output().map(of_rdma),
            Self::Pair(end) => end.poll().map(of_rdma),
        }
    }
}

fn of_rdma(output: rdma::Output) -> Output {
    output.map(Parameters::Rdma, Closed::Rdma)
}
