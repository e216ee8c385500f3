//! The host's end of a connection of any fabric.

use alloc::boxed::Box;
use core::fmt;

use engine::{Buffer, Engine, Instant, Outbox};
use nvme::host::{Completed, Data, SubmitError};
use nvme::wire::{CommandId, SubmissionQueueEntry};
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
#[derive(Debug)]
pub enum Output {
    /// The connection is initialised: commands can be submitted.
    Initialized(Parameters),
    /// A command has ended.
    Completed(Completed),
    /// The connection is over: send the contents of the outbox, then close. Nothing follows. How
    /// outstanding commands ended is unknown.
    Closed(Closed),
}

/// Why a connection is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// A connection of NVMe/TCP.
    Tcp(tcp::Closed),
    /// A connection of NVMe/RDMA.
    Rdma(rdma::Closed),
}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(why) => why.fmt(f),
            Self::Rdma(why) => why.fmt(f),
        }
    }
}

impl core::error::Error for Closed {}

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

/// Does the same with whichever connection it is.
macro_rules! each {
    ($connection:expr, $end:ident => $act:expr) => {
        match $connection {
            Connection::Tcp($end) => $act,
            Connection::Iwarp($end) => $act,
            Connection::Pair($end) => $act,
        }
    };
}

/// Does the same with whichever end moves the bytes of a connection, if it has bytes to move.
macro_rules! mover {
    ($connection:expr, $end:ident => $act:expr, else $none:expr) => {
        match $connection {
            Connection::Tcp($end) => $act,
            Connection::Iwarp(connection) => {
                let $end = connection.endpoint_mut();
                $act
            }
            Connection::Pair(_) => $none,
        }
    };
}

impl Connection {
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

    /// Number of commands that have not ended.
    pub fn outstanding(&self) -> u16 {
        each!(self, end => end.outstanding())
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

    /// Whether the queue pair has brought something that [`Connection::poll_output`] has not
    /// looked at.
    pub fn has_news(&self) -> bool {
        matches!(self, Self::Pair(end) if end.endpoint().has_news())
    }

    /// The first `count` bytes of the outbox were sent.
    ///
    /// # Panics
    /// When the outbox has fewer than `count` bytes.
    #[inline]
    pub fn sent(&mut self, count: usize) {
        mover!(self, end => end.sent(count), else ());
    }

    /// Where the next bytes from the controller belong, if they are data that are being assembled.
    /// Report the bytes received there by [`Connection::landed`].
    #[inline]
    pub fn landing(&mut self) -> Option<&mut [u8]> {
        mover!(self, end => end.landing(), else None)
    }

    /// The first `count` bytes of [`Connection::landing`] were received.
    ///
    /// # Panics
    /// When [`Connection::landing`] has fewer than `count` bytes.
    pub fn landed(&mut self, count: usize) {
        mover!(self, end => end.landed(count), else ());
    }

    /// Bytes from the controller, in order.
    #[inline]
    pub fn received(&mut self, now: Instant, bytes: Buffer) {
        match self {
            Self::Tcp(end) => end.handle_input(now, tcp::Input::Received(bytes)),
            Self::Iwarp(end) => end.handle_input(now, iwarp::Input::Received(bytes)),
            Self::Pair(_) => {}
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
            Self::Tcp(end) => Some(match end.poll_output()? {
                tcp::Output::Initialized(agreed) => Output::Initialized(Parameters::Tcp(agreed)),
                tcp::Output::Completed(completed) => Output::Completed(completed),
                tcp::Output::Closed(why) => Output::Closed(Closed::Tcp(why)),
            }),
            Self::Iwarp(end) => end.poll_output().map(Output::from),
            Self::Pair(end) => end.poll().map(Output::from),
        }
    }
}

impl From<rdma::Output> for Output {
    fn from(output: rdma::Output) -> Self {
        match output {
            rdma::Output::Initialized(agreed) => Self::Initialized(Parameters::Rdma(agreed)),
            rdma::Output::Completed(completed) => Self::Completed(completed),
            rdma::Output::Closed(why) => Self::Closed(Closed::Rdma(why)),
        }
    }
}
