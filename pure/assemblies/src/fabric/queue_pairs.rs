//! The queue pairs of one process, by iWARP.

use alloc::rc::Rc;
use core::cell::{Cell, RefCell};

use engine::{Crc32c, Entropy};
use rdma::{ProtectionDomain, QueuePairId, SharedDomain, SharedPool};

/// How queue pairs are made, and the memory that they lend. Clones make queue pairs of the same
/// process.
#[derive(Clone, Debug)]
pub struct QueuePairs {
    domain: SharedDomain,
    pool: SharedPool,
    crc32c: Crc32c,
    /// The number of the next queue pair.
    next: Rc<Cell<u32>>,
}

impl QueuePairs {
    /// Queue pairs that take blocks of `pool` and compute CRCs by `crc32c`. Keys come from
    /// `entropy`.
    pub fn new(pool: SharedPool, crc32c: Crc32c, entropy: Entropy) -> Self {
        let domain = ProtectionDomain::new(ProtectionDomain::REGIONS_MAX, Rc::clone(&pool), entropy);
        Self { domain: Rc::new(RefCell::new(domain)), pool, crc32c, next: Rc::new(Cell::new(1)) }
    }

    /// The settings of one more queue pair, with room for `depth` requests in either direction.
    pub(super) fn end(&self, depth: u16) -> iwarp::Config {
        let number = self.next.get();
        self.next.set(number.wrapping_add(1));
        let id = QueuePairId(number);
        iwarp::Config {
            send_depth: depth,
            receive_depth: depth,
            crc32c: self.crc32c,
            ..iwarp::Config::new(Rc::clone(&self.domain), Rc::clone(&self.pool), id)
        }
    }
}
