//! The controller's end of a connection of any fabric.

use alloc::boxed::Box;
use alloc::rc::Rc;
use core::convert::identity;

use engine::{Buffer, Engine, Instant, Outbox, Rng};
use nvme::wire::{CompletionQueueEntry, Status};
use nvme_fabrics::transport::{ControllerEnd, ControllerOutput};
use nvme_rdma::QUEUE_SIZE_MAX;
use nvme_rdma::controller as rdma;
use nvme_tcp::controller as tcp;

pub use nvme_fabrics::transport::{Held, Permission, Queue, Slot};
pub use nvme_tcp::ADMIN_CAPSULE_DATA_MAX;

pub use super::Parameters;
use super::{Pair, QueuePairs};

/// The settings of every connection of a target.
#[derive(Clone, Debug)]
pub struct Config {
    /// Settings of connections of NVMe/TCP.
    pub tcp: tcp::Config,
    /// Settings of connections of NVMe/RDMA.
    pub rdma: rdma::Config,
    /// Settings of the queue pairs of NVMe/RDMA.
    pub pairs: QueuePairs,
}

impl From<tcp::Config> for Config {
    /// The usual settings of NVMe/RDMA beside these of NVMe/TCP, with the same pool.
    fn from(tcp: tcp::Config) -> Self {
        let rdma = rdma::Config::new(Rc::clone(&tcp.pool));
        // A controller lends no memory, so it has no key that could be guessed.
        let pairs = QueuePairs::new(Rc::clone(&tcp.pool), tcp.crc32c, Rng::from_seed(0).into());
        Self { tcp, rdma, pairs }
    }
}

/// Outputs of the connection, for its owner.
pub type Output = ControllerOutput<Parameters, Closed>;

/// Why a connection is over.
pub type Closed = super::Closed<tcp::Closed>;

/// Counters of a connection since its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Commands that have come.
    pub commands: u64,
    /// Commands that the connection itself answered.
    pub refused: u64,
}

/// SGL Support (SGLS) over TCP: SGLs, SGLs longer than the data, in-capsule data at an offset,
/// Transport SGL Data Blocks.
const SGL_SUPPORT_TCP: u32 = 1 << 0 | 1 << 18 | 1 << 20 | 1 << 21;

/// A controller's end of a connection, which carries one queue.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly every connection is one of NVMe/TCP")]
pub enum Connection {
    /// NVMe/TCP.
    Tcp(tcp::Connection),
    /// NVMe/RDMA by iWARP.
    Iwarp(Box<rdma::Connection<iwarp::Connection>>),
    /// NVMe/RDMA by a queue pair that the world moves.
    Pair(Box<rdma::Connection<Box<dyn Pair>>>),
}

impl Connection {
    methods_of_both_ends!();

    /// A connection that was just accepted; see [`tcp::Connection::new`]. Of a fabric without byte
    /// streams it is `pair`, which a host has asked for.
    ///
    /// # Panics
    /// When `config` exceeds a limit that its fields name, or such a fabric comes without a
    /// queue pair.
    pub fn new(now: Instant, fabric: super::Fabric, config: &Config, pair: Option<Box<dyn Pair>>) -> Self {
        match fabric {
            super::Fabric::Tcp => Self::Tcp(tcp::Connection::new(now, config.tcp.clone())),
            super::Fabric::Iwarp => {
                let end = iwarp::Connection::accept(now, config.pairs.end(2 * QUEUE_SIZE_MAX));
                Self::Iwarp(Box::new(rdma::Connection::new(now, config.rdma.clone(), end)))
            }
            super::Fabric::Roce | super::Fabric::Verbs => {
                let end =
                    pair.expect("the acceptor of a connection without a byte stream has its queue pair");
                Self::Pair(Box::new(rdma::Connection::new(now, config.rdma.clone(), end)))
            }
        }
    }

    /// The descriptors that commands may have, as Identify reports them (SGLS).
    pub const fn sgl_support(&self) -> u32 {
        match self {
            Self::Tcp(_) => SGL_SUPPORT_TCP,
            Self::Iwarp(_) | Self::Pair(_) => nvme_rdma::SGL_SUPPORT,
        }
    }

    /// The bytes to send; `None` of a connection that has none.
    #[inline]
    pub fn outbox(&mut self) -> Option<&Outbox> {
        mover!(self, end => Some(end.outbox()), else None)
    }

    /// Whether there are bytes to send.
    #[inline]
    pub fn has_bytes(&mut self) -> bool {
        self.outbox().is_some_and(|outbox| !outbox.is_empty())
    }

    /// Counters since the beginning.
    pub fn statistics(&self) -> Statistics {
        let (commands, refused) = each!(self, end => (end.statistics().commands, end.statistics().refused));
        Statistics { commands, refused }
    }

    /// The next output.
    #[inline]
    pub fn poll_output(&mut self) -> Option<Output> {
        match self {
            Self::Tcp(end) => {
                end.poll_output().map(|output| output.map(Parameters::Tcp, Closed::Tcp, identity))
            }
            Self::Iwarp(end) => end.poll_output().map(of_rdma),
            Self::Pair(end) => end.poll().map(of_rdma),
        }
    }
}

impl ControllerEnd for Connection {
    fn set_queue(&mut self, queue: Queue) {
        each!(self, end => end.set_queue(queue));
    }

    #[inline]
    fn wants_input(&self) -> bool {
        each!(self, end => end.wants_input())
    }

    #[inline]
    fn held(&self) -> Held {
        each!(self, end => end.held())
    }

    fn is_owed_data(&self) -> bool {
        each!(self, end => end.is_owed_data())
    }

    #[inline]
    fn permit(&mut self, permission: Permission) {
        each!(self, end => end.permit(permission));
    }

    fn give_up(&mut self) {
        each!(self, end => end.give_up());
    }

    fn outstanding(&self) -> u16 {
        each!(self, end => end.outstanding())
    }

    #[inline]
    fn pull(&mut self, slot: Slot, length: u32) -> Result<Option<Buffer>, Status> {
        each!(self, end => end.pull(slot, length))
    }

    #[inline]
    fn push(&mut self, slot: Slot, offset: u32, total: u32, data: Buffer) -> Result<(), Status> {
        each!(self, end => end.push(slot, offset, total, data))
    }

    #[inline]
    fn complete(&mut self, slot: Slot, entry: CompletionQueueEntry) {
        each!(self, end => end.complete(slot, entry));
    }
}

fn of_rdma(output: rdma::Output) -> Output {
    output.map(Parameters::Rdma, Closed::Rdma, |never| match never {})
}
