//! Measurements of RDMA connections ([`rdma::measure`]), over iWARP, RoCE and devices of this
//! machine: the measuring end ([`Measurement`]) and the measured end ([`Measured`]).

mod client;
mod server;
mod stream;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use engine::Pool;
use rdma::measure::Limits;
use rdma::{ProtectionDomain, QueuePairId, SharedDomain, SharedPool};

pub use client::{Measurement, Way};
pub use rdma::measure::{Failure, Mode, Output, Peer, Step, Test, Verb};
pub use server::Measured;

use super::roce::PathMtu;
use crate::sys::address::zone_of;
use crate::sys::digest::crc32c;
use crate::sys::entropy::system;
use crate::sys::precedence::Precedence;

/// Connections that a server has at a time.
pub const CONNECTIONS_MAX: usize = 64;
/// The most bytes of an iteration.
pub const SIZE_MAX: u32 = 1 << 20;
/// The most requests under way at a time.
pub const DEPTH_MAX: u16 = 1024;
/// The most bytes of blocks that a pool keeps for reuse.
const POOL_BYTES: usize = 16 << 20;
/// Regions of memory that an end lends at a time.
const REGIONS_MAX: usize = 2 * CONNECTIONS_MAX;
/// Send and receive requests of a queue pair: those of a test, and a few more.
const REQUESTS: u16 = DEPTH_MAX + 8;

/// The carrier of a measured connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provider {
    /// iWARP, over a TCP connection.
    Iwarp,
    /// RoCEv2, over UDP datagrams.
    Roce,
    /// Devices of this machine, by libibverbs.
    Verbs,
}

/// The memory of an end.
#[derive(Clone, Debug)]
struct Memory {
    domain: SharedDomain,
    pool: SharedPool,
    /// The number of the next queue pair.
    next: Rc<Cell<u32>>,
}

impl Memory {
    fn new() -> Self {
        let pool: SharedPool = Rc::new(RefCell::new(Pool::new(POOL_BYTES)));
        let domain = ProtectionDomain::new(REGIONS_MAX, Rc::clone(&pool), system());
        Self { domain: Rc::new(RefCell::new(domain)), pool, next: Rc::new(Cell::new(1)) }
    }

    /// The settings of one more queue pair over iWARP.
    fn iwarp(&self) -> iwarp::Config {
        let number = self.next.get();
        self.next.set(number.wrapping_add(1));
        iwarp::Config {
            send_depth: REQUESTS,
            receive_depth: REQUESTS,
            crc32c,
            ..iwarp::Config::new(Rc::clone(&self.domain), Rc::clone(&self.pool), QueuePairId(number))
        }
    }

    /// The device of RoCE at `address`, for packets of up to `mtu`.
    fn roce(&self, address: std::net::SocketAddr, mtu: PathMtu) -> std::io::Result<super::roce::Roce> {
        let config = super::roce::Config {
            mtu,
            send_depth: REQUESTS,
            receive_depth: REQUESTS,
            connections: CONNECTIONS_MAX,
            ..super::roce::Config::new(address.ip())
        };
        let (zone, precedence) = (zone_of(address), Precedence::default());
        super::roce::Roce::open(config, zone, precedence, Rc::clone(&self.domain), Rc::clone(&self.pool))
    }
}

impl Memory {
    /// Devices of this machine.
    fn verbs(&self) -> std::io::Result<super::verbs::Verbs> {
        super::verbs::Verbs::open(REQUESTS, Rc::clone(&self.pool))
    }
}

/// The limits of a server that has `connections`.
const fn limits(connections: usize) -> Limits {
    Limits { size: SIZE_MAX, depth: DEPTH_MAX, busy: connections > CONNECTIONS_MAX }
}
