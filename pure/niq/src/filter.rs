//! The assignment of packets of the wire to queues.

use crate::layout::QUEUES;
use crate::registers::FILTERS;

/// A destination address in the order of the wire.
pub(crate) type Address = [u8; 6];

/// Filter bit: the filter is in use.
const VALID: u32 = 1 << 31;

/// One filter, as its two registers hold it.
#[derive(Clone, Copy, Debug, Default)]
struct Filter {
    low: u32,
    high: u32,
}

impl Filter {
    fn queue(self) -> Option<usize> {
        let queue = (self.high >> 16 & 0xff) as usize;
        (self.high & VALID != 0 && queue < QUEUES).then_some(queue)
    }

    const fn address(self) -> Address {
        let ([a, b, c, d], [e, f, ..]) = (self.low.to_le_bytes(), self.high.to_le_bytes());
        [a, b, c, d, e, f]
    }
}

/// The filters of a card.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Filters([Filter; FILTERS]);

impl Filters {
    /// The register `index`, of which each filter has two.
    pub(crate) fn register(&mut self, index: usize) -> Option<&mut u32> {
        let filter = self.0.get_mut(index / 2)?;
        Some(if index.is_multiple_of(2) { &mut filter.low } else { &mut filter.high })
    }

    pub(crate) fn value(&self, index: usize) -> u32 {
        self.0.get(index / 2).map_or(0, |one| if index.is_multiple_of(2) { one.low } else { one.high })
    }

    /// The queue of the first filter that accepts packets to `address`.
    pub(crate) fn queue(&self, address: Address) -> Option<usize> {
        self.0.iter().find_map(|filter| filter.queue().filter(|_| filter.address() == address))
    }
}
